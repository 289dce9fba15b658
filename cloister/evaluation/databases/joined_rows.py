"""Rows joined with those that they refer to, under the names of the references.

Privacy: functions of real rows without noise; internal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cloister.arrays import Integers
from cloister.schema.columns import Column
from cloister.schema.domain import Domain, Table
from cloister.schema.relations.database import Database, ForeignKey
from cloister.schema.relations.joins import earlier_keys, parent_rows


def joined_with_parents(database: Database, key: ForeignKey) -> tuple[Table, int]:
    """The rows that refer to one that is there, with its attributes; how many are of the parent.

    Beside their own, rows have the attributes of the parents that earlier references lead to.
    """
    parents = parent_rows(database, key)
    rows = np.flatnonzero(parents >= 0)
    above = _columns(database.tables[key.parent], f"{key.column}: ", parents[rows])
    own = _columns(database.tables[key.table], "", rows)
    for earlier in earlier_keys(database.schema, key):
        others = np.maximum(parent_rows(database, earlier)[rows], 0)
        own += _columns(database.tables[earlier.parent], f"{earlier.column}: ", others)
    return _table([*above, *own]), len(above)


def joined_with_all_above(
    database: Database, key: ForeignKey, most: int, rng: np.random.Generator
) -> Table:
    """Rows with the attributes of the rows that they refer to, and of those these refer to.

    At most ``most`` rows, a random part of more. Rows that name none by ``key`` are left out. Other
    references that may be missing are not followed.
    """
    rows = np.flatnonzero(parent_rows(database, key) >= 0)
    if len(rows) > most:
        rows = rng.choice(rows, most, replace=False)
    columns = _columns(database.tables[key.table], "", rows)
    kept = np.ones(len(rows), dtype=bool)
    waiting = [
        (own, rows, f"{own.column}: ")
        for own in database.schema.parents_of(key.table)
        if own == key or database.schema.tables[own.table][own.column].null_code is None
    ]
    while waiting:
        own, at, prefix = waiting.pop()
        parents = parent_rows(database, own)[at]
        kept &= parents >= 0
        columns += _columns(database.tables[own.parent], prefix, np.maximum(parents, 0))
        waiting += [
            (above, np.maximum(parents, 0), f"{prefix[:-2]}.{above.column}: ")
            for above in database.schema.parents_of(own.parent)
            if database.schema.tables[above.table][above.column].null_code is None
        ]
    return _table(columns).take(kept) if columns else Table(Domain(()), {})


def _columns(table: Table, prefix: str, rows: Integers) -> list[tuple[Column, Integers]]:
    return [
        (replace(table.domain[name], name=f"{prefix}{name}"), table.codes[name][rows])
        for name in table.domain.modelled
    ]


def _table(columns: Sequence[tuple[Column, Integers]]) -> Table:
    domain = Domain(tuple(column for column, _ in columns))
    return Table(domain, {column.name: codes for column, codes in columns})
