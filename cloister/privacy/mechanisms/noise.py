"""Noise: each mechanism draws it and names its event from the same fields, so that both agree.

Counts get noise on integers, exactly, from OpenDP's samplers (Canonne, Kamath, Steinke, arXiv
2004.00010, algorithms 1 to 3), which draw from the operating system. A scale that is not a
floating-point number is rounded up. No float is ever added to a count. Gradients get normal noise
rounded to a grid. Real
numbers are rounded to a grid first, so that noise is drawn exactly on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace
from opendp.metrics import l1_distance, l2_distance
from opendp.mod import enable_features
from scipy.special import ndtri

from cloister.arrays import Floats, Integers
from cloister.errors import PlanError, PrivacyError
from cloister.privacy.events import (
    GaussianCounts,
    LaplaceCounts,
    OnGrid,
    Relation,
    SampledGaussian,
    Sensitivity,
    Thresholded,
)
from cloister.privacy.exact import float_above
from cloister.privacy.mechanisms.randomness import NoiseSource, insecure_gaussian, insecure_laplace

enable_features("contrib")

_Sampler = Callable[[list[int]], list[int]]

_LARGEST_COUNT = 2**62
"""Counts that get noise lie below this on both sides of zero: with noise they fit into 64 bits."""

_LARGEST_SCALE = 2.0**50
"""Largest noise scale, in rows: noise passes 2^62 with a probability below exp(-4096)."""

_FINEST_GRID = 36
"""Binary digits of the finest grid in one clip: sums of 2^26 rows fit into 64 bits."""

_EXACT_MULTIPLIER = 2**12
"""Largest noise multiplier at which all noise is below 2^53 steps of the finest grid: a normal
drawn here is at most 18.9 standard deviations."""

_LARGEST_MULTIPLIER = 2**20
"""Largest noise multiplier: the grid then has 2^28 steps a clip, still far finer than the noise."""

CHANGED_BLOCKS = 2
"""Blocks that adding a row changes: its own, and the last, to which the row moves whose place it
takes."""

ALLOWANCE = 2.0**-16
"""Clips by which one row may change a sum beyond the clip itself. A norm is off by 1e-9; the
float64 sums of the two blocks that change by less than 2e-9; the row that moves by the error of
single precision, 1e-7 as measured on networks of 10 attributes."""


@dataclass(frozen=True)
class Neighbours:
    """Which tables are neighbours: by a relation, for units of at most ``max_rows`` rows each."""

    relation: Relation = Relation.ADD_REMOVE
    max_rows: int = 1

    @property
    def partition(self) -> Sensitivity:
        """Sensitivity of the counts of any partition of the rows."""
        return Sensitivity.partition(self.relation, self.max_rows)


@dataclass(frozen=True)
class DiscreteGaussian:
    """Discrete Gaussian noise of scale noise_multiplier * sqrt(l2_squared), in rows.

    Privacy: 1 / (2 noise_multiplier^2) zero-concentrated (Canonne, Kamath, Steinke, theorem 14);
        docs/privacy.md.
    """

    noise_multiplier: Fraction

    def scale(self, sensitivity: Sensitivity) -> float:
        """The scale, in rows: the least float that is not below the exact one."""
        return _root_up(self.noise_multiplier**2 * sensitivity.l2_squared)

    def deviation(self, sensitivity: Sensitivity) -> float:
        """The standard deviation of the noise of a count, in rows, nearly."""
        return self.scale(sensitivity)

    def release(self, exact: Integers, sensitivity: Sensitivity, source: NoiseSource) -> Integers:
        """Noisy counts, in the shape of the counts. Errors: PlanError, PrivacyError on overflow."""
        scale = self.scale(sensitivity)
        if not source.secure:
            return _add(
                exact, scale, lambda zeros: insecure_gaussian(scale, len(zeros), source).tolist()
            )
        space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
        return _add(exact, scale, make_gaussian(*space, scale=scale))

    def event(self, sensitivity: Sensitivity) -> GaussianCounts:
        """What `release` does."""
        return GaussianCounts(self.noise_multiplier, sensitivity)

    def reach(self, sensitivity: Sensitivity, tail: Fraction) -> int:
        """A whole number that noise on one count reaches with probability at most ``tail``.

        Source: Canonne, Kamath, Steinke, proposition 25: P(X >= k) is at most P(N >= k - 1).
        """
        return math.ceil(self.scale(sensitivity) * -float(ndtri(float(tail))) * (1 + 1e-9)) + 1


@dataclass(frozen=True)
class DiscreteLaplace:
    """Discrete Laplace (two-sided geometric) noise of scale l1 / epsilon, in rows.

    Privacy: epsilon at delta 0 (Ghosh, Roughgarden, Sundararajan 2009); docs/privacy.md.
    """

    epsilon: Fraction

    def scale(self, sensitivity: Sensitivity) -> float:
        """The scale, in rows: the least float that is not below the exact one."""
        return float_above(sensitivity.l1 / self.epsilon)

    def deviation(self, sensitivity: Sensitivity) -> float:
        """The standard deviation of the noise of a count, in rows."""
        ratio = math.exp(-1.0 / self.scale(sensitivity))
        return math.sqrt(2.0 * ratio) / (1.0 - ratio)

    def release(self, exact: Integers, sensitivity: Sensitivity, source: NoiseSource) -> Integers:
        """Noisy counts, in the shape of the counts. Errors: PlanError, PrivacyError on overflow."""
        scale = self.scale(sensitivity)
        if not source.secure:
            return _add(
                exact, scale, lambda zeros: insecure_laplace(scale, len(zeros), source).tolist()
            )
        space = vector_domain(atom_domain(T="i64")), l1_distance(T="i64")
        return _add(exact, scale, make_laplace(*space, scale=scale))

    def event(self, sensitivity: Sensitivity) -> LaplaceCounts:
        """What `release` does."""
        return LaplaceCounts(self.epsilon, sensitivity)

    def reach(self, sensitivity: Sensitivity, tail: Fraction) -> int:
        """A whole number that noise on one count reaches with probability at most ``tail``.

        P(X >= k) = exp(-k / scale) / (1 + exp(-1 / scale)), at most exp(-k / scale).
        """
        return math.ceil(-self.scale(sensitivity) * math.log(tail) * (1 + 1e-9))


@dataclass(frozen=True)
class SparseHistogram:
    """Noisy counts of the non-empty cells of a domain too large to list.

    A count is released if it reaches a public threshold. Privacy: (epsilon, delta) with the event
    of ``counts`` and ``delta`` for cells that only the unit occupies. Source: Korolova et al.
    (2009); Wilson et al. (arXiv
    1909.01917), section 3.2.
    """

    counts: DiscreteGaussian | DiscreteLaplace
    delta: Fraction

    def threshold(self, sensitivity: Sensitivity) -> int:
        """The least noisy count that is released.

        A cell of ``step`` rows reaches it with probability at most delta / cells.
        """
        return sensitivity.step + self.counts.reach(sensitivity, self.delta / sensitivity.cells)

    def release(self, exact: Integers, sensitivity: Sensitivity, source: NoiseSource) -> Integers:
        """Released cells, ascending, over their noisy counts; (2, k).

        ``exact`` (2, n) holds the number of each cell once, over its rows. Empty cells are dropped,
        and the order in which cells are given does not matter.
        """
        cells, counts = exact
        order = np.argsort(cells)
        order = order[counts[order] > 0]
        if (np.diff(cells[order]) == 0).any():
            raise PrivacyError(
                "A sparse histogram was given a cell twice; add its counts up first."
            )
        noisy = self.counts.release(counts[order], sensitivity, source)
        released = noisy >= self.threshold(sensitivity)
        return np.stack([cells[order][released], noisy[released]])

    def event(self, sensitivity: Sensitivity) -> Thresholded:
        """What `release` does."""
        return Thresholded(self.counts.event(sensitivity), self.delta)


@dataclass(frozen=True)
class ClippedSum:
    """How far one unit can change a sum of gradients: by ``clip`` for each row that is sampled.

    A unit owns at most ``max_rows`` rows; each is sampled with probability ``rate``.
    """

    rate: Fraction
    clip: float
    max_rows: int = 1


@dataclass(frozen=True)
class GaussianGradient:
    """DP-SGD: sums of per-example gradients clipped to L2 norm ``clip``, with normal noise.

    The standard deviation of the noise is noise_multiplier * clip. Each row is in a batch
    independently with probability ``rate``. Privacy: `SampledGaussian`;
    docs/privacy.md. Source: Abadi et al. (arXiv 1607.00133), algorithm 1; Mironov (2012),
    Casacuberta et al. (arXiv 2207.10635) for the grid.
    """

    rate: Fraction
    noise_multiplier: Fraction
    clip: float

    def __post_init__(self) -> None:
        if (
            not 0 < self.noise_multiplier <= _LARGEST_MULTIPLIER
            or not 0 < self.clip < math.inf
            or not 0 < self.rate <= 1
        ):
            raise PlanError(
                "DP-SGD needs a noise multiplier above 0, at most 2^20, a finite clip and a rate "
                "up to 1; if it is the noise that is too large, allow more epsilon or delta."
            )

    @property
    def grid(self) -> float:
        """Steps of the grid in one clip: fewer where noise would pass 2^53 steps.

        Beyond that, it would not be exact in float64.
        """
        excess = (math.ceil(self.noise_multiplier / _EXACT_MULTIPLIER) - 1).bit_length()
        return 2.0 ** (_FINEST_GRID - excess)

    def batch(self, rows: int, source: NoiseSource) -> Integers:
        """The row numbers of one Poisson sample of 0..rows-1, in random order; both stay secret."""
        chosen = np.flatnonzero(source.bernoulli(self.rate, rows))
        return chosen[source.permutation(len(chosen))]

    def on_grid(self, total: Floats) -> Integers:
        """A block's sum of clipped gradients in whole grid steps, so that blocks add up exactly.

        Raises:
            PrivacyError: the sum is not finite.
        """
        if not np.isfinite(total).all():
            raise PrivacyError(
                "A sum of clipped gradients is not finite; leave out examples without a finite "
                "norm."
            )
        return np.rint(total * (self.grid / self.clip)).astype(np.int64)

    def release(self, exact: Integers, sensitivity: ClippedSum, source: NoiseSource) -> Floats:
        """The noisy sum, in the shape of ``exact``, of what `on_grid` gave for each block.

        Total and noise are whole numbers of clip / grid, added exactly: every output is one that
        any table could give, and rounding the noise is post-processing. A total beyond 64 bits
        wraps around, before and after the noise alike, so that this is post-processing too. What
        computing and rounding can add to the sensitivity (`ALLOWANCE`, and a step for each
        parameter in both blocks that one row may change) is added to the noise.
        """
        self._require_own(sensitivity)
        moved = self.grid * (1 + ALLOWANCE) + CHANGED_BLOCKS * math.sqrt(exact.size)
        noise = np.rint(
            source.normals(exact.shape) * (float(self.noise_multiplier) * moved)
        ).astype(np.int64)
        return (exact + noise).astype(np.float64) * (self.clip / self.grid)

    def sums(self, max_rows: int = 1) -> ClippedSum:
        """The sensitivity of the sums of gradients that this mechanism samples and clips."""
        return ClippedSum(self.rate, self.clip, max_rows)

    def event(self, sensitivity: ClippedSum) -> SampledGaussian:
        """The event of one `release`."""
        self._require_own(sensitivity)
        return self.events(1, sensitivity.max_rows)

    def events(self, steps: int, max_rows: int = 1) -> SampledGaussian:
        """``steps`` noisy sums, where one unit owns at most ``max_rows`` rows."""
        return SampledGaussian(self.rate, self.noise_multiplier, steps, max_rows)

    def _require_own(self, sensitivity: ClippedSum) -> None:
        if (sensitivity.rate, sensitivity.clip) != (self.rate, self.clip):
            raise PrivacyError(
                "Gradients were sampled or clipped by another mechanism than the one that adds "
                "noise."
            )


def _add(counts: Integers, scale: float, sampler: _Sampler) -> Integers:
    if not np.issubdtype(counts.dtype, np.integer):
        raise PrivacyError(f"Noise is added to integer counts only, not to {counts.dtype} numbers.")
    if not 0 < scale <= _LARGEST_SCALE:
        raise PlanError(
            "The noise scale is out of range; give the counts a larger share of the budget."
        )
    if (
        counts.size
        and not -_LARGEST_COUNT < int(counts.min()) <= int(counts.max()) < _LARGEST_COUNT
    ):
        raise PrivacyError(
            "A count is too large to add noise to without overflow; count fewer rows at once."
        )
    if counts.size == 0:
        return counts.astype(np.int64)
    noise = np.asarray(sampler([0] * counts.size), dtype=np.int64)
    return counts.astype(np.int64) + noise.reshape(counts.shape)


def _root_up(square: Fraction) -> float:
    near = math.nextafter(math.sqrt(float_above(square)), 0.0)
    while Fraction(near) ** 2 < square:
        near = math.nextafter(near, math.inf)
    return near


GRID_STEPS = 64
"""Steps of the grid in what one row can change a number by: rounding is far below the noise."""

FLOATING = 1e-6
"""Relative margin of that change for sums in double precision, whose error is far below it."""


@dataclass(frozen=True)
class OnGridSensitivity:
    """How far one unit, of at most ``rows`` rows, can change numbers on a grid, in its steps."""

    steps: Sensitivity
    rows: int


@dataclass(frozen=True)
class GridNoise:
    """Discrete noise on numbers of a grid, in its steps."""

    counts: DiscreteGaussian | DiscreteLaplace

    def release(
        self, exact: Integers, sensitivity: OnGridSensitivity, source: NoiseSource
    ) -> Integers:
        """The noisy numbers, in grid steps."""
        return self.counts.release(exact, sensitivity.steps, source)

    def event(self, sensitivity: OnGridSensitivity) -> OnGrid:
        """What `release` does."""
        return OnGrid(self.counts.event(sensitivity.steps), sensitivity.rows)

    def deviation(self, sensitivity: OnGridSensitivity, bound: float) -> float:
        """About the standard deviation of the noise, in the unit of ``bound``."""
        spread = 1.0 if isinstance(self.counts, DiscreteGaussian) else math.sqrt(2)
        return spread * self.counts.scale(sensitivity.steps) * bound / GRID_STEPS
