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
from cloister.models.relational.constraints import keep_rules, without_cycles, without_duplicates
from cloister.models.relational.degrees import DegreeGroups, referred_rows
from cloister.models.relational.families import (
    Child,
    Family,
    families_of,
    number_of,
    rows_without,
    with_joined,
)
from cloister.models.relational.family_plan import DEGREES, Families, FamilyParameters
from cloister.models.relational.references import (
    KeyRules,
    distinct_pairs,
    keys_to_families,
    keys_with_degrees,
    loose_keys,
    other_keys,
    unit_key,
)
from cloister.models.sampling.drawing import number_keys
from cloister.models.task import DatabaseTask, Plan, Task
from cloister.models.transforms.companions import Companions, RowModel, companions_of, rest_of_rows
from cloister.models.transforms.unit_model import FLATNESS, People, UnitsSampler, counted_units
from cloister.models.transforms.units import NUMBER
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.transformations import LabelledDoor
from cloister.schema import relations
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import one_part
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

_WITHOUT = "{}: these rows are drawn alone, as many as a noisy count says"

_UNDER = (
    "{}: where a row has one, the attributes of what it refers to are drawn under its own and "
    "those of what it must refer to"
)

_ABOVE = "{}: no row is above itself: one of each circle exchanges what it refers to, or loses it"

_LEFT_OUT = (
    "rows that constraints leave no place for are drawn from flatter probabilities, then their "
    "parent's rows begin anew, then they go to other parents, and what none can have is left out, "
    "as rows are for which the pattern of a key has no more numbers"
)

_AS_COUNTED = (
    "a row that was drawn with a number of rows that no row has by its histogram gets the nearest"
)

_NUMBERED = "rows are numbered afresh, and references name the row that they were drawn with"


@dataclass(frozen=True)
class FamilyModel:
    """The model ``fitted`` of each family, and the companions of the rows of each child table.

    ``degrees`` (max_rows + 1,) are the distributions of how many rows refer to the same one, by the
    name of the table of degrees, of references by which rows are in no family.
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

    def counted_rows(self, table: str, task: Task) -> CountedRows | None:  # noqa: ARG002
        """What was counted of the rows of a table, or of those that its rows refer to.

        None where some rows were counted apart.
        """
        key = unit_key(self.task, table)
        if key is not None and key.optional:
            return None
        if key is None:
            family = self.families[table]
            return _over(counted_rows(self.fitted[table], family.units), family.times)
        family, columns = self.families[key.parent], self.task.schema.tables[table].modelled
        child = family.children[table]
        names = {column: name for column, name in child.names.items() if column in columns}
        counted = counted_units(child.tasks, self.fitted[family.table], names)
        return _over(counted, family.times)

    @property
    def histograms(self) -> Mapping[str, Mapping[str, Histogram]]:
        """The released histograms of the attributes of tables that refer to no units."""
        tables = self.task.schema.tables
        return {
            table: {name: each for name, each in fitted.histograms.items() if name in tables[table]}
            for table, fitted in self.fitted.items()
            if table in tables and unit_key(self.task, table) is None
        }

    @property
    def samplers(self) -> Mapping[str, Never]:
        """None: how many rows a table has depends on the rows of others."""
        return {}

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        counted = any(family.children for family in self.families.values())
        as_counted = (_AS_COUNTED,) if counted else ()
        return (*self._sentences(), *as_counted, _LEFT_OUT, _NUMBERED)

    def _sentences(self) -> Iterator[str]:
        schema = self.task.schema
        for name, family in self.families.items():
            if name in schema.tables and unit_key(self.task, name) is not None:
                yield _GIVEN.format(name)
            for child in family.children.values():
                yield from self._of_child(name, child)
            for sentence in self.fitted[name].post_processing():
                yield f"{family.door}: {sentence}"
        yield from (_WITHOUT.format(rows_without(key)) for key in keys_to_families(self.task))
        for key in keys_with_degrees(self.task):
            reference = f"{key.table}.{key.column}"
            if key in loose_keys(self.task, key.table):
                yield _UNDER.format(reference)
            yield _CHOSEN.format(reference, key.parent)
            if key.to_itself:
                yield _ABOVE.format(reference)

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
            numbers = {"rows": family.units.data_rows, "times": family.times}
            families[name] = {"state": state, **numbers, "children": children}
        arrays |= {f"degrees.{name}": shares for name, shares in self.degrees.items()}
        return {"base": self.base, "families": families}, arrays


def _over(counted: CountedRows, times: int) -> CountedRows:
    """What was counted, where each row was there so many times."""
    released = counted.released and counted.released.over(times)
    return replace(counted, released=released)


def _as_counted(units: Table, number: str, model: RowModel) -> Table:
    """Units whose numbers of rows are of some unit by the released histogram, or the nearest."""
    bins, codes = model.histograms[number], np.arange(units.domain[number].size)
    counted = codes[bins.shares[bins.cell_index(codes)] > 0]
    if not len(counted):
        return units
    nearest = counted[np.abs(codes[:, None] - counted).argmin(1)]
    return Table(units.domain, {**units.stored, number: nearest[units.codes[number]]})


class _Drawing:
    """Tables that are drawn one after the other, those that rows refer to first."""

    def __init__(self, model: FamilyModel, rows: int, rng: SamplingSource) -> None:
        self._model, self._rows, self._rng = model, rows, rng
        self._schema = model.task.schema
        self._tables: dict[str, Table] = {}
        self._units: dict[str, Table] = {}
        self._attributes: dict[str, Table] = {}

    @property
    def database(self) -> Database:
        """The tables so far."""
        return Database(self._schema, self._tables)

    def add(self, name: str) -> None:
        """Draw the rows of a table; SampleError if they cannot be."""
        source, key = self._rng.spawn(1)[0], unit_key(self._model.task, name)
        rows = self._rows_of(name, source)
        references = self._references(name, rows, source.generator)
        stays = np.ones(rows.rows, dtype=bool)
        for each in self._schema.required_of(name):
            if each.column in references:
                stays &= references[each.column] != self._missing(each)
        rows = self._units[name] = rows.take(stays)
        self._attributes[name] = self._without_references(name, rows)
        codes = {**rows.stored, **{name: each[stays] for name, each in references.items()}}
        table = Table.completed(self._schema.tables[name], codes, rows.rows)
        preset = tuple(each.column for each in self._schema.parents_of(name))
        self._tables[name] = number_keys(table, 0, preset=preset)
        for link in loose_keys(self._model.task, name):
            owners = {link.column: self._linked(link, source.generator)}
            stored = {**self._tables[name].stored, **owners}
            self._tables[name] = Table(table.domain, stored)
        if name in self._model.families and key is not None:
            units, known = (
                self._model.families[name].units,
                with_joined(self.database, self._model.task, name),
            )
            columns = [column for column in units.domain.names if column in known.domain]
            model = self._model.fitted[name]
            self._units[name] = _with_rest(units, model, known.select(columns), source.generator)

    def _rows_of(self, name: str, source: SamplingSource) -> Table:
        """The rows of a table with joined attributes, and references to their families."""
        key = unit_key(self._model.task, name)
        if key is None:
            return self._model.fitted[name].sample(self._number(name), source)
        rows = self._children(key, source)
        if not key.optional:
            return rows
        reference, family = self._schema.tables[name][key.column], rows_without(key)
        most = self._model.families[key.parent].children[name].most - rows.rows
        number = min(self._scaled(self._model.families[family].units.data_rows), most)
        alone = self._model.fitted[family].sample(number, source)
        domain = Domain((reference, *alone.domain))
        stored = {**alone.stored, key.column: np.full(number, reference.values)}
        return Table.concatenate(
            [Table(domain, {n: each[n] for n in domain.names}) for each in (rows.stored, stored)]
        )

    def _without_references(self, name: str, rows: Table) -> Table:
        """The attributes of rows, and whether they have references that may be missing."""
        domain, key = relations.rows_domain(self._schema, name), unit_key(self._model.task, name)
        codes = {column: rows.stored[column] for column in domain.modelled}
        if key is not None and key.optional:
            null = self._schema.tables[name][key.column].null_code
            codes[key.column] = (rows.codes[key.column] != null).astype(np.int64)
        return Table(Domain(tuple(domain[column] for column in codes)), codes)

    def _number(self, name: str) -> int:
        """The rows of a table in no family: as wanted, or as many as declared and there is room."""
        if name == self._schema.lead:
            return self._rows
        required = (key for key in other_keys(self._model.task, name) if not key.optional)
        room = [self._tables[key.parent].rows * self._most(key) for key in required]
        return min([self._scaled(self._model.task.tables[name].data_rows), *room])

    def _scaled(self, rows: int) -> int:
        """So many rows of the data as rows of the output."""
        return -(-rows * self._rows // self._model.task.data_rows)

    def _children(self, key: ForeignKey, source: SamplingSource) -> Table:
        """The rows that refer to rows of a family, with joined attributes."""
        family, model = self._model.families[key.parent], self._model.fitted[key.parent]
        child = family.children[key.table]
        units = _as_counted(self._units[key.parent], child.tasks.counted, model)
        people = People.of(child.tasks, units)
        most = [child.most]
        for link in other_keys(self._model.task, key.table):
            parents = self._tables[link.parent].rows
            most += [] if link.optional else [parents * self._most(link)]
            if self._pair(link) == key.column:
                people = replace(people, counts=np.minimum(people.counts, parents))
        people = people.lowered(min(most), source.generator)
        sampler = UnitsSampler(child.tasks, model, self._model.companions[key.table])
        return child.table(sampler.rows_of(people, (), source))

    def _references(
        self, name: str, rows: Table, rng: np.random.Generator
    ) -> Mapping[str, Integers]:
        """The rows that others refer to by references whose attributes are joined."""
        references: dict[str, Integers] = {}
        for key in loose_keys(self._model.task, name):
            references[key.column] = np.full(rows.rows, self._missing(key))
        for key in other_keys(self._model.task, name):
            chosen = self._referring(key, rows)
            some = rows.take(chosen)
            attributes = self._without_references(name, some)
            owners, kinds = self._owners(key, attributes, self._joined(key, some), rng)
            partner = self._pair(key)
            left = references.get(partner, rows.stored.get(partner)) if partner else None
            if left is not None:
                sizes = (int(left.max(initial=0)) + 1, self._tables[key.parent].rows)
                owners = without_duplicates(left, owners, sizes, kinds, key.max_rows, rng)
            owners = self._keeping(key, attributes, owners)
            references[key.column] = np.full(rows.rows, self._missing(key))
            references[key.column][chosen] = owners
        return references

    def _missing(self, key: ForeignKey) -> int:
        """The code of a reference that is missing; that of no row where none may be."""
        return self._schema.tables[key.table][key.column].values

    def _referring(self, key: ForeignKey, rows: Table) -> Integers:
        """Which rows have a reference, at most as many as there are places."""
        if not key.optional:
            return np.arange(rows.rows)
        chosen = np.flatnonzero(rows.codes[key.column])
        most = self._attributes[key.parent].rows * key.max_rows
        return np.sort(self._rng.generator.permutation(chosen)[:most])

    def _joined(self, key: ForeignKey, rows: Table) -> Table:
        """The attributes of the rows that rows refer to, as these were drawn with."""
        parents = self._attributes[key.parent].domain
        codes = {name: rows.codes[parent_column(key, parents[name]).name] for name in parents.names}
        return Table(parents, codes)

    def _owners(
        self, key: ForeignKey, rows: Table, joined: Table, rng: np.random.Generator
    ) -> tuple[Integers, Integers]:
        """Rows that have the joined attributes, and the kinds of all that may be referred to.

        Where rows of one parent agree on a column, each has a value of it: of a row that was drawn
        for it, or of any.
        """
        degrees = self._model.degrees[relations.degree_table(key)][: self._most(key) + 1]
        parents = self._attributes[key.parent]
        owners, kinds = referred_rows(joined, parents, degrees, rng)
        for name in KeyRules.of(self._model.task, key).shared if len(owners) else ():
            column, values = relations.own_column(key.table, rows.domain[name]), rows.codes[name]
            agreed, order = rng.choice(values, parents.rows), rng.permutation(rows.rows)
            agreed[owners[order]] = values[order]
            joined, parents = (
                Table(Domain((*table.domain, column)), {**table.stored, column.name: codes})
                for table, codes in ((joined, values), (parents, agreed))
            )
            owners, kinds = referred_rows(joined, parents, degrees, rng)
        return owners, kinds

    def _most(self, key: ForeignKey) -> int:
        """The most rows that may refer to the same one: in a key of two, one for each partner."""
        partner = self._pair(key)
        rows = (
            self._tables[each.parent].rows
            for each in self._schema.parents_of(key.table)
            if each.column == partner
        )
        return min([key.max_rows, *rows])

    def _linked(self, key: ForeignKey, rng: np.random.Generator) -> Integers:
        """The rows that a table's rows refer to by a reference to rows that may go."""
        rows = self._attributes[key.table]
        chosen = self._referring(key, rows)
        some, owners = rows.take(chosen), np.full(rows.rows, self._missing(key))
        referred = self._owners(key, some, self._drawn_above(key, some, chosen, rng), rng)[0]
        if key.to_itself:
            whole = np.full(len(owners), relations.MISSING)
            whole[chosen] = referred
            referred = without_cycles(whole, rng)[chosen]
        owners[chosen] = self._keeping(key, some, referred)
        return owners

    def _drawn_above(
        self, key: ForeignKey, rows: Table, chosen: Integers, rng: np.random.Generator
    ) -> Table:
        """The attributes of what the ``chosen`` rows refer to, drawn under their own."""
        family = self._model.families[joined_table(key)]
        codes = relations.of_row(key.table, rows, np.arange(rows.rows))
        for each in relations.earlier_keys(self._schema, key):
            owners = relations.parent_rows(self.database, each)[chosen]
            codes |= relations.of_parent(each, self._attributes[each.parent], owners)
        given = Domain(tuple(family.units.domain[column] for column in family.units.given))
        known = Table(given, {column: codes[column] for column in given.names})
        drawn = _with_rest(family.units, self._model.fitted[family.name], known, rng)
        return self._joined(key, drawn)

    def _keeping(self, key: ForeignKey, rows: Table, owners: Integers) -> Integers:
        """The rows that some refer to, changed so that rules across the reference hold."""
        rules = KeyRules.of(self._model.task, key)
        if rules.names:
            sides = (rows, self._attributes[key.parent])
            owners = keep_rules(rules, self._schema, key, sides, owners, self._rng.generator)
        return np.where(owners == relations.MISSING, self._missing(key), owners)

    def _pair(self, key: ForeignKey) -> str | None:
        """The reference that is a key together with another one."""
        pair = distinct_pairs(self._model.task).get(key.table, ())
        return next((c for c in pair if c != key.column), None) if key.column in pair else None


def _with_rest(task: Task, model: RowModel, known: Table, rng: np.random.Generator) -> Table:
    """Rows of which some attributes are known with the rest, of first values if none is possible.

    Of rows of units that is to have no children.
    """
    left, drawn, chosen = np.arange(known.rows), Table.completed(task.domain, {}, 0), []
    for attempt in range(_TRIES):
        if not len(left):
            break
        flatness = FLATNESS if 2 * attempt >= _TRIES else 0.0
        rows, alive = rest_of_rows(task, model, known.take(left), flatness, rng)
        drawn = Table.concatenate([drawn, rows.take(alive)])
        chosen.append(left[alive])
        left = left[~alive]
    rest = Table.completed(drawn.domain, known.take(left).stored, len(left))
    order = np.argsort(np.concatenate([*chosen, left]))
    return Table.concatenate([drawn, rest]).take(order)


def restore_families(
    create: Callable[[str], AnySynthesizer],
    task: DatabaseTask,
    meta: Mapping[str, Any],
    arrays: Arrays,
) -> FamilyModel:
    """The model whose :meth:`FamilyModel.state` is given; ``create`` makes a method of rows."""
    base, families = create(meta["base"]), dict(families_of(task))
    fitted, companions = {}, {}
    for name, saved in meta["families"].items():
        second = {child: each["second"] for child, each in saved["children"].items()}
        family = replace(families[name], times=saved.get("times", 1))
        family = families[name] = family.holding(second).estimated(saved["rows"])
        of_family = part_of_arrays(arrays, f"families.{name}")
        fitted[name] = base.restore(family.counted.units, saved["state"], of_family)
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
    counts, families = plan.parameters.counts, dict(families_of(task))
    families = dict(plan.parameters.planned(families))
    rng, fitted, companions = SamplingSource(_SEED), dict[str, RowModel](), {}
    degrees = {
        name: _degrees(private, task, key, counts[name])
        for key in keys_with_degrees(task)
        for name in [relations.degree_table(key)]
    }
    for name, number in _counted(private, task, families, degrees, counts).items():
        families[name] = families[name].estimated(number)
    for name, plan_of_family in plan.parameters.plans.items():
        family = families[name]
        door = _door(private, family)
        fitted[name] = base.train(door, family.counted.units, plan_of_family)
        for child, of in family.children.items():
            companions[child] = companions_of(of.tasks, fitted[name])
            if child in families:
                units = fitted[name].sample(min(_PILOT, family.units.data_rows), rng.spawn(1)[0])
                rows = family.units.data_rows * float(of.tasks.counts(units).mean())
                lacking = families.get(rows_without(of.key))
                rows += lacking.units.data_rows if lacking else 0
                families[child] = families[child].estimated(max(round(rows), 1))
    return FamilyModel(base.name, task, families, fitted, companions, degrees)


def _counted(
    private: DatabaseDoor,
    task: DatabaseTask,
    families: Families,
    degrees: Mapping[str, Floats],
    counts: Mapping[str, CountNoise],
) -> Mapping[str, int]:
    """The numbers of rows that lack a reference to a family, and of joined rows.

    Privacy: a partition with one part of the former; the latter follow from degrees.
    """
    numbers = {}
    for key in keys_to_families(task):
        family = families[rows_without(key)]
        whole = PartitionCounts((one_part(family.units.domain[family.units.domain.modelled[0]]),))
        counted = int(_door(private, family).answer(whole, counts[number_of(key)], NUMBER)[0])
        numbers[family.name] = max(counted, 1)
    for key in keys_with_degrees(task):
        if joined_table(key) in families:
            shares = degrees[relations.degree_table(key)]
            mean = float(shares @ np.arange(len(shares)) / shares.sum())
            numbers[joined_table(key)] = max(round(task.tables[key.parent].data_rows * mean), 1)
    return numbers


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
            model.families[name].counted.units,
            plan.parameters.plans[name],
            fitted,
        )
        for name, fitted in model.fitted.items()
    }
    return replace(model, fitted=weighed)


def _door(private: DatabaseDoor, family: Family) -> LabelledDoor:
    return LabelledDoor(private.table(family.door), family.door)
