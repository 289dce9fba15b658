"""A fitted model of several tables, and its fit; released statistics only.

The rows of each table are fitted first, then each relationship.

Source: arXiv 2405.18670, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats
from cloister.models.core.bins import Histogram
from cloister.models.protocol import (
    AnySynthesizer,
    Arrays,
    CountedRows,
    DatabaseDoor,
    Model,
    counted_rows,
    part_of_arrays,
)
from cloister.models.relational import link_plan, profiles
from cloister.models.relational import rows as row_models
from cloister.models.relational.constraints import distinct_pairs, rules_across
from cloister.models.relational.degrees import DegreeGroups
from cloister.models.relational.likeness import released_ratios
from cloister.models.relational.link import Answers, Drawing, Link, Measured
from cloister.models.relational.plan import RelationalParameters
from cloister.models.task import DatabaseTask, Plan, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.distances import Candidate, ConditionalScores
from cloister.privacy.queries.query import Door, TableRows
from cloister.privacy.queries.transformations import LabelledDoor
from cloister.schema import relations
from cloister.schema.partition import Partition, declared_cells

_ROWS = "the rows of each table are drawn by a model of that table alone"

_COUNTED = (
    "shares of values are of the noisy number of rows, drawn to the declared one as far as noise "
    "explains the difference"
)

_NUMBERED = "keys are numbered afresh, and name no row of the data"

_DEGREES = (
    "noisy counts of how many rows refer to one are made a distribution, by which each synthetic "
    "row gets its number of rows that refer to it"
)

_MATCHED = (
    "noisy joint tables across a foreign key are fitted by projected gradient over pairs of kinds "
    "of rows, rounded without bias, and rows of each kind are matched at random; each row refers "
    "to exactly one"
)

_ALIKE = (
    "rows exchange the rows that they refer to, so that two of one are as alike as noisy counts of "
    "pairs say; joint tables across the key stay as they were"
)

_MOVED = "a row for which no place is left takes a free one, the likeliest by those tables"

_KEPT = (
    "for constraints across a foreign key rows exchange the rows that they refer to; what no "
    "exchange helps moves to a free place, takes the attributes of another synthetic row, or is "
    "left out"
)

_DROPPED = (
    "of a table to itself, a reference that violates a constraint across it is dropped, and the "
    "row keeps its attributes"
)

_ROOTED = "no row is above itself: of such circles rows exchange or lose what they refer to"

_POOL = 4_096
"""Rows of each table drawn to make parts and answers: their sampling error is below the noise."""

_SEED = 20_261_123
"""Public seed of those rows."""


@dataclass(frozen=True)
class RelationalModel:
    """The models of the rows of tables, and the relationships between them.

    ``base`` is the method of rows, ``rows`` are the tasks of its models, of all tables that have
    attributes; a link has the name of its joined table.
    """

    base: str
    task: DatabaseTask
    rows: Mapping[str, Task]
    models: Mapping[str, Model]
    links: Mapping[str, Link]

    @property
    def capacity(self) -> int | None:
        """The least that the model of rows of the first table may give."""
        return self.models[self.task.schema.lead].capacity

    @property
    def histograms(self) -> Mapping[str, Mapping[str, Histogram]]:
        """The released histograms of the rows of each table."""
        return {name: model.histograms for name, model in self.models.items()}

    @property
    def samplers(self) -> Mapping[str, Never]:
        """None: how many rows a table has depends on the rows of others."""
        return {}

    def counted_rows(self, table: str, task: Task) -> CountedRows | None:
        """What was counted of the rows of a table; None if it has references alone."""
        if table not in self.models:
            return None
        counted = counted_rows(self.models[table], task)
        return replace(counted, complete=self._counts_all_rows(table))

    def _counts_all_rows(self, table: str) -> bool:
        """Whether all rows of each unit within its bound are counted in a table."""
        return self.rows[table].neighbours == self.task.tables[table].neighbours

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        linked: tuple[str, ...] = (_DEGREES, _MATCHED, _MOVED) if self.links else ()
        linked += (_ALIKE,) if any(link.ratios for link in self.links.values()) else ()
        counted = tuple(f"{name}: {_COUNTED}" for name in row_models.tables_to_count(self.task))
        rows = (_ROWS, *counted, *row_models.post_processing_of_rows(self.models))
        return (*rows, *linked, *self._repaired(), _NUMBERED)

    def _repaired(self) -> Iterator[str]:
        """How references are changed so that constraints and hierarchies hold."""
        keys, ruled = self.task.schema.keys, rules_across(self.task)
        itself = [key for key in keys if key.to_itself]
        if len(ruled) > sum(relations.joined_table(key) in ruled for key in itself):
            yield _KEPT
        if itself:
            yield _ROOTED
        if any(relations.joined_table(key) in ruled for key in itself):
            yield _DROPPED

    def sample(self, rows: int, rng: SamplingSource) -> relations.Database:
        """Tables with ``rows`` rows in that of the units; each reference names a row.

        SampleError if they cannot be drawn.
        """
        schema = self.task.schema
        pairs, rules = distinct_pairs(self.task), rules_across(self.task)
        drawing = Drawing(schema, rng.generator, pairs, rules=rules)
        for name in schema.tables:
            number = self._number(name, rows, drawing)
            model = self.models.get(name) if number else None
            drawing.add(name, model.sample(number, rng) if model else None, number)
            for key in schema.parents_of(name):
                drawing.relate(self.links[relations.joined_table(key)])
        return drawing.database()

    def _number(self, name: str, rows: int, drawing: Drawing) -> int:
        """The number of rows of a table: of units as requested, else by first parents."""
        scale = rows / self.task.data_rows
        declared = max(int(self.task.tables[name].data_rows * scale), 1)
        required = self.task.schema.required_of(name)
        if name == self.task.schema.lead:
            return rows
        if not required:
            return declared
        link, parents = (
            self.links[relations.joined_table(required[0])],
            drawing.numbers[required[0].parent],
        )
        places = drawing.places(name)
        assert places is not None
        # where rules left no parents, there is no row to refer to one
        return min(max(link.drawn_children(parents), 1), declared, places)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The model as JSON and arrays; :func:`restore_relational` reads them."""
        models, arrays = row_models.rows_state(self.models)
        for name, link in self.links.items():
            arrays |= {f"links.{name}/{key}": array for key, array in link.arrays().items()}
        links = {name: link.meta() for name, link in self.links.items()}
        numbers = {name: table.data_rows for name, table in self.rows.items()}
        meta = {"base": self.base, "models": models, "rows": numbers, "links": links}
        fewer = [name for name in self.rows if not self._counts_all_rows(name)]
        if fewer:
            meta["counted"] = {name: self.rows[name].neighbours.max_rows for name in fewer}
        return meta, arrays


def restore_relational(
    create: Callable[[str], AnySynthesizer],
    task: DatabaseTask,
    rows: Mapping[str, Task],
    meta: Mapping[str, Any],
    arrays: Arrays,
) -> RelationalModel:
    """The model whose :meth:`RelationalModel.state` is given; ``create`` makes a method of rows."""
    base = create(meta["base"])
    # models that were saved before rows were counted have the declared numbers
    counted = meta.get("rows", {})
    rows = {
        name: replace(table, data_rows=counted.get(name, table.data_rows))
        for name, table in rows.items()
    }
    for name, most in meta.get("counted", {}).items():
        rows[name] = replace(rows[name], neighbours=replace(rows[name].neighbours, max_rows=most))
    models = row_models.restore_rows(base, rows, meta["models"], arrays)
    links = {
        name: Link.restored(
            task.schema, key, meta["links"][name], part_of_arrays(arrays, f"links.{name}")
        )
        for name, key in ((relations.joined_table(key), key) for key in task.schema.keys)
    }
    return RelationalModel(base.name, task, rows, models, links)


def train_relational(
    base: AnySynthesizer,
    private: DatabaseDoor,
    task: DatabaseTask,
    plan: Plan[RelationalParameters],
) -> RelationalModel:
    """The models of the rows of all tables, then the relationships between them."""
    parameters = plan.parameters
    counted = parameters.counting(task)
    rows = row_models.with_counted_rows(
        private, row_models.tasks_of_rows(task, counted), parameters.counts
    )
    models = row_models.train_rows(base, private, rows, parameters.plans)
    rng = SamplingSource(_SEED)
    pools = Drawing(task.schema, rng.generator, distinct_pairs(task))
    links: dict[str, Link] = {}
    for name in task.schema.tables:
        places = pools.places(name)
        number = min(_POOL, task.tables[name].data_rows, _POOL if places is None else places)
        model = models.get(name)
        pools.add(name, model.sample(number, rng) if model else None, number)
        for key in task.schema.parents_of(name):
            link = relations.joined_table(key)
            bins = models[name].histograms if name in models else {}
            noise, number = parameters.links[link], rows.get(name, counted.tables[name]).data_rows
            fit = _LinkFit(private, key, noise, pools, links, counted, number, bins)
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
            row_models.door_of_rows(private, name, model.rows[name]),
            model.rows[name],
            plan.parameters.plans[name],
            fitted,
        )
        for name, fitted in model.models.items()
    }
    return replace(model, models=weighed)


@dataclass(frozen=True)
class _LinkFit:
    """The fit of one relationship; ``links`` are the relationships fitted before it.

    The ``task`` says how many rows of each unit are counted, ``rows`` of how many the table then
    is; ``bins`` are the released histograms of the rows that refer.
    """

    private: DatabaseDoor
    key: relations.ForeignKey
    noise: link_plan.LinkNoise
    pools: Drawing
    links: dict[str, Link]
    task: DatabaseTask
    rows: float
    bins: Mapping[str, Histogram]

    def fit(self) -> Link:
        """The link after all rounds."""
        link = Link(self.key, self._degrees(), self._parts(), ratios=self._ratios())
        for picks in self.noise.rounds:
            new = [self._measure(chosen) for chosen in self._choose(link, picks)]
            link = link.with_measured(new)
            self._inform(link, new)
        return link

    def _inform(self, link: Link, new: Sequence[Measured]) -> None:
        """Pass the parents of rows without attributes on to their earlier keys, with their parts.

        The rows of the pool are then matched anew by these.
        """
        if relations.rows_domain(self.pools.schema, self.key.table).modelled:
            return
        for earlier in relations.earlier_keys(self.pools.schema, self.key):
            name, prefix = relations.joined_table(earlier), f"{earlier.column}: "
            first = self.links[name]
            of_first = [
                table.of_children()
                for table in new
                if all(child.startswith(prefix) for child in table.workload.child)
            ]
            parts = {each: link.parts[each] for table in of_first for each in table.workload.names}
            self.links[name] = replace(first, parts={**first.parts, **parts}).with_measured(
                of_first
            )
            self.pools.relate(self.links[name])

    @property
    def _door(self) -> Door[TableRows]:
        name = relations.joined_table(self.key)
        most = link_plan.neighbours_of_joined(self.task, self.key).max_rows
        return LabelledDoor(self.private.bounded(name, most), name)

    def _degrees(self) -> Floats:
        """The distribution of degrees (max_rows + 1,).

        Privacy: a partition of the parents.
        """
        groups, door = DegreeGroups.of(self.key), self._door_of_parents
        counts = door.answer(
            PartitionCounts((groups.partition,)), self.noise.degrees, link_plan.DEGREES
        )
        rows, parents = (
            self.task.tables[name].data_rows for name in (self.key.table, self.key.parent)
        )
        scale = self.noise.degrees.scale(door.neighbours.partition)
        return groups.shares(counts.astype(np.float64), scale, rows / parents)

    @property
    def _door_of_parents(self) -> Door[TableRows]:
        parents = self.private.table(relations.degree_table(self.key))
        return LabelledDoor(parents, relations.joined_table(self.key))

    def _ratios(self) -> dict[str, Floats]:
        """How much likelier two rows of one parent are so alike (kinds,), where noise shows it.

        Privacy: a partition of the parents for each attribute.
        """
        door, noise, ratios = self._door_of_parents, self.noise.likeness, dict[str, Floats]()
        if noise is None:
            return ratios
        for name, kinds in relations.compared_attributes(self.task.schema, self.key).items():
            query = PartitionCounts((declared_cells(kinds.attribute_column(name)),))
            counts = door.answer(query, noise, f"{link_plan.LIKENESS} {name}").astype(np.float64)
            column, deviation = kinds.column, noise.scale(door.neighbours.partition)
            if column.name in self.bins:
                values = released_ratios(kinds, counts, deviation, self.bins[column.name])
                ratios[relations.own_column(self.key.table, column).name] = values
        return {name: values for name, values in ratios.items() if (values != 1.0).any()}

    def _parts(self) -> dict[str, Partition]:
        parents, children, _ = self.pools.sides(self.key)
        codes = {**parents.codes, **children.codes}
        return {
            column.name: profiles.CoarseParts.of_column(column, codes[column.name])
            for side in relations.joined_domain(self.pools.schema, self.key)
            for column in side
        }

    def _choose(self, link: Link, picks: int) -> list[profiles.CoarseTable]:
        """The joint tables of one round, selected by their distance from the answers so far.

        One may be selected again in a later round, and in other parts. Privacy: selections among
        distances of partitions of the joined rows.
        """
        parents, children, _ = self.pools.sides(self.key)
        workloads = link_plan.candidates(self.pools.schema, self.key, self.noise.ways)
        rows = self.rows * children.rows / max(self.pools.numbers[self.key.table], 1)
        numbers = profiles.RESOLUTIONS if self.noise.selection else (profiles.MOST_PARTS,)
        tables = Answers(link, parents, children, rows).tables(workloads, numbers)
        if self.noise.selection is None:
            return tables
        assert self.noise.tables is not None
        scale = self.noise.tables.scale(self._door.neighbours.partition)
        scored = [
            Candidate(each.partitions, each.sums, link_plan.MEAN_NOISE * scale * each.sums.size)
            for each in tables
        ]
        chosen: list[profiles.CoarseTable] = []
        for _ in range(picks):
            taken = {table.workload for table in chosen}
            open_ = [index for index, each in enumerate(tables) if each.workload not in taken]
            query = ConditionalScores(
                tuple(scored[index] for index in open_),
                tuple(len(tables[index].workload.child) for index in open_),
            )
            answer = self._door.answer(query, self.noise.selection, link_plan.SELECT)
            chosen.append(tables[open_[answer]])
        return chosen

    def _measure(self, table: profiles.CoarseTable) -> Measured:
        """One noisy joint table, in all parts.

        Privacy: a partition of the joined rows.
        """
        assert self.noise.tables is not None
        query = PartitionCounts(table.partitions)
        counts = self._door.answer(query, self.noise.tables, link_plan.MEASURE)
        return Measured(table.workload, table.measured(counts))
