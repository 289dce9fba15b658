"""The bivariate normal distribution, for arrays, and the correlation that gives a probability.

Source: Drezner, Wesolowsky (1990), and Genz, "Numerical computation of rectangular bivariate and
    trivariate normal and t probabilities" (2004), section 2; Plackett (1954) for the derivative.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from cloister.arrays import TINY, Floats

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
"""Gauss-Legendre rule on [-1, 1], with which errors stay below 1e-14 (Genz, section 2.4)."""

_STRONG = 0.925
"""Correlation from which on the integral is taken from the other end, at perfect dependence."""

_NEGLIGIBLE = -100.0
"""Logarithm of a summand that is left out."""

_STEPS = 60
"""Steps of the search for a correlation: halvings alone come closer than 1e-15 in so many."""

_CLOSE = 1e-10
"""Difference of probabilities at which the search for a correlation ends."""

_PAIRS = 100_000
"""Pairs that are solved at a time: bounds memory."""


def upper_probability(first: Floats, second: Floats, correlation: Floats) -> Floats:
    """P(X > first, Y > second) of standard normal X and Y with a correlation; each (n,).

    The error is below 1e-12.
    """
    first, second, correlation = np.broadcast_arrays(first, second, correlation)
    strong = np.abs(correlation) >= _STRONG
    found = np.empty(correlation.shape)
    found[~strong] = _from_independence(first[~strong], second[~strong], correlation[~strong])
    found[strong] = _from_dependence(first[strong], second[strong], correlation[strong])
    return np.clip(found, 0.0, 1.0)


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

    Of a probability that none gives the nearest one, at most ``most`` in size. Newton's method,
    halving where it leaves the interval that is known.

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
    found, open_ = np.zeros(joint.shape), np.arange(len(joint))
    for _ in range(_STEPS):
        h, k, r = first[open_], second[open_], found[open_]
        excess = upper_probability(h, k, r) - joint[open_]
        low[open_] = np.where(excess <= 0, r, low[open_])
        high[open_] = np.where(excess >= 0, r, high[open_])
        going = (np.abs(excess) > _CLOSE) & (high[open_] - low[open_] > _CLOSE)
        open_ = open_[going]
        if not len(open_):
            break
        step = r[going] - excess[going] / np.maximum(_density(h, k, r)[going], TINY)
        inside = (step > low[open_]) & (step < high[open_])
        found[open_] = np.where(inside, step, (low[open_] + high[open_]) / 2)
    return found


def _density(h: Floats, k: Floats, r: Floats) -> Floats:
    """The derivative of the probability by the correlation."""
    rest = np.maximum(1 - r * r, TINY)
    return np.exp(-(h * h + k * k - 2 * r * h * k) / (2 * rest)) / (2 * np.pi * np.sqrt(rest))
