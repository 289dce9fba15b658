"""The different tuples of values of some attributes, which is all that rules on them compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cloister.arrays import Floats, Integers
from cloister.schema.domain import Table

_SPARSE = 4
"""Joint codes per row above which a hash table is used; below, an array with one entry a code."""

_WIDEST = 2**62
"""Joint codes at most before they are renumbered: more might not fit int64."""


@dataclass(frozen=True)
class Tuples:
    """The different tuples of a table of n rows.

    ``table`` has one row for each; ``of_row`` (n,) is the number of each row's tuple.
    """

    table: Table
    of_row: Integers

    @classmethod
    def of(cls, table: Table, attributes: Sequence[str]) -> Tuples:
        """The tuples of the attributes; the other columns of ``table`` are left out."""
        of_row, size = _joint([table.codes[name] for name in attributes])
        some_row = np.zeros(size, dtype=np.int64)
        some_row[of_row] = np.arange(table.rows)
        return cls(
            Table(table.domain, {name: table.codes[name][some_row] for name in attributes}), of_row
        )

    def sums(self, weights: Integers | None = None) -> Integers:
        """Number of rows, or the sum of their weights (n,), of each tuple; exact below 2^53."""
        return np.bincount(self.of_row, weights, self.table.rows).astype(np.int64, copy=False)


def factorize(values: Floats | Integers) -> Integers:
    """Numbers 0, 1, ... (n,) of the different values (n,)."""
    return pd.factorize(values)[0].astype(np.int64, copy=False)


def refine_groups(groups: Integers, codes: Integers) -> Integers:
    """Numbers (n,) of the different pairs of a group and a code."""
    return _joint([groups, codes])[0]


def _joint(columns: Sequence[Integers]) -> tuple[Integers, int]:
    """Numbers (n,) of the different rows of whole numbers, and how many there are."""
    joint, size = columns[0], _span(columns[0])
    for column in columns[1:]:
        span = _span(column)
        if size * span > _WIDEST:
            joint, size = _numbered_below(joint, size)
        joint, size = joint * span + column, size * span
    return _numbered_below(joint, size)


def _span(codes: Integers) -> int:
    return int(codes.max(initial=-1)) + 1


def _numbered_below(codes: Integers, size: int) -> tuple[Integers, int]:
    if size > _SPARSE * len(codes):
        numbers = factorize(codes)
        return numbers, _span(numbers)
    present = np.zeros(size, dtype=bool)
    present[codes] = True
    return (np.cumsum(present) - 1)[codes], int(present.sum())
