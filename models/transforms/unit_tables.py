"""A task of persons as a task with one row a person: two of its rows, and how many it has.

Public inputs only. A row of the new table holds the attributes of a person, the number of its rows,
and two of them by lot: the first under the names of its attributes, the second under names of its
own, missing where there is none. So a person more or less is one row more or less, and rules
between two rows of one person are rules on one row.

Where rows have an order, the two are neighbours in it: by lot the first two of the person, or two
later ones, which an attribute says. The order is then a rule on one row as well, so that a model
counts how far apart the two are.

Of dates and timestamps without an order the second row has how far they are from the first: two of
a person may be days apart in years, which no joint table of parts of both tells.

What rules between rows of different persons fix, such as the city of a zip code, the second row
does not have: two maps could differ. It is drawn as that of a first row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from cloister import constraints
from cloister.arrays import Booleans, Integers
from cloister.constraints import DenialConstraint
from cloister.constraints.denial import Cell, Op, Predicate
from cloister.errors import PlanError
from cloister.figures import count_of
from cloister.hashing import keyed_rows
from cloister.models.task import Persons, Task
from cloister.models.transforms.differences import differences_of, unused_name
from cloister.models.transforms.orders import ordered
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Boolean, Integer
from cloister.schema.columns import Column, Grid, Serial
from cloister.schema.domain import Domain, Table, column_of, order_of_rows
from cloister.schema.relations import Database, Schema

PERSONS = "persons"
"""Name of the table, in labels of stages and behind the door."""


@dataclass(frozen=True)
class UnitTasks:
    """The task ``units`` of a table of units, and that of their rows, ``whole``.

    Rows have the attributes ``given`` of their unit and a ``key`` that names it. ``counted`` is the
    attribute that is a unit's number of rows, at ``least`` so many; ``second`` are those of its
    second row, by the attribute of the first. ``within`` are hard constraints on two rows of the
    same unit. Where rows have an order, ``start`` says whether the two rows are the first.
    """

    whole: Task
    units: Task
    key: str
    given: tuple[str, ...]
    counted: str
    second: Mapping[str, str]
    within: tuple[DenialConstraint, ...]
    least: int = 1
    start: str | None = None

    @property
    def order(self) -> str | None:
        """The attribute by which rows of a unit follow each other; None if none is declared."""
        return persons_of(self.whole).order

    @property
    def shared(self) -> tuple[str, ...]:
        """The attributes under which rows of a unit are drawn: all but those of rows."""
        return (*self.given, self.counted, *([self.start] if self.start else []))

    @cached_property
    def of_rows(self) -> tuple[str, ...]:
        """The attributes in which rows of a unit may differ."""
        return tuple(name for name in self.whole.domain.modelled if name not in self.given)

    @cached_property
    def fixed(self) -> tuple[str, ...]:
        """Those of them that only first rows have: others are drawn as these are."""
        return tuple(name for name in self.of_rows if name not in self.second)

    @cached_property
    def _moved(self) -> Mapping[str, str]:
        return {each.name: each.moved.name for each in differences_of(self.units)}

    def origin(self, name: str) -> str:
        """The attribute of persons of which a model has another one: a difference in its place."""
        return self._moved.get(name, name)

    @cached_property
    def gap(self) -> str | None:
        """The attribute of a model by which two neighbours are apart; None if it has none."""
        second = self.second.get(self.order or "")
        return next((name for name, moved in self._moved.items() if moved == second), None)

    @property
    def capacity(self) -> int:
        """How many persons the pattern of the key can name."""
        column = self.whole.domain[self.key]
        assert isinstance(column, Serial)
        return column.values

    @cached_property
    def most_rows(self) -> int:
        """Most rows of one person: by the unit, and by keys that hold for each person."""
        domain = self.whole.domain
        bounds = [self.whole.neighbours.max_rows]
        for rule in self.within:
            names = [
                name
                for name in constraints.key_attributes(rule) or ()
                if name not in (*self.given, self.key)
            ]
            if names and all(domain[name].null_code is None for name in names):
                bounds.append(math.prod(domain[name].values for name in names))
        return min(bounds)

    def holding(self, names: Collection[str]) -> UnitTasks:
        """The same tasks where second rows have these attributes of rows alone."""
        (tasks,) = holding([self], [names])
        return tasks

    def estimated(self, persons: int) -> UnitTasks:
        """The same tasks for another number of persons, such as a released one."""
        return replace(self, units=replace(self.units, data_rows=persons))

    def counts(self, units: Table) -> Integers:
        """The number of rows (n,) of each person."""
        column = units.domain[self.counted]
        return np.rint(column.comparable(units.codes[self.counted])).astype(np.int64)

    def second_rows(self, units: Table) -> Mapping[str, Integers]:
        """The second row of each person, by attribute; the code past the last where it has none."""
        rows = {name: units.codes[column] for name, column in self.second.items()}
        for name in rows.keys() & self.distant:
            steps, first = self.whole.domain[name].values, units.codes[name].astype(np.int64)
            codes = first + rows[name] - (steps - 1)
            there = (rows[name] < 2 * steps - 1) & (codes >= 0) & (codes < steps)
            rows[name] = np.where(there, codes, steps)
        return rows

    @cached_property
    def distant(self) -> frozenset[str]:
        """The attributes of which second rows have how far they are from the first."""
        return frozenset() if self.order else _distant(self.whole)

    def present(
        self, codes: Mapping[str, Integers], names: Iterable[str]
    ) -> tuple[dict[str, Integers], Booleans]:
        """Codes (n,) of rows that may be missing as codes of rows, and which rows (n,) are not."""
        known = dict(codes)
        present = np.ones(len(next(iter(codes.values()), [0])), dtype=bool)  # all, without any
        for name in names:
            size = self.whole.domain[name].size
            present &= codes[name] < size
            known[name] = np.minimum(codes[name], size - 1)
        return known, present


def holding(tasks: Iterable[UnitTasks], names: Iterable[Collection[str]]) -> tuple[UnitTasks, ...]:
    """Tasks of the same units where second rows have these attributes of rows alone."""
    fewer, left = [], set[str]()
    for each, wanted in zip(tasks, names, strict=True):
        second = {name: column for name, column in each.second.items() if name in wanted}
        left |= set(each.second.values()) - set(second.values())
        fewer.append(replace(each, second=second))
    if not left:
        return tuple(fewer)
    units = fewer[0].units
    columns = tuple(column for column in units.domain if column.name not in left)
    rules = tuple(rule for rule in units.constraints if left.isdisjoint(rule.attributes))
    units = replace(units, domain=Domain(columns), constraints=rules)
    return tuple(replace(each, units=units) for each in fewer)


def unit_tasks(task: Task) -> UnitTasks:
    """The task of persons, each of which is one row.

    Persons of an unknown number are taken to have as many rows as the root of their bound: between
    one and all.

    Raises:
        PlanError: a constraint cannot hold where persons have several rows under fresh keys, or
            the key's pattern has too few numbers for the rows that are wanted.
    """
    persons, most = persons_of(task), task.neighbours.max_rows
    rows = unit_columns(task, f"rows of {persons.key}")
    units = replace(
        task,
        domain=Domain((*(task.domain[name] for name in persons.attributes), *rows.columns)),
        constraints=rows.constraints,
        data_rows=persons.number or max(round(task.data_rows / math.sqrt(most)), 1),
        neighbours=Neighbours(task.neighbours.relation),
        wanted_rows=None,
        persons=None,
        given=(*persons.attributes, *rows.facts),
    )
    tasks = rows.tasks(units)
    if tasks.capacity * tasks.most_rows < task.output_rows:
        raise PlanError(
            f"column '{persons.key}' names at most {count_of(tasks.capacity, 'person')} of at "
            f"most {count_of(tasks.most_rows, 'row')} each, too few for "
            f"{count_of(task.output_rows, 'row')}; widen its pattern "
            "or request fewer rows"
        )
    return tasks


@dataclass(frozen=True)
class UnitColumns:
    """What a table of units holds of their rows: ``columns``, and ``constraints`` on them.

    See `UnitTasks` for the rest.
    """

    whole: Task
    columns: tuple[Column, ...]
    constraints: tuple[DenialConstraint, ...]
    counted: str
    second: Mapping[str, str]
    within: tuple[DenialConstraint, ...]
    least: int
    start: str | None = None

    @property
    def facts(self) -> tuple[str, ...]:
        """The columns that are of a unit's rows together."""
        return (self.counted, *([self.start] if self.start else []))

    def tasks(self, units: Task) -> UnitTasks:
        """The tasks, where ``units`` is that of the table of units."""
        key, given = persons_of(self.whole).key, persons_of(self.whole).attributes
        return UnitTasks(
            self.whole,
            units,
            key,
            given,
            self.counted,
            self.second,
            self.within,
            self.least,
            self.start,
        )


def unit_columns(whole: Task, counted: str, least: int = 1) -> UnitColumns:
    """What is held of rows that belong to the persons of their task, each with ``least`` rows.

    PlanError if a constraint cannot hold.
    """
    persons, domain, most = persons_of(whole), whole.domain, whole.neighbours.max_rows
    alone = tuple(under_fresh_keys(whole.constraints, domain, persons.key))
    whole = replace(whole, constraints=alone)
    rules = _Rules.of(whole, persons)
    of_rows = [name for name in domain.modelled if name not in persons.attributes]
    paired = [name for name in of_rows if name not in rules.fixed and most > 1]
    distant = frozenset() if persons.order else _distant(whole)
    second = {
        name: unused_name(f"{name} of another row{' less it' * (name in distant)}", domain)
        for name in paired
    }
    start = unused_name(f"start of {counted}", domain) if persons.order and most > 2 else None
    counted = unused_name(counted, domain)
    number = Integer(type="integer", min=least, max=most, special=[most])
    columns = (
        *(domain[name] if least else may_lack(domain[name], name) for name in of_rows),
        column_of(counted, number, Path()),
        *([column_of(start, Boolean(type="boolean"), Path())] if start else []),
        *(
            _distances(domain[name], column) if name in distant else may_lack(domain[name], column)
            for name, column in second.items()
        ),
    )
    constraints = (
        *rules.of_first(counted, least),
        *(() if least else rules.there_together({name: name for name in of_rows}, domain)),
        *rules.of_second(second, counted),
        *rules.there_together(second, domain),
        *rules.between(second, counted),
        *rules.in_order(second, columns),
    )
    return UnitColumns(whole, columns, constraints, counted, second, rules.within, least, start)


def under_fresh_keys(
    rules: Iterable[DenialConstraint], domain: Domain, but: str | None = None
) -> Iterator[DenialConstraint]:
    """Rules as they are on rows whose keys are numbered afresh, so that no two have the same.

    The column ``but`` is of keys that rows share.
    """
    fresh = {each.name for each in domain if isinstance(each, Serial) and each.name != but}
    for rule in rules:
        on_keys = [p for p in rule.predicates if p.left.attribute in fresh]
        rest = tuple(p for p in rule.predicates if p not in on_keys)
        if not on_keys:
            yield rule
        elif rest and all(predicate.op is Op.NE for predicate in on_keys):
            yield replace(rule, predicates=rest)


def unit_table(table: Table, task: Task) -> Database:
    """The table of persons of the bounded rows of a table, which are in an order of no meaning.

    Privacy: a person's row is a function of that person's rows alone, in the order that bounding
        gave them by a keyed hash: the attributes of the first of them, their number, and the first
        two, or two neighbours in their declared order. So a person more or less changes one row.
    """
    units = table.by_unit(partial(_units_in, unit_tasks(task)))
    return Database(Schema({PERSONS: units.domain}), {PERSONS: units})


def _units_in(tasks: UnitTasks, table: Table) -> Table:
    """The row of each person that has rows in a table, which are all of its rows."""
    _, first, owners = np.unique(table.codes[tasks.key], return_index=True, return_inverse=True)
    codes = {name: table.codes[name][first] for name in tasks.given}
    codes |= two_rows(tasks, table, owners, len(first))
    return Table(tasks.units.domain, {n: codes[n] for n in tasks.units.domain.names}).narrow()


def two_rows(
    tasks: UnitTasks, rows: Table, owners: Integers, units: int, turn: int = 0
) -> Mapping[str, Integers]:
    """The number of rows of each of some units (n,), and two of them, as codes of their table.

    ``owners`` (m,) are the numbers of the units of rows, which are in an order of no meaning: the
    two are the first, or neighbours in the order of the rows. In each further ``turn`` they are the
    next two, or other neighbours, and again the first ones after all.
    """
    line, counts = np.argsort(owners, kind="stable"), np.bincount(owners, minlength=units)
    begin, codes = np.cumsum(counts) - counts, {tasks.counted: counts - tasks.least}
    places = tuple((2 * turn + rank) % np.maximum(counts, 1) for rank in (0, 1))
    if (numbers := order_of_rows(rows, tasks.order)) is not None:
        line = np.lexsort((numbers, owners))
    if tasks.start:
        keys = np.zeros(units, dtype=np.int64)
        keys[owners] = rows.codes[tasks.key]
        skipped = _rows_before_pair(keys, counts, turn)
        codes[tasks.start], places = (skipped == 0).astype(np.int64), (skipped, skipped + 1)
    first = {name: name for name in tasks.of_rows}
    for rank, columns in enumerate((first, tasks.second)):
        there = np.flatnonzero(counts > rank)
        row = line[(begin + places[rank])[there]]
        for name, column in columns.items():
            codes[column] = np.full(units, tasks.whole.domain[name].values)
            codes[column][there] = rows.codes[name][row]
    for name in tasks.second.keys() & tasks.distant:
        column, steps = tasks.second[name], tasks.whole.domain[name].values
        apart = codes[column] - codes[name] + steps - 1
        codes[column] = np.where(codes[column] == steps, 2 * steps - 1, apart)
    return codes


def _rows_before_pair(keys: Integers, counts: Integers, turn: int) -> Integers:
    """How many rows of each unit (n,) precede its pair of neighbours.

    Of half of the units with a third row none, of the others one at least. A hash of the unit's key
    decides: one of its rows would be alike for units with rows alike.
    """
    lots = keyed_rows((keys,), b"pairs of neighbours") + np.uint64(turn)
    later = np.maximum(counts - 2, 0).astype(np.uint64)
    among = (lots >> np.uint64(1)) % np.maximum(later, np.uint64(1))
    chosen = (lots % np.uint64(2) == 1) & (counts > 2)
    return np.where(chosen, among.astype(np.int64) + 1, 0)


def persons_of(task: Task) -> Persons:
    """The persons of a task that has some."""
    if task.persons is None:
        raise TypeError("the task has no persons")
    return task.persons


def _distant(task: Task) -> frozenset[str]:
    """The dates and timestamps that no constraint is on, of which two may be any number apart."""
    ruled = {name for rule in task.constraints for name in rule.attributes}
    return frozenset(
        column.name
        for column in task.domain
        if isinstance(column, Grid)
        and column.attribute.type in ("date", "datetime")
        and column.size == column.steps
        and column.name not in ruled
    )


def _distances(column: Column, name: str) -> Column:
    """The column of how many steps of a grid a second row is from the first."""
    most = column.values - 1
    number = Integer(type="integer", min=-most, max=most, scale="log", nullable=True)
    return column_of(name, number, Path())


def may_lack(column: Column, name: str) -> Column:
    """A column of second rows: missing where a person has one row alone."""
    nullable = column.attribute.model_copy(update={"nullable": True})
    return replace(column, name=name, attribute=nullable)


@dataclass(frozen=True)
class _Rules:
    """The constraints of a task of persons: those of its ``first`` rows, and others.

    ``within`` are hard ones on two rows of one person. Those between rows of different persons
    decide the attributes ``fixed`` of a row by its others.
    """

    first: tuple[DenialConstraint, ...]
    within: tuple[DenialConstraint, ...]
    fixed: frozenset[str]
    key: str
    shared: frozenset[str]
    order: str | None

    @classmethod
    def of(cls, task: Task, persons: Persons) -> _Rules:
        """Those of a task; PlanError if one cannot hold."""
        first, within, shared = [], [], frozenset({persons.key, *persons.attributes})
        if persons.order in shared:
            raise PlanError(
                f"rows of a person cannot be ordered by '{persons.order}', on which all of them "
                "agree; order them by an attribute of rows, or leave order out"
            )
        for rule in task.constraints:
            of_persons = shared.issuperset(rule.attributes) and task.neighbours.max_rows > 1
            if of_persons and rule.hard and not constraints.holds_for_equal_rows(rule, task.domain):
                raise PlanError(
                    f"constraint '{rule.name}' cannot hold where a person has several rows, which "
                    "agree on all that it compares; make it soft, or declare max_rows: 1"
                )
            if persons.key not in rule.attributes:
                first.append(rule)
            elif rule.hard and not _is_attribute(rule, persons):
                _require_one_person(rule, persons.key)
                within.append(rule)
        across = (rule for rule in first if rule.hard and rule.arity == 2)
        fixed = frozenset(name for rule in across for name in _fixed_by(rule, shared))
        return cls(tuple(first), tuple(within), fixed, persons.key, shared, persons.order)

    def of_first(self, counted: str, least: int) -> Iterator[DenialConstraint]:
        """Those of first rows, which units have that have any."""
        for rule in self.first:
            lacking = not least and rule.arity == 1
            predicates = _of_units_with(1, rule.predicates, counted) if lacking else rule.predicates
            yield replace(rule, predicates=predicates)

    def of_second(self, second: Mapping[str, str], counted: str) -> Iterator[DenialConstraint]:
        """The hard rules on one row as those of second rows, which have all that they name."""
        for rule in self.first:
            names = [name for name in rule.attributes if name not in self.shared]
            if rule.hard and rule.arity == 1 and names and self.fixed.isdisjoint(names):
                predicates = _of_units_with(2, on_one_row(rule.predicates, {1: second}), counted)
                yield replace(rule, name=f"{rule.name}, of another row", predicates=predicates)

    def there_together(
        self, columns: Mapping[str, str], domain: Domain
    ) -> Iterator[DenialConstraint]:
        """Of two numbers that a rule orders, both are missing where there is no such row.

        By the columns of rows that may lack them. Without, no difference could take their place.
        """
        for rule in self.first:
            pair = ordered(rule) if rule.hard else None
            names = [cell.attribute for cell in pair[:2]] if pair else []
            if pair and all(n in columns and domain[n].null_code is None for n in names):
                less, greater = (Cell(1, columns[name]) for name in names)
                lacking = (Predicate(less, Op.EQ, None), Predicate(greater, Op.NE, None))
                yield DenialConstraint(f"{rule.name}, presence of {greater.attribute}", lacking)

    def between(self, second: Mapping[str, str], counted: str) -> Iterator[DenialConstraint]:
        """The rules on two rows of one person as rules on its row, in both orders of the two."""
        for rule in self.within:
            names = [name for name in rule.attributes if name not in self.shared]
            if names == [self.order] and constraints.key_attributes(rule):
                continue
            if not names or not self.fixed.isdisjoint(names):
                continue
            rest = [p for p in rule.predicates if not _same_key(p, self.key)]
            both = {_of_units_with(2, on_one_row(rest, {row: second}), counted) for row in (1, 2)}
            for number, predicates in enumerate(sorted(both, key=repr), start=1):
                name = f"{rule.name}, of two rows" + (f" ({number})" if len(both) > 1 else "")
                yield DenialConstraint(name, predicates)

    def in_order(
        self, second: Mapping[str, str], columns: Iterable[Column]
    ) -> Iterator[DenialConstraint]:
        """The order of two rows of one person as rules on its row; rows that lack it come last."""
        if self.order is None or self.order not in second:
            return
        one, two = Cell(1, self.order), Cell(1, second[self.order])
        op = Op.GE if self._differ_in(self.order) else Op.GT
        yield DenialConstraint(f"order by {self.order}", (Predicate(one, op, two),))
        if any(column.name == self.order and column.attribute.nullable for column in columns):
            lacking = (Predicate(one, Op.EQ, None), Predicate(two, Op.NE, None))
            yield DenialConstraint(f"order by {self.order}, presence", lacking)

    def _differ_in(self, name: str) -> bool:
        """Whether no two rows of one person have the same value of an attribute."""
        keys = (constraints.key_attributes(rule) or () for rule in self.within)
        return any({*names} == {self.key, name} for names in keys)


def _of_units_with(
    rows: int, predicates: Iterable[Predicate], counted: str
) -> tuple[Predicate, ...]:
    """Predicates on units with so many rows: without them the values of rows are missing, too."""
    whole = tuple(predicates)
    enough = Predicate(Cell(1, counted), Op.GE, rows)
    return (*whole, enough) if any(p.right is None for p in whole) else whole


def on_one_row(
    predicates: Iterable[Predicate], names: Mapping[int, Mapping[str, str]]
) -> Iterator[Predicate]:
    """Predicates on one row, in which attributes of some rows of a pair have other names."""

    def cell(of: Cell) -> Cell:
        name = names.get(of.row, {}).get(of.attribute, of.attribute)
        return replace(of, row=1, attribute=name)

    for each in predicates:
        right = cell(each.right) if isinstance(each.right, Cell) else each.right
        yield Predicate(cell(each.left), each.op, right)


def _fixed_by(rule: DenialConstraint, shared: frozenset[str]) -> tuple[str, ...]:
    """The attributes of rows that a rule between rows of different persons decides by others.

    The right side of a dependency; of another rule all but the first; all where an attribute of
    persons is to go with them.
    """
    dependency = constraints.functional_dependency(rule)
    names = [name for name in rule.attributes if name not in shared]
    if dependency is not None and dependency[1] in names:
        return (dependency[1],)
    return tuple(names if dependency or not shared.isdisjoint(rule.attributes) else names[1:])


def _is_attribute(rule: DenialConstraint, persons: Persons) -> bool:
    """Whether a rule on the key holds because rows share the attributes of their person."""
    dependency = constraints.functional_dependency(rule)
    return (
        dependency is not None
        and persons.key in dependency[0]
        and dependency[1] in persons.attributes
    )


def _require_one_person(rule: DenialConstraint, key: str) -> None:
    if not any(_same_key(predicate, key) for predicate in rule.predicates):
        raise PlanError(
            f"constraint '{rule.name}' compares rows of different units by '{key}', whose values "
            "are numbered afresh; make it soft, or drop it"
        )


def _same_key(predicate: Predicate, key: str) -> bool:
    right = predicate.right
    return (
        predicate.op is Op.EQ
        and isinstance(right, Cell)
        and predicate.left.attribute == right.attribute == key
        and predicate.left.row != right.row
    )
