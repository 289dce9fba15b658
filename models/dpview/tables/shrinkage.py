"""Shrinking noisy view tables towards tables that are known with less noise, cell by cell.

A pair of attributes is shrunk towards independence, a whole view towards the table of greatest
entropy that its pairs allow. How far true tables are from these is estimated from the noisy table
itself: differences are assumed in proportion to the expected count, with noise of known variance on
top. Each cell then keeps the share of its difference that is not noise: all of it where many rows
are expected, nearly nothing where few are. Post-processing.

Source: empirical Bayes estimation, Efron and Morris (1973); iterative proportional fitting, Deming
    and Stephan (1940).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from cloister.arrays import Floats
from cloister.models.dpview.views import View

_PASSES = 25
"""Passes of iterative proportional fitting over all margins."""

Margin = tuple[tuple[int, ...], Floats]


def shrink_view(view: View) -> View:
    """The view, shrunk as far as its noise explains it.

    Not negative, of the same total if that is positive.
    """
    if view.counts.ndim < 2 or view.counts.sum() <= 0:
        return view
    ones = [((axis,), _single(view.counts, axis)) for axis in range(view.counts.ndim)]
    pairs = [_pair(view, *axes, ones) for axes in combinations(range(view.counts.ndim), 2)]
    if len(pairs) == 1:
        return view.of(pairs[0][1])
    expected = fit_margins(independent_table(view.counts), pairs)
    return view.of(_shrink(view.counts, expected, view.deviation**2))


def independent_table(counts: Floats) -> Floats:
    """The table of independent attributes of the same one-way margins, negative counts cut off."""
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
            own = table.sum(axis=_others(axes, table.ndim), keepdims=True)
            wanted = _along(margin, axes, table.ndim)
            table = table * np.divide(wanted, own, out=np.zeros_like(own), where=own > 0)
    return table


def _pair(view: View, first: int, second: int, ones: Sequence[Margin]) -> Margin:
    """The joint table of two axes, shrunk towards independence; one-way margins are kept."""
    noisy = view.counts.sum(axis=_others((first, second), view.counts.ndim))
    variance = view.deviation**2 * view.counts.size / noisy.size
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
    """The one-way margin of an axis, negative counts cut off, of the same total."""
    margin = np.maximum(counts.sum(axis=_others((axis,), counts.ndim)), 0.0)
    return np.asarray(margin * (max(float(counts.sum()), 1e-9) / max(float(margin.sum()), 1e-9)))


def _along(margin: Floats, axes: tuple[int, ...], dimensions: int) -> Floats:
    return np.expand_dims(margin, _others(axes, dimensions))


def _others(axes: tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(dimensions) if axis not in axes)
