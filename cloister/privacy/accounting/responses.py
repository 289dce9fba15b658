"""Many randomised responses of one epsilon: what all reveal together, and how much each may.

The worst pair of an epsilon-private mechanism is randomised response (Kairouz, Oh, Viswanath, arXiv
1311.0776, theorem 3.3), whose loss is epsilon or -epsilon. The loss of n of them is (n - 2 i)
epsilon, where i is binomial: it is written down, so that a million cost no more than one, and put
on a grid once instead of n times.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.special import bdtr

from cloister.privacy.accounting.loss import Loss
from cloister.privacy.accounting.precision import LARGEST_EXPONENT, OUTWARD

_HALVINGS = 100
"""Bisections of an epsilon: more than the 53 bits of a double."""


def repeated_response(epsilon: float, times: int, step: float, tail: float) -> Loss:
    """The loss of so many randomised responses, each rounded up to a multiple of ``step``.

    Of all mass, ``tail`` at most lies outside of what is listed, and is infinite loss. Rounding a
    loss up never lowers a divergence, which is the mean of a function that rises with it.
    """
    chance = 1 / (1 + math.exp(epsilon))
    # Hoeffding: further from the mean than this lies a mass below the tail
    reach = math.sqrt(times * math.log(2 / tail) / 2)
    centre = times * chance
    first, last = max(math.floor(centre - reach), 0), min(math.ceil(centre + reach), times)
    flipped = np.arange(first, last + 1, dtype=np.float64)
    # each mass by its ratio to the one before, whose errors are some 1e-16 each
    ratios = np.log((times - flipped[:-1]) / (flipped[:-1] + 1)) - epsilon
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    mass = np.exp(logs - logs.max())
    losses = (times - 2 * flipped) * epsilon
    places = np.ceil((losses + OUTWARD * np.abs(losses)) / step).astype(np.int64)
    lowest = int(places.min())
    on_grid = np.bincount(places - lowest, weights=mass * (1 + OUTWARD) / mass.sum())
    return Loss(step, lowest, on_grid.astype(np.float64), tail)


def response_epsilon(epsilon: Fraction, delta: float, times: int) -> float:
    """About the largest epsilon of each of so many responses that together are (epsilon, delta).

    For planning: the accountants have the last word.
    """
    low, high = float(epsilon) / times, float(epsilon)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = _delta_of(middle, times, float(epsilon)) <= delta
        low, high = (middle, high) if enough else (low, middle)
    return low


def _delta_of(each: float, times: int, whole: float) -> float:
    """The delta of so many responses of an epsilon ``each`` at the epsilon ``whole``, exactly."""
    if max(each, whole) > LARGEST_EXPONENT:
        return 1.0
    most = math.ceil((times - whole / each) / 2) - 1
    if most < 0:
        return 0.0
    chance = 1 / (1 + math.exp(each))
    return float(bdtr(most, times, chance) - math.exp(whole) * bdtr(most, times, 1 - chance))
