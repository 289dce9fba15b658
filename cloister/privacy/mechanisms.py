"""Mechanisms: each draws its noise and names its event from the same fields, so that the two cannot disagree.

Counts get noise on integers, exactly, from OpenDP's samplers (Canonne, Kamath, Steinke, arXiv 2004.00010, algorithms
1 to 3), which draw from the operating system. A scale that is no floating-point number is rounded up. No float is ever
added to a count. Gradients get normal noise rounded to a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray
from scipy.stats import norm

from cloister.errors import PlanError, PrivacyError
from cloister.privacy.events import (
    Event,
    GaussianCounts,
    LaplaceCounts,
    Relation,
    SampledGaussian,
    Sensitivity,
    Thresholded,
)
from cloister.privacy.insecure import insecure_gaussian, insecure_laplace
from cloister.privacy.randomness import NoiseSource

dp.enable_features("contrib")

Counts = NDArray[np.int64]
Sums = NDArray[np.float64]
Sampler = Callable[[list[int]], list[int]]

LARGEST_COUNT = 2**62
LARGEST_SCALE = 2.0**50
GRID = 2.0**36
ROUNDING = 1e-6
LARGEST_MULTIPLIER = 2**20


@dataclass(frozen=True)
class Neighbours:
    """Which tables must be hard to tell apart: by a relation, and units that own at most ``max_rows`` rows each."""

    relation: Relation = Relation.ADD_REMOVE
    max_rows: int = 1

    @property
    def partition(self) -> Sensitivity:
        """Sensitivity of the counts of any partition of the rows."""
        return Sensitivity.partition(self.relation, self.max_rows)


class CountMechanism(Protocol):
    """Noise on a vector of integer counts.

    - `noise` returns the counts with independent noise on every one of them, zeros included.
    - `event` is what `noise` did, for the same sensitivity.
    """

    def noise(self, counts: Counts, sensitivity: Sensitivity, source: NoiseSource) -> Counts:
        """Noisy counts, in the shape of the counts."""
        ...

    def event(self, sensitivity: Sensitivity) -> Event:
        """What was done."""
        ...


@dataclass(frozen=True)
class DiscreteGaussian:
    """Discrete Gaussian noise of scale noise_multiplier * sqrt(l2_squared), in rows.

    Privacy: 1 / (2 noise_multiplier^2) zero-concentrated (Canonne, Kamath, Steinke, theorem 14); docs/privacy.md.
    """

    noise_multiplier: Fraction

    def scale(self, sensitivity: Sensitivity) -> float:
        """The scale, in rows: the least float that is not below the exact one."""
        return _root_up(self.noise_multiplier**2 * sensitivity.l2_squared)

    def noise(self, counts: Counts, sensitivity: Sensitivity, source: NoiseSource) -> Counts:
        """Noisy counts, in the shape of the counts. Errors: PlanError, PrivacyError on overflow."""
        scale = self.scale(sensitivity)
        if not source.secure:
            return _add(counts, scale, lambda zeros: insecure_gaussian(scale, len(zeros), source).tolist())
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
        return _add(counts, scale, dp.m.make_gaussian(*space, scale=scale))

    def event(self, sensitivity: Sensitivity) -> GaussianCounts:
        """What `noise` does."""
        return GaussianCounts(self.noise_multiplier, sensitivity)

    def reach(self, sensitivity: Sensitivity, tail: Fraction) -> int:
        """A whole number that noise on one count reaches or passes with probability at most ``tail``.

        Source: Canonne, Kamath, Steinke, proposition 25: P(X >= k) is at most P(N >= k - 1).
        """
        return math.ceil(self.scale(sensitivity) * float(norm.isf(float(tail))) * (1 + 1e-9)) + 1


@dataclass(frozen=True)
class DiscreteLaplace:
    """Discrete Laplace (two-sided geometric) noise of scale l1 / epsilon, in rows.

    Privacy: epsilon at delta 0 (Ghosh, Roughgarden, Sundararajan 2009); docs/privacy.md.
    """

    epsilon: Fraction

    def scale(self, sensitivity: Sensitivity) -> float:
        """The scale, in rows: the least float that is not below the exact one."""
        return up(sensitivity.l1 / self.epsilon)

    def noise(self, counts: Counts, sensitivity: Sensitivity, source: NoiseSource) -> Counts:
        """Noisy counts, in the shape of the counts. Errors: PlanError, PrivacyError on overflow."""
        scale = self.scale(sensitivity)
        if not source.secure:
            return _add(counts, scale, lambda zeros: insecure_laplace(scale, len(zeros), source).tolist())
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return _add(counts, scale, dp.m.make_laplace(*space, scale=scale))

    def event(self, sensitivity: Sensitivity) -> LaplaceCounts:
        """What `noise` does."""
        return LaplaceCounts(self.epsilon, sensitivity)

    def reach(self, sensitivity: Sensitivity, tail: Fraction) -> int:
        """A whole number that noise on one count reaches or passes with probability at most ``tail``.

        P(X >= k) = exp(-k / scale) / (1 + exp(-1 / scale)), at most exp(-k / scale).
        """
        return math.ceil(-self.scale(sensitivity) * math.log(tail) * (1 + 1e-9))


@dataclass(frozen=True)
class SparseHistogram:
    """Noisy counts of the non-empty cells of a domain too large to list, released where they reach a threshold.

    Privacy: (epsilon, delta) with the event of ``counts`` and ``delta`` for cells that only the unit occupies; the
    threshold is public. Source: Korolova et al. (2009); Wilson et al. (arXiv 1909.01917), section 3.2.
    """

    counts: DiscreteGaussian | DiscreteLaplace
    delta: Fraction

    def threshold(self, sensitivity: Sensitivity) -> int:
        """The least noisy count that is released: a cell of ``step`` rows gets there with chance delta / cells."""
        return sensitivity.step + self.counts.reach(sensitivity, self.delta / sensitivity.cells)

    def release(
        self, cells: Counts, counts: Counts, sensitivity: Sensitivity, source: NoiseSource
    ) -> tuple[Counts, Counts]:
        """Released cells, ascending, and their noisy counts; (k,) each.

        ``cells`` holds the number of each cell once, ``counts`` its rows. Empty cells are dropped, and the order in
        which cells are given leaves no trace.
        """
        order = np.argsort(cells)
        order = order[counts[order] > 0]
        if (np.diff(cells[order]) == 0).any():
            raise PrivacyError("A sparse histogram was given a cell twice; add its counts up first.")
        noisy = self.counts.noise(counts[order], sensitivity, source)
        released = noisy >= self.threshold(sensitivity)
        return cells[order][released], noisy[released]

    def event(self, sensitivity: Sensitivity) -> Thresholded:
        """What `release` does."""
        return Thresholded(self.counts.event(sensitivity), self.delta)


@dataclass(frozen=True)
class GaussianGradient:
    """DP-SGD: sums of per-example gradients clipped to L2 norm ``clip``, with normal noise of noise_multiplier * clip.

    Each row is in a batch with probability ``rate``, on its own. Privacy: `SampledGaussian`; docs/privacy.md. Source:
    Abadi et al. (arXiv 1607.00133), algorithm 1; Mironov (2012), Casacuberta et al. (arXiv 2207.10635) for the grid.
    """

    rate: Fraction
    noise_multiplier: Fraction
    clip: float

    def __post_init__(self) -> None:
        if (
            not 0 < self.noise_multiplier <= LARGEST_MULTIPLIER
            or not 0 < self.clip < math.inf
            or not 0 < self.rate <= 1
        ):
            raise PlanError("DP-SGD needs a noise multiplier above 0, at most 2^20, a finite clip and a rate up to 1.")

    def batch(self, rows: int, source: NoiseSource) -> Counts:
        """The row numbers of one Poisson sample of 0..rows-1, which stay secret."""
        return np.flatnonzero(source.bernoulli(self.rate, rows))

    def add_noise(self, total: Sums, source: NoiseSource) -> Sums:
        """The noisy sum, in the shape of ``total``, of clipped gradients summed in float64.

        Total and noise are rounded to multiples of clip / 2^36 and added as whole numbers: every output is one that
        any table could give, and rounding the noise is post-processing. What rounding can add to the sensitivity (half
        a step in each parameter, and 1e-6 of clip in the sums of up to 65,536 examples) is added to the noise.
        """
        if not np.isfinite(total).all():
            raise PrivacyError("A sum of clipped gradients is not finite; leave out examples without a finite norm.")
        steps = np.rint(total * (GRID / self.clip))
        moved = GRID * (1 + ROUNDING) + math.sqrt(total.size)
        noise = np.rint(source.normals(total.shape) * (float(self.noise_multiplier) * moved))
        return (steps + noise) * (self.clip / GRID)

    def event(self, steps: int, max_rows: int = 1) -> SampledGaussian:
        """``steps`` noisy sums, where one unit owns at most ``max_rows`` rows."""
        return SampledGaussian(self.rate, self.noise_multiplier, steps, max_rows)


def _add(counts: Counts, scale: float, sampler: Sampler) -> Counts:
    if not np.issubdtype(counts.dtype, np.integer):
        raise PrivacyError(f"Noise is added to integer counts only, not to {counts.dtype} numbers.")
    if not 0 < scale <= LARGEST_SCALE:
        raise PlanError("The noise scale is out of range; give the counts a larger share of the budget.")
    if counts.size and not -LARGEST_COUNT < int(counts.min()) <= int(counts.max()) < LARGEST_COUNT:
        raise PrivacyError("A count is too large to add noise to without overflow; count fewer rows at once.")
    if counts.size == 0:
        return counts.astype(np.int64)
    noise = np.asarray(sampler([0] * counts.size), dtype=np.int64)
    return counts.astype(np.int64) + noise.reshape(counts.shape)


def up(exact: Fraction) -> float:
    """The least float that is not below an exact number."""
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def _root_up(square: Fraction) -> float:
    near = math.nextafter(math.sqrt(up(square)), 0.0)
    while Fraction(near) ** 2 < square:
        near = math.nextafter(near, math.inf)
    return near
