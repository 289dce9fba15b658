"""How likely a noisy answer is, given the exact answer of a table: logarithms, up to a constant.

The constant is the same for all exact answers, so that the difference between two tables is the
privacy loss of the answer. Mechanisms are known, so it is exact; what is not says so.

`drawn` compares an answer with the exact one that it was drawn around: whether the mechanism is
what it says. One of less noise shows too much of some table, if not of those that are attacked, and
noise that was drawn once for two answers shows their difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, singledispatch
from itertools import product
from typing import Any

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import logsumexp

from cloister.arrays import TINY, Array, Floats, Integers
from cloister.privacy.events import Sensitivity
from cloister.privacy.mechanisms import noise
from cloister.privacy.mechanisms.selection import Exponential, PermuteAndFlip

_WIDTH = 40
"""Scales to which noise is tabulated on both sides: the mass beyond is below 1e-17."""


@singledispatch
def log_likelihood(
    mechanism: Any,  # noqa: ARG001
    sensitivity: Any,  # noqa: ARG001
    exact: Any,  # noqa: ARG001
    noisy: Array,  # noqa: ARG001
) -> float | None:
    """The logarithm of the likelihood; None of a mechanism that is not known here.

    Minus infinity where the answer is impossible. An answer that is not read shows nothing: a
    bound from below stays one.
    """
    return None


@log_likelihood.register
def _(
    mechanism: noise.DiscreteGaussian, sensitivity: Sensitivity, exact: Integers, noisy: Array
) -> float:
    if exact.shape != noisy.shape:
        return -math.inf
    return -float(np.square(noisy - exact).sum()) / (2 * mechanism.scale(sensitivity) ** 2)


@log_likelihood.register
def _(
    mechanism: noise.DiscreteLaplace, sensitivity: Sensitivity, exact: Integers, noisy: Array
) -> float:
    if exact.shape != noisy.shape:
        return -math.inf
    return -float(np.abs(noisy - exact).sum()) / mechanism.scale(sensitivity)


@log_likelihood.register
def _(
    mechanism: noise.GridNoise, sensitivity: noise.OnGridSensitivity, exact: Integers, noisy: Array
) -> float | None:
    return log_likelihood(mechanism.counts, sensitivity.steps, exact, noisy)


@log_likelihood.register
def _(
    mechanism: noise.SparseHistogram, sensitivity: Sensitivity, exact: Integers, noisy: Array
) -> float:
    """Of the counts that were released, and of those of other cells to stay below the threshold."""
    counts = dict(zip(*exact.tolist(), strict=True))
    released = dict(zip(*noisy.tolist(), strict=True))
    if any(counts.get(cell, 0) <= 0 for cell in released):
        return -math.inf
    table = _Noise.of(mechanism.counts, mechanism.counts.scale(sensitivity))
    threshold = mechanism.threshold(sensitivity)
    seen = sum(table.log_mass(count - counts[cell]) for cell, count in released.items())
    withheld = (count for cell, count in counts.items() if count > 0 and cell not in released)
    return seen + sum(table.log_below(threshold - count) for count in withheld)


@log_likelihood.register
def _(mechanism: Exponential, sensitivity: Fraction, exact: Array, noisy: Array) -> float:
    """The largest of scores with Gumbel noise is chosen with the odds of the exponentials."""
    scores = exact.astype(np.float64) / float(2 * sensitivity / mechanism.epsilon)
    return float(scores[int(noisy[0])] - logsumexp(scores))


@log_likelihood.register
def _(mechanism: PermuteAndFlip, sensitivity: Fraction, exact: Array, noisy: Array) -> float:
    """The largest of scores q with exponential noise of scale s, exactly.

    With weights w = exp((q - max q) / s), candidate i is chosen with probability w_i times the
    integral from 0 to 1 of the product over all others of (1 - w_j u): a polynomial in u, which
    Gauss-Legendre quadrature integrates exactly by half as many points as it has factors.
    """
    scores = exact.astype(np.float64) / float(2 * sensitivity / mechanism.epsilon)
    logs, chosen = scores - scores.max(), int(noisy[0])
    points, weights = leggauss(len(logs) // 2 + 1)
    factors = 1 - np.outer((points + 1) / 2, np.exp(np.delete(logs, chosen)))
    return float(logs[chosen] + np.log(weights @ factors.prod(axis=1) / 2))


@dataclass(frozen=True)
class SampledSum:
    """The sum of the rows that both tables share and were sampled, and the unit's own gradients.

    Each of the ``unit`` was sampled with probability ``rate``; the sample of the shared rows is
    told to the attacker, against whom the accountants' bound holds as well.
    """

    shared: Integers
    unit: tuple[Integers, ...]
    rate: float

    def sums(self) -> Iterator[tuple[float, Integers]]:
        """The logarithm of the probability of each sample of the unit's rows, and the sum."""
        for sampled in product((False, True), repeat=len(self.unit)):
            chances = [self.rate if taken else 1 - self.rate for taken in sampled]
            if all(chances):
                total = sum(
                    (row for row, taken in zip(self.unit, sampled, strict=True) if taken),
                    self.shared,
                )
                yield sum(map(math.log, chances)), total


@log_likelihood.register
def _(
    mechanism: noise.GaussianGradient,
    sensitivity: noise.ClippedSum,  # noqa: ARG001
    exact: SampledSum,
    noisy: Array,
) -> float:
    """A mixture of normals; the rounding of noise, to 2^-36 of the clip, is not seen."""
    scale, steps = _gradient_scale(mechanism, noisy), noisy * (mechanism.grid / mechanism.clip)
    return float(
        np.logaddexp.reduce(
            [
                log - float(np.square((steps - total) / scale).sum()) / 2
                for log, total in exact.sums()
            ]
        )
    )


def _gradient_scale(mechanism: noise.GaussianGradient, noisy: Array) -> float:
    """The standard deviation of the noise of each number, in steps of the grid."""
    moved = mechanism.grid * (1 + noise.ALLOWANCE) + noise.CHANGED_BLOCKS * math.sqrt(noisy.size)
    return float(mechanism.noise_multiplier) * moved


_TILT = 1 / 8
"""Of the tilted law, in standard deviations of a distance: noise a tenth too large shows best."""


@dataclass(frozen=True)
class _Law:
    """The law of a distance of a noisy number from the exact one: its values, with chances."""

    values: Floats
    chances: Floats

    @cached_property
    def mean(self) -> float:
        return float(self.values @ self.chances)

    @cached_property
    def deviation(self) -> float:
        return math.sqrt(float(np.square(self.values - self.mean) @ self.chances))

    @cached_property
    def growth(self) -> float:
        """The logarithm of the mean of exp(tilt z), of the distance z in deviations."""
        return math.log(float(np.exp(_TILT * self.scaled(self.values)) @ self.chances))

    def scaled(self, distances: Floats) -> Floats:
        """Distances in deviations from the mean."""
        return (distances - self.mean) / self.deviation


@dataclass(frozen=True)
class Drawn:
    """How far the numbers of an answer are from the exact ones of its table, and on which side.

    ``distances`` (n,) are independent and of one law if the mechanism draws what it says, and
    ``signs`` (n,) are fair coins then, where they are not 0; a choice has none.
    """

    distances: Floats
    law: _Law
    signs: Integers

    @property
    def nearness(self) -> float:
        """How much nearer they are than on average: of mean 0 and variance 1."""
        return -float(self.law.scaled(self.distances).sum()) / math.sqrt(self.distances.size)

    @property
    def farness(self) -> float:
        """The logarithm of a likelihood ratio: the law tilted to longer distances, to the law."""
        scaled = self.law.scaled(self.distances)
        return float((_TILT * scaled - self.law.growth).sum())


@singledispatch
def drawn(
    mechanism: Any,  # noqa: ARG001
    sensitivity: Any,  # noqa: ARG001
    exact: Any,  # noqa: ARG001
    noisy: Array,  # noqa: ARG001
) -> Drawn | None:
    """What was drawn; None of a mechanism that is not known here, or that has one answer."""
    return None


@drawn.register
def _(
    mechanism: noise.DiscreteGaussian, sensitivity: Sensitivity, exact: Integers, noisy: Array
) -> Drawn | None:
    scale = mechanism.scale(sensitivity)
    return _drawn(_gaussian(min(scale, _WIDE)), np.square, noisy - exact, scale)


@drawn.register
def _(
    mechanism: noise.DiscreteLaplace, sensitivity: Sensitivity, exact: Integers, noisy: Array
) -> Drawn | None:
    scale = mechanism.scale(sensitivity)
    return _drawn(_laplace(scale), np.abs, noisy - exact, scale)


@drawn.register
def _(
    mechanism: noise.GridNoise, sensitivity: noise.OnGridSensitivity, exact: Integers, noisy: Array
) -> Drawn | None:
    return drawn(mechanism.counts, sensitivity.steps, exact, noisy)


@drawn.register
def _(
    mechanism: noise.GaussianGradient,
    sensitivity: noise.ClippedSum,  # noqa: ARG001
    exact: Integers,
    noisy: Array,
) -> Drawn | None:
    steps = noisy * (mechanism.grid / mechanism.clip)
    return _drawn(_gaussian(_WIDE), np.square, steps - exact, _gradient_scale(mechanism, noisy))


@drawn.register(Exponential)
@drawn.register(PermuteAndFlip)
def _(mechanism: Any, sensitivity: Fraction, exact: Array, noisy: Array) -> Drawn | None:
    each = (np.array([chosen]) for chosen in range(len(exact)))
    logs = np.array([log_likelihood(mechanism, sensitivity, exact, one) for one in each])
    law = _Law(-logs, np.exp(logs))
    return Drawn(-logs[noisy], law, np.zeros(1, dtype=np.int64)) if law.deviation > TINY else None


def _drawn(law: _Law, distance: Any, residuals: Array, scale: float) -> Drawn | None:
    flat = residuals.ravel()
    signs = np.sign(flat).astype(np.int64)
    return Drawn(distance(flat / scale), law, signs) if law.deviation > TINY and flat.size else None


@lru_cache(maxsize=16)
def _gaussian(scale: float) -> _Law:
    table = _tabulated(True, scale)
    return _Law(np.square(table.values / scale), np.exp(table.masses))


@lru_cache(maxsize=16)
def _laplace(scale: float) -> _Law:
    table = _tabulated(False, scale)
    return _Law(np.abs(table.values) / scale, np.exp(table.masses))


_WIDE = 4.0
"""A scale from which on discrete Gaussian noise has the moments of a normal, to 1e-16."""


@dataclass(frozen=True)
class _Noise:
    """Integer noise from minus to plus ``edge``: logarithms of its masses, and of those below."""

    edge: int
    masses: Floats
    below: Floats

    @property
    def values(self) -> Integers:
        return np.arange(-self.edge, self.edge + 1)

    @classmethod
    def of(cls, counts: noise.DiscreteGaussian | noise.DiscreteLaplace, scale: float) -> _Noise:
        return _tabulated(isinstance(counts, noise.DiscreteGaussian), scale)

    def log_mass(self, value: int) -> float:
        return float(self.masses[value + self.edge]) if abs(value) <= self.edge else -math.inf

    def log_below(self, value: int) -> float:
        """The logarithm of the probability of a smaller number than ``value``."""
        return float(self.below[min(max(value + self.edge, 0), 2 * self.edge)])


@lru_cache(maxsize=16)
def _tabulated(gaussian: bool, scale: float) -> _Noise:
    edge = math.ceil(_WIDTH * scale) + 1
    values = np.arange(-edge, edge + 1) / scale
    logs = -np.square(values) / 2 if gaussian else -np.abs(values)
    logs -= logsumexp(logs)
    below = np.concatenate([[0.0], np.cumsum(np.exp(logs))[:-1]])
    with np.errstate(divide="ignore"):
        return _Noise(edge, logs, np.log(below))
