"""How likely a noisy answer is, given the exact answer of a table: logarithms, up to a constant.

The constant is the same for all exact answers, so that the difference between two tables is the
privacy loss of the answer. Mechanisms are known, so it is exact; what is not says so.

`nearness` compares an answer with the exact one that it was drawn around: whether the mechanism is
what it says. One of less noise shows too much of some table, if not of those that are attacked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, singledispatch
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


@singledispatch
def nearness(
    mechanism: Any,  # noqa: ARG001
    sensitivity: Any,  # noqa: ARG001
    exact: Any,  # noqa: ARG001
    noisy: Array,  # noqa: ARG001
) -> float | None:
    """How much likelier the answer is, given the table it is of, than answers are on average.

    In standard deviations of the logarithm: of mean 0 and variance 1 if the mechanism draws what it
    says, above 0 if it draws nearer the exact answer. None of a mechanism that is not known here,
    or that has one answer.
    """
    return None


@nearness.register
def _(
    mechanism: noise.DiscreteGaussian, sensitivity: Sensitivity, exact: Integers, noisy: Array
) -> float | None:
    scale = mechanism.scale(sensitivity)
    masses = _tabulated(True, min(scale, _WIDE)).masses
    squares = np.square(np.arange(len(masses)) - len(masses) // 2) / min(scale, _WIDE) ** 2
    mean, variance = _moments(squares, np.exp(masses))
    return _standardised(np.square((noisy - exact) / scale), mean, variance)


@nearness.register
def _(
    mechanism: noise.DiscreteLaplace, sensitivity: Sensitivity, exact: Integers, noisy: Array
) -> float | None:
    ratio = math.exp(-1 / mechanism.scale(sensitivity))
    mean = 2 * ratio / (1 - ratio**2)
    return _standardised(np.abs(noisy - exact), mean, 2 * ratio / (1 - ratio) ** 2 - mean**2)


@nearness.register
def _(
    mechanism: noise.GridNoise, sensitivity: noise.OnGridSensitivity, exact: Integers, noisy: Array
) -> float | None:
    return nearness(mechanism.counts, sensitivity.steps, exact, noisy)


@nearness.register
def _(
    mechanism: noise.GaussianGradient,
    sensitivity: noise.ClippedSum,  # noqa: ARG001
    exact: Integers,
    noisy: Array,
) -> float | None:
    steps = noisy * (mechanism.grid / mechanism.clip)
    return _standardised(np.square((steps - exact) / _gradient_scale(mechanism, noisy)), 1.0, 2.0)


@nearness.register(Exponential)
@nearness.register(PermuteAndFlip)
def _(mechanism: Any, sensitivity: Fraction, exact: Array, noisy: Array) -> float | None:
    each = (np.array([chosen]) for chosen in range(len(exact)))
    logs = np.array([log_likelihood(mechanism, sensitivity, exact, one) for one in each])
    mean, variance = _moments(-logs, np.exp(logs))
    return _standardised(-logs[noisy], mean, variance)


def _moments(values: Floats, chances: Floats) -> tuple[float, float]:
    mean = float(values @ chances)
    return mean, float(np.square(values - mean) @ chances)


def _standardised(distances: Any, mean: float, variance: float) -> float | None:
    """How far independent distances, each of this mean and variance, are below it together."""
    spread = math.sqrt(variance * distances.size)
    return float(mean * distances.size - distances.sum()) / spread if spread > TINY else None


_WIDE = 4.0
"""A scale from which on discrete Gaussian noise has the moments of a normal, to 1e-16."""


@dataclass(frozen=True)
class _Noise:
    """Integer noise from minus to plus ``edge``: logarithms of its masses, and of those below."""

    edge: int
    masses: Floats
    below: Floats

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
