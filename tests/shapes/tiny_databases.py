"""Databases of few rows with and without a unit, for laws of joins and of bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from cloister.schema.domain import Domain, Table
from cloister.schema.relations import Database, row_tables

KEY = b"key of a test"
Build = Callable[[Database], Mapping[str, Table]]
Bound = Callable[[Database, bytes], Database]


def domain(**columns) -> Domain:
    return Domain.of(columns, Path())


def without(whole: Database, start: str, row: int) -> Database:
    """The database without a row, and without all rows that must refer to a row that is gone."""
    schema, gone = whole.schema, {start: np.array([row])}
    tables = {}
    for name, table in whole.tables.items():
        away = np.zeros(table.rows, dtype=bool)
        away[gone.get(name, np.zeros(0, dtype=np.int64))] = True
        for key in schema.parents_of(name):
            if not key.optional and key.parent != name:
                parents = whole.tables[key.parent].codes[key.key]
                lost = np.setdiff1d(parents, tables[key.parent].codes[key.key])
                away |= np.isin(whole.references(key), lost)
        tables[name] = table.take(~away)
    return Database(schema, tables)


def counted(database: Database, bound: Bound, build: Build) -> dict[str, Counter]:
    """The tables behind the door, as multisets of rows."""
    bounded = bound(database, KEY)
    tables = {**row_tables(bounded), **build(bounded)}
    return {
        name: Counter(zip(*(codes.tolist() for codes in table.codes.values()), strict=True))
        for name, table in tables.items()
    }
