"""Tables whose rows refer to each other: schema, rows as codes, and joins.

Each row of a join is a function of rows of one privacy unit, or of what one unit can change of it:
``fan_outs.py`` counts how many rows of each table behind the door that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.errors import DataError
from cloister.schema.attributes import Boolean, Integer
from cloister.schema.columns import Column
from cloister.schema.domain import Domain, Table, column_of

MISSING, UNLINKED = -1, -2
"""In place of the key of a row: its reference is missing, or leads to no row, or to one that has as
many as it may."""


@dataclass(frozen=True)
class ForeignKey:
    """``column`` of ``table`` names a row of ``parent`` by its primary ``key``.

    At most ``max_rows`` rows of ``table`` refer to the same row. A reference that is ``optional``
    may be missing: without the row that it names its own row stays. Rows that refer to the same row
    follow each other by the attribute ``order``, if one is declared.
    """

    table: str
    column: str
    parent: str
    key: str
    max_rows: int
    optional: bool = False
    order: str | None = None

    @property
    def to_itself(self) -> bool:
        """Whether rows of a table refer to rows of the same table."""
        return self.table == self.parent


@dataclass(frozen=True)
class Schema:
    """The domains of tables and the foreign keys between them; public. Parents precede children.

    A privacy unit is a row of one of ``units``, by default of the first table, with all rows that
    refer to it, directly or through others, by references that are not optional.
    """

    tables: Mapping[str, Domain]
    keys: tuple[ForeignKey, ...] = ()
    units: tuple[str, ...] = ()

    def parents_of(self, table: str) -> tuple[ForeignKey, ...]:
        """The foreign keys of a table, those that are not optional first."""
        keys = (key for key in self.keys if key.table == table)
        return tuple(sorted(keys, key=lambda key: (key.optional, key.parent not in self.holding)))

    def required_of(self, table: str) -> tuple[ForeignKey, ...]:
        """The foreign keys of a table that each of its rows has."""
        return tuple(key for key in self.parents_of(table) if not key.optional)

    def key_of(self, table: str) -> str | None:
        """The column by which others refer to a table; None if none does."""
        return next((key.key for key in self.keys if key.parent == table), None)

    def keys_to_units(self, table: str) -> tuple[ForeignKey, ...]:
        """Those of them that lead to rows of units."""
        return tuple(key for key in self.required_of(table) if key.parent in self.holding)

    @cached_property
    def lead(self) -> str:
        """The table whose number of rows is wanted: that of the units."""
        return next(iter(self.units or self.tables))

    @cached_property
    def any_row(self) -> bool:
        """Whether a row of any table is a unit."""
        return len(self.units) == len(self.tables) > 1

    @cached_property
    def holding(self) -> frozenset[str]:
        """The tables that hold rows of units."""
        holding = set(self.units or [self.lead])
        for name in self.tables:
            if any(k.parent in holding for k in self.keys if k.table == name and not k.optional):
                holding.add(name)
        return frozenset(holding)


@dataclass(frozen=True)
class Database:
    """The rows of several tables as codes."""

    schema: Schema
    tables: Mapping[str, Table]

    @property
    def rows(self) -> dict[str, int]:
        """Rows by table."""
        return {name: table.rows for name, table in self.tables.items()}

    def references(self, key: ForeignKey) -> Integers:
        """The codes (n,) of the key that rows name, as the parent has them.

        MISSING or UNLINKED where they name none.
        """
        codes = self.tables[key.table].codes[key.column].astype(np.int64)
        null = self.schema.tables[key.table][key.column].null_code
        if null is None:
            return codes
        return np.where(codes == null, MISSING, codes - (codes > null))

    def referring(self, key: ForeignKey) -> Booleans:
        """Which rows (n,) of the key's table name a row of its parent that is there."""
        return np.isin(self.references(key), self.tables[key.parent].codes[key.key])

    def by_unit(self, function: Callable[[Database], Mapping[str, Table]]) -> Mapping[str, Table]:
        """The tables that ``function`` makes of these, given all rows of a unit together."""
        return function(self)

    def beside_units(
        self, function: Callable[[Database], Mapping[str, Table]]
    ) -> Mapping[str, Table]:
        """The tables that ``function`` makes of those that hold no rows of units."""
        return function(self)

    def queried(self) -> Mapping[str, Table]:
        """What queries read of these rows, which are within bounds."""
        return {**row_tables(self), **joined_tables(self)}

    def dangling(self) -> Iterator[tuple[ForeignKey, int]]:
        """Each foreign key, with the number of rows that name no row of its parent but should."""
        for key in self.schema.keys:
            named = self.references(key) != MISSING
            yield key, int((named & ~self.referring(key)).sum())


DEGREE = "degree"
"""The column of a table of degrees."""


def joined_table(key: ForeignKey) -> str:
    """The name of the rows of a table with the attributes of those that they refer to."""
    return f"{key.table} of {key.column}"


def degree_table(key: ForeignKey) -> str:
    """The name of the table of degrees: one row a row of the parent.

    Names of tables hold no space, so neither is the name of another table.
    """
    return f"degrees of {key.table} of {key.column}"


def own_column(table: str, column: Column) -> Column:
    """An attribute of the table that refers, as a column of the joined one."""
    return replace(column, name=f"{table}.{column.name}")


def parent_column(key: ForeignKey, column: Column) -> Column:
    """An attribute of the table that a key refers to, as a column of the joined one."""
    return replace(column, name=f"{key.column}: {column.name}")


def rows_domain(schema: Schema, table: str) -> Domain:
    """The columns of a table's rows without those that refer to others.

    Of a reference that may be missing there is whether it is.
    """
    references = {key.column: key for key in schema.parents_of(table)}
    columns = []
    for column in schema.tables[table]:
        key = references.get(column.name)
        if key is None:
            columns.append(column)
        elif key.optional:
            columns.append(column_of(column.name, Boolean(type="boolean"), Path()))
    return Domain(tuple(columns))


def joined_domain(schema: Schema, key: ForeignKey) -> tuple[Domain, Domain]:
    """The columns of both sides of a joined table: of the row that refers, and of its parent.

    The row has those of its table, and of the parents that earlier references lead to.
    """
    rows = rows_domain(schema, key.table)
    columns = [own_column(key.table, rows[name]) for name in rows.modelled]
    for earlier in earlier_keys(schema, key):
        of_parent = rows_domain(schema, earlier.parent)
        columns += [parent_column(earlier, of_parent[name]) for name in of_parent.modelled]
    parents = rows_domain(schema, key.parent)
    of_key = [parent_column(key, parents[name]) for name in parents.modelled]
    return Domain(tuple(columns)), Domain(tuple(of_key))


def earlier_keys(schema: Schema, key: ForeignKey) -> tuple[ForeignKey, ...]:
    """The references of the same table that each row has, and that precede a key."""
    keys = schema.parents_of(key.table)
    return tuple(earlier for earlier in keys[: keys.index(key)] if not earlier.optional)


def require_unique_keys(database: Database) -> None:
    """Check that a key names one row, in each table that others refer to.

    Raises:
        DataError: names the table and its key.
    """
    for key in database.schema.keys:
        keys = np.sort(database.tables[key.parent].codes[key.key])
        if (np.diff(keys) == 0).any():
            raise same_key_error(key)


def same_key_error(key: ForeignKey) -> DataError:
    """What is said where a key that others refer to names several rows."""
    return DataError(
        f"table '{key.parent}', column '{key.key}': rows have the same key, and rows of "
        f"'{key.table}' refer to them; a key names one row, so correct the source"
    )


def row_tables(database: Database) -> Mapping[str, Table]:
    """The rows of each table as a method of one table asks about them.

    Privacy: each row is a function of one row alone.
    """
    return {name: row_table(database, name) for name in database.tables}


def row_table(database: Database, name: str) -> Table:
    """The rows of one table without the names of those that they refer to."""
    table = database.tables[name]
    if not (references := database.schema.parents_of(name)):
        return table
    domain = rows_domain(database.schema, name)
    optional = {key.column: key for key in references if key.optional}
    codes = {
        column.name: (database.references(optional[column.name]) != MISSING).astype(np.int64)
        if column.name in optional
        else table.stored[column.name]
        for column in domain
    }
    return Table(domain, codes).narrow()


def joined_tables(database: Database) -> Mapping[str, Table]:
    """The table of degrees and the joined table of each foreign key of bounded rows.

    Privacy: :func:`cloister.schema.fan_outs.rows_changed` has the proof. A degree above
        the bound of a key, which only one of a table without rows of units may have, is
        counted as the bound.
    """
    tables: dict[str, Table] = {}
    rows = row_tables(database)
    for key in database.schema.keys:
        parents = parent_rows(database, key)
        linked = np.flatnonzero(parents >= 0)
        owners = parents[linked]
        degrees = np.bincount(owners, minlength=database.tables[key.parent].rows)
        counted = {DEGREE: np.minimum(degrees, key.max_rows).astype(np.int64)}
        tables[degree_table(key)] = Table(Domain((degree_column(key),)), counted).narrow()
        codes = of_parent(key, rows[key.parent], owners) | of_row(
            key.table, rows[key.table], linked
        )
        for earlier in earlier_keys(database.schema, key):
            owners = parent_rows(database, earlier)[linked]
            codes |= of_parent(earlier, rows[earlier.parent], owners)
        of_rows, of_parents = joined_domain(database.schema, key)
        tables[joined_table(key)] = Table(Domain((*of_rows, *of_parents)), codes).narrow()
    return tables


def degree_column(key: ForeignKey) -> Column:
    """The column of degrees, from none to the bound of the key."""
    return column_of(DEGREE, Integer(type="integer", min=0, max=key.max_rows), Path())


def of_row(table: str, rows: Table, chosen: Integers) -> dict[str, Integers]:
    """The attributes of some rows of the table that refers, as columns of the joined one."""
    return {
        own_column(table, rows.domain[name]).name: rows.codes[name][chosen]
        for name in rows.domain.modelled
    }


def of_parent(key: ForeignKey, parents: Table, chosen: Integers) -> dict[str, Integers]:
    """The attributes of some rows of the parent, as columns of the joined table."""
    return {
        parent_column(key, parents.domain[name]).name: parents.codes[name][chosen]
        for name in parents.domain.modelled
    }


def parent_rows(database: Database, key: ForeignKey) -> Integers:
    """The row number (n,) of each row's parent; -1 where it names none that is there."""
    keys, named = database.tables[key.parent].codes[key.key], database.references(key)
    parents = np.full(len(named), -1)
    linked = database.referring(key)
    order = np.argsort(keys, kind="stable")
    parents[linked] = order[np.searchsorted(keys[order], named[linked])]
    return parents


def is_truncated(schema: Schema, key: ForeignKey) -> bool:
    """Whether of too many rows that refer to the same one a random part is left out.

    Elsewhere data with more is refused, or nothing there needs the bound. Privacy: what stays of a
    parent's rows depends on that parent's rows alone. A row of two parents that both hold rows of
    units could not be left out so: an added parent with any number of rows would take the place of
    others at as many parents as it likes. A reference that is optional may be, since it leads to
    one parent: the row itself stays.
    """
    if key.optional:
        return key.parent in schema.holding
    return not schema.any_row and schema.keys_to_units(key.table) == (key,)


def is_refused(schema: Schema, key: ForeignKey) -> bool:
    """Whether data is refused in which more rows refer to the same one than declared."""
    return key.parent in schema.holding and not is_truncated(schema, key)


def of_one_unit(schema: Schema, table: str) -> bool:
    """Whether each row of a table belongs to one unit, by references that are never missing."""
    if table == schema.lead:
        return schema.units in ((), (schema.lead,))
    keys = schema.keys_to_units(table)
    return len(keys) == 1 and of_one_unit(schema, keys[0].parent)
