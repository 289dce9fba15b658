"""Privacy units as rows of one table, so that what knows rows knows persons and several tables.

A unit is a row of the first table with all rows that refer to it, by references that are never
missing, or through others. Persons are a table of keys, which their rows refer to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.schema.attributes import Integer
from cloister.schema.columns import Column
from cloister.schema.domain import Domain, Table, column_of
from cloister.schema.relations import Database, ForeignKey, Schema, degree_column, parent_rows

PERSONS = "persons of rows"
"""The table of the keys of persons; names of declared tables hold no space."""


def with_persons(rows: Database, key: str, most: int, attributes: Collection[str] = ()) -> Database:
    """The only table whose rows name persons by ``key``, ``most`` the same, and that of persons.

    Persons have the ``attributes`` of the first of their rows, and rows all others.
    """
    ((name, table),) = rows.tables.items()
    of_rows = table.select([column for column in table.domain.names if column not in attributes])
    domain = Domain(tuple(table.domain[column] for column in (key, *attributes)))
    link = ForeignKey(name, key, PERSONS, key, most)
    schema = Schema({PERSONS: domain, name: of_rows.domain}, (link,))
    _, first = np.unique(table.codes[key], return_index=True)
    persons = Table(domain, {column: table.codes[column][first] for column in domain.names})
    return Database(schema, {PERSONS: persons, name: of_rows})


def with_group_sizes(rows: Table, whole: Table, key: str, most: int) -> Table:
    """Rows of a whole table with the number of its rows that share their key, in its place.

    At most so many. A key that is drawn anew is none of the data's: by it alone each row would be
    told from a real one.
    """
    codes, counts = np.unique(whole.stored[key], return_counts=True)
    sizes = counts[np.searchsorted(codes, rows.stored[key])]
    column = column_of(f"rows of {key}", Integer(type="integer", min=1, max=most), Path())
    domain = Domain(tuple(column if each.name == key else each for each in rows.domain))
    stored = {**rows.stored, column.name: sizes - 1}
    return Table(domain, {name: stored[name] for name in domain.names})


def rows_of_units(database: Database) -> Table:
    """A row for each row of the first table: its attributes, and summaries of all of its unit.

    Of the rows of a table that refer to it: how many they are, and the least and the greatest value
    of each attribute in the declared order, missing where there is none; likewise, as attributes of
    those rows, of the rows that refer to them. Of a unit of one row that is the row without keys.
    """
    columns = list(_described(database, database.schema.lead))
    domain = Domain(tuple(column for column, _ in columns))
    return Table(domain, {column.name: codes for column, codes in columns})


def part_of_units(database: Database, chosen: Booleans) -> Database:
    """The rows of some units (n,), by rows of the first table; others belong to none and stay."""
    schema = database.schema
    stay = {name: np.ones(table.rows, dtype=bool) for name, table in database.tables.items()}
    stay[schema.lead] = chosen
    for name in database.tables:
        for key in schema.keys_to_units(name):
            parents = parent_rows(database, key)
            stay[name] &= (parents >= 0) & stay[key.parent][parents]
    tables = {name: table.take(stay[name]) for name, table in database.tables.items()}
    return Database(schema, tables)


def _described(database: Database, name: str) -> Iterator[tuple[Column, Integers]]:
    """The columns of a table's rows (n,), with summaries of those that refer to them."""
    table = database.tables[name]
    for attribute in table.domain.modelled:
        yield table.domain[attribute], table.codes[attribute]
    for key in database.schema.keys:
        if key.parent == name and not key.to_itself and not key.optional:
            yield from _summaries(database, key)


def _summaries(database: Database, key: ForeignKey) -> Iterator[tuple[Column, Integers]]:
    """How many rows refer to each row (n,) of a parent, and the ends of their attributes."""
    parents, parent_count = parent_rows(database, key), database.tables[key.parent].rows
    linked = np.flatnonzero(parents >= 0)
    degrees = np.bincount(parents[linked], minlength=parent_count)
    prefix = f"{key.table} of {key.column}: "
    yield replace(degree_column(key), name=f"{prefix}rows"), np.minimum(degrees, key.max_rows)
    for column, codes in _described(database, key.table):
        nullable = column.attribute.model_copy(update={"nullable": True})
        for end, order in (("least", codes[linked]), ("greatest", -codes[linked])):
            ends = replace(column, name=f"{prefix}{end} {column.name}", attribute=nullable)
            line = linked[np.lexsort((order, parents[linked]))]
            owners, first = np.unique(parents[line], return_index=True)
            summary = np.full(parent_count, ends.null_code)
            summary[owners] = codes[line[first]]
            yield ends, summary
