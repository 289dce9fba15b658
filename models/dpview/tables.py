"""View tables: counts over the joint parts of some attributes, and how noisy they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Names = tuple[str, ...]
Counts = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class View:
    """Counts of rows over the joint parts of ``names``, one axis each.

    ``deviation`` of a cell's noise, in rows.
    """

    names: Names
    counts: Counts
    deviation: float

    def margin(self, names: Iterable[str]) -> Counts:
        """Counts over some of the attributes, axes in the view's own order."""
        kept = set(names)
        return np.asarray(self.counts.sum(axis=self._other_axes(kept)))

    def other_cells(self, names: Iterable[str]) -> int:
        """How many cells fall on one cell of a margin: the domain size of the attributes that it leaves out."""
        kept = set(names)
        return int(
            np.prod([self.counts.shape[axis] for axis in self._other_axes(kept)], dtype=np.int64)
        )

    def raised(self, names: Iterable[str], difference: Counts) -> View:
        """The view with a difference of a margin spread evenly over the cells that make it up (equation 7)."""
        kept = set(names)
        axes = self._other_axes(kept)
        spread = np.expand_dims(difference / self.other_cells(kept), axes)
        return replace(self, counts=self.counts + spread)

    def of(self, counts: Counts) -> View:
        """The same view with other counts."""
        return replace(self, counts=counts)

    def _other_axes(self, kept: set[str]) -> tuple[int, ...]:
        return tuple(axis for axis, name in enumerate(self.names) if name not in kept)


def margin_over(view: View, names: Sequence[str]) -> Counts:
    """Counts over some attributes of a view, axes in the order of ``names``."""
    own = [name for name in view.names if name in names]
    return view.margin(own).transpose([own.index(name) for name in names])
