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

    Shares lie in [0, 1] and add up to ``number``. Algorithm 3: shares are merged into groups of at
    most 1, groups to leave out are chosen by their complements, and of each other group one index.
    """
    if number == 0:
        return np.zeros(0, dtype=np.int64)
    if number == len(shares):
        return np.arange(number)
    if number == 1:
        return np.array([_draw(shares, rng)])
    groups = _merged(shares, rng)
    excess = len(groups) - number
    complements = np.array([1 - shares[group].sum() for group in groups]).clip(0, 1)
    left_out = set(sample_exactly(complements, excess, rng).tolist())
    kept = (group for place, group in enumerate(groups) if place not in left_out)
    return np.array([group[_draw(shares[group], rng)] for group in kept], dtype=np.int64)


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


def _merged(shares: Floats, rng: np.random.Generator) -> list[Integers]:
    """Groups of indices, in random order, as long as the shares of a group add up to at most 1."""
    groups: list[list[int]] = []
    total = 2.0
    for index in rng.permutation(len(shares)).tolist():
        share = float(shares[index])
        if total + share > 1 + _CLOSE:
            groups.append([])
            total = 0.0
        groups[-1].append(index)
        total += share
    return [np.array(group) for group in groups]


def _draw(shares: Floats, rng: np.random.Generator) -> int:
    heights = np.cumsum(shares)
    place = int(np.searchsorted(heights, rng.random() * heights[-1], side="right"))
    return min(place, len(shares) - 1)
