"""Estimating a histogram from noisy counts: of several estimates, that of least estimated risk.

Each estimate comes with Stein's unbiased estimate of its squared error, which needs the noisy
counts and the noise alone, so the choice is post-processing. Source: Stein, "Estimation of the mean
of a multivariate normal distribution" (1981).

Of many values without order most are often about equally rare, and a few are common. A noisy count
then says less than the crowd that it stands in, so one estimate learns from all cells what counts
are likely. Source: Robbins, "An empirical Bayes approach to statistics" (1956), with the most
likely distribution of counts after Kiefer and Wolfowitz (1956), by expectation-maximization.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers
from cloister.models.core.tails import Remainder, cells_before_tail, fit_tail, isolated
from cloister.schema.columns import Grid
from cloister.schema.partition import Partition

_ROUNDS = 15
"""Rounds of expectation-maximization: with more the distribution follows single cells' noise."""

_FINENESS = 2.0
"""Possible counts for each standard deviation of the noise."""

_MOST_POSSIBLE = 400
"""Possible counts at most."""

_DRAWS = 32
"""Perturbations by which degrees of freedom are estimated, each in both directions."""

_PERTURBATION = 0.5
"""Size of a perturbation, in standard deviations of the noise."""

_SEED = 20_081_001
"""Public seed of the perturbations."""

_REACH = 3
"""Neighbouring cells on either side that a count is averaged with."""

_SPIKE = 2.5
"""Standard deviations of the noise by which a spike exceeds its neighbourhood's median."""

_CROWD = range(32, 257)
"""Cells without order from whose counts their distribution is learnt.

Of fewer it is not known well enough. Of many more most hold nothing, and would be given a little.
"""

_LEAST_TAIL = 3
"""Cells of a tail at least: one more than the numbers that are fitted to the lightest."""

_CUTS = 64
"""Cells at most from which a tail may begin."""

_MOST_IN_TAIL = 1 - 1e-6
"""Share of all rows in a tail at most, if there are other cells: these never share nothing."""


def expected_counts(noisy: Floats, deviation: float) -> Floats:
    """The expected counts (cells,) given noisy ones (cells,) and their distribution, from 0 on."""
    most = max(float(noisy.max()), deviation)
    size = min(int(_FINENESS * most / deviation) + 2, _MOST_POSSIBLE)
    possible = np.linspace(0.0, most, size)
    distances = np.square((noisy[:, None] - possible) / deviation)
    likelihood = np.exp(-(distances - distances.min(1, keepdims=True)) / 2)
    prior = np.full(size, 1.0 / size)
    for _ in range(_ROUNDS):
        prior = _posterior(likelihood, prior).mean(0)
    return _posterior(likelihood, prior) @ possible


def _posterior(likelihood: Floats, prior: Floats) -> Floats:
    weights = likelihood * prior
    return weights / weights.sum(1, keepdims=True)


def degrees_of_freedom(
    estimate: Callable[[Floats], Floats], noisy: Floats, deviation: float
) -> float:
    """How much all estimates (cells,) follow their own noisy counts (cells,), in sum.

    Source: Ramani, Blu, Unser, "Monte-Carlo SURE" (IEEE Trans. Image Processing, 2008).
    """
    rng, followed = np.random.default_rng(_SEED), 0.0
    for _ in range(_DRAWS):
        towards = rng.standard_normal(len(noisy))
        step = _PERTURBATION * deviation * towards
        followed += float(towards @ (estimate(noisy + step) - estimate(noisy - step)))
    return followed / (2 * _PERTURBATION * deviation * _DRAWS)


@dataclass(frozen=True)
class Estimate:
    """An estimate of counts (cells,), and the estimated sum of its squared errors."""

    counts: Floats
    risk: float


@dataclass(frozen=True)
class NoisyCells:
    """Noisy ``counts`` (cells,) of cells of one attribute that hold ``rows`` rows in all.

    ``deviation`` is the standard deviation of each count's noise, in rows. ``edges`` (cells, 2) are
    the ends of cells that have an order, but for those ``alone`` (cells,); None without an order.
    """

    counts: Floats
    alone: Booleans
    edges: Floats | None
    deviation: float
    rows: float

    @property
    def mirrored(self) -> NoisyCells:
        """The same cells in the other order."""
        edges = None if self.edges is None else -self.edges[::-1, ::-1]
        return replace(self, counts=self.counts[::-1], alone=self.alone[::-1], edges=edges)

    def part(self, cells: Booleans, rows: float) -> NoisyCells:
        """Some of the cells (cells,), with another number of rows."""
        edges = None if self.edges is None else self.edges[cells]
        return NoisyCells(self.counts[cells], self.alone[cells], edges, self.deviation, rows)


@dataclass(frozen=True)
class _Cut:
    """Cells whose last ones, ``outer`` (cells,), follow a tail with so many ``counts`` (outer,)."""

    outer: Booleans
    counts: Floats


def estimate_shares(
    counts: Integers | Floats, deviation: float, cells: Partition, rows: int
) -> Floats:
    """The share of rows in each cell, (cells,), from its noisy counts (cells,).

    ``deviation`` is the standard deviation of their noise, in rows. ``rows`` is the number of all
    rows, which is public or released, so the noise of the counts' sum is known.
    """
    ordered = isinstance(cells.column, Grid)
    edges = np.column_stack([cells.starts, cells.stops]).astype(np.float64) if ordered else None
    noisy = NoisyCells(counts.astype(np.float64), apart(cells), edges, deviation, float(rows))
    estimated = _without_upper_tail(noisy, _without_lower_tail)
    return estimated / estimated.sum()


def _without_lower_tail(cells: NoisyCells) -> Floats:
    return _without_upper_tail(cells.mirrored, _body)[::-1]


def _without_upper_tail(cells: NoisyCells, of_rest: Callable[[NoisyCells], Floats]) -> Floats:
    """Estimated counts (cells,): a tail at the upper end, if there is one, and the rest."""
    cut = _best_cut(cells)
    if cut is None:
        return of_rest(cells)
    counts = np.empty(len(cells.counts))
    counts[cut.outer] = cut.counts
    if not cut.outer.all():
        counts[~cut.outer] = of_rest(cells.part(~cut.outer, cells.rows - float(cut.counts.sum())))
    return counts


def _best_cut(cells: NoisyCells) -> _Cut | None:
    """The tail with which the estimate of all counts has the least risk; None if none helps."""
    if cells.edges is None:
        return None
    spikes = isolated(cells.counts, cells.deviation) & ~cells.alone
    places = np.flatnonzero(~(cells.alone | spikes))
    last = len(places) - _LEAST_TAIL
    if last < 0:
        return None
    before = cells_before_tail(cells.counts[places], cells.deviation)
    after_spike = bool(spikes[: places[min(before, last)]].any())
    if not before and spikes.any() and not after_spike:
        return None  # It would rise towards all that is sure.
    unsure = before > last or not (before or after_spike)
    best, least = None, _best_estimate(cells).risk if unsure else math.inf
    for first in np.unique(np.linspace(0, min(before, last), _CUTS).astype(int)):
        outer = np.zeros(len(cells.counts), dtype=bool)
        outer[places[first:]] = True
        tail = fit_tail(
            cells.counts[outer], cells.edges[outer], cells.deviation, _remainder(cells, outer)
        )
        rows = min(tail.rows, cells.rows * (1.0 if outer.all() else _MOST_IN_TAIL))
        rest = cells.part(~outer, cells.rows - rows)
        risk = tail.risk + (_best_estimate(rest).risk if len(rest.counts) else 0.0)
        if risk < least:
            best, least = _Cut(outer, rows * tail.shares), risk
    return best


def _remainder(cells: NoisyCells, outer: Booleans) -> Remainder:
    return Remainder(cells.rows - float(cells.counts[~outer].sum()), float((~outer).sum()))


def _body(cells: NoisyCells) -> Floats:
    return to_shares(_best_estimate(cells).counts, cells.rows) * cells.rows


def _best_estimate(cells: NoisyCells) -> Estimate:
    """Of the estimates that suit the cells, that of least risk."""
    noisy, deviation = cells.counts, cells.deviation
    candidates = [project_counts(noisy, deviation, cells.rows)]
    if not cells.alone.all():
        candidates.append(shrink_to_mean(noisy, deviation, cells.alone))
    if cells.edges is not None and len(noisy) > 4 * _REACH:
        candidates.append(smooth_counts(noisy, deviation, cells.alone))
    if cells.edges is None and int((~cells.alone).sum()) in _CROWD:
        candidates.append(learn_counts(noisy, deviation, cells.alone, cells.rows))
    return min(candidates, key=lambda estimate: estimate.risk)


def project_counts(noisy: Floats, deviation: float, rows: float) -> Estimate:
    """The nearest non-negative counts of ``rows`` rows: small counts become zero."""
    counts = to_shares(noisy, rows) * rows
    return Estimate(counts, stein_risk(noisy, counts, deviation, float((counts > 0).sum() - 1)))


def shrink_to_mean(noisy: Floats, deviation: float, alone: Booleans) -> Estimate:
    """Counts shrunk towards their mean, the more the greater the noise (James and Stein, 1961)."""
    crowd = noisy[~alone]
    mean, spread = crowd.mean(), float(np.square(crowd - crowd.mean()).sum())
    kept = max(0.0, 1.0 - max(len(crowd) - 3, 0) * deviation**2 / max(spread, 1e-12))
    counts = np.where(alone, noisy, mean + kept * (noisy - mean))
    return Estimate(
        counts,
        stein_risk(noisy, counts, deviation, kept * len(crowd) + 1.0 - kept + float(alone.sum())),
    )


def learn_counts(noisy: Floats, deviation: float, alone: Booleans, rows: float) -> Estimate:
    """The expected counts by the distribution of all but those ``alone``, of ``rows`` rows."""

    def estimate(counts: Floats) -> Floats:
        expected = counts.copy()
        expected[~alone] = expected_counts(counts[~alone], deviation)
        return to_shares(expected, rows) * rows

    learnt = estimate(noisy)
    freedom = degrees_of_freedom(estimate, noisy, deviation)
    return Estimate(learnt, stein_risk(noisy, learnt, deviation, freedom))


def smooth_counts(noisy: Floats, deviation: float, alone: Booleans) -> Estimate:
    """Each count as the mean of its neighbourhood, but for spikes and cells that are ``alone``."""
    counts, weights = neighbourhood_means(noisy, deviation, alone)
    return Estimate(counts, stein_risk(noisy, counts, deviation, float(weights.sum())))


def neighbourhood_means(noisy: Floats, deviation: float, alone: Booleans) -> tuple[Floats, Floats]:
    """Smoothed counts (cells,), and the weight (cells,) that each count has in its own mean."""
    windows = _windows(noisy)
    spikes = alone | (np.abs(noisy - np.median(windows, axis=1)) > _SPIKE * deviation)
    calm = 1.0 - _windows(spikes.astype(np.float64))
    members = np.maximum(calm.sum(1), 1.0)
    counts = np.where(spikes, noisy, (windows * calm).sum(1) / members)
    return counts, np.where(spikes, 1.0, 1.0 / members)


def apart(cells: Partition) -> Booleans:
    """Cells without neighbours: special values and missing ones.

    Shape (cells,).
    """
    column = cells.column
    mask = np.zeros(cells.cells, dtype=bool)
    if isinstance(column, Grid) and column.special_codes:
        mask[cells.cell_index(np.array(column.special_codes))] = True
    if column.null_code is not None:
        mask[-1] = True
    return mask


def to_shares(counts: NDArray[np.generic], rows: float) -> Floats:
    """The nearest non-negative counts of ``rows`` rows, by Euclidean distance, as shares.

    Shape as given.
    """
    values = counts.astype(np.float64).ravel()
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - rows) / np.arange(1, len(ordered) + 1)
    threshold = excess[np.flatnonzero(ordered > excess)[-1]]
    shares = np.maximum(values - threshold, 0.0)
    return (shares / shares.sum()).reshape(counts.shape)


def stein_risk(noisy: Floats, estimate: Floats, deviation: float, freedom: float) -> float:
    """Stein's unbiased estimate of the squared error of counts with degrees of ``freedom``."""
    return float(np.square(noisy - estimate).sum()) + deviation**2 * (2 * freedom - len(noisy))


def _windows(values: Floats) -> Floats:
    padded = np.pad(values, _REACH, mode="reflect")
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * _REACH + 1)
