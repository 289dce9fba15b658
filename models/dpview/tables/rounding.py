"""Consistency-aware normalisation: whole counts of exactly n rows, from one view to its neighbours.

Source: Lin, Yu, Huang, "DPView", section IV-E3. The paper gives left-over rows to the largest
fractions, as dpview-paper does; by default they are drawn so that every cell keeps its expectation,
since in a sparse table of many small fractions the largest ones would take all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.dpview.views import Names, View

GAMMA = 0.95
"""Probability with which the noise of a cell stays below the threshold of `initial_view`."""


@dataclass(frozen=True, eq=False)
class WholeView:
    """Whole counts over the joint parts of ``names``, one axis each."""

    names: Names
    counts: Integers

    def margin(self, names: Sequence[str]) -> Integers:
        """Counts over some of the attributes, axes in the order of ``names``."""
        axes = tuple(axis for axis, name in enumerate(self.names) if name not in names)
        own = [name for name in self.names if name in names]
        return np.asarray(self.counts.sum(axis=axes)).transpose([own.index(name) for name in names])


def initial_view(views: Sequence[View], total: float) -> int:
    """The view from which normalisation starts: most of its rows are in cells above the noise.

    A cell counts if it exceeds rho = -b ln(1 - gamma), below which Laplace noise of scale b stays
    with probability gamma.
    """
    return int(np.argmax([_concentration(view) / max(total, 1.0) for view in views]))


def _concentration(view: View) -> float:
    rho = -view.deviation / math.sqrt(2.0) * math.log(1.0 - GAMMA)
    return float(view.counts[view.counts > rho].sum())


Rounding = Callable[[Floats, Integers, np.random.Generator], Integers]


def round_views(
    views: Sequence[View], rows: int, rng: np.random.Generator, rounding: Rounding | None = None
) -> list[WholeView]:
    """Whole views of exactly ``rows`` rows each that agree on all that they share.

    ``views`` are in the order of linking: what two of them share is in all between. Each takes
    the margins of its rounded neighbour as given. ``rounding`` is :func:`round_rows`, or another.
    """
    start = initial_view(
        views, float(sum(view.counts.sum() for view in views)) / max(len(views), 1)
    )
    rounding = rounding or round_rows
    done: dict[int, WholeView] = {start: _first(views[start], rows, rng, rounding)}
    for at in (*range(start + 1, len(views)), *range(start - 1, -1, -1)):
        known = done[at - 1 if at > start else at + 1]
        done[at] = _next(views[at], known, rng, rounding)
    return [done[at] for at in range(len(views))]


def _first(view: View, rows: int, rng: np.random.Generator, rounding: Rounding) -> WholeView:
    target = np.array([rows], dtype=np.int64)
    return WholeView(
        view.names, rounding(view.counts.reshape(1, -1), target, rng).reshape(view.counts.shape)
    )


def _next(view: View, known: WholeView, rng: np.random.Generator, rounding: Rounding) -> WholeView:
    shared = [name for name in view.names if name in known.names]
    others = [name for name in view.names if name not in shared]
    axes = [view.names.index(name) for name in (*shared, *others)]
    moved = view.counts.transpose(axes)
    target = known.margin(shared).reshape(-1)
    whole = rounding(moved.reshape(len(target), -1), target, rng)
    back = whole.reshape(moved.shape).transpose(np.argsort(axes))
    return WholeView(view.names, np.ascontiguousarray(back))


def round_rows(counts: Floats, targets: Integers, rng: np.random.Generator) -> Integers:
    """Whole counts (k, c) in proportion to counts (k, c) >= 0 whose lines sum to the targets (k,).

    A line without any count follows the sum of all lines. The expectation of each count is its
    share of the target, and sums over neighbouring cells are off by less than one.
    """
    fallback = counts.sum(0)
    if not fallback.sum() > 0:
        fallback = np.ones(counts.shape[1])
    lines = np.where(counts.sum(1, keepdims=True) > 0, counts, fallback)
    heights = np.cumsum(lines, axis=1)
    heights *= (targets / heights[:, -1])[:, None]
    heights[:, -1] = targets
    steps = np.floor(heights + rng.random((len(lines), 1))).astype(np.int64)
    return np.diff(steps, axis=1, prepend=0)


def round_largest(counts: Floats, targets: Integers, rng: np.random.Generator) -> Integers:
    """As :func:`round_rows`, by integer parts and one more for the largest fractions, as printed.

    Ties are broken at random. A line without any count gets its target at random.
    """
    sums = counts.sum(1, keepdims=True)
    scaled = np.divide(counts, sums, out=np.zeros_like(counts), where=sums > 0) * targets[:, None]
    whole = np.floor(scaled).astype(np.int64)
    missing = targets - whole.sum(1)
    order = np.lexsort((rng.random(counts.shape), whole - scaled), axis=1)
    ranks = np.argsort(order, axis=1)
    whole += ranks < np.where(sums[:, 0] > 0, missing, 0)[:, None]
    for line in np.flatnonzero((sums[:, 0] <= 0) & (targets > 0)):
        drawn = rng.integers(0, counts.shape[1], targets[line])
        whole[line] = np.bincount(drawn, minlength=counts.shape[1])
    return whole


UNBIASED, LARGEST = "unbiased", "largest"
ROUNDINGS: Mapping[str, Rounding] = {UNBIASED: round_rows, LARGEST: round_largest}
"""The ways of rounding, by name."""
