"""Estimating a histogram from noisy counts: of several estimates, that of least estimated risk.

Each estimate comes with Stein's unbiased estimate of its squared error, which needs the noisy
counts and the noise alone, so the choice is post-processing. Source: Stein, "Estimation of the mean
of a multivariate normal distribution" (1981).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers
from cloister.schema.cells import Cells
from cloister.schema.columns import Grid

_REACH = 3
"""Neighbouring cells on either side that a count is averaged with."""

_SPIKE = 2.5
"""Standard deviations of the noise by which a spike exceeds its neighbourhood's median."""


@dataclass(frozen=True)
class Estimate:
    """An estimate of counts (cells,), and the estimated sum of its squared errors."""

    counts: Floats
    risk: float


def estimate_shares(counts: Integers, deviation: float, cells: Cells, rows: int) -> Floats:
    """The share of rows in each cell, (cells,), from its noisy counts (cells,).

    ``deviation`` is the standard deviation of their noise, in rows. ``rows`` is the number of all
    rows, which is public or released, so the noise of the counts' sum is known.
    """
    noisy = counts.astype(np.float64)
    alone = apart(cells)
    candidates = [project_counts(noisy, deviation, rows), shrink_to_mean(noisy, deviation, alone)]
    if isinstance(cells.column, Grid) and len(noisy) > 4 * _REACH:
        candidates.append(smooth_counts(noisy, deviation, alone))
    best = min(candidates, key=lambda estimate: estimate.risk)
    return to_shares(best.counts, rows)


def project_counts(noisy: Floats, deviation: float, rows: int) -> Estimate:
    """The nearest non-negative counts of ``rows`` rows: small counts become zero."""
    counts = to_shares(noisy, rows) * rows
    return Estimate(counts, _risk(noisy, counts, deviation, float((counts > 0).sum() - 1)))


def shrink_to_mean(noisy: Floats, deviation: float, alone: Booleans) -> Estimate:
    """Counts shrunk towards their mean, the more the greater the noise (James and Stein, 1961)."""
    crowd = noisy[~alone]
    mean, spread = crowd.mean(), float(np.square(crowd - crowd.mean()).sum())
    kept = max(0.0, 1.0 - max(len(crowd) - 3, 0) * deviation**2 / max(spread, 1e-12))
    counts = np.where(alone, noisy, mean + kept * (noisy - mean))
    return Estimate(
        counts, _risk(noisy, counts, deviation, kept * len(crowd) + 1.0 - kept + float(alone.sum()))
    )


def smooth_counts(noisy: Floats, deviation: float, alone: Booleans) -> Estimate:
    """Each count as the mean of its neighbourhood, but for spikes and cells that are ``alone``."""
    windows = _windows(noisy)
    spikes = alone | (np.abs(noisy - np.median(windows, axis=1)) > _SPIKE * deviation)
    calm = 1.0 - _windows(spikes.astype(np.float64))
    members = np.maximum(calm.sum(1), 1.0)
    counts = np.where(spikes, noisy, (windows * calm).sum(1) / members)
    return Estimate(
        counts, _risk(noisy, counts, deviation, float(np.where(spikes, 1.0, 1.0 / members).sum()))
    )


def apart(cells: Cells) -> Booleans:
    """Cells without neighbours: special values and missing ones.

    Shape (cells,).
    """
    column = cells.column
    mask = np.zeros(cells.size, dtype=bool)
    if isinstance(column, Grid) and column.special_codes:
        mask[cells.of(np.array(column.special_codes))] = True
    if column.null_code is not None:
        mask[-1] = True
    return mask


def to_shares(counts: NDArray[np.generic], rows: int) -> Floats:
    """The nearest non-negative counts of ``rows`` rows, by Euclidean distance, as shares.

    Shape as given.
    """
    values = counts.astype(np.float64).ravel()
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - rows) / np.arange(1, len(ordered) + 1)
    threshold = excess[np.flatnonzero(ordered > excess)[-1]]
    shares = np.maximum(values - threshold, 0.0)
    return (shares / shares.sum()).reshape(counts.shape)


def _risk(noisy: Floats, estimate: Floats, deviation: float, freedom: float) -> float:
    return float(np.square(noisy - estimate).sum()) + deviation**2 * (2 * freedom - len(noisy))


def _windows(values: Floats) -> Floats:
    padded = np.pad(values, _REACH, mode="reflect")
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * _REACH + 1)
