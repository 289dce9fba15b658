"""Tables that join those of a foreign key: how many rows refer to each row, and rows with parents.

Each row is a function of the rows of one privacy unit, so that the unit's bounds hold of them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from cloister.arrays import Integers
from cloister.errors import DataError
from cloister.schema.attributes import Integer
from cloister.schema.columns import Column
from cloister.schema.database import Database, ForeignKey
from cloister.schema.domain import Domain, Table, column_of

DEGREE = "degree"
"""The column of a table of degrees."""


def degree_table(key: ForeignKey) -> str:
    """The name of the table of degrees: one row a row of the parent."""
    return f"{key.parent} by {key.table}"


def joined_table(key: ForeignKey) -> str:
    """The name of the table of rows that refer, each with the attributes of its parent."""
    return f"{key.table} of {key.parent}"


def joined_column(table: str, column: Column) -> Column:
    """An attribute of one of the tables as a column of the joined one."""
    return replace(column, name=f"{table}.{column.name}")


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


def joined_tables(database: Database) -> Mapping[str, Table]:
    """The table of degrees and the joined table of each foreign key of bounded rows.

    Privacy: the row of degrees of a parent is the number of rows that refer to it, and a joined row
        is a row with attributes of the one that it refers to. Keys name one row each, so both are
        functions of the rows of one unit: it changes as many rows of degrees as it has parents, and
        as many joined rows as it has rows that refer.
    """
    found: dict[str, Table] = {}
    for key in database.schema.keys:
        parents, children = database.tables[key.parent], database.tables[key.table]
        places = _places(parents.codes[key.key], children.codes[key.column])
        degrees = np.bincount(places, minlength=parents.rows).astype(np.int64)
        found[degree_table(key)] = Table(Domain((degree_column(key),)), {DEGREE: degrees})
        columns = [
            *_joined(key.parent, parents, places),
            *_joined(key.table, children, np.arange(children.rows)),
        ]
        domain = Domain(tuple(column for column, _ in columns))
        found[joined_table(key)] = Table(domain, {column.name: own for column, own in columns})
    return found


def degree_column(key: ForeignKey) -> Column:
    """The column of degrees, from none to the bound of the key."""
    return column_of(DEGREE, Integer(type="integer", min=0, max=key.max_rows), Path())


def _joined(name: str, table: Table, rows: Integers) -> list[tuple[Column, Integers]]:
    return [
        (joined_column(name, table.domain[column]), table.codes[column][rows])
        for column in table.domain.modelled
    ]


def _places(keys: Integers, references: Integers) -> Integers:
    """The row numbers (n,) that references (n,) name; all of them are there."""
    order = np.argsort(keys, kind="stable")
    return order[np.searchsorted(keys[order], references)]
