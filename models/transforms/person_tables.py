"""A task of persons with several rows as two tasks: one row per person, and the rows themselves.

Public inputs only. The first table has the attributes of persons and their number of rows; a unit
is one row of it. The second is the table itself, a unit of at most ``max_rows`` rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from cloister import constraints
from cloister.arrays import Integers, place_among_equal
from cloister.constraints.denial import Cell, Op, Predicate
from cloister.errors import PlanError
from cloister.figures import count_of
from cloister.models.task import Persons, Task
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Integer
from cloister.schema.columns import Column, Serial
from cloister.schema.domain import Domain, Table, column_of
from cloister.schema.partition import PairKinds
from cloister.schema.relations import Database, Schema

PERSONS, ROWS = "persons", "rows"
"""Names of the two tables, in labels of stages and behind the door."""

_Rules = tuple[constraints.DenialConstraint, ...]


@dataclass(frozen=True)
class PersonTasks:
    """The tasks of both tables, and the rules between rows of one person.

    ``counted`` names the attribute of the first table that is a person's number of rows; ``within``
    are hard constraints on two rows of the same person.
    """

    whole: Task
    persons: Task
    rows: Task
    counted: str
    within: tuple[constraints.DenialConstraint, ...]

    @cached_property
    def compared(self) -> Mapping[str, Column]:
        """For each attribute of rows, the column of kinds of pairs in the table of persons."""
        domain, columns = self.whole.domain, {}
        for name in domain.modelled:
            if name not in self.given:
                unused = _unused_name(f"{name} of two rows", domain)
                columns[name] = PairKinds(domain[name]).attribute_column(unused)
        return columns

    @property
    def key(self) -> str:
        """The column that names persons."""
        return _persons(self.whole).key

    @property
    def given(self) -> tuple[str, ...]:
        """The attributes of persons, which their rows share."""
        return _persons(self.whole).attributes

    @property
    def number(self) -> int | None:
        """The declared number of persons."""
        return _persons(self.whole).number

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

    def contributing(self, most: int) -> PersonTasks:
        """The same tasks where at most so many rows of each person are counted."""
        bounded = replace(self.rows.neighbours, max_rows=most)
        return replace(self, rows=replace(self.rows, neighbours=bounded))

    @property
    def counts_all_rows(self) -> bool:
        """Whether all rows of a person within its bound are counted."""
        return self.rows.neighbours.max_rows == self.whole.neighbours.max_rows

    @property
    def counted_rows(self) -> str:
        """Which rows are counted, in words."""
        if self.counts_all_rows:
            return "of the rows"
        return f"of {count_of(self.rows.neighbours.max_rows, 'row')} a person"

    def estimated(self, persons: int, rows: int) -> PersonTasks:
        """The same tasks for other numbers of persons and of rows, such as released ones."""
        return replace(
            self,
            persons=replace(self.persons, data_rows=persons),
            rows=replace(self.rows, data_rows=rows),
        )

    def counts(self, persons: Table) -> Integers:
        """The number of rows (n,) of each row of the first table."""
        column = persons.domain[self.counted]
        return np.rint(column.comparable(persons.codes[self.counted])).astype(np.int64)


def split_task(task: Task) -> PersonTasks:
    """The two tasks of a task of persons.

    Raises:
        PlanError: a constraint cannot hold where persons have several rows under fresh keys, or
            the key's pattern has too few numbers for the rows that are wanted.
    """
    persons = _persons(task)
    of_persons, rows, within = _divided(task, persons)
    counted = _unused_name(f"rows of {persons.key}", task.domain)
    most = task.neighbours.max_rows
    number = persons.number or max(-(-task.data_rows // most), 1)
    first = Task(_domain_of_persons(task, persons, counted), of_persons, number, _alone(task))
    second = replace(
        task,
        constraints=rows,
        data_rows=min(task.data_rows, number * most) if persons.number else task.data_rows,
        wanted_rows=task.output_rows,
        persons=None,
        given=(persons.key, *persons.attributes),
    )
    tasks = PersonTasks(task, first, second, counted, within)
    if tasks.capacity * tasks.most_rows < task.output_rows:
        raise PlanError(
            f"column '{persons.key}' names at most {count_of(tasks.capacity, 'person')} of at "
            f"most {count_of(tasks.most_rows, 'row')} each, too few for "
            f"{count_of(task.output_rows, 'row')}; widen its pattern "
            "or request fewer rows"
        )
    return tasks


def person_tables(table: Table, task: Task) -> Database:
    """Both tables of the bounded rows of a table, which are in an order of no meaning.

    Privacy: a person's row of the first table is a function of that person's rows alone, in the
        order that bounding gave them by a keyed hash: the attributes of the first of them, their
        number, and the kinds of pairs of values of the two at a third and at two thirds of them. So
        a person more or less changes one row of the first
        table, and its own rows of the second.
    """
    tables = {PERSONS: table.by_unit(partial(_persons_in, split_task(task))), ROWS: table}
    return Database(Schema({name: one.domain for name, one in tables.items()}), tables)


def _persons_in(tasks: PersonTasks, table: Table) -> Table:
    """The row of each person that has rows in a table, which are all of its rows."""
    order = np.argsort(table.codes[tasks.key], kind="stable")
    keys = table.codes[tasks.key][order]
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    codes = {name: table.codes[name][order[first]] for name in tasks.given}
    codes[tasks.counted] = counts.astype(np.int64) - 1
    for name, column in tasks.compared.items():
        kinds = PairKinds(table.domain[name])
        codes[column.name] = kinds.of_groups(table.codes[name][order], counts)
    return Table(Domain((*tasks.persons.domain, *tasks.compared.values())), codes).narrow()


def first_rows(table: Table, most: int, key: str) -> Table:
    """At most so many bounded rows of each person, the first in the order of lots.

    Privacy: which they are is a function of that person's rows alone, as for
        :func:`person_tables`.
    """
    return table.by_unit(partial(_first_rows, key, most))


def _first_rows(key: str, most: int, table: Table) -> Table:
    keys = table.codes[key]
    order = np.argsort(keys, kind="stable")
    places = np.empty(len(keys), dtype=np.int64)
    places[order] = place_among_equal(keys[order])
    return table.take(places < most)


def neighbours_of_tables(task: Task) -> dict[str, Neighbours]:
    """The neighbouring relation of each table: a person is one row of the first."""
    return {PERSONS: _alone(task), ROWS: task.neighbours}


def _persons(task: Task) -> Persons:
    if task.persons is None:
        raise TypeError("the task has no persons")
    return task.persons


def _alone(task: Task) -> Neighbours:
    return Neighbours(task.neighbours.relation)


def _domain_of_persons(task: Task, persons: Persons, counted: str) -> Domain:
    """The attributes of persons and their number of rows; all above the bound have just that."""
    most = task.neighbours.max_rows
    number = Integer(type="integer", min=1, max=most, special=[most])
    columns = [task.domain[name] for name in persons.attributes]
    return Domain((*columns, column_of(counted, number, Path())))


def _unused_name(name: str, domain: Domain) -> str:
    while name in domain:
        name += "_"
    return name


def _divided(task: Task, persons: Persons) -> tuple[_Rules, _Rules, _Rules]:
    """The constraints on persons, on rows, and on two rows of one person."""
    of_persons: list[constraints.DenialConstraint] = []
    rows: list[constraints.DenialConstraint] = []
    within: list[constraints.DenialConstraint] = []
    for rule in task.constraints:
        shared = set(rule.attributes) <= {persons.key, *persons.attributes}
        if shared and rule.hard and not constraints.holds_for_equal_rows(rule, task.domain):
            raise PlanError(
                f"constraint '{rule.name}' cannot hold where a person has several rows, which "
                "agree on all that it compares; make it soft, or declare max_rows: 1"
            )
        if persons.key not in rule.attributes:
            (of_persons if shared else rows).append(rule)
        elif rule.hard and not _is_attribute(rule, persons):
            _require_one_person(rule, persons.key)
            within.append(rule)
    return tuple(of_persons), tuple(rows), tuple(within)


def _is_attribute(rule: constraints.DenialConstraint, persons: Persons) -> bool:
    """Whether a rule on the key holds because rows share the attributes of their person."""
    dependency = constraints.functional_dependency(rule)
    return (
        dependency is not None
        and persons.key in dependency[0]
        and dependency[1] in persons.attributes
    )


def _require_one_person(rule: constraints.DenialConstraint, key: str) -> None:
    if not any(_same_key(predicate, key) for predicate in rule.predicates):
        raise PlanError(
            f"constraint '{rule.name}' compares rows of different persons by '{key}', whose values "
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
