"""Kinds of pairs of values of one attribute: equal, or how far apart; public."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cloister.arrays import Integers
from cloister.schema.attributes import Categorical
from cloister.schema.columns import Column, Grid
from cloister.schema.domain import column_of

ALONE, EQUAL, NEAR = 0, 1, 2
"""Kinds of pairs: a person of one row, equal values, and the first of those that differ."""

_DOUBLINGS = 2
"""Doublings of a distance, in steps of the grid, from one kind of pair to the next."""


@dataclass(frozen=True)
class PairKinds:
    """A public partition of pairs of values of a column."""

    column: Column

    @property
    def size(self) -> int:
        """Number of kinds, with that of persons of one row."""
        if isinstance(self.column, Grid):
            farthest = max(self.column.steps - 1, 1)
            return NEAR + (farthest.bit_length() - 1) // _DOUBLINGS + 2
        return NEAR + 1

    def of(self, first: Integers, second: Integers) -> Integers:
        """Kinds of pairs of fine codes, in the shape that both have together."""
        if not isinstance(self.column, Grid):
            return np.where(first == second, EQUAL, NEAR)
        distance = np.maximum(np.abs(first - second), 1)
        doublings = np.frexp(distance.astype(np.float64))[1] - 1
        plain = (first < self.column.steps) & (second < self.column.steps)
        apart = np.minimum(NEAR + doublings // _DOUBLINGS, self.size - 2)
        different = np.where(plain, apart, self.size - 1)
        return np.where(first == second, EQUAL, different)

    def attribute_column(self, name: str) -> Column:
        """The kinds as a column of the table of persons."""
        listed = Categorical(type="categorical", values=[f"kind {at}" for at in range(self.size)])
        return column_of(name, listed, Path())
