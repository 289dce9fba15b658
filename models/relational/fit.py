"""The fit of several tables: the rows of each, then what is released of each relationship.

Source: arXiv 2405.18670, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cloister.arrays import Floats
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.candidate_scores import Candidate, CandidateScores
from cloister.privacy.queries.partition_counts import PartitionCounts
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.cells import Cells
from cloister.schema.database import ForeignKey
from cloister.schema.domain import Table
from cloister.schema.joins import (
    degree_column,
    degree_table,
    joined_column,
    joined_table,
)
from models.protocol import AnySynthesizer, DatabaseDoor, Model, Plan
from models.relational.candidates import Workload, workloads
from models.relational.link import Link, Measured
from models.relational.model import RelationalModel
from models.relational.parts import Parts, parts_by
from models.relational.plan import (
    DEGREES,
    MEAN_NOISE,
    MEASURE,
    SELECT,
    LinkNoise,
    RelationalParameters,
    tasks_of_rows,
)
from models.relational.profiles import MOST_UNKNOWNS, Problem, Profiles
from models.several_tables import LabelledDoor
from models.task import DatabaseTask

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
    rows, parameters = tasks_of_rows(task), plan.parameters
    models: dict[str, Model] = {
        name: base.train(LabelledDoor(private.table(name), name), rows[name], own)
        for name, own in parameters.plans.items()
    }
    links: dict[str, Link] = {}
    for key in task.schema.keys:
        pools = {
            name: models[name].sample(min(_POOL, rows[name].output_rows), SamplingSource(_SEED))
            for name in (key.parent, key.table)
        }
        links[key.table] = _LinkFit(private, key, parameters.links[key.table], pools).fit()
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
    """One relationship, whose degrees are counted first."""

    private: DatabaseDoor
    key: ForeignKey
    noise: LinkNoise
    pools: Mapping[str, Table]

    def fit(self) -> Link:
        """The link after all rounds."""
        link = Link(self.key, self._degrees(), self._parts())
        names = [
            [joined_column(table, rows.domain[name]).name for name in rows.domain.modelled]
            for table, rows in self.pools.items()
        ]
        left = list(workloads(*names))
        for picks in self.noise.rounds:
            chosen = self._choose(link, left, picks)
            left = [workload for workload in left if workload not in chosen]
            link = link.with_measured(*(self._measure(link, workload) for workload in chosen))
        return link

    @property
    def _door(self) -> Door[TableRows]:
        name = joined_table(self.key)
        return LabelledDoor(self.private.table(name), name)

    def _degrees(self) -> Floats:
        """The distribution of degrees (max_rows + 1,).

        Privacy: a partition of the parents.
        """
        name, column = degree_table(self.key), degree_column(self.key)
        parts = Cells(column, np.arange(self.key.max_rows + 1))
        query = PartitionCounts((parts,))
        door = LabelledDoor(self.private.table(name), joined_table(self.key))
        counts = door.answer(query, self.noise.degrees, DEGREES).astype(np.float64)
        positive = _nearest_counts(counts)
        return positive / positive.sum()

    def _parts(self) -> dict[str, Parts]:
        found = {}
        for table, rows in self.pools.items():
            for name in rows.domain.modelled:
                column = joined_column(table, rows.domain[name])
                found[column.name] = parts_by(column, rows.codes[name])
        return found

    def _choose(self, link: Link, left: list[Workload], picks: int) -> list[Workload]:
        """The joint tables of one round, by how far they are from the answers so far.

        Privacy: selections among distances of partitions of the joined rows.
        """
        if self.noise.selection is None:
            return left
        chosen: list[Workload] = []
        expected = _Answers(link, self.pools).of(left)
        scale = self.noise.tables.scale(self._door.neighbours.partition)
        candidates = [
            Candidate(_partitions(link, workload), table, MEAN_NOISE * scale * table.size)
            for workload, table in zip(left, expected, strict=True)
        ]
        for _ in range(picks):
            open_ = [at for at, workload in enumerate(left) if workload not in chosen]
            query = CandidateScores(tuple(candidates[at] for at in open_))
            chosen.append(left[open_[self._door.answer(query, self.noise.selection, SELECT)]])
        return chosen

    def _measure(self, link: Link, workload: Workload) -> Measured:
        """One noisy joint table.

        Privacy: a partition of the joined rows.
        """
        query = PartitionCounts(_partitions(link, workload))
        return Measured(workload, self._door.answer(query, self.noise.tables, MEASURE))


def _partitions(link: Link, workload: Workload) -> tuple[Parts, ...]:
    return tuple(link.parts[name] for name in (*workload.parent, *workload.child))


def _nearest_counts(noisy: Floats) -> Floats:
    """The nearest counts (n,) that are not negative, of the same sum where that is positive."""
    total = max(float(noisy.sum()), 1.0)
    falling = -np.sort(-noisy)
    levels = (np.cumsum(falling) - total) / np.arange(1, len(noisy) + 1)
    return np.maximum(noisy - levels[np.flatnonzero(falling > levels)[-1]], 0.0)


class _Answers:
    """What the relationships so far say of joint tables, in rows: by drawn rows of both tables."""

    def __init__(self, link: Link, pools: Mapping[str, Table]) -> None:
        self._link = link
        parents, children = self._small_enough(*pools.values())
        self._problem: Problem = link.problem(parents, children)
        self._shares = self._problem.shares(self._problem.solve())
        self._total = link.total() if link.measured else link.mean * pools[link.key.parent].rows
        self._parts = {
            joined_column(table, rows.domain[name]).name: link.parts[
                joined_column(table, rows.domain[name]).name
            ].of(rows.codes[name])
            for table, rows in ((link.key.parent, parents), (link.key.table, children))
            for name in rows.domain.modelled
        }

    def of(self, tables: list[Workload]) -> list[Floats]:
        """The expected counts of joint tables, one axis an attribute."""
        found = []
        for workload in tables:
            parents = self._within(workload.parent, self._problem.parents)
            children = self._within(workload.child, self._problem.children)
            shape = [self._link.parts[name].size for name in (*workload.parent, *workload.child)]
            table = parents @ self._shares @ children.T
            found.append(self._total * table.reshape(shape))
        return found

    def _within(self, names: tuple[str, ...], profiles: Profiles) -> Floats:
        """The share (cells, profiles) of each joint part among the rows of each profile."""
        joint = np.zeros(len(profiles.of_rows), dtype=np.int64)
        cells = 1
        for name in names:
            size = self._link.parts[name].size
            joint, cells = joint * size + self._parts[name], cells * size
        flat = joint * profiles.number + profiles.of_rows
        counts = np.bincount(flat, minlength=cells * profiles.number)
        return np.asarray(counts.reshape(cells, profiles.number) / profiles.counts)

    def _small_enough(self, parents: Table, children: Table) -> tuple[Table, Table]:
        while True:
            problem = self._link.problem(parents, children)
            if problem.parents.number * problem.children.number <= MOST_UNKNOWNS:
                return parents, children
            parents = parents.take(np.arange(max(parents.rows // 2, 1)))
            children = children.take(np.arange(max(children.rows // 2, 1)))
