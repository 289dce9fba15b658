"""Which right side each left side of a functional dependency gets, from masses and evidence."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from cloister.arrays import TINY, Floats, Integers
from cloister.constraints.supports import Levels

_OVERFILLED = 0.01
"""Room of a right side that is full, as a part of a left side: 4.6 nats of evidence override it."""

_SIMILAR = 0.25
"""Standard deviation of the difference of two masses that are the same rows, relative to both."""

_NEVER = -1e9
"""The evidence of what may not be, as the assignment takes it: finite."""

_LEAST_MASS = 1e-12
"""Mass that each level has at least, so that none is impossible."""

_LEAST_SHARE = 1e-9
"""Share of the rows that a right side has room for at least."""

_LEAST_SPREAD = 1e-6
"""Difference of masses at least that is as likely as none."""


def likely_right(
    right: Levels, evidence: Floats, left_mass: Floats, right_mass: Floats, rng: np.random.Generator
) -> Integers:
    """A right side for each left side, the most likely one that has room for it.

    ``evidence`` (lefts, right size) has log-probabilities up to a constant, -inf for what may not
    be. Left sides (lefts,), the heaviest first, fill the right sides (size,) up to their mass; a
    right side that is full is taken where the evidence for it is strong. Negative where a left side
    may have none.
    """
    known, shares = evidence[:, right.present], right_mass[right.present] + _LEAST_SHARE
    shares, mass = shares / shares.sum(), left_mass / left_mass.sum()
    room = shares.copy()
    chosen = np.full(len(known), -1, dtype=np.int64)
    for left in np.lexsort((rng.random(len(mass)), -mass)):
        if np.isfinite(known[left]).any():
            log_room = np.log(np.maximum(room, _OVERFILLED * mass[left] + TINY))
            best = int(np.argmax(known[left] + log_room))
            chosen[left] = right.present[best]
            room[best] -= mass[left]
    return chosen


def one_to_one_right(
    right: Levels, evidence: Floats, left_mass: Floats, right_mass: Floats
) -> Integers:
    """A right side for each left side, none twice: the most likely of all such choices.

    A left side and its right side have the same rows, so their masses are evidence too. Arguments
    as for :func:`likely_right`. Negative where a left side has none.

    Source: Kuhn, "The Hungarian method for the assignment problem" (1955), as in scipy.
    """
    spread = _SIMILAR * (left_mass[:, None] + right_mass[None, right.present]) + _LEAST_SPREAD
    unlike = np.square((left_mass[:, None] - right_mass[None, right.present]) / spread)
    known = evidence[:, right.present]
    rows, columns = linear_sum_assignment(np.maximum(known - unlike, _NEVER), maximize=True)
    chosen = np.full(len(left_mass), -1, dtype=np.int64)
    there = np.isfinite(known[rows, columns])
    chosen[rows[there]] = right.present[columns[there]]
    return chosen


def ranked_right(right: Levels, left_mass: Floats, right_mass: Floats) -> Integers:
    """A right side for each left side, none twice: the heaviest for the heaviest, and so on.

    Arguments and result as for :func:`one_to_one_right`, for more than can be compared.
    """
    both = min(len(left_mass), len(right.present))
    chosen = np.full(len(left_mass), -1, dtype=np.int64)
    heaviest = np.argsort(-right_mass[right.present], kind="stable")
    chosen[np.argsort(-left_mass, kind="stable")[:both]] = right.present[heaviest[:both]]
    return chosen


def balanced_right(
    right: Levels, left_mass: Floats, right_mass: Floats, rng: np.random.Generator
) -> Integers:
    """Right sides for left sides without a joint statistic, so that the right shares are kept.

    Left sides, in random order, fill the right sides (size,) in proportion to their mass; result
    (lefts,).
    """
    order = rng.permutation(len(left_mass))
    ordered = left_mass[order] + _LEAST_MASS
    middle = (np.cumsum(ordered) - ordered / 2) / ordered.sum()
    shares = right_mass[right.present] + _LEAST_MASS
    place = np.searchsorted(np.cumsum(shares) / shares.sum(), middle)
    chosen = np.empty(len(order), dtype=np.int64)
    chosen[order] = right.present[np.minimum(place, len(right.present) - 1)]
    return chosen
