"""Tables that refer to each other as tables of units: each row with rows that refer to it.

Public inputs only. A family is a table and those that refer to it. Behind the door each of its rows
is one row with the number of its rows of each child table and two of these by lot, as persons are
whose rows are of one table alone (``transforms/unit_tables.py``). So a unit more or less is one row
of the lead's family more or less, and rules across a reference are rules on one row.

A row is in the family of one row that it names, or in none if it must name two rows of units. The
attributes of what it names otherwise are joined to it, unless these may go while it stays: then the
joined rows of that reference are a family of their own. So are the rows that lack a reference to a
family.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cloister.arrays import Integers
from cloister.constraints import DenialConstraint
from cloister.constraints.across import AcrossConstraint
from cloister.constraints.denial import Cell, Predicate
from cloister.errors import PlanError
from cloister.models.relational.references import (
    keys_to_families,
    keys_with_degrees,
    loose_keys,
    most_drawn,
    other_keys,
    require_enough_keys,
    require_kept,
    unit_key,
)
from cloister.models.task import DatabaseTask, Persons, Task
from cloister.models.transforms.differences import unused_name
from cloister.models.transforms.unit_tables import (
    UnitTasks,
    holding,
    may_lack,
    on_one_row,
    two_rows,
    under_fresh_keys,
    unit_columns,
)
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema import relations
from cloister.schema.columns import Column, Serial
from cloister.schema.domain import Domain, Table
from cloister.schema.fan_outs import families_changed, rows_changed
from cloister.schema.relations import Database, ForeignKey, Schema

_ENOUGH = 20_000
"""Rows of a table of units at which the sampling error of a share is below .004."""


def table_of_units(table: str) -> str:
    """The name of the table of units of a family behind the door.

    Names of tables hold no space, so neither is the name of another table.
    """
    return f"units of {table}"


def rows_without(key: ForeignKey) -> str:
    """The name of the family of the rows that lack a reference."""
    return f"{key.table} without {key.column}"


def number_of(key: ForeignKey) -> str:
    """The name of the noisy number of these rows in a plan."""
    return f"number of {rows_without(key)}"


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

    def rows(self, table: Table, keys: Integers) -> Table:
        """Rows of the table, with joined attributes, under the names of the tasks.

        ``keys`` (n,) are the codes of the rows that they refer to.
        """
        stored = {**table.stored, self.key.column: keys}
        codes = {new: stored[name] for name, new in self.names.items()}
        return Table(Domain(tuple(self.tasks.whole.domain[name] for name in codes)), codes)

    def table(self, rows: Table) -> Table:
        """Rows of the tasks as rows of the table, with joined attributes."""
        domain = self.tasks.whole.domain
        columns = {name: replace(domain[new], name=name) for name, new in self.names.items()}
        codes = {name: rows.stored[new] for name, new in self.names.items()}
        return Table(Domain(tuple(columns.values())), codes)


@dataclass(frozen=True)
class Family:
    """The task ``units`` of the rows of a table with those of its ``children``, by table.

    ``door`` is the name of the table behind the door. The ``name`` is that of the table, of its
    rows without a reference, or of those joined with what they refer to. Each row is there so many
    ``times``, with other two of its children.
    """

    name: str
    table: str
    door: str
    units: Task
    children: Mapping[str, Child]
    times: int = 1

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

    @property
    def counted(self) -> Family:
        """The family as a method counts it: of each unit as many rows as it has there."""
        units = _times(self.units, self.times)
        children = {
            name: replace(
                child,
                tasks=replace(
                    child.tasks, units=units, whole=_times(child.tasks.whole, self.times)
                ),
            )
            for name, child in self.children.items()
        }
        return replace(self, units=units, children=children, times=1)


def _times(task: Task, times: int) -> Task:
    """The task of so many times the rows, as many of each unit more."""
    neighbours = replace(task.neighbours, max_rows=times * task.neighbours.max_rows)
    wanted = task.output_rows
    return replace(
        task, data_rows=times * task.data_rows, neighbours=neighbours, wanted_rows=wanted
    )


def _turns(units: int, rows: Iterable[int]) -> int:
    """How often a unit is in its table, each time with other two of its rows.

    Noise grows as the counts do, and two of a user's hundred ratings say less than all: what is
    left of chance is. No more often than there are two other rows, on average.
    """
    pairs = max((number // (2 * units) for number in rows), default=1)
    return max(min(-(-_ENOUGH // units), pairs), 1)


def families_of(task: DatabaseTask) -> Mapping[str, Family]:
    """The families of tables, parents first.

    PlanError if a constraint cannot hold, a key has too few numbers, or a table has no attribute.
    """
    require_kept(task)
    for name, table in task.tables.items():
        domain = relations.rows_domain(task.schema, name)
        require_enough_keys(name, domain, most_drawn(task, table))
        _require_places(task, name)
    families: dict[str, Family] = {}
    for name in task.schema.tables:
        families |= {family.name: family for family in _families_at(task, name)}
    bare = [family.table for family in families.values() if not family.units.domain.modelled]
    named = (key.parent for key in keys_with_degrees(task))
    bare += [name for name in named if not relations.rows_domain(task.schema, name).modelled]
    if bare:
        raise PlanError(
            f"table '{bare[0]}' has no attribute besides keys, by which its rows are modelled; "
            "declare one, or leave the table out"
        )
    return families


def _families_at(task: DatabaseTask, name: str) -> Iterator[Family]:
    """Those of the rows of a table, in the order in which they are drawn."""
    schema, key = task.schema, unit_key(task, name)
    if key is not None and key.optional:
        yield _of_rows_without(task, key)
    for link in loose_keys(task, name):
        yield _of_joined_rows(task, link)
    if key is None or any(unit_key(task, below.table) == below for below in _below(schema, name)):
        yield _family(task, name)


def _below(schema: Schema, name: str) -> Iterator[ForeignKey]:
    return (key for key in schema.keys if key.parent == name)


def _require_places(task: DatabaseTask, name: str) -> None:
    """Check that each row of a table of a declared number can refer to what it must; PlanError."""
    if unit_key(task, name) is not None:
        return
    for key in other_keys(task, name):
        rows, parents = (task.tables[each].data_rows for each in (name, key.parent))
        if rows > parents * key.max_rows and not key.optional:
            raise PlanError(
                f"{rows:,} rows of '{name}' refer to {parents:,} of '{key.parent}', at most "
                f"{key.max_rows:,} to the same one; raise max_rows of '{name}.{key.column}'"
            )


def families_behind_door(task: DatabaseTask) -> Mapping[str, Family]:
    """Those of a task; none where a plan of families would be refused, as others may not be."""
    try:
        return families_of(task)
    except PlanError:
        return {}


def attributes_of(task: DatabaseTask, table: str) -> Domain:
    """The columns of a table's rows, with the attributes of the other rows that they refer to."""
    key, domain = unit_key(task, table), relations.rows_domain(task.schema, table)
    columns = [each for each in domain if key is None or key.column != each.name]
    for link in other_keys(task, table):
        columns += _joined_columns(task.schema, link).values()
    return Domain(tuple(columns))


def _joined_columns(schema: Schema, key: ForeignKey) -> Mapping[str, Column]:
    """The columns of rows with the attributes of what they refer to, by their names there."""
    domain = relations.rows_domain(schema, key.parent)
    columns = {name: relations.parent_column(key, domain[name]) for name in domain.modelled}
    if not key.optional:
        return columns
    return {name: may_lack(column, column.name) for name, column in columns.items()}


def _family(task: DatabaseTask, name: str) -> Family:
    schema, table = task.schema, task.tables[name]
    domain = attributes_of(task, name)
    columns: list[Column] = [domain[attribute] for attribute in domain.modelled]
    rules, rows = [*_own_rules(task, name)], {}
    keys = [key for key in _below(schema, name) if unit_key(task, key.table) == key]
    for key in keys:
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
        neighbours=Neighbours(task.neighbours.relation, families_changed(schema, name, keys)),
        wanted_rows=most_drawn(task, table),
        given=(*domain.modelled, *(n for _, _, counts in rows.values() for n in counts.facts)),
    )
    children = {
        child: Child(key, names, counts.tasks(units))
        for child, (key, names, counts) in rows.items()
    }
    plain = name not in schema.holding and not schema.parents_of(name)
    door = name if plain else table_of_units(name)
    turns = _turns(table.data_rows, (task.tables[key.table].data_rows for key in keys))
    return Family(name, name, door, units, children, turns)


def _of_rows_without(task: DatabaseTask, key: ForeignKey) -> Family:
    """That of the rows that lack a reference to a family: half of them, until they are counted."""
    table, domain = task.tables[key.table], attributes_of(task, key.table)
    units = replace(
        table,
        domain=Domain(tuple(domain[name] for name in domain.modelled)),
        constraints=tuple(_own_rules(task, key.table)),
        data_rows=max(table.data_rows // 2, 1),
    )
    return Family(rows_without(key), key.table, rows_without(key), units, {})


def _of_joined_rows(task: DatabaseTask, key: ForeignKey) -> Family:
    """That of the rows that have a reference, joined with what it leads to."""
    of_rows, of_parents = relations.joined_domain(task.schema, key)
    present = relations.own_column(key.table, task.schema.tables[key.table][key.column])
    given = tuple(name for name in of_rows.names if name != present.name)
    joined = relations.joined_table(key)
    units = replace(
        task.tables[key.table],
        domain=Domain((*(of_rows[name] for name in given), *of_parents)),
        constraints=tuple(_on_joined_row(task, key)),
        neighbours=Neighbours(task.neighbours.relation, rows_changed(task.schema)[joined]),
        given=given,
        targets={},
    )
    return Family(joined, key.table, joined, units, {})


def _on_joined_row(task: DatabaseTask, key: ForeignKey) -> Iterator[DenialConstraint]:
    """The rules across a reference as rules on a joined row, of which both have the names."""
    for rule in task.across:
        if rule.key == key:
            yield DenialConstraint(rule.name, tuple(on_one_row(rule.rule.predicates, {})))


def _own_rules(task: DatabaseTask, name: str) -> Iterator[DenialConstraint]:
    """The rules of a table that its family keeps: where it has a parent, those on one row.

    The others its rows keep as rows of that one.
    """
    domain, alone = relations.rows_domain(task.schema, name), unit_key(task, name) is None
    names = {*domain.names} - {key.column for key in task.schema.parents_of(name)}
    for rule in under_fresh_keys(task.tables[name].constraints, domain):
        if (alone or rule.arity == 1) and {*rule.attributes} <= names:
            yield rule
    yield from _joined_rules(
        task, name, {column: column for column in attributes_of(task, name).names}
    )


def _joined_rules(
    task: DatabaseTask, name: str, names: Mapping[str, str]
) -> Iterator[DenialConstraint]:
    """Rules across references whose attributes are joined, as rules on a row with other ``names``.

    Not those on missing values of what a row may lack: it would break them without.
    """
    for rule in task.across:
        lacking = rule.key.optional and any(p.right is None for p in rule.rule.predicates)
        if rule.key in other_keys(task, name) and not lacking:
            joined = _joined_columns(task.schema, rule.key).values()
            above = {column.name: names[column.name] for column in joined}
            yield _on_one_row(task, rule, names, above)


def _flat(task: DatabaseTask, key: ForeignKey) -> tuple[Mapping[str, str], Task]:
    """The task of rows that refer by a key, with the attributes of those that they refer to."""
    schema, table = task.schema, task.tables[key.table]
    above, below = (attributes_of(task, name) for name in (key.parent, key.table))
    given = Domain(tuple(above[name] for name in above.modelled))
    names: dict[str, str] = {}
    for name in (key.column, *below.names):
        names[name] = unused_name(f"{key.table}.{name}", given)
    reference = schema.tables[key.parent][key.key]
    columns = [replace(reference, name=names[key.column])]
    columns += [replace(column, name=names[column.name]) for column in below]
    ruled = names.keys() - {each.column for each in schema.parents_of(key.table) if each != key}
    rules = [_with_names(r, names) for r in table.constraints if ruled >= {*r.attributes}]
    columns_above = {relations.parent_column(key, each).name: each.name for each in above}
    across = (rule for rule in task.across if rule.key == key)
    rules += [_on_one_row(task, rule, names, columns_above) for rule in across]
    rules += _joined_rules(task, key.table, names)
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
    task: DatabaseTask,
    across: AcrossConstraint,
    names: Mapping[str, str],
    above: Mapping[str, str],
) -> DenialConstraint:
    """A rule across a reference as one on a row with attributes of its parent, named ``above``."""
    table = across.key.table
    below = {
        relations.own_column(table, column).name: names.get(column.name, column.name)
        for column in task.schema.tables[table]
    }
    return DenialConstraint(
        across.name, tuple(on_one_row(across.rule.predicates, {1: below, 2: above}))
    )


def unit_tables(database: Database, task: DatabaseTask) -> Mapping[str, Table]:
    """The table of each family of bounded rows of units, by name; none if there are no families.

    Privacy: a row is a function of one row of its table and of those that refer to it, in the order
        that bounding gave them by a keyed hash: their number, and the first two, or two neighbours
        in their declared order. :func:`cloister.schema.fan_outs.families_changed` says how many
        rows a unit changes. Rows that lack a reference lacked it when they were read, whatever
        became of those that they could have named.
    """
    families = families_behind_door(task)
    tables = {
        name: _units_in(family, database, task)
        for name, family in _doors_of_units(families).items()
        if family.table in task.schema.holding
    }
    for key in keys_to_families(task) if families else ():
        rows = with_joined(database, task, key.table)
        lacking = rows.take(database.references(key) == relations.MISSING)
        names = families[rows_without(key)].units.domain.names
        tables[rows_without(key)] = lacking.select(names).narrow()
    return tables


def catalogue_tables(database: Database, task: DatabaseTask) -> Mapping[str, Table]:
    """Those of tables without rows of units that refer to others.

    Privacy: a row is a function of one row and of those that it must name.
    """
    families = _doors_of_units(families_behind_door(task)).items()
    outside = ((n, each) for n, each in families if each.table not in task.schema.holding)
    return {name: _units_in(family, database, task) for name, family in outside}


def _doors_of_units(families: Mapping[str, Family]) -> Mapping[str, Family]:
    """The families whose rows are made of a table and of what refers to it, by door."""
    named = ((each.door, each) for each in families.values())
    return {door: family for door, family in named if door == table_of_units(family.table)}


def _units_in(family: Family, database: Database, task: DatabaseTask) -> Table:
    rows, number = with_joined(database, task, family.table), database.tables[family.table].rows
    attributes = {
        name: rows.stored[name] for name in family.units.domain.names if name in rows.domain
    }
    referring = {}
    for name, child in family.children.items():
        owners = relations.parent_rows(database, child.key)
        linked = np.flatnonzero(owners >= 0)
        below = child.rows(with_joined(database, task, name), database.references(child.key))
        referring[name] = below.take(linked), owners[linked]
    turns = []
    for turn in range(family.times):
        codes = dict(attributes)
        for name, child in family.children.items():
            codes |= two_rows(child.tasks, *referring[name], number, turn)
        columns = {name: codes[name] for name in family.units.domain.names}
        turns.append(Table(family.units.domain, columns).narrow())
    return Table.concatenate(turns)


def with_joined(database: Database, task: DatabaseTask, name: str) -> Table:
    """Rows of a table with the attributes of the other rows that they refer to."""
    schema, rows = database.schema, relations.row_table(database, name)
    domain = attributes_of(task, name)
    codes = {column: rows.stored[column] for column in domain.names if column in rows.domain}
    for key in other_keys(task, name):
        owners = relations.parent_rows(database, key)
        parents = relations.row_table(database, key.parent)
        there = owners >= 0
        for attribute, column in _joined_columns(schema, key).items():
            codes[column.name] = np.full(len(owners), column.values)
            codes[column.name][there] = parents.codes[attribute][owners[there]]
    return Table(domain, codes)
