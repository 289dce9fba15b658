"""Several tables whose rows refer to each other: their public schema, and their rows as codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.schema.domain import Domain, Table

MISSING = -1
"""In place of the key of a row: the reference is missing."""

UNLINKED = -2
"""The reference is there, but leads to no row, or to one that has as many as it may."""


@dataclass(frozen=True)
class ForeignKey:
    """``column`` of ``table`` names a row of ``parent`` by its primary ``key``.

    At most ``max_rows`` rows of ``table`` refer to the same row. A reference that is ``optional``
    may be missing: without the row that it names its own row stays.
    """

    table: str
    column: str
    parent: str
    key: str
    max_rows: int
    optional: bool = False

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
        own = (key for key in self.keys if key.table == table)
        return tuple(sorted(own, key=lambda key: (key.optional, key.parent not in self.holding)))

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
        found = set(self.units or [self.lead])
        for name in self.tables:
            if any(k.parent in found for k in self.keys if k.table == name and not k.optional):
                found.add(name)
        return frozenset(found)


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

    def dangling(self) -> Iterator[tuple[ForeignKey, int]]:
        """Each foreign key, with the number of rows that name no row of its parent but should."""
        for key in self.schema.keys:
            named = self.references(key) != MISSING
            yield key, int((named & ~self.referring(key)).sum())
