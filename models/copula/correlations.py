"""Correlations from noisy probabilities.

Noisy conjunctions are shrunk towards independence as far as their noise requires. Dependence within
a pair of attributes is sparse: most of it is below the noise, some far above. A threshold that
minimises Stein's risk estimate keeps the latter; the choice is post-processing. Each probability
then gives the correlation of a bivariate normal distribution, and all of them the nearest
correlation matrix with its factor.

Source: Higham, "Computing the nearest correlation matrix" (2002), algorithm 3.3, which is algorithm
    3 of Asghar et al.; Drezner, Wesolowsky (1990), and Genz, "Numerical computation of rectangular
    bivariate and trivariate normal and t probabilities" (2004), section 2; Plackett (1954) for the
    derivative; Donoho, Johnstone, "Adapting to unknown smoothness via wavelet shrinkage" (1995).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np
from scipy.special import ndtr

from cloister.arrays import TINY, Array, Floats, Integers
from cloister.privacy.queries.counts import DummyCoding

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
"""Gauss-Legendre rule on [-1, 1], with which errors stay below 1e-14 (Genz, section 2.4)."""

_STRONG = 0.925
"""Correlation above which the integral starts from the other end, perfect dependence."""

_NEGLIGIBLE = -100.0
"""Log of a summand below which it is left out."""

_STEPS = 60
"""Steps of the search for a correlation: bisection alone reaches 1e-15 in as many."""

_CLOSE_PROBABILITY = 1e-10
"""Difference of probabilities at which the search for a correlation ends."""

_PAIRS = 100_000
"""Pairs solved at a time: bounds memory."""

SWEEPS = 100
"""Most alternating projections."""

_CLOSE_MATRIX = 1e-4
"""Root mean square change of entries at which projections end: far below their noise."""

_LARGEST_ALTERNATED = 2_000
"""Most columns of a matrix that is projected more than once: a projection then takes seconds."""

_LEAST_EIGENVALUE = 1e-4
"""Smaller eigenvalues are raised to this, so that there is a Cholesky factor."""

_LEAST_CELLS = 12
"""Fewest cells of a pair with a threshold of its own; smaller pairs share one."""

_FITTINGS = 20
"""Iterations that fit rows and columns of a pair to the histograms."""


def upper_probability(first: Floats, second: Floats, correlation: Floats) -> Floats:
    """P(X > first, Y > second) of standard normal X and Y with a correlation; each (n,).

    The error is below 1e-12.
    """
    first, second, correlation = np.broadcast_arrays(first, second, correlation)
    strong = np.abs(correlation) >= _STRONG
    probability = np.empty(correlation.shape)
    probability[~strong] = _from_independence(first[~strong], second[~strong], correlation[~strong])
    probability[strong] = _from_dependence(first[strong], second[strong], correlation[strong])
    return np.clip(probability, 0.0, 1.0)


def _from_independence(h: Floats, k: Floats, r: Floats) -> Floats:
    """Plackett's integral over the correlation, in terms of its arc sine."""
    angle, product, squares = np.arcsin(r), h * k, (h * h + k * k) / 2
    total = np.zeros(h.shape)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        sine = np.sin(angle * (node + 1) / 2)
        total += weight * np.exp((sine * product - squares) / (1 - sine * sine))
    return total * angle / (4 * np.pi) + ndtr(-h) * ndtr(-k)


def _from_dependence(h: Floats, k: Floats, r: Floats) -> Floats:
    """The probability at perfect dependence, less Plackett's integral from there."""
    sign = np.where(r < 0, -1.0, 1.0)
    mirrored = sign * k
    lost = _beyond(h, mirrored, np.abs(r)) / (2 * np.pi)
    same = ndtr(-np.maximum(h, mirrored)) - lost
    opposite = np.maximum(ndtr(mirrored) - ndtr(h), 0.0) + lost
    upper = np.where(h > 0, np.maximum(ndtr(-h) - ndtr(-mirrored), 0.0) + lost, opposite)
    return np.where(sign > 0, same, upper)


def _beyond(h: Floats, k: Floats, r: Floats) -> Floats:
    """Plackett's integral from correlation r to 1: an expansion at 1 and what it leaves."""
    product, gap = h * k, np.square(h - k)
    rest = (1 - r) * (1 + r)
    width, distance = np.sqrt(rest), np.sqrt(gap)
    c, d = (4 - product) / 8, (12 - product) / 80
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = -(gap / rest + product) / 2
        near = width * _exp(power) * (1 - c * (gap - rest) * (1 - d * gap) / 3 + c * d * rest**2)
        tail = np.sqrt(2 * np.pi) * ndtr(-distance / width)
        far = _exp(-product / 2) * tail * distance * (1 - c * gap * (1 - d * gap) / 3)
        total = np.where(power > _NEGLIGIBLE, near, 0.0) - np.where(product > _NEGLIGIBLE, far, 0.0)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            x = np.square(width * (node + 1) / 2)
            root = np.sqrt(1 - x)
            power = -(gap / x + product) / 2
            expansion = 1 + c * x * (1 + 5 * d * x)
            exact = _exp(-product * x / (2 * np.square(1 + root))) / root
            term = width / 2 * weight * _exp(power) * (exact - expansion)
            total += np.where(power > _NEGLIGIBLE, term, 0.0)
    return np.where(rest > 0, total, 0.0)


def _exp(power: Floats) -> Floats:
    return np.exp(np.minimum(power, 700.0))


def latent_correlations(first: Floats, second: Floats, joint: Floats, most: float = 1.0) -> Floats:
    """The correlations (n,) with which P(X > first, Y > second) is ``joint``; each (n,).

    If no correlation gives a probability, the nearest, at most ``most`` in absolute value. Newton's
    method, with bisection where it leaves the known bracket.

    Source: Asghar et al., equations 7 to 9, where a grid of 0.01 takes the place of the integral.
    """
    parts = [
        _solved(first[begin : begin + _PAIRS], second[begin : begin + _PAIRS], joint_part, most)
        for begin in range(0, len(joint), _PAIRS)
        if len(joint_part := joint[begin : begin + _PAIRS])
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _solved(first: Floats, second: Floats, joint: Floats, most: float) -> Floats:
    low, high = np.full(joint.shape, -most), np.full(joint.shape, most)
    correlations, open_ = np.zeros(joint.shape), np.arange(len(joint))
    for _ in range(_STEPS):
        h, k, r = first[open_], second[open_], correlations[open_]
        excess = upper_probability(h, k, r) - joint[open_]
        low[open_] = np.where(excess <= 0, r, low[open_])
        high[open_] = np.where(excess >= 0, r, high[open_])
        going = (np.abs(excess) > _CLOSE_PROBABILITY) & (
            high[open_] - low[open_] > _CLOSE_PROBABILITY
        )
        open_ = open_[going]
        if not len(open_):
            break
        step = r[going] - excess[going] / np.maximum(_density(h, k, r)[going], TINY)
        inside = (step > low[open_]) & (step < high[open_])
        correlations[open_] = np.where(inside, step, (low[open_] + high[open_]) / 2)
    return correlations


def _density(h: Floats, k: Floats, r: Floats) -> Floats:
    """The derivative of the probability by the correlation."""
    rest = np.maximum(1 - r * r, TINY)
    return np.exp(-(h * h + k * k - 2 * r * h * k) / (2 * rest)) / (2 * np.pi * np.sqrt(rest))


def nearest_correlation(estimated: Floats, sweeps: int = SWEEPS) -> Floats:
    """The correlation matrix (d, d) that is nearest to a symmetric one, by Frobenius norm.

    As near as ``sweeps`` projections come. Above 2,000 columns: its part of positive eigenvalues,
    with the diagonal scaled to one.
    """
    if len(estimated) < 2:
        return estimated
    if len(estimated) > _LARGEST_ALTERNATED:
        return _unit_diagonal(_projected(estimated, 0.0))
    correction, nearest = np.zeros_like(estimated), estimated
    for _ in range(sweeps):
        start = nearest - correction
        positive = _projected(start, 0.0)
        correction = positive - start
        before, nearest = nearest, positive.copy()
        np.fill_diagonal(nearest, 1.0)
        if np.sqrt(np.mean(np.square(nearest - before))) < _CLOSE_MATRIX:
            break
    return nearest


def factor(correlations: Floats) -> Floats:
    """The lower triangular L (d, d) with L L^T a positive definite correlation matrix.

    Small eigenvalues are raised, as in section 3.3.2 of Asghar et al.; the diagonal stays one.
    """
    if not len(correlations):
        return correlations
    return np.asarray(
        np.linalg.cholesky(_unit_diagonal(_projected(correlations, _LEAST_EIGENVALUE))),
        dtype=np.float64,
    )


def _projected(matrix: Floats, least: float) -> Floats:
    """The matrix with its eigenvalues below ``least`` raised to it."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    low = values < least
    raised = vectors[:, low] * (least - values[low])
    return np.asarray((matrix + matrix.T) / 2 + raised @ vectors[:, low].T)


def _unit_diagonal(matrix: Floats) -> Floats:
    scale = np.sqrt(np.maximum(np.diag(matrix), _LEAST_EIGENVALUE))
    scaled = matrix / np.outer(scale, scale)
    np.fill_diagonal(scaled, 1.0)
    return scaled


def shrink_conjunctions(
    noisy: Array, means: Floats, deviation: float, rows: float, coding: DummyCoding
) -> Floats:
    """Estimated shares of rows (width, width) with a 1 in two columns, from noisy counts.

    They lie within the bounds that ``means`` (width,), the released shares of ones, imply, and sum
    to these. ``deviation`` is the standard deviation of the noise, in rows.
    """
    shares = np.outer(means, means)
    for left, right in _alike(coding):
        first, second = _columns(coding, left), _columns(coding, right)
        block = first[:, :, None], second[:, None, :]
        expected = shares[block]
        residual = noisy[block] / rows - expected
        whole = not coding.single[left[0]], not coding.single[right[0]]
        residual = _centred(residual, means[first], means[second], whole)
        shrunk = expected + _thresholded(residual, deviation / rows)
        fitted = _fitted(shrunk, means[first], means[second], whole)
        shares[block] = fitted
        shares[second[:, :, None], first[:, None, :]] = fitted.transpose(0, 2, 1)
    np.fill_diagonal(shares, means)
    return shares


def _alike(coding: DummyCoding) -> Iterator[tuple[Integers, Integers]]:
    """Pairs of attributes (pairs,), (pairs,) that have columns, grouped by their widths."""
    kinds: dict[tuple[int, bool], list[int]] = {}
    for position, kind in enumerate(zip(coding.widths, coding.single, strict=True)):
        if kind[0]:
            kinds.setdefault(kind, []).append(position)
    for left, right in combinations_with_replacement(kinds, 2):
        first, second = np.array(kinds[left]), np.array(kinds[right])
        if left == right:
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
    """Residuals (pairs, a, b) that sum to zero over attributes with a column for each part."""
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
