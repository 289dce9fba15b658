"""Tables that join those of a foreign key: how many rows refer to each row, and rows with parents.

Each row is a function of rows of one privacy unit, or of what one unit can change of it:
:mod:`cloister.schema.relations.fan_out` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from cloister.arrays import Integers
from cloister.errors import DataError
from cloister.schema.attributes import Boolean, Integer
from cloister.schema.columns import Column
from cloister.schema.domain import Domain, Table, column_of
from cloister.schema.relations.database import MISSING, Database, ForeignKey, Schema

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
    own = rows_domain(schema, key.table)
    columns = [own_column(key.table, own[name]) for name in own.modelled]
    for earlier in earlier_keys(schema, key):
        of_parent = rows_domain(schema, earlier.parent)
        columns += [parent_column(earlier, of_parent[name]) for name in of_parent.modelled]
    parents = rows_domain(schema, key.parent)
    of_key = [parent_column(key, parents[name]) for name in parents.modelled]
    return Domain(tuple(columns)), Domain(tuple(of_key))


def earlier_keys(schema: Schema, key: ForeignKey) -> tuple[ForeignKey, ...]:
    """The references of the same table that each row has, and that precede a key."""
    own = schema.parents_of(key.table)
    return tuple(other for other in own[: own.index(key)] if not other.optional)


def require_unique_keys(database: Database) -> None:
    """Check that a key names one row, in each table that others refer to.

    Raises:
        DataError: names the table and its key.
    """
    for key in database.schema.keys:
        keys = np.sort(database.tables[key.parent].codes[key.key])
        if (np.diff(keys) == 0).any():
            raise DataError(
                f"table '{key.parent}', column '{key.key}': rows have the same key, and rows of "
                f"'{key.table}' refer to them; a key names one row, so correct the source"
            )


def row_tables(database: Database) -> Mapping[str, Table]:
    """The rows of each table as a method of one table asks about them.

    Privacy: each row is a function of one row alone.
    """
    found = {}
    for name, table in database.tables.items():
        domain = rows_domain(database.schema, name)
        optional = {key.column: key for key in database.schema.parents_of(name) if key.optional}
        codes = {
            column.name: (database.references(optional[column.name]) != MISSING).astype(np.int64)
            if column.name in optional
            else table.codes[column.name]
            for column in domain
        }
        found[name] = Table(domain, codes)
    return found


def joined_tables(database: Database) -> Mapping[str, Table]:
    """The table of degrees and the joined table of each foreign key of bounded rows.

    Privacy: :func:`cloister.schema.relations.fan_out.rows_changed` has the proof. A degree above
        the bound of a key, which only one of a table without rows of units may have, is
        counted as the bound.
    """
    found: dict[str, Table] = {}
    rows = row_tables(database)
    for key in database.schema.keys:
        parents = parent_rows(database, key)
        linked = np.flatnonzero(parents >= 0)
        places = parents[linked]
        degrees = np.bincount(places, minlength=database.tables[key.parent].rows)
        column = degree_column(key)
        found[degree_table(key)] = Table(
            Domain((column,)), {DEGREE: np.minimum(degrees, key.max_rows).astype(np.int64)}
        )
        codes = of_parent(key, rows[key.parent], places)
        codes |= of_row(key.table, rows[key.table], linked)
        for earlier in earlier_keys(database.schema, key):
            owners = parent_rows(database, earlier)[linked]
            codes |= of_parent(earlier, rows[earlier.parent], owners)
        sides = joined_domain(database.schema, key)
        domain = Domain(tuple(column for side in sides for column in side))
        found[joined_table(key)] = Table(domain, codes)
    return found


def degree_column(key: ForeignKey) -> Column:
    """The column of degrees, from none to the bound of the key."""
    return column_of(DEGREE, Integer(type="integer", min=0, max=key.max_rows), Path())


def of_row(table: str, rows: Table, chosen: Integers) -> dict[str, Integers]:
    """The attributes of some rows of the table that refers, as columns of the joined one."""
    return {
        own_column(table, rows.domain[name]).name: rows.codes[name][chosen]
        for name in rows.domain.modelled
    }


def of_parent(key: ForeignKey, parents: Table, places: Integers) -> dict[str, Integers]:
    """The attributes of parents at some places, as columns of the joined table."""
    return {
        parent_column(key, parents.domain[name]).name: parents.codes[name][places]
        for name in parents.domain.modelled
    }


def parent_rows(database: Database, key: ForeignKey) -> Integers:
    """The row number (n,) of each row's parent; -1 where it names none that is there."""
    keys, named = database.tables[key.parent].codes[key.key], database.references(key)
    found = np.full(len(named), -1)
    linked = database.referring(key)
    order = np.argsort(keys, kind="stable")
    found[linked] = order[np.searchsorted(keys[order], named[linked])]
    return found
