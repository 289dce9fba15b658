"""Partitions of attributes by rows drawn from a fitted model: released facts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Integers
from cloister.schema.columns import Column, Grid
from cloister.schema.domain import Cells
from cloister.schema.relations import ForeignKey, Schema, joined_domain

MOST_PARTS = 8
"""Parts of an attribute: two attributes then have 64 cells, and three 512."""


@dataclass(frozen=True, eq=False)
class Groups:
    """A partition of listed values: each frequent one alone, and the others together.

    Shapes: ``groups`` (values of the column,), the number of the part of each.
    """

    column: Column
    groups: Integers

    @property
    def name(self) -> str:
        """The attribute."""
        return self.column.name

    @property
    def size(self) -> int:
        """Number of parts."""
        return int(self.groups.max()) + 1

    def of(self, codes: Integers) -> NDArray[np.int32]:
        """Parts (n,) of codes (n,)."""
        return self.groups[codes].astype(np.int32)


Parts = Cells | Groups


def parts_by(column: Column, codes: Integers) -> Parts:
    """At most eight parts of about equal mass among drawn codes (n,) of an attribute.

    Of a nominal attribute, the seven most frequent values and all others. Of an ordered one, ranges
    between quantiles, with special and missing values, which follow the grid, apart.
    """
    if column.size <= MOST_PARTS:
        return parts_of(column, np.arange(column.size))
    if column.kind == "nominal":
        counts = np.bincount(codes, minlength=column.size)
        groups = np.full(column.size, MOST_PARTS - 1)
        groups[np.argsort(-counts, kind="stable")[: MOST_PARTS - 1]] = np.arange(MOST_PARTS - 1)
        return parts_of(column, groups)
    apart = [0, column.steps] if isinstance(column, Grid) and column.steps < column.size else [0]
    inner = np.quantile(codes, np.arange(1, MOST_PARTS - 1) / (MOST_PARTS - 1), method="higher")
    return parts_of(column, np.unique([*apart, *inner.astype(np.int64).tolist()]))


def parts_of(column: Column, numbers: Integers) -> Parts:
    """The partition whose :func:`numbers_of` are given."""
    if column.kind == "nominal":
        return Groups(column, numbers)
    return Cells(column, numbers)


def parts_across(
    schema: Schema, key: ForeignKey, codes: Mapping[str, Integers]
) -> dict[str, Parts]:
    """The parts of all attributes of both sides of a key, by drawn codes of each."""
    return {
        column.name: parts_by(column, codes[column.name])
        for side in joined_domain(schema, key)
        for column in side
    }


def joint_number(
    numbers: Sequence[NDArray[np.integer[Any]]], sizes: Sequence[int], rows: int
) -> Integers:
    """One number (rows,) of the numbers of several attributes, the last varying fastest.

    ``sizes`` are how many numbers each attribute has; without attributes all rows have 0.
    """
    joint = np.zeros(rows, dtype=np.int64)
    for own, size in zip(numbers, sizes, strict=True):
        joint = joint * size + own
    return joint


def numbers_of(parts: Parts) -> Integers:
    """What a partition is made of, besides its column."""
    return parts.groups if isinstance(parts, Groups) else parts.starts
