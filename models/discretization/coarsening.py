"""Coarsenings of an attribute: its bins, or fewer parts made of them, to keep joint tables small.

Parts are made from released histograms: neighbouring bins of about equal mass where values have
an order, the rare ones together where they have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.arrays import Integers
from cloister.schema.columns import Codes
from models.discretization.bins import Bins


@dataclass(frozen=True, eq=False)
class Coarsening:
    """A partition of one attribute's bins: bin b lies in part ``parts[b]``; shape (bins,)."""

    bins: Bins
    parts: Integers

    @property
    def name(self) -> str:
        """The attribute."""
        return self.bins.name

    @cached_property
    def size(self) -> int:
        """Number of parts."""
        return int(self.parts.max()) + 1

    @property
    def whole(self) -> bool:
        """Whether every bin is a part of its own."""
        return self.size == self.bins.size

    def of(self, codes: Codes) -> Integers:
        """Parts (n,) of fine codes (n,)."""
        return self.parts[self.bins.of(codes)]


def fine(bins: Bins) -> Coarsening:
    """Every bin on its own."""
    return Coarsening(bins, np.arange(bins.size, dtype=np.int64))


def coarse(bins: Bins, most: int) -> Coarsening:
    """At most ``most`` parts."""
    if bins.size <= most:
        return fine(bins)
    if bins.cells.column.kind == "nominal":
        return Coarsening(bins, _heaviest(bins, most))
    middle = np.cumsum(bins.mass) - bins.mass / 2
    runs = np.minimum((middle * most).astype(np.int64), most - 1)
    return Coarsening(bins, np.unique(runs, return_inverse=True)[1].astype(np.int64))


def _heaviest(bins: Bins, most: int) -> Integers:
    parts = np.full(bins.size, most - 1, dtype=np.int64)
    parts[np.argsort(-bins.mass, kind="stable")[: most - 1]] = np.arange(most - 1)
    return parts
