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
from cloister.errors import PlanError
from cloister.models.relational.constraints import distinct_pairs
from cloister.models.relational.rows import most_drawn, require_enough_keys
from cloister.models.task import DatabaseTask, Persons, Task
from cloister.models.transforms.differences import unused_name
from cloister.models.transforms.unit_tables import (
    UnitTasks,
    holding,
    on_one_row,
    two_rows,
    under_fresh_keys,
    unit_columns,
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
        """Rows of the table, with joined attributes, under the names of the tasks."""
        domain = self.tasks.whole.domain
        codes = {self.names[column.name]: table.stored[column.name] for column in table.domain}
        return Table(Domain(tuple(domain[name] for name in codes)), codes)

    def table(self, rows: Table) -> Table:
        """Rows of the tasks as rows of the table, with joined attributes."""
        domain = self.tasks.whole.domain
        columns = {name: replace(domain[new], name=name) for name, new in self.names.items()}
        codes = {name: rows.stored[new] for name, new in self.names.items()}
        return Table(Domain(tuple(columns.values())), codes)


@dataclass(frozen=True)
class Family:
    """The task ``units`` of the rows of a table with those of its ``children``, by table.

    ``door`` is the name of the table behind the door: its own where it holds no rows of units.
    """

    table: str
    door: str
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
    """The families of tables, parents first; None if their rows cannot be modelled so.

    PlanError if a constraint cannot hold, or a key has too few numbers.
    """
    schema = task.schema
    if not has_families(schema) or not all(_keeps_rules(task, key) for key in schema.keys):
        return None
    for name, table in task.tables.items():
        require_enough_keys(name, relations.rows_domain(schema, name), most_drawn(task, table))
    for key in other_keys(schema, schema.lead):
        _require_places(task, key)
    parents = {key.parent for key in schema.keys if unit_key(schema, key.table) == key}
    return {
        name: _family(task, name)
        for name in schema.tables
        if name in parents or unit_key(schema, name) is None
    }


def _require_places(task: DatabaseTask, key: ForeignKey) -> None:
    """Check that each row of the lead can refer to one; PlanError."""
    rows, parents = (task.tables[name].data_rows for name in (key.table, key.parent))
    if rows > parents * key.max_rows:
        raise PlanError(
            f"{rows:,} rows of '{key.table}' refer to {parents:,} of '{key.parent}', at most "
            f"{key.max_rows:,} to the same one; raise max_rows of '{key.table}.{key.column}'"
        )


def families_behind_door(task: DatabaseTask) -> Mapping[str, Family]:
    """Those of a task; none where a plan of families would be refused, as others may not be."""
    try:
        return families_of(task) or {}
    except PlanError:
        return {}


def has_families(schema: Schema) -> bool:
    """Whether units are rows of the lead, and each row of one refers to one row of one at most.

    All of its rows then belong to one unit, and a random part is left out of too many. Other
    references lead to tables without rows of units that refer to none, and none may be missing.
    """
    simple = not any(key.optional or key.to_itself for key in schema.keys)
    single = all(len(schema.keys_to_units(name)) <= 1 for name in schema.tables)
    outside = [name for name in schema.tables if name not in schema.holding]
    plain = all(
        relations.rows_domain(schema, name).modelled and not schema.parents_of(name)
        for name in outside
    )
    alone = not schema.keys_to_units(schema.lead) and schema.units in ((), (schema.lead,))
    return simple and single and plain and alone


def unit_key(schema: Schema, table: str) -> ForeignKey | None:
    """The reference of a table to rows of units; None if it has none."""
    return next(iter(schema.keys_to_units(table)), None)


def other_keys(schema: Schema, table: str) -> tuple[ForeignKey, ...]:
    """The references of a table to tables without rows of units, such as catalogues."""
    return tuple(key for key in schema.parents_of(table) if key.parent not in schema.holding)


def _keeps_rules(task: DatabaseTask, key: ForeignKey) -> bool:
    """Whether no rule is on a reference to a table without units, but for a key with the unit's."""
    if unit_key(task.schema, key.table) == key:
        return True
    rules = (rule for rule in task.tables[key.table].hard if key.column in rule.attributes)
    pair, unit = distinct_pairs(task).get(key.table, ()), unit_key(task.schema, key.table)
    with_unit = unit is not None and {key.column, unit.column} == {*pair}
    paired = all(with_unit and len(rule.attributes) == 2 for rule in rules)
    return paired and not any(rule.key == key for rule in task.across)


def attributes_of(schema: Schema, table: str) -> Domain:
    """The columns of a table's rows, with the attributes of the other rows that they refer to."""
    joined = (
        relations.parent_column(key, relations.rows_domain(schema, key.parent)[name])
        for key in other_keys(schema, table)
        for name in relations.rows_domain(schema, key.parent).modelled
    )
    return Domain((*relations.rows_domain(schema, table), *joined))


def _family(task: DatabaseTask, name: str) -> Family:
    schema, table = task.schema, task.tables[name]
    domain = attributes_of(schema, name)
    columns: list[Column] = [domain[attribute] for attribute in domain.modelled]
    rules, rows = [*_own_rules(task, name)], {}
    for key in schema.keys:
        if key.parent == name and unit_key(schema, key.table) == key:
            names, whole = _flat(task, key)
            counted = unused_name(f"rows of {key.table}", domain)
            counts = unit_columns(whole, counted, least=0)
            rows[key.table] = (key, names, counts)
            columns += counts.columns
            rules += counts.constraints
    units = replace(
        table,
        domain=Domain(tuple(columns)),
        constraints=tuple(rules),
        neighbours=Neighbours(task.neighbours.relation, rows_changed(schema)[name]),
        wanted_rows=most_drawn(task, table),
        given=(*domain.modelled, *(n for _, _, counts in rows.values() for n in counts.facts)),
    )
    children = {
        child: Child(key, names, counts.tasks(units))
        for child, (key, names, counts) in rows.items()
    }
    door = table_of_units(name) if name in schema.holding else name
    return Family(name, door, units, children)


def _own_rules(task: DatabaseTask, name: str) -> Iterator[DenialConstraint]:
    """The rules of a table that its family keeps: where it has a parent, those on one row.

    The others its rows keep as rows of that one.
    """
    domain, alone = relations.rows_domain(task.schema, name), unit_key(task.schema, name) is None
    for rule in under_fresh_keys(task.tables[name].constraints, domain):
        if (alone or rule.arity == 1) and {*rule.attributes} <= {*domain.names}:
            yield rule


def _flat(task: DatabaseTask, key: ForeignKey) -> tuple[Mapping[str, str], Task]:
    """The task of rows that refer by a key, with the attributes of those that they refer to."""
    schema, table = task.schema, task.tables[key.table]
    above, below = (attributes_of(schema, name) for name in (key.parent, key.table))
    given = Domain(tuple(above[name] for name in above.modelled))
    names: dict[str, str] = {}
    for name in (key.column, *below.names):
        names[name] = unused_name(f"{key.table}.{name}", given)
    reference = schema.tables[key.table][key.column]
    columns = [replace(reference, name=names[key.column])]
    columns += [replace(column, name=names[column.name]) for column in below]
    rules = [_with_names(r, names) for r in table.constraints if names.keys() >= {*r.attributes}]
    rules += [_on_one_row(task, rule, names) for rule in task.across if rule.key == key]
    whole = replace(
        table,
        domain=Domain((*given, *columns)),
        constraints=tuple(rules),
        neighbours=Neighbours(task.neighbours.relation, key.max_rows),
        wanted_rows=most_drawn(task, table),
        persons=Persons(
            names[key.column],
            given.names,
            task.tables[key.parent].data_rows,
            names[key.order] if key.order else None,
        ),
    )
    return names, whole


def _with_names(rule: DenialConstraint, names: Mapping[str, str]) -> DenialConstraint:
    def cell(of: Cell) -> Cell:
        return replace(of, attribute=names[of.attribute])

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
        that bounding gave them by a keyed hash: their number, and the first two, or two neighbours
        in their declared order. A unit has one row of the lead, and of each table below no more
        than its fan-out
        (:func:`cloister.schema.fan_outs.rows_changed`).
    """
    return {
        family.door: _units_in(family, database)
        for family in families_behind_door(task).values()
        if family.table in task.schema.holding
    }


def _units_in(family: Family, database: Database) -> Table:
    rows = with_joined(database, family.table)
    codes = {name: rows.stored[name] for name in family.units.domain.names if name in rows.domain}
    for name, child in family.children.items():
        owners = relations.parent_rows(database, child.key)
        linked = np.flatnonzero(owners >= 0)
        reference = database.tables[name].stored[child.key.column]
        referring = with_joined(database, name)
        columns = Domain((database.tables[name].domain[child.key.column], *referring.domain))
        whole = Table(columns, {**referring.stored, child.key.column: reference})
        codes |= two_rows(child.tasks, child.rows(whole).take(linked), owners[linked], rows.rows)
    return Table(family.units.domain, {n: codes[n] for n in family.units.domain.names}).narrow()


def with_joined(database: Database, name: str) -> Table:
    """Rows of a table with the attributes of the other rows that they refer to."""
    schema, rows = database.schema, database.tables[name]
    domain = attributes_of(schema, name)
    codes = {column: rows.stored[column] for column in domain.names if column in rows.domain}
    for key in other_keys(schema, name):
        parents, owners = database.tables[key.parent], relations.parent_rows(database, key)
        for column in relations.rows_domain(schema, key.parent).modelled:
            joined = relations.parent_column(key, parents.domain[column]).name
            codes[joined] = parents.stored[column][owners]
    return Table(domain, codes)
