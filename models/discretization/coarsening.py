"""Readings of an attribute: its groups, or fewer parts made of them, so that joint tables of large domains stay small.

Parts are made from released histograms: neighbouring groups of about equal mass where values have
an order, the rare ones together where they have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cloister.schema.columns import Codes
from models.discretization.bins import Bins

Int = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Coarsening:
    """A partition of one attribute's groups: group g lies in part ``parts[g]``; shape (groups,)."""

    groups: Bins
    parts: Int

    @property
    def name(self) -> str:
        """The attribute."""
        return self.groups.name

    @cached_property
    def size(self) -> int:
        """Number of parts."""
        return int(self.parts.max()) + 1

    @property
    def whole(self) -> bool:
        """Whether every group is a part of its own."""
        return self.size == self.groups.size

    def of(self, codes: Codes) -> Int:
        """Parts (n,) of fine codes (n,)."""
        return self.parts[self.groups.of(codes)]


def fine(groups: Bins) -> Coarsening:
    """Every group on its own."""
    return Coarsening(groups, np.arange(groups.size, dtype=np.int64))


def coarse(groups: Bins, most: int) -> Coarsening:
    """At most so many parts."""
    if groups.size <= most:
        return fine(groups)
    if groups.cells.column.kind == "nominal":
        return Coarsening(groups, _heaviest(groups, most))
    middle = np.cumsum(groups.mass) - groups.mass / 2
    runs = np.minimum((middle * most).astype(np.int64), most - 1)
    return Coarsening(groups, np.unique(runs, return_inverse=True)[1].astype(np.int64))


def _heaviest(groups: Bins, most: int) -> Int:
    parts = np.full(groups.size, most - 1, dtype=np.int64)
    parts[np.argsort(-groups.mass, kind="stable")[: most - 1]] = np.arange(most - 1)
    return parts
