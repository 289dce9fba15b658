"""Tables that refer to each other as tables of units: each row with rows that refer to it.

Public inputs only. A family is a table and those that refer to it. Behind the door each of its rows
is one row with the number of its rows of each child table and two of these by lot, as persons are
whose rows are of one table alone (``transforms/unit_tables.py``). So a unit more or less is one row
of the lead's family more or less, and rules across a reference are rules on one row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cloister.constraints import DenialConstraint
from cloister.constraints.across import AcrossConstraint
from cloister.constraints.denial import Cell, Predicate
from cloister.models.relational.rows import most_drawn, require_enough_keys
from cloister.models.task import DatabaseTask, Persons, Task
from cloister.models.transforms.differences import unused_name
from cloister.models.transforms.unit_tables import (
    UnitTasks,
    holding,
    on_one_row,
    rows_of_units,
    two_rows,
    under_fresh_keys,
)
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema import relations
from cloister.schema.columns import Column, Serial
from cloister.schema.domain import Domain, Table
from cloister.schema.fan_outs import rows_changed
from cloister.schema.relations import Database, ForeignKey, Schema


def table_of_units(table: str) -> str:
    """The name of the table of units of a family behind the door.

    Names of tables hold no space, so neither is the name of another table.
    """
    return f"units of {table}"


@dataclass(frozen=True)
class Child:
    """The rows of a table that refer to rows of a family, as ``tasks`` of units.

    ``names`` are those of the columns in the tasks, by their names in the table.
    """

    key: ForeignKey
    names: Mapping[str, str]
    tasks: UnitTasks

    @property
    def most(self) -> int:
        """The most rows that the patterns of its keys have numbers for."""
        domain, shared = self.tasks.whole.domain, self.tasks.key
        keys = (column for column in domain if isinstance(column, Serial) and column.name != shared)
        return min((column.values for column in keys), default=sys.maxsize)

    def rows(self, table: Table) -> Table:
        """Rows of the table under the names of the tasks."""
        domain = self.tasks.whole.domain
        codes = {name: table.stored[column] for column, name in self.names.items()}
        return Table(Domain(tuple(domain[name] for name in codes)), codes)

    def table(self, domain: Domain, rows: Table) -> Table:
        """Rows of the tasks as rows of the table."""
        return Table(domain, {name: rows.stored[self.names[name]] for name in domain.names})


@dataclass(frozen=True)
class Family:
    """The task ``units`` of the rows of a table with those of its ``children``, by table."""

    table: str
    units: Task
    children: Mapping[str, Child]

    def holding(self, second: Mapping[str, tuple[str, ...]]) -> Family:
        """The family where second rows of each child have these attributes alone."""
        tasks = holding(self.tasks, second.values())
        pairs = zip(self.children.items(), tasks, strict=True)
        children = {name: replace(child, tasks=fewer) for (name, child), fewer in pairs}
        units = next((child.tasks.units for child in children.values()), self.units)
        return replace(self, units=units, children=children)

    def estimated(self, rows: int) -> Family:
        """The family of another number of rows."""
        units = replace(self.units, data_rows=rows)
        children = {
            name: replace(child, tasks=replace(child.tasks, units=units))
            for name, child in self.children.items()
        }
        return replace(self, units=units, children=children)

    @property
    def tasks(self) -> list[UnitTasks]:
        """Those of the rows of each child."""
        return [child.tasks for child in self.children.values()]


def families_of(task: DatabaseTask) -> Mapping[str, Family] | None:
    """The families of tables, parents first; None if rows of one belong to several others.

    PlanError if a constraint cannot hold, or a key has too few numbers.
    """
    schema = task.schema
    if not is_tree(schema):
        return None
    for name, table in task.tables.items():
        require_enough_keys(name, relations.rows_domain(schema, name), most_drawn(task, table))
    parents = {key.parent: None for key in schema.keys} or {schema.lead: None}
    return {name: _family(task, name) for name in schema.tables if name in parents}


def is_tree(schema: Schema) -> bool:
    """Whether each row but those of the lead refers to one other, and units are rows of the lead.

    All of its rows then belong to one unit, and a random part is left out of too many.
    """
    single = all(
        len(keys := schema.parents_of(name)) == 1 and not keys[0].optional and not keys[0].to_itself
        for name in schema.tables
        if name != schema.lead
    )
    return single and not schema.parents_of(schema.lead) and schema.units in ((), (schema.lead,))


def _family(task: DatabaseTask, name: str) -> Family:
    schema, table = task.schema, task.tables[name]
    domain = relations.rows_domain(schema, name)
    columns: list[Column] = [domain[attribute] for attribute in domain.modelled]
    rules, rows = [*_own_rules(task, name)], {}
    for key in schema.keys:
        if key.parent == name:
            names, whole = _flat(task, key)
            counted = unused_name(f"rows of {key.table}", domain)
            counts = rows_of_units(whole, counted, least=0)
            rows[key.table] = (key, names, counts)
            columns += counts.columns
            rules += counts.constraints
    units = replace(
        table,
        domain=Domain(tuple(columns)),
        constraints=tuple(rules),
        neighbours=Neighbours(task.neighbours.relation, rows_changed(schema)[name]),
        wanted_rows=most_drawn(task, table),
        given=(*domain.modelled, *(counts.counted for _, _, counts in rows.values())),
    )
    children = {
        child: Child(key, names, counts.tasks(units))
        for child, (key, names, counts) in rows.items()
    }
    return Family(name, units, children)


def _own_rules(task: DatabaseTask, name: str) -> Iterator[DenialConstraint]:
    """The rules of a table that its family keeps: where it has a parent, those on one row.

    The others its rows keep as rows of that one.
    """
    references = {key.column for key in task.schema.parents_of(name)}
    table = task.tables[name]
    for rule in under_fresh_keys(table.constraints, table.domain):
        if not references or (rule.arity == 1 and references.isdisjoint(rule.attributes)):
            yield rule


def _flat(task: DatabaseTask, key: ForeignKey) -> tuple[Mapping[str, str], Task]:
    """The task of rows that refer by a key, with the attributes of those that they refer to."""
    schema, table = task.schema, task.tables[key.table]
    above, below = (relations.rows_domain(schema, name) for name in (key.parent, key.table))
    given = Domain(tuple(above[name] for name in above.modelled))
    names: dict[str, str] = {}
    for name in (key.column, *below.names):
        names[name] = unused_name(f"{key.table}.{name}", given)
    columns = [replace(schema.tables[key.table][name], name=new) for name, new in names.items()]
    rules = [_with_names(rule, names) for rule in table.constraints]
    rules += [_on_one_row(task, rule, names) for rule in task.across if rule.key == key]
    whole = replace(
        table,
        domain=Domain((*given, *columns)),
        constraints=tuple(rules),
        neighbours=Neighbours(task.neighbours.relation, key.max_rows),
        wanted_rows=most_drawn(task, table),
        persons=Persons(names[key.column], given.names, task.tables[key.parent].data_rows),
    )
    return names, whole


def _with_names(rule: DenialConstraint, names: Mapping[str, str]) -> DenialConstraint:
    def cell(of: Cell) -> Cell:
        return Cell(of.row, names[of.attribute])

    predicates = (
        Predicate(cell(p.left), p.op, cell(p.right) if isinstance(p.right, Cell) else p.right)
        for p in rule.predicates
    )
    return replace(rule, predicates=tuple(predicates))


def _on_one_row(
    task: DatabaseTask, across: AcrossConstraint, names: Mapping[str, str]
) -> DenialConstraint:
    """A rule across a reference as one on a row with the attributes of its parent."""
    key, tables, below, above = across.key, task.schema.tables, dict[str, str](), dict[str, str]()
    for column in tables[key.table]:
        below[relations.own_column(key.table, column).name] = names.get(column.name, column.name)
    for column in tables[key.parent]:
        above[relations.parent_column(key, column).name] = column.name
    return DenialConstraint(
        across.name, tuple(on_one_row(across.rule.predicates, {1: below, 2: above}))
    )


def unit_tables(database: Database, task: DatabaseTask) -> Mapping[str, Table]:
    """The table of units of each family of bounded rows, by name; none if there are no families.

    Privacy: a row is a function of one row of its table and of those that refer to it, in the order
        that bounding gave them by a keyed hash: their number, and the first two. A unit has one row
        of the lead, and of each table below no more than its fan-out
        (:func:`cloister.schema.fan_outs.rows_changed`).
    """
    return {
        table_of_units(name): _units_in(family, database)
        for name, family in (families_of(task) or {}).items()
    }


def _units_in(family: Family, database: Database) -> Table:
    rows = database.tables[family.table]
    codes = {name: rows.stored[name] for name in family.units.domain.names if name in rows.domain}
    for name, child in family.children.items():
        owners = relations.parent_rows(database, child.key)
        linked = np.flatnonzero(owners >= 0)
        referring = child.rows(database.tables[name]).take(linked)
        codes |= two_rows(child.tasks, referring, owners[linked], rows.rows)
    return Table(family.units.domain, {n: codes[n] for n in family.units.domain.names}).narrow()
