"""Sensitive coded rows as queries read them, with a cache of what several queries share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Integers
from cloister.schema.columns import Codes
from cloister.schema.domain import Table

ALL_ROWS = slice(None)

PartNumbers = NDArray[np.integer[Any]]


class Partition(Protocol):
    """A public partition of one attribute's values into numbered parts."""

    @property
    def name(self) -> str:
        """The attribute."""
        ...

    @property
    def size(self) -> int:
        """Number of parts."""
        ...

    def of(self, codes: Codes) -> PartNumbers:
        """Parts (n,) of fine codes (n,) of any type of whole numbers."""
        ...


class Derivation(Protocol):
    """A public function of single rows: the same rows, with further columns."""

    def of(self, table: Table) -> Table:
        """The derived table, whose row r depends on row r of ``table`` alone."""
        ...


class TableRows:
    """The rows of a table behind the door.

    Partitions are cached by identity, so that none is computed twice.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._columns: dict[int, tuple[Partition, PartNumbers]] = {}
        self._counts: dict[tuple[int, ...], Integers] = {}
        self._stacks: dict[tuple[int, ...], tuple[Sequence[Partition], PartNumbers]] = {}
        self._pairs: dict[tuple[int, ...], tuple[Sequence[Partition], Integers]] = {}
        self._derived: dict[int, tuple[Derivation, TableRows]] = {}

    def derived(self, derivation: Derivation) -> TableRows:
        """The rows that a derivation makes of these; cached by identity."""
        if id(derivation) not in self._derived:
            rows = TableRows(derivation.of(self.table))
            self._derived[id(derivation)] = (derivation, rows)
        return self._derived[id(derivation)][1]

    def column(self, partition: Partition, rows: slice = ALL_ROWS) -> PartNumbers:
        """Parts (n,) of some rows."""
        return partition.of(self.table.stored[partition.name][rows])

    def counts(self, partitions: Sequence[Partition]) -> Integers:
        """Rows in each joint part, flat."""
        return _joint([self.column(part) for part in partitions], partitions)

    def remembered_counts(self, partitions: Sequence[Partition]) -> Integers:
        """As :meth:`counts`, but cached."""
        key = tuple(map(id, partitions))
        if key not in self._counts:
            self._counts[key] = _joint([self._remembered(part) for part in partitions], partitions)
        return self._counts[key]

    def part_matrix(self, partitions: Sequence[Partition]) -> PartNumbers:
        """Parts (n, k) of all rows in several partitions, int32.

        Cached, since each step of a training needs them.
        """
        key = tuple(map(id, partitions))
        if key not in self._stacks:
            columns = np.stack([self.column(part) for part in partitions], axis=1).astype(np.int32)
            self._stacks[key] = (partitions, columns)
        return self._stacks[key][1]

    def remembered_pairs(
        self, partitions: Sequence[Partition], count: Callable[[TableRows], Integers]
    ) -> Integers:
        """What ``count`` makes of all pairs of some partitions; cached."""
        key = tuple(map(id, partitions))
        if key not in self._pairs:
            self._pairs[key] = (partitions, count(self))
        return self._pairs[key][1]

    def _remembered(self, part: Partition) -> PartNumbers:
        if id(part) not in self._columns:
            narrow = self.column(part).astype(np.min_scalar_type(part.size))
            self._columns[id(part)] = (part, narrow)
        return self._columns[id(part)][1]


def _joint(columns: Sequence[PartNumbers], partitions: Sequence[Partition]) -> Integers:
    if len(columns) == 1:
        return np.bincount(columns[0], minlength=partitions[0].size).astype(np.int64)
    joint = np.zeros(len(columns[0]), dtype=np.int64)
    for column, partition in zip(columns, partitions, strict=True):
        joint *= partition.size
        joint += column
    size = int(np.prod([partition.size for partition in partitions]))
    return np.bincount(joint, minlength=size).astype(np.int64)
