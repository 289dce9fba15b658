"""Noisy view tables shrunk, made consistent, and rounded to whole counts of exactly n rows.

*Shrinking.* A pair of attributes is shrunk towards independence, a whole view towards the table of
greatest entropy that its pairs allow. How far true tables are from these is estimated from the
noisy table itself: differences are assumed proportional to the expected count, plus noise of known
variance. Each cell keeps the share of its difference that is not noise: nearly all where many rows
are expected, nearly nothing where few are. Post-processing.

Source: empirical Bayes estimation, Efron and Morris (1973); iterative proportional fitting, Deming
    and Stephan (1940).

*Consistency.* Margins that several views share are replaced by a weighted mean, smaller shared sets
before larger ones; the sets are all intersections of views, including the empty set (the total). A
larger set does not change a smaller one, so one pass makes all views agree. Non-negativity undoes
that a little, so the two alternate until neither changes a count: alternating projections onto two
convex sets, which converge since they have a common point.

Source: Lin, Yu, Huang, "DPView", section IV-E, equations 5 to 7 and figure 5; order of sets after
Qardaji, Yang, Li, "PriView" (2014).

*Consistency-aware normalisation*, from one view to its neighbours. Source: Lin, Yu, Huang,
"DPView", section IV-E3. The paper gives left-over rows to the largest fractions, as dpview-paper
does; by default they are drawn so that every cell keeps its expectation, since in a sparse table of
many small fractions the largest ones would take all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.dpview.views import Names

_PASSES = 25
"""Passes of iterative proportional fitting over all margins."""

Margin = tuple[tuple[int, ...], Floats]

_TURNS = 40
"""Most rounds of agreement and non-negativity."""

_STILL = 1e-7
"""A negative count above minus this share of all rows needs no further round."""

GAMMA = 0.95
"""Probability with which the noise of a cell stays below the threshold of `initial_view`."""

Rounding = Callable[[Floats, Integers, np.random.Generator], Integers]

UNBIASED, LARGEST = "unbiased", "largest"


def shrink_view(view: NoisyTable) -> NoisyTable:
    """The view, shrunk as far as noise explains it.

    Non-negative, with the same total if that is positive.
    """
    if view.counts.ndim < 2 or view.counts.sum() <= 0:
        return view
    ones = [((axis,), _single(view.counts, axis)) for axis in range(view.counts.ndim)]
    pairs = [_pair(view, *axes, ones) for axes in combinations(range(view.counts.ndim), 2)]
    if len(pairs) == 1:
        return view.with_counts(pairs[0][1])
    expected = fit_margins(independent_table(view.counts), pairs)
    return view.with_counts(_shrink(view.counts, expected, view.variance))


def independent_table(counts: Floats) -> Floats:
    """The table of independent attributes with these one-way margins, negative counts cut off."""
    total = max(float(counts.sum()), 1e-9)
    product = np.full((1,) * counts.ndim, total)
    for axis in range(counts.ndim):
        product = product * _along(_single(counts, axis) / total, (axis,), counts.ndim)
    return product


def fit_margins(start: Floats, margins: Sequence[Margin]) -> Floats:
    """A table scaled to margins (axes, counts) by iterative proportional fitting."""
    table = start
    for _ in range(_PASSES):
        for axes, margin in margins:
            sums = table.sum(axis=_others(axes, table.ndim), keepdims=True)
            wanted = _along(margin, axes, table.ndim)
            table = table * np.divide(wanted, sums, out=np.zeros_like(sums), where=sums > 0)
    return table


def _pair(view: NoisyTable, first: int, second: int, ones: Sequence[Margin]) -> Margin:
    """The joint table of two axes, shrunk towards independence; one-way margins are kept."""
    noisy = view.counts.sum(axis=_others((first, second), view.counts.ndim))
    variance = view.variance * view.counts.size / noisy.size
    sides = [((0,), ones[first][1]), ((1,), ones[second][1])]
    return (first, second), fit_margins(_shrink(noisy, independent_table(noisy), variance), sides)


def _shrink(noisy: Floats, expected: Floats, variance: float) -> Floats:
    """The expected counts, plus the share of each difference that noise does not explain.

    ``variance`` is that of the noise of a cell.
    """
    difference, squares = noisy - expected, np.square(expected)
    surplus = float(np.square(difference).sum()) - variance * noisy.size
    spread = squares * max(0.0, surplus / max(float(squares.sum()), 1e-9))
    return np.maximum(expected + difference * (spread / (spread + variance)), 0.0)


def _single(counts: Floats, axis: int) -> Floats:
    """The one-way margin of an axis, negative counts cut off, with the same total."""
    margin = np.maximum(counts.sum(axis=_others((axis,), counts.ndim)), 0.0)
    return np.asarray(margin * (max(float(counts.sum()), 1e-9) / max(float(margin.sum()), 1e-9)))


def _along(margin: Floats, axes: tuple[int, ...], dimensions: int) -> Floats:
    return np.expand_dims(margin, _others(axes, dimensions))


def _others(axes: tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(dimensions) if axis not in axes)


def shared_sets(views: Sequence[Names]) -> list[frozenset[str]]:
    """Every intersection of two or more views, smaller sets first.

    The empty set is always the first.
    """
    sets = {frozenset[str]()}
    fresh = {frozenset(a) & frozenset(b) for index, a in enumerate(views) for b in views[:index]}
    while fresh - sets:
        sets |= fresh
        fresh = {a & b for a in sets for b in sets}
    return sorted(sets, key=lambda names: (len(names), sorted(names)))


def consistency_weights(views: Sequence[NoisyTable], shared: frozenset[str]) -> list[float]:
    """The weight of each view in the mean: P^2 / xi, one over its margin's variance; equation 6."""
    precisions = [1.0 / (view.variance * view.cells_beside(shared)) for view in views]
    return [precision / sum(precisions) for precision in precisions]


def impose_agreement(views: Sequence[NoisyTable], total: float) -> list[NoisyTable]:
    """The nearest views that agree on all that they share and hold ``total`` rows each."""
    agreeing = [view.add((), np.asarray(total - view.counts.sum())) for view in views]
    for shared in shared_sets([view.names for view in views])[1:]:
        members = [index for index, view in enumerate(agreeing) if shared <= set(view.names)]
        means = _to_mean([agreeing[index] for index in members], shared)
        for index, view in zip(members, means, strict=True):
            agreeing[index] = view
    return agreeing


def _to_mean(views: Sequence[NoisyTable], shared: frozenset[str]) -> list[NoisyTable]:
    order = sorted(shared)
    margins = [view.project(order).counts for view in views]
    mean = sum(
        w * margin for w, margin in zip(consistency_weights(views, shared), margins, strict=True)
    )
    return [view.add(order, mean - margin) for view, margin in zip(views, margins, strict=True)]


def project_non_negative(counts: Floats) -> Floats:
    """The nearest non-negative counts of the same sum; zeros if the sum is not positive.

    Figure 5 of the paper, repeated until no count is negative: the sum of the negative counts is
    taken off the positive ones evenly.
    """
    flat = np.array(counts, dtype=np.float64).ravel()
    if flat.sum() <= 0:
        return np.zeros_like(counts)
    while (flat < 0).any():
        owed = flat[flat < 0].sum()
        positive = flat > 0
        flat[flat < 0] = 0.0
        flat[positive] += owed / positive.sum()
    return flat.reshape(counts.shape)


def make_consistent(views: Sequence[NoisyTable], total: float) -> list[NoisyTable]:
    """Views that nearly agree on what they share, without negative counts.

    Views are first made to agree before any negative count is changed. After the last round counts
    are non-negative, and agree up to the change in that round.
    """
    current = impose_agreement(views, total)
    for _ in range(_TURNS):
        clipped = [view.with_counts(project_non_negative(view.counts)) for view in current]
        current = impose_agreement(clipped, total)
        if min(float(view.counts.min()) for view in current) > -_STILL * total:
            break
    return [view.with_counts(project_non_negative(view.counts)) for view in current]


@dataclass(frozen=True, eq=False)
class WholeView:
    """Whole counts over the joint parts of ``names``, one axis each."""

    names: Names
    counts: Integers

    def margin(self, names: Sequence[str]) -> Integers:
        """Counts over some of the attributes, axes in the order of ``names``."""
        axes = tuple(axis for axis, name in enumerate(self.names) if name not in names)
        remaining = [name for name in self.names if name in names]
        return np.asarray(self.counts.sum(axis=axes)).transpose(
            [remaining.index(name) for name in names]
        )


def initial_view(views: Sequence[NoisyTable], total: float) -> int:
    """The view from which normalisation starts: most of its rows are in cells above the noise.

    A cell counts if it exceeds rho = -b ln(1 - gamma), below which Laplace noise of scale b stays
    with probability gamma.
    """
    return int(np.argmax([_concentration(view) / max(total, 1.0) for view in views]))


def _concentration(view: NoisyTable) -> float:
    rho = -view.noise / math.sqrt(2.0) * math.log(1.0 - GAMMA)
    return float(view.counts[view.counts > rho].sum())


def round_views(
    views: Sequence[NoisyTable],
    rows: int,
    rng: np.random.Generator,
    rounding: Rounding | None = None,
) -> list[WholeView]:
    """Whole views of exactly ``rows`` rows each that agree on all that they share.

    ``views`` are in the order of linking: what two of them share is in all between. Each takes the
    margins of its rounded neighbour as given. ``rounding`` is :func:`round_rows` by default.
    """
    start = initial_view(
        views, float(sum(view.counts.sum() for view in views)) / max(len(views), 1)
    )
    rounding = rounding or round_rows
    done: dict[int, WholeView] = {start: _first(views[start], rows, rng, rounding)}
    for index in (*range(start + 1, len(views)), *range(start - 1, -1, -1)):
        known = done[index - 1 if index > start else index + 1]
        done[index] = _next(views[index], known, rng, rounding)
    return [done[index] for index in range(len(views))]


def _first(view: NoisyTable, rows: int, rng: np.random.Generator, rounding: Rounding) -> WholeView:
    target = np.array([rows], dtype=np.int64)
    return WholeView(
        view.names, rounding(view.counts.reshape(1, -1), target, rng).reshape(view.counts.shape)
    )


def _next(
    view: NoisyTable, known: WholeView, rng: np.random.Generator, rounding: Rounding
) -> WholeView:
    shared = [name for name in view.names if name in known.names]
    rest = [name for name in view.names if name not in shared]
    axes = [view.names.index(name) for name in (*shared, *rest)]
    moved = view.counts.transpose(axes)
    target = known.margin(shared).reshape(-1)
    whole = rounding(moved.reshape(len(target), -1), target, rng)
    back = whole.reshape(moved.shape).transpose(np.argsort(axes))
    return WholeView(view.names, np.ascontiguousarray(back))


def round_rows(counts: Floats, targets: Integers, rng: np.random.Generator) -> Integers:
    """Whole counts (k, c) proportional to counts (k, c) >= 0 whose lines sum to the targets (k,).

    A line without counts follows the sum of all lines. The expectation of each count is its share
    of the target, and sums over neighbouring cells are off by less than one.
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


ROUNDINGS: Mapping[str, Rounding] = {UNBIASED: round_rows, LARGEST: round_largest}
"""The ways of rounding, by name."""
