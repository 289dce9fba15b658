"""The model of families: rows of the lead, then of each table that refers to one before.

Rows of the lead are drawn with the number of their rows of each child table and two of these. Of
a deeper table they are there already when its family comes, and the rest is drawn given them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.core.budget_split import CountNoise
from cloister.models.protocol import (
    AnySynthesizer,
    Arrays,
    CountedRows,
    DatabaseDoor,
    counted_rows,
    part_of_arrays,
)
from cloister.models.relational.constraints import distinct_pairs, without_duplicates
from cloister.models.relational.degrees import DegreeGroups, referred_rows
from cloister.models.relational.families import (
    Child,
    Family,
    families_of,
    other_keys,
    unit_key,
    with_joined,
)
from cloister.models.relational.family_plan import Families, FamilyParameters
from cloister.models.relational.link_plan import DEGREES
from cloister.models.sampling.drawing import number_keys
from cloister.models.task import DatabaseTask, Plan, Task
from cloister.models.transforms.companions import Companions, RowDraws, RowModel, companions_of
from cloister.models.transforms.unit_model import FLATNESS, People, UnitsSampler, counted_units
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.transformations import LabelledDoor
from cloister.schema import relations
from cloister.schema.domain import Domain, Table
from cloister.schema.relations import Database, ForeignKey, joined_table, parent_column

_SEED = 20_261_128
"""Public seed of what is drawn when a model is fitted."""

_PILOT = 4_096
"""Rows of a family drawn to know how many rows refer to them: their mean is within 2 %."""

_TRIES = 8
"""Times that the rest of a row is drawn, from flatter probabilities after the first half."""

_ROWS = "rows of {}: drawn with {}; of rows with more, each further one is drawn under one of two"

_IN_ORDER = (
    "rows of {}: drawn with {} that follow each other by {}; of rows with more, each further one "
    "is drawn under the one before it, as neighbours among later rows are"
)

_ONE_ROW = "rows of {}: drawn with {}; each further one is drawn as that one is"

_ALIKE = (
    "{}: of several draws of a further row one is taken, with weights by which two rows of one "
    "parent have the tables of the first two"
)

_GIVEN = "{}: its rows are those of its parents; the rest is drawn given their attributes"

_CHOSEN = (
    "{}: a row gets one of {} with the attributes that it was drawn with, or the nearest; of those "
    "alike each gets a part, in proportion to a number drawn from the distribution of degrees"
)

_LEFT_OUT = (
    "rows that constraints leave no place for are drawn from flatter probabilities, then their "
    "parent's rows begin anew, then they go to other parents, and what none can have is left out, "
    "as rows are for which the pattern of a key has no more numbers"
)

_NUMBERED = "rows are numbered afresh, and references name the row that they were drawn with"


@dataclass(frozen=True)
class FamilyModel:
    """The model ``fitted`` of each family, and the companions of the rows of each child table.

    ``degrees`` (max_rows + 1,) are the distributions of how many rows refer to the same one of a
    table without units, by the name of the joined table.
    """

    base: str
    task: DatabaseTask
    families: Families
    fitted: Mapping[str, RowModel]
    companions: Mapping[str, Companions]
    degrees: Mapping[str, Floats]

    @property
    def capacity(self) -> int | None:
        """None: models of released statistics give any number of rows."""
        return None

    def counted_rows(self, table: str, task: Task) -> CountedRows:  # noqa: ARG002
        """What was counted of the rows of a table, or of those that its rows refer to."""
        key = unit_key(self.task.schema, table)
        if key is None:
            return counted_rows(self.fitted[table], self.families[table].units)
        family, columns = self.families[key.parent], self.task.schema.tables[table].modelled
        child = family.children[table]
        names = {column: name for column, name in child.names.items() if column in columns}
        return counted_units(child.tasks, self.fitted[family.table], names)

    @property
    def histograms(self) -> Mapping[str, Mapping[str, Histogram]]:
        """The released histograms of the attributes of tables that refer to no units."""
        tables = self.task.schema.tables
        return {
            table: {name: each for name, each in fitted.histograms.items() if name in tables[table]}
            for table, fitted in self.fitted.items()
            if unit_key(self.task.schema, table) is None
        }

    @property
    def samplers(self) -> Mapping[str, Never]:
        """None: how many rows a table has depends on the rows of others."""
        return {}

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        return (*self._sentences(), _LEFT_OUT, _NUMBERED)

    def _sentences(self) -> Iterator[str]:
        for name, family in self.families.items():
            if name != self.task.schema.lead and name in self.task.schema.holding:
                yield _GIVEN.format(name)
            for child in family.children.values():
                yield from self._of_child(name, child)
            for sentence in self.fitted[name].post_processing():
                yield f"{family.door}: {sentence}"
        for name in self.task.schema.tables:
            for key in other_keys(self.task.schema, name):
                yield _CHOSEN.format(f"{name}.{key.column}", key.parent)

    def _of_child(self, parent: str, child: Child) -> Iterator[str]:
        second = bool(child.tasks.second)
        two = "the number of these and " + ("two of them" if second else "one of them")
        name, words = child.key.table, f"{parent}: each row with {two}"
        if child.tasks.order in child.tasks.second:
            yield _IN_ORDER.format(name, words, child.key.order)
        else:
            yield (_ROWS if child.tasks.second else _ONE_ROW).format(name, words)
        if self.companions[name].sizes:
            yield _ALIKE.format(name)

    def sample(self, rows: int, rng: SamplingSource) -> relations.Database:
        """Tables with ``rows`` rows in that of the units; each reference names a row.

        SampleError if they cannot be drawn.
        """
        drawing = _Drawing(self, rows, rng)
        for name in self.task.schema.tables:
            drawing.add(name)
        return drawing.database

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The model as JSON and arrays; :func:`restore_families` reads them."""
        families: dict[str, Any] = {}
        arrays: dict[str, NDArray[np.generic]] = {}
        for name, family in self.families.items():
            state, stored = self.fitted[name].state()
            arrays |= {f"families.{name}/{key}": array for key, array in stored.items()}
            children = {}
            for child, of in family.children.items():
                companions, stored = self.companions[child].state()
                arrays |= {f"children.{child}/{key}": array for key, array in stored.items()}
                children[child] = {"second": list(of.tasks.second), "companions": companions}
            rows = family.units.data_rows
            families[name] = {"state": state, "rows": rows, "children": children}
        arrays |= {f"degrees.{name}": shares for name, shares in self.degrees.items()}
        return {"base": self.base, "families": families}, arrays


class _Drawing:
    """Tables that are drawn one after the other, those that rows refer to first."""

    def __init__(self, model: FamilyModel, rows: int, rng: SamplingSource) -> None:
        self._model, self._rows, self._rng = model, rows, rng
        self._schema = model.task.schema
        self._tables: dict[str, Table] = {}
        self._units: dict[str, Table] = {}

    @property
    def database(self) -> Database:
        """The tables so far."""
        return Database(self._schema, self._tables)

    def add(self, name: str) -> None:
        """Draw the rows of a table; SampleError if they cannot be."""
        source, family = self._rng.spawn(1)[0], self._model.families.get(name)
        if key := unit_key(self._schema, name):
            rows = self._children(key, source)
        else:
            assert family is not None
            rows = self._units[name] = self._model.fitted[name].sample(self._number(name), source)
        references = self._references(name, rows, source.generator)
        codes = {**rows.stored, **references}
        table = Table.completed(self._schema.tables[name], codes, rows.rows)
        preset = tuple(each.column for each in self._schema.parents_of(name))
        self._tables[name] = number_keys(table, 0, preset=preset)
        if family is not None and key is not None:
            whole = with_joined(self.database, name)
            model = self._model.fitted[name]
            self._units[name] = _with_children(family, model, whole, source.generator)

    def _number(self, name: str) -> int:
        """The rows of a table without references to units: as wanted, or as many as declared."""
        if name == self._schema.lead:
            return self._rows
        task = self._model.task
        return -(-task.tables[name].data_rows * self._rows // task.data_rows)

    def _children(self, key: ForeignKey, source: SamplingSource) -> Table:
        """The rows that refer to rows of a family, with joined attributes."""
        family, model = self._model.families[key.parent], self._model.fitted[key.parent]
        child = family.children[key.table]
        people = People.of(child.tasks, self._units[key.parent])
        most = [child.most]
        for link in other_keys(self._schema, key.table):
            parents = self._tables[link.parent].rows
            most.append(parents * link.max_rows)
            if self._pair(link):
                people = replace(people, counts=np.minimum(people.counts, parents))
        people = people.lowered(min(most), source.generator)
        sampler = UnitsSampler(child.tasks, model, self._model.companions[key.table])
        return child.table(sampler.rows_of(people, (), source))

    def _references(
        self, name: str, rows: Table, rng: np.random.Generator
    ) -> Mapping[str, Integers]:
        """The rows of tables without units that rows refer to."""
        references: dict[str, Integers] = {}
        for key in other_keys(self._schema, name):
            parents, degrees = self._tables[key.parent], self._model.degrees[joined_table(key)]
            joined = {
                attribute: rows.stored[parent_column(key, parents.domain[attribute]).name]
                for attribute in relations.rows_domain(self._schema, key.parent).modelled
            }
            owners, kinds = referred_rows(joined, parents, degrees, rng)
            if pair := self._pair(key):
                left = rows.stored[pair] if pair in rows.stored else references[pair]
                sizes = (int(left.max(initial=0)) + 1, parents.rows)
                owners = without_duplicates(left, owners, sizes, kinds, key.max_rows, rng)
            references[key.column] = owners
        return references

    def _pair(self, key: ForeignKey) -> str | None:
        """The reference that is a key together with another one, where it precedes that."""
        pair = distinct_pairs(self._model.task).get(key.table, ())
        columns = [each.column for each in self._schema.parents_of(key.table)]
        before = columns[: columns.index(key.column)]
        return next((c for c in pair if c in before), None) if key.column in pair else None


def _with_children(family: Family, model: RowModel, rows: Table, rng: np.random.Generator) -> Table:
    """Rows of a table with the rest of their family; without children where none can be drawn."""
    tasks = family.tasks[0]
    domain = Domain(tuple(column for column in family.units.domain if column.name in rows.domain))
    known = Table(domain, {name: rows.stored[name] for name in domain.names})
    left, drawn, chosen = np.arange(rows.rows), Table.completed(family.units.domain, {}, 0), []
    for attempt in range(_TRIES):
        flatness = FLATNESS if 2 * attempt >= _TRIES else 0.0
        units, alive = RowDraws(tasks, model, flatness).units(known.take(left), rng)
        drawn = Table.concatenate([drawn, units.take(alive)])
        chosen.append(left[alive])
        left = left[~alive]
        if not len(left):
            break
    drawn = Table.concatenate(
        [drawn, Table.completed(drawn.domain, known.take(left).stored, len(left))]
    )
    order = np.argsort(np.concatenate([*chosen, left]))
    return drawn.take(order)


def restore_families(
    create: Callable[[str], AnySynthesizer],
    task: DatabaseTask,
    meta: Mapping[str, Any],
    arrays: Arrays,
) -> FamilyModel:
    """The model whose :meth:`FamilyModel.state` is given; ``create`` makes a method of rows."""
    base, families = create(meta["base"]), dict(families_of(task) or {})
    fitted, companions = {}, {}
    for name, saved in meta["families"].items():
        second = {child: each["second"] for child, each in saved["children"].items()}
        family = families[name] = families[name].holding(second).estimated(saved["rows"])
        of_family = part_of_arrays(arrays, f"families.{name}")
        fitted[name] = base.restore(family.units, saved["state"], of_family)
        for child, each in saved["children"].items():
            companions[child] = Companions.restored(
                family.children[child].tasks,
                each["companions"],
                part_of_arrays(arrays, f"children.{child}"),
            )
    degrees = {
        key.removeprefix("degrees."): shares
        for key, shares in arrays.items()
        if key.startswith("degrees.")
    }
    return FamilyModel(base.name, task, families, fitted, companions, degrees)


def train_families(
    base: AnySynthesizer, private: DatabaseDoor, task: DatabaseTask, plan: Plan[FamilyParameters]
) -> FamilyModel:
    """The models of all families, parents first, and what goes with what in their rows."""
    families = dict(plan.parameters.planned(families_of(task) or {}))
    rng, fitted, companions = SamplingSource(_SEED), dict[str, RowModel](), {}
    for name, plan_of_family in plan.parameters.plans.items():
        family = families[name]
        door = _door(private, family)
        fitted[name] = base.train(door, family.units, plan_of_family)
        for child, of in family.children.items():
            companions[child] = companions_of(of.tasks, fitted[name])
            if child in families:
                units = fitted[name].sample(min(_PILOT, family.units.data_rows), rng.spawn(1)[0])
                rows = family.units.data_rows * float(of.tasks.counts(units).mean())
                families[child] = families[child].estimated(max(round(rows), 1))
    degrees = {
        joined_table(key): _degrees(private, task, key, plan.parameters.degrees[joined_table(key)])
        for name in task.schema.tables
        for key in other_keys(task.schema, name)
    }
    return FamilyModel(base.name, task, families, fitted, companions, degrees)


def _degrees(
    private: DatabaseDoor, task: DatabaseTask, key: ForeignKey, noise: CountNoise
) -> Floats:
    """The distribution of degrees (max_rows + 1,).

    Privacy: a partition of the parents.
    """
    door = LabelledDoor(private.table(relations.degree_table(key)), joined_table(key))
    groups = DegreeGroups.of(key)
    counts = door.answer(PartitionCounts((groups.partition,)), noise, DEGREES)
    rows, parents = (task.tables[name].data_rows for name in (key.table, key.parent))
    scale = noise.scale(door.neighbours.partition)
    return groups.shares(counts.astype(np.float64), scale, rows / parents)


def weigh_families(
    base: AnySynthesizer,
    private: DatabaseDoor,
    plan: Plan[FamilyParameters],
    model: FamilyModel,
) -> FamilyModel:
    """The model with the soft constraints of each family weighed."""
    weighed = {
        name: base.weigh(
            _door(private, model.families[name]),
            model.families[name].units,
            plan.parameters.plans[name],
            fitted,
        )
        for name, fitted in model.fitted.items()
    }
    return replace(model, fitted=weighed)


def _door(private: DatabaseDoor, family: Family) -> LabelledDoor:
    return LabelledDoor(private.table(family.door), family.door)
