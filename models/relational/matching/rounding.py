"""Unbiased rounding of shares to whole numbers.

Source: arXiv 2405.18670, algorithm 3 (SAMPLE).
"""

from __future__ import annotations

import numpy as np

from cloister.arrays import Floats, Integers

_CLOSE = 1e-9
"""How far sums of shares may be from whole numbers, by floating-point error."""


def sample_exactly(shares: Floats, number: int, rng: np.random.Generator) -> Integers:
    """``number`` different indices, each chosen with the probability of its share (n,).

    Shares lie in [0, 1] and add up to ``number``. Algorithm 3: shares in random order are merged
    into groups of at most 1, groups to leave out are chosen by their complements, and of each other
    group one index.
    """
    if number == 0:
        return np.zeros(0, dtype=np.int64)
    if number == len(shares):
        return np.arange(number)
    order = rng.permutation(len(shares))
    heights = np.cumsum(shares[order])
    ends = np.array([len(order)]) if number == 1 else _ends_of_groups(heights)
    starts = np.append(0, ends[:-1])
    tops = heights[ends - 1]
    bottoms = np.append(0.0, tops[:-1])
    complements = (1 - (tops - bottoms)).clip(0, 1)
    left_out = sample_exactly(complements, len(ends) - number, rng)
    kept = np.setdiff1d(np.arange(len(ends)), left_out)
    marks = bottoms[kept] + rng.random(len(kept)) * (tops - bottoms)[kept]
    places = np.searchsorted(heights, marks, side="right")
    return order[np.clip(places, starts[kept], ends[kept] - 1)]


def round_unbiased(weights: Floats, rng: np.random.Generator) -> Integers:
    """Whole numbers (n,) whose expectations are weights (n,) with a whole sum, of the same sum."""
    whole = np.floor(weights + _CLOSE)
    rest = (weights - whole).clip(0, 1)
    number = round(float(weights.sum() - whole.sum()))
    some = np.flatnonzero(rest > _CLOSE)
    counts = whole.astype(np.int64)
    if number > 0 and len(some):
        number = min(number, len(some))
        shares = rest[some] * (number / rest[some].sum())
        counts[some[sample_exactly(shares.clip(0, 1), number, rng)]] += 1
    return counts


def _ends_of_groups(heights: Floats) -> Integers:
    """Where groups of consecutive shares end: as long as they add up to at most 1."""
    ends, base = [0], 0.0
    while ends[-1] < len(heights):
        end = int(np.searchsorted(heights, base + 1 + _CLOSE, side="right"))
        ends.append(max(end, ends[-1] + 1))
        base = float(heights[ends[-1] - 1])
    return np.array(ends[1:])
