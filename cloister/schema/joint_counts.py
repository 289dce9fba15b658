"""Rows in each joint part of some partitions, for many joint tables in one pass over the rows.

Exact, so sensitive. Rows are counted block by block: memory does not grow with them, and sums of
whole numbers are the same for any blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from cloister.arrays import Array, Integers
from cloister.schema.domain import Table
from cloister.schema.partition import Partition, PartNumbers

BLOCK_ROWS = 2**15
"""Rows that are counted at a time: their parts in many partitions fit the caches of a core."""

_LOOKED_UP = 2**20
"""Fine codes of a column at most whose parts are looked up: in a list of all, of 2 or 8 MB."""

_NARROW = 2**16
"""Parts of a partition at most whose numbers are stored in 16 bits."""

Joint = Sequence[Partition]


class JointCounts:
    """The counts of some joint ``tables``, over blocks of rows.

    Partitions that several tables share are looked up once for each block.
    """

    def __init__(self, tables: Sequence[Joint]) -> None:
        self._partitions = list({id(part): part for table in tables for part in table}.values())
        places = {id(part): number for number, part in enumerate(self._partitions)}
        narrow = all(part.size <= _NARROW for part in self._partitions)
        self._type: type[np.integer[Any]] = np.uint16 if narrow else np.int64
        self._lookups = [_lookup(part, self._type) for part in self._partitions]
        ways = max(map(len, tables))
        # a table of fewer partitions than others ends in places of -1
        self._members = np.full((len(tables), ways), -1, dtype=np.int64)
        for number, table in enumerate(tables):
            self._members[number, : len(table)] = [places[id(part)] for part in table]
        self._sizes = np.array([part.size for part in self._partitions], dtype=np.int64)
        cells = [math.prod(part.size for part in table) for table in tables]
        self._begins = np.cumsum([0, *cells])

    def of(self, rows: Table) -> list[Integers]:
        """The counts of each table, flat."""
        counts = rows.select(part.name for part in self._partitions).total(self._in_block)
        return np.split(counts, self._begins[1:-1])

    def _in_block(self, rows: Table) -> Integers:
        """The counts of all tables in rows that are in memory."""
        counts = np.zeros(self._begins[-1], dtype=np.int64)
        columns = [rows.stored[part.name] for part in self._partitions]
        for block in blocks(rows.rows, BLOCK_ROWS):
            parts = np.stack(
                [self._parts(number, codes[block]) for number, codes in enumerate(columns)]
            )
            _compiled()(parts, self._members, self._sizes, self._begins, counts)
        return counts

    def _parts(self, number: int, codes: Array) -> PartNumbers:
        partition, lookup = self._partitions[number], self._lookups[number]
        parts = partition.index(codes) if lookup is None else lookup.take(codes)
        return parts.astype(self._type, copy=False)


def blocks(rows: int, most: int) -> Iterator[slice]:
    """Ranges of at most ``most`` rows that cover all."""
    return (slice(begin, min(begin + most, rows)) for begin in range(0, rows, most))


def _lookup(partition: Partition, kind: type[np.integer[Any]]) -> Array | None:
    """The part of each fine code of a column; None where there are too many."""
    size = partition.column.size
    if size > _LOOKED_UP or partition.column.kind == "key":
        return None
    return partition.index(np.arange(size, dtype=np.int64)).astype(kind)


@cache
def _compiled() -> Callable[[Array, Integers, Integers, Integers, Integers], None]:
    """`_add_counts`, compiled when rows are first counted: plans ask for no compiler."""
    import numba

    return numba.njit(cache=True, nogil=True)(_add_counts)


def _add_counts(
    parts: Array, members: Integers, sizes: Integers, begins: Integers, counts: Integers
) -> None:
    """Add the rows of a block, whose ``parts`` (partitions, n) are known, to the counts."""
    rows = parts.shape[1]
    cells = np.empty(rows, np.int64)
    for table in range(len(members)):
        cells[:] = begins[table]
        width = 1
        for member in members[table, ::-1]:
            if member >= 0:
                for row in range(rows):
                    cells[row] += width * np.int64(parts[member, row])
                width *= sizes[member]
        for row in range(rows):
            counts[cells[row]] += 1
