"""The fit of several tables: the rows of each, then what is released of each relationship.

Source: arXiv 2405.18670, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloister.arrays import Floats
from cloister.models.protocol import AnySynthesizer, DatabaseDoor
from cloister.models.relational.answers import Answers
from cloister.models.relational.candidates import Workload, candidates
from cloister.models.relational.constraints.pair_keys import distinct_pairs
from cloister.models.relational.drawing import Drawing
from cloister.models.relational.link import Link, Measured
from cloister.models.relational.model import RelationalModel
from cloister.models.relational.parts import Parts, parts_across
from cloister.models.relational.plan import RelationalParameters
from cloister.models.relational.rows import tasks_of_rows, train_rows, with_counted_rows
from cloister.models.relational.schedule import DEGREES, MEAN_NOISE, MEASURE, SELECT, LinkNoise
from cloister.models.several_tables import LabelledDoor
from cloister.models.task import DatabaseTask, Plan
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.distances import Candidate, CandidateScores
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.domain import Cells
from cloister.schema.relations import (
    ForeignKey,
    degree_column,
    degree_table,
    earlier_keys,
    joined_table,
    rows_domain,
)

_POOL = 4_096
"""Rows of each table that are drawn to make parts and answers: their error is below the noise."""

_SEED = 20_261_123
"""Public seed of those rows."""


def train_relational(
    base: AnySynthesizer,
    private: DatabaseDoor,
    task: DatabaseTask,
    plan: Plan[RelationalParameters],
) -> RelationalModel:
    """The models of the rows of all tables, then the relationships between them."""
    parameters = plan.parameters
    rows = with_counted_rows(private, tasks_of_rows(task), parameters.counts)
    models = train_rows(base, private, rows, parameters.plans)
    rng = SamplingSource(_SEED)
    pools = Drawing(task.schema, rng.generator, distinct_pairs(task))
    links: dict[str, Link] = {}
    for name in task.schema.tables:
        places = pools.places(name)
        number = min(_POOL, task.tables[name].data_rows, _POOL if places is None else places)
        model = models.get(name)
        pools.add(name, model.sample(number, rng) if model else None, number)
        for key in task.schema.parents_of(name):
            link = joined_table(key)
            fit = _LinkFit(private, key, parameters.links[link], pools, links)
            links[link] = fit.fit()
            pools.relate(links[link])
    return RelationalModel(base.name, task, rows, models, links)


def weigh_relational(
    base: AnySynthesizer,
    private: DatabaseDoor,
    plan: Plan[RelationalParameters],
    model: RelationalModel,
) -> RelationalModel:
    """The model with the soft constraints of each table weighed."""
    weighed = {
        name: base.weigh(
            LabelledDoor(private.table(name), name),
            model.rows[name],
            plan.parameters.plans[name],
            own,
        )
        for name, own in model.models.items()
    }
    return replace(model, models=weighed)


@dataclass(frozen=True)
class _LinkFit:
    """One relationship, whose degrees are counted first; ``links`` are those before it."""

    private: DatabaseDoor
    key: ForeignKey
    noise: LinkNoise
    pools: Drawing
    links: dict[str, Link]

    def fit(self) -> Link:
        """The link after all rounds."""
        link = Link(self.key, self._degrees(), self._parts())
        left = list(candidates(self.pools.schema, self.key, self.noise.ways))
        for picks in self.noise.rounds:
            chosen = self._choose(link, left, picks)
            left = [workload for workload in left if workload not in chosen]
            new = [self._measure(link, workload) for workload in chosen]
            link = link.with_measured(new)
            self._inform(new)
        return link

    def _inform(self, new: Sequence[Measured]) -> None:
        """Tell the first key of rows without attributes which parents they have.

        The rows of the pool are related by it again.
        """
        if rows_domain(self.pools.schema, self.key.table).modelled:
            return
        for earlier in earlier_keys(self.pools.schema, self.key):
            name, own = joined_table(earlier), f"{earlier.column}: "
            first = self.links[name]
            of_first = [
                table.of_children()
                for table in new
                if all(child.startswith(own) for child in table.workload.child)
            ]
            self.links[name] = first.with_measured(of_first)
            self.pools.relate(self.links[name])

    @property
    def _door(self) -> Door[TableRows]:
        name = joined_table(self.key)
        return LabelledDoor(self.private.table(name), name)

    def _degrees(self) -> Floats:
        """The distribution of degrees (max_rows + 1,).

        Privacy: a partition of the parents.
        """
        parts = Cells(degree_column(self.key), np.arange(self.key.max_rows + 1))
        door = LabelledDoor(self.private.table(degree_table(self.key)), joined_table(self.key))
        counts = door.answer(PartitionCounts((parts,)), self.noise.degrees, DEGREES)
        positive = _nearest_counts(counts.astype(np.float64))
        return positive / positive.sum()

    def _parts(self) -> dict[str, Parts]:
        parents, children, _ = self.pools.sides(self.key)
        codes = {**parents.codes, **children.codes}
        return parts_across(self.pools.schema, self.key, codes)

    def _choose(self, link: Link, left: list[Workload], picks: int) -> list[Workload]:
        """The joint tables of one round, by how far they are from the answers so far.

        Privacy: selections among distances of partitions of the joined rows.
        """
        if self.noise.selection is None:
            return left
        chosen: list[Workload] = []
        assert self.noise.tables is not None
        parents, children, _ = self.pools.sides(self.key)
        expected = Answers(link, parents, children).of(left)
        scale = self.noise.tables.scale(self._door.neighbours.partition)
        scored = [
            Candidate(_partitions(link, workload), table, MEAN_NOISE * scale * table.size)
            for workload, table in zip(left, expected, strict=True)
        ]
        for _ in range(picks):
            open_ = [at for at, workload in enumerate(left) if workload not in chosen]
            query = CandidateScores(tuple(scored[at] for at in open_))
            chosen.append(left[open_[self._door.answer(query, self.noise.selection, SELECT)]])
        return chosen

    def _measure(self, link: Link, workload: Workload) -> Measured:
        """One noisy joint table.

        Privacy: a partition of the joined rows.
        """
        assert self.noise.tables is not None
        query = PartitionCounts(_partitions(link, workload))
        return Measured(workload, self._door.answer(query, self.noise.tables, MEASURE))


def _partitions(link: Link, workload: Workload) -> tuple[Parts, ...]:
    return tuple(link.parts[name] for name in workload.names)


def _nearest_counts(noisy: Floats) -> Floats:
    """The nearest counts (n,) that are not negative, of the same sum where that is positive."""
    total = max(float(noisy.sum()), 1.0)
    falling = -np.sort(-noisy)
    levels = (np.cumsum(falling) - total) / np.arange(1, len(noisy) + 1)
    return np.maximum(noisy - levels[np.flatnonzero(falling > levels)[-1]], 0.0)
