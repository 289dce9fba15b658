"""Noisy conjunctions shrunk towards independence, as far as their noise asks.

What a pair of attributes has beyond independence is sparse: most of it is below the noise, and some
far above. A threshold that minimises Stein's estimate of the risk keeps the latter. The choice is
post-processing. Source: Donoho, Johnstone, "Adapting to unknown smoothness via wavelet shrinkage"
(1995).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np

from cloister.arrays import TINY, Array, Floats, Integers
from cloister.privacy.queries.counts import DummyCoding

_LEAST_CELLS = 12
"""Cells of a pair at least that have a threshold of their own; smaller ones share one."""

_FITTINGS = 20
"""Times that rows and columns of a pair are fitted to the histograms."""


def shrink_conjunctions(
    noisy: Array, means: Floats, deviation: float, rows: float, coding: DummyCoding
) -> Floats:
    """Estimated shares of rows (width, width) with a 1 in two columns, from noisy counts.

    They lie between the bounds that ``means`` (width,), the released shares of ones, leave, and sum
    to these. ``deviation`` is the standard deviation of the noise, in rows.
    """
    shares = np.outer(means, means)
    for one, other in _alike(coding):
        first, second = _columns(coding, one), _columns(coding, other)
        place = first[:, :, None], second[:, None, :]
        expected = shares[place]
        residual = noisy[place] / rows - expected
        whole = not coding.single[one[0]], not coding.single[other[0]]
        residual = _centred(residual, means[first], means[second], whole)
        kept = expected + _thresholded(residual, deviation / rows)
        fitted = _fitted(kept, means[first], means[second], whole)
        shares[place] = fitted
        shares[second[:, :, None], first[:, None, :]] = fitted.transpose(0, 2, 1)
    np.fill_diagonal(shares, means)
    return shares


def _alike(coding: DummyCoding) -> Iterator[tuple[Integers, Integers]]:
    """Pairs of attributes (pairs,), (pairs,) with columns, those of the same widths together."""
    kinds: dict[tuple[int, bool], list[int]] = {}
    for place, kind in enumerate(zip(coding.widths, coding.single, strict=True)):
        if kind[0]:
            kinds.setdefault(kind, []).append(place)
    for one, other in combinations_with_replacement(kinds, 2):
        first, second = np.array(kinds[one]), np.array(kinds[other])
        if one == other:
            rows, columns = np.triu_indices(len(first), 1)
        else:
            rows, columns = (side.ravel() for side in np.indices((len(first), len(second))))
        if len(rows):
            yield first[rows], second[columns]


def _columns(coding: DummyCoding, attributes: Integers) -> Integers:
    """The columns (n, width) of attributes (n,) of the same width."""
    width = coding.widths[int(attributes[0])]
    return np.asarray(coding.begins[attributes][:, None] + np.arange(width), dtype=np.int64)


def _centred(residual: Floats, first: Floats, second: Floats, whole: tuple[bool, bool]) -> Floats:
    """Residuals (pairs, a, b) that sum to zero over attributes of which all parts have columns."""
    if whole[0]:
        residual = residual - first[:, :, None] * residual.sum(1, keepdims=True)
    if whole[1]:
        residual = residual - second[:, None, :] * residual.sum(2, keepdims=True)
    return residual


def _thresholded(residual: Floats, deviation: float) -> Floats:
    """Residuals (pairs, a, b), each moved towards zero by the threshold of its pair."""
    flat = residual.reshape(len(residual), -1)
    pooled = flat.shape[1] < _LEAST_CELLS
    sizes = np.sort(np.abs(flat.reshape(1, -1) if pooled else flat), axis=1)
    threshold = _least_risk(sizes, deviation)
    moved = np.sign(flat) * np.maximum(np.abs(flat) - threshold[:, None], 0.0)
    return np.asarray(moved.reshape(residual.shape))


def _least_risk(sizes: Floats, deviation: float) -> Floats:
    """The threshold (lists,), one of the sizes (lists, n) or 0, of least estimated risk.

    ``sizes`` are increasing.
    """
    number = sizes.shape[1]
    below: Integers = np.arange(1, number + 1)
    risk = (
        np.cumsum(np.square(sizes), axis=1)
        + np.square(sizes) * (number - below)
        - 2 * deviation**2 * below
    )
    best = risk.argmin(1)
    lists = np.arange(len(sizes))
    return np.where(risk[lists, best] < 0, sizes[lists, best], 0.0)


def _fitted(shares: Floats, first: Floats, second: Floats, whole: tuple[bool, bool]) -> Floats:
    """Shares (pairs, a, b) inside the bounds of their margins, that sum to these."""
    a, b = first[:, :, None], second[:, None, :]
    low, high = np.maximum(a + b - 1.0, 0.0), np.minimum(a, b)
    shares = np.clip(shares, low, high)
    for _ in range(_FITTINGS if any(whole) else 0):
        if whole[0]:
            shares = shares * (b / np.maximum(shares.sum(1, keepdims=True), TINY))
        if whole[1]:
            shares = shares * (a / np.maximum(shares.sum(2, keepdims=True), TINY))
        shares = np.minimum(shares, high)
    return shares
