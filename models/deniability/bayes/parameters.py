"""Conditional tables from noisy counts: posterior means of a Dirichlet distribution.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), section 3.4, equations (11) to (14).
"""

from __future__ import annotations

import math

import numpy as np

from cloister.arrays import Floats

_LEAST_PRIOR = 1.0
"""Rows that the prior counts for at least, where there is no noise."""

_FLOOR = 1e-9
"""Share added to each level of a prior, so that none is impossible by it."""


def posterior_means(counts: Floats, deviation: float, prior: Floats) -> Floats:
    """The shares (configurations, bins) of noisy counts of that shape, equation (13).

    Counts of a configuration are first made the nearest that are not negative and have the same
    total; hyper-parameters are ``prior`` (bins,), the released shares of all rows, times as many
    rows as noise adds to a configuration.
    """
    totals = np.maximum(counts.sum(axis=1), 0.0)
    strength = _LEAST_PRIOR + deviation * math.sqrt(counts.shape[1])
    alpha = strength * (prior + _FLOOR) / (prior + _FLOOR).sum()
    found = project_rows(counts, totals) + alpha
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def project_rows(counts: Floats, totals: Floats) -> Floats:
    """The nearest counts (n, k) in Euclidean distance that are not negative and add up to totals.

    Source: Duchi et al., "Efficient projections onto the l1-ball" (2008), figure 1.
    """
    ordered = -np.sort(-counts, axis=1)
    excess = (np.cumsum(ordered, axis=1) - totals[:, None]) / np.arange(1, counts.shape[1] + 1)
    last = np.maximum((ordered > excess).sum(axis=1) - 1, 0)
    threshold = np.take_along_axis(excess, last[:, None], axis=1)
    return np.asarray(np.maximum(counts - threshold, 0.0))
