"""A split of the rows into disjoint parts, in which the part of a row depends on that row alone."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import ClassVar

import numpy as np

from cloister.arrays import Integers
from cloister.privacy.mechanisms.randomness import WORD
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.domain import Table
from cloister.splitmix import mix


@dataclass(frozen=True)
class Split:
    """Disjoint random parts of the rows; part i holds about ``shares[i]`` of them.

    Which part a row is in is a hash of a random key, its values, and its number among the rows with
    the same values.

    Proof: equal rows are interchangeable, so a table is how often each row occurs. Adding a row
    that occurs j times adds its (j + 1)th occurrence; all others keep their numbers, and so their
    parts. So adding a row adds one row to one part, for each value of the key, which therefore need
    not be secret: it is drawn independently of the data. Replacing a row changes at most two parts.

    Source: Bindschaedler, Shokri, Gunter (VLDB 2017), section 3, the parts D_S, D_T, D_P.
    """

    KEY_WORDS: ClassVar[int] = 2
    """Words of 64 bits of a key."""

    shares: tuple[Fraction, ...]

    def divide(self, rows: TableRows, key: Integers) -> tuple[TableRows, ...]:
        """The rows of each part, for a key (KEY_WORDS,)."""
        parts = self.parts(rows.table, key)
        return tuple(TableRows(rows.table.take(parts == part)) for part in range(len(self.shares)))

    def parts(self, table: Table, key: Integers) -> Integers:
        """The part (n,) of each row."""
        words = key.astype(np.uint64)
        occurrence = _occurrences(table)
        hashed = np.full(table.rows, words[0], dtype=np.uint64)
        for name in table.domain.names:
            hashed = mix(hashed ^ table.codes[name].astype(np.uint64))
        hashed = mix(mix(hashed ^ occurrence.astype(np.uint64)) ^ words[1])
        edges = [int(edge * WORD) for edge in accumulate(self.shares)][:-1]
        return np.searchsorted(np.array(edges, dtype=np.uint64), hashed, side="right").astype(
            np.int64
        )


def _occurrences(table: Table) -> Integers:
    """The place (n,) of each row among those with the same values."""
    row = np.zeros(table.rows, dtype=np.int64)
    for name in table.domain.names:
        column = np.unique(table.codes[name], return_inverse=True)[1]
        row = np.unique(row * (column.max(initial=0) + 1) + column, return_inverse=True)[1]
    order = np.argsort(row, kind="stable")
    first = np.searchsorted(row[order], row[order])
    occurrence = np.empty(table.rows, dtype=np.int64)
    occurrence[order] = np.arange(table.rows) - first
    return occurrence
