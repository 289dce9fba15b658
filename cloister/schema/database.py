"""Several tables whose rows refer to each other: their public schema, and their rows as codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.arrays import Booleans
from cloister.schema.domain import Domain, Table


@dataclass(frozen=True)
class ForeignKey:
    """``column`` of ``table`` names a row of ``parent`` by its primary ``key``.

    At most ``max_rows`` rows of ``table`` refer to the same row; of more, a random part is left
    out.
    """

    table: str
    column: str
    parent: str
    key: str
    max_rows: int


@dataclass(frozen=True)
class Schema:
    """The domains of tables and the foreign keys between them; public. Parents precede children."""

    tables: Mapping[str, Domain]
    keys: tuple[ForeignKey, ...] = ()

    def parents_of(self, table: str) -> tuple[ForeignKey, ...]:
        """The foreign keys of a table."""
        return tuple(key for key in self.keys if key.table == table)

    @cached_property
    def rows_of_unit(self) -> Mapping[str, int]:
        """The most rows of each table that one row of the first table has: fan-outs multiply."""
        bounds: dict[str, int] = {}
        for name in self.tables:
            held = [bounds[key.parent] * key.max_rows for key in self.parents_of(name)]
            bounds[name] = min(held, default=1)
        return bounds


@dataclass(frozen=True)
class Database:
    """The rows of several tables as codes."""

    schema: Schema
    tables: Mapping[str, Table]

    @property
    def rows(self) -> dict[str, int]:
        """Rows by table."""
        return {name: table.rows for name, table in self.tables.items()}

    def referring(self, key: ForeignKey) -> Booleans:
        """Which rows (n,) of the key's table name a row of its parent that is there."""
        parents = self.tables[key.parent].codes[key.key]
        return np.isin(self.tables[key.table].codes[key.column], parents)

    def dangling(self) -> Iterator[tuple[ForeignKey, int]]:
        """Each foreign key, with the number of rows that name no row of its parent."""
        for key in self.schema.keys:
            yield key, int((~self.referring(key)).sum())
