"""Views: which attributes each joins, from public sizes, and the noisy table of each.

Source: Lin, Yu, Huang, "DPView", section IV-C (definitions 5, 6; algorithms 1, 2) and section IV-G
    (definition 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from cloister.arrays import Floats

Names = tuple[str, ...]
Sizes = Mapping[str, int]
Filling = Callable[[Names, int], Names]
"""Chooses a number of attributes of a base view, which fill up the next."""


def cells(view: Sequence[str], sizes: Sizes) -> int:
    """Number of cells of a view's table."""
    return math.prod(sizes[name] for name in view)


@dataclass(frozen=True)
class ViewList:
    """Base views in their order, the cross view between each and the next, and upper cross views.

    ``cross[i]`` bridges ``base[i]`` and ``base[i + 1]``; it is empty where the last base view was
    filled up from the one before (type III), which bridges them already. ``upper`` is empty in
    DPView, one for each cross view in DPView+.
    """

    base: tuple[Names, ...]
    cross: tuple[Names, ...] = ()
    upper: tuple[Names, ...] = ()

    @cached_property
    def linked(self) -> tuple[Names, ...]:
        """Base and cross views in the order in which records are linked: b1, c1, b2, c2, ...

        What two of them share is in all between.
        """
        crossed = (*self.cross, *((),) * (len(self.base) - len(self.cross)))
        return tuple(view for pair in zip(self.base, crossed, strict=True) for view in pair if view)

    @property
    def referees(self) -> tuple[Names, ...]:
        """The upper cross views that are not empty."""
        return tuple(view for view in self.upper if view)

    @property
    def all(self) -> tuple[Names, ...]:
        """Every view, upper cross views last."""
        return (*self.linked, *self.referees)

    @property
    def sequence(self) -> Names:
        """Every attribute once, in the order of linking."""
        return tuple(dict.fromkeys(name for view in self.linked for name in view))

    def size(self, sizes: Sizes) -> int:
        """Sum of the cells of base and cross views, which the search makes small (definition 7)."""
        return sum(cells(view, sizes) for view in self.linked)

    def within_bounds(self, sizes: Sizes) -> bool:
        """Whether no cross view is larger than all base views (algorithm 3, lines 7 to 10)."""
        largest = max(cells(view, sizes) for view in self.base)
        return all(cells(view, sizes) <= largest for view in self.cross)


def ordered_base(parts: Sequence[Sequence[str]], sizes: Sizes, width: int) -> tuple[Names, ...]:
    """Base views in the order of algorithm 1, line 3: by the product of their largest sizes.

    A short view comes last. The ``width // 2`` largest sizes count, at least one. Attributes of a
    view are in descending order of size.
    """
    views = [tuple(sorted(part, key=lambda name: (-sizes[name], name))) for part in parts]
    full = [view for view in views if len(view) == width]
    short = [view for view in views if len(view) < width]
    half = max(1, width // 2)
    return (*sorted(full, key=lambda view: (-cells(view[:half], sizes), view)), *short)


def smallest(names: Names, number: int) -> Names:
    """The smallest of attributes in descending order of size."""
    return names[-number:]


def add_cross_views(
    base: Sequence[Names], sizes: Sizes, width: int, filling: Filling = smallest
) -> ViewList:
    """The view list of ordered base views, with their cross views (algorithm 2).

    The attributes of a view are in descending order of size.

    Type I and II: every two neighbours get a cross view. Type III: a last view of at most half the
    width is filled up from the one before instead, by the ``filling``.
    """
    base = list(base)
    last = len(base) - 1
    filled = last > 0 and 2 * len(base[last]) <= width
    if filled:
        missing = width - len(base[last])
        base[last] = (*base[last], *filling(base[last - 1], missing))
    neighbours = list(pairwise(base))[: -1 if filled else None]
    return ViewList(
        tuple(base), tuple(_cross(first, second, sizes, width) for first, second in neighbours)
    )


def _cross(first: Names, second: Names, sizes: Sizes, width: int) -> Names:
    """High to low: the largest attributes of the first view with the smallest of the second.

    Of an odd width the attribute in the middle is the second view's smallest other, unless the
    second half would then outweigh the first (algorithm 2, lines 13 to 17).
    """
    half = max(1, width // 2)
    high, low = first[:half], second[-half:]
    if width % 2 == 0 or width == 1:
        return (*high, *low)
    rest, others = second[: len(second) - half], first[half:]
    fits = bool(rest) and cells(high, sizes) > cells(low, sizes) * sizes[rest[-1]]
    middle = rest[-1:] if fits else others[-1:]
    return (*high, *low, *middle)


def with_upper(views: ViewList) -> ViewList:
    """The same list with upper cross views: what cross views leave of base views (definition 8)."""
    upper = tuple(
        tuple(name for name in (*first, *second) if name not in cross)
        for first, cross, second in zip(views.base, views.cross, views.base[1:], strict=False)
    )
    return ViewList(views.base, views.cross, upper)


@dataclass(frozen=True, eq=False)
class View:
    """A noisy table: counts of rows over the joint parts of ``names``, one axis each.

    ``deviation`` is the standard deviation of a cell's noise, in rows.
    """

    names: Names
    counts: Floats
    deviation: float

    def margin(self, names: Iterable[str]) -> Floats:
        """Counts over some of the attributes, axes in the view's own order."""
        kept = set(names)
        return np.asarray(self.counts.sum(axis=self._other_axes(kept)))

    def other_cells(self, names: Iterable[str]) -> int:
        """Cells for each cell of a margin: the joint size of the attributes that it leaves out."""
        kept = set(names)
        return int(
            np.prod([self.counts.shape[axis] for axis in self._other_axes(kept)], dtype=np.int64)
        )

    def add_to_margin(self, names: Iterable[str], difference: Floats) -> View:
        """The view with a difference of a margin spread evenly over its cells (equation 7)."""
        kept = set(names)
        axes = self._other_axes(kept)
        spread = np.expand_dims(difference / self.other_cells(kept), axes)
        return replace(self, counts=self.counts + spread)

    def of(self, counts: Floats) -> View:
        """The same view with other counts."""
        return replace(self, counts=counts)

    def _other_axes(self, kept: set[str]) -> tuple[int, ...]:
        return tuple(axis for axis, name in enumerate(self.names) if name not in kept)


def margin_over(view: View, names: Sequence[str]) -> Floats:
    """Counts over some attributes of a view, axes in the order of ``names``."""
    own = [name for name in view.names if name in names]
    return view.margin(own).transpose([own.index(name) for name in names])
