"""The worst pair of output distributions of each event, as privacy profiles.

A privacy profile is delta as a function of epsilon. The profile of a pair (P, Q) is H(e) = sup over
sets S of P(S) - exp(e) Q(S). A pair whose profile is nowhere below that of any two neighbouring
tables represents the whole mechanism, also under adaptive composition (Zhu, Dong, Wang, arXiv
2106.08567, theorem 10), and so does the largest of several profiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, singledispatch

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr, ndtri, xlog1py, xlogy

from cloister.arrays import TINY, Floats, Integers
from cloister.errors import UnsupportedEvent
from cloister.privacy import events
from cloister.privacy.accounting.loss import Profile

_LARGEST_EXPONENT = 700.0
"""Largest epsilon that is passed to exp, in nats; the largest double is exp(709.8)."""

_WIDTH = 14
"""Standard deviations that the table of a discrete Gaussian reaches on both sides: the mass beyond
is below 1e-43."""

_LARGEST_SCALE = 1e5
"""Largest scale of a discrete Gaussian that is tabulated, in rows: a table of 2.8 million
numbers."""

_TABLE_STEP = 0.01
"""Spacing, in standard deviations, of the table in which the inverse of a loss is looked up
first."""

_HALVINGS = 20
"""Bisections of one step of that table, down to 1e-8 standard deviations."""

_NEARLY_ALL = 1 - Fraction(1, 2**20)
"""A rate from which sampling is not counted: 1 - rate would have few digits in double precision, or
none."""

_FARTHEST = 50.0
"""Standard deviations that the table of losses reaches beyond the means on both sides."""


@dataclass(frozen=True)
class Direction:
    """The profile of a pair in one order, and the range of losses, in nats, of nearly all mass."""

    profile: Profile
    low: float
    high: float


@dataclass(frozen=True)
class WorstPair:
    """A pair in both orders, composed ``copies`` times with itself.

    Where a unit is removed the first order holds, where it is added the second.
    """

    removed: Direction
    added: Direction
    copies: int = 1


@singledispatch
def worst_pair(event: events.Event, _relation: events.Relation, _tail: float) -> WorstPair:
    """The worst pair of an event; ``_tail`` is the mass that may lie above the range of losses.

    Errors: UnsupportedEvent for an event that no profile is known of.
    """
    raise UnsupportedEvent(f"No privacy profile is known of {type(event).__name__} events.")


@worst_pair.register
def _(event: events.GaussianCounts, _relation: events.Relation, tail: float) -> WorstPair:
    bounds = event.sensitivity
    scale = float(event.noise_multiplier) * math.sqrt(bounds.l2_squared)
    if bounds.cells * bounds.step**2 != bounds.l2_squared or scale > _LARGEST_SCALE:
        raise UnsupportedEvent(
            "The worst pair of Gaussian counts is known where every cell may move by a full step."
        )
    reach = (bounds.step / 2 + 1 + scale * _quantile(tail)) * bounds.step / scale**2
    return _symmetric(_discrete_gaussian(scale, bounds.step), reach, copies=bounds.cells)


@worst_pair.register
def _(event: events.LaplaceCounts, _relation: events.Relation, _tail: float) -> WorstPair:
    """As many one-cell mechanisms as cells change, where none moves by more than 1.

    Otherwise one mechanism with the whole epsilon: one count that moves by 5 is worse than five
    that move by 1, though the noise of both is the same.
    """
    bounds = event.sensitivity
    copies = bounds.cells if bounds.step == 1 and bounds.cells == bounds.l1 else 1
    reach = float(event.epsilon / copies)
    return _symmetric(partial(randomized_response, reach), reach, copies=copies)


@worst_pair.register
def _(event: events.Bounded, _relation: events.Relation, _tail: float) -> WorstPair:
    if event.delta:
        raise UnsupportedEvent("The leak of a bounded event is to be taken off first.")
    reach = float(event.epsilon)
    return _symmetric(partial(randomized_response, reach), reach)


@worst_pair.register
def _(event: events.Selection, _relation: events.Relation, _tail: float) -> WorstPair:
    reach = float(event.epsilon)
    return _symmetric(partial(bounded_range, reach), reach)


@worst_pair.register
def _(event: events.SampledGaussian, relation: events.Relation, tail: float) -> WorstPair:
    if samples_all(event):
        return _every_row(event, relation, tail)
    if relation is events.Relation.REPLACE_ONE:
        return _replaced_row(event, tail)
    rate, shift = float(event.rate), event.rows / float(event.noise_multiplier)
    high, low = _reach(shift, tail), event.rows * math.log1p(-rate)
    if event.rows > 1:
        pair = NormalMixture.of(event)
        return WorstPair(
            Direction(pair.removed_profile, low, high), Direction(pair.added_profile, -high, -low)
        )
    high = math.log1p(rate * math.expm1(high))
    removed, added = partial(sampled_removed, rate, shift), partial(sampled_added, rate, shift)
    return WorstPair(Direction(removed, low, high), Direction(added, -high, -low))


def samples_all(event: events.SampledGaussian) -> bool:
    """Whether a step is accounted as one on every row, which costs at least as much.

    The sums with and without a unit are then at most its rows apart, and so they are, in pairs,
    over any sample.
    """
    return event.rate >= _NEARLY_ALL


def _every_row(event: events.SampledGaussian, relation: events.Relation, tail: float) -> WorstPair:
    sides = 1 if relation is events.Relation.ADD_REMOVE else 2
    shift = sides * event.rows / float(event.noise_multiplier)
    return _symmetric(partial(gaussian, shift), _reach(shift, tail))


def _replaced_row(event: events.SampledGaussian, tail: float) -> WorstPair:
    if event.rows > 1:
        raise UnsupportedEvent(
            "DP-SGD over sampled rows of units with several rows is accounted for adding or "
            "removing a unit only; declare relation add_remove, or one row for each unit."
        )
    rate, shift = float(event.rate), 1 / float(event.noise_multiplier)
    high = math.log1p(rate * math.expm1(_reach(shift, tail))) - math.log1p(-rate)
    return _symmetric(partial(sampled_replaced, rate, shift), high)


def gaussian(shift: float, epsilons: Floats) -> Floats:
    """Two normals of unit variance whose means differ by ``shift``.

    Source: Balle, Wang (arXiv 1805.06530), theorem 8.
    """
    epsilons = np.minimum(epsilons, _LARGEST_EXPONENT)
    first, second = shift / 2 - epsilons / shift, -shift / 2 - epsilons / shift
    deltas: Floats = ndtr(first) - np.exp(epsilons + log_ndtr(second))
    return deltas


def sampled_removed(rate: float, shift: float, epsilons: Floats) -> Floats:
    """The mixture (1 - q) N(0) + q N(shift) against N(0).

    It is q H(a') with exp(a') = 1 + (exp(e) - 1) / q, where H is the profile of `gaussian`. Source:
    Balle, Barthe, Gaboardi (arXiv 1807.01647), theorem 2.
    """
    factors = np.exp(np.minimum(epsilons, _LARGEST_EXPONENT))
    scaled = 1.0 + (factors - 1.0) / rate
    inside = scaled > 0
    deltas = 1.0 - factors
    deltas[inside] = rate * gaussian(shift, np.log(scaled[inside]))
    return deltas


def sampled_added(rate: float, shift: float, epsilons: Floats) -> Floats:
    """N(0) against the mixture (1 - q) N(0) + q N(shift): the same pair in the other order."""
    factors = np.exp(np.minimum(epsilons, _LARGEST_EXPONENT))
    weight = 1.0 - factors * (1.0 - rate)
    inside = weight > 0
    deltas = np.zeros_like(epsilons)
    deltas[inside] = weight[inside] * gaussian(
        shift, np.log(factors[inside] * rate / weight[inside])
    )
    return deltas


def sampled_replaced(rate: float, shift: float, epsilons: Floats) -> Floats:
    """The mixture (1 - q) N(0) + q N(shift) against (1 - q) N(0) + q N(-shift).

    The new row has the opposite gradient. No other pair is worse: the profile is a convex function
    of a weighted sum of exponentials of normals, which grows with each of their covariances (Kahane
    1985), all largest where the two gradients are opposite and full.
    """
    steep = np.minimum(np.abs(epsilons), _LARGEST_EXPONENT / 2)
    factors, weight = np.exp(steep), rate * math.exp(-(shift**2) / 2)
    rise = (1 - rate) * np.expm1(steep)
    points = (
        np.log(rise + np.hypot(rise, 2 * np.sqrt(factors) * weight)) - math.log(2 * weight)
    ) / shift
    above: Floats = (1 - rate) * ndtr(-points) * -np.expm1(steep)
    deltas: Floats = above + rate * (ndtr(shift - points) - factors * ndtr(-shift - points))
    mirrored: Floats = -np.expm1(-steep) + np.exp(-steep) * deltas
    return np.where(epsilons < 0, mirrored, np.maximum(deltas, 0.0))


def randomized_response(reach: float, epsilons: Floats) -> Floats:
    """The worst pair of any mechanism that is private with epsilon ``reach`` and delta 0.

    Source: Kairouz, Oh, Viswanath (arXiv 1311.0776), theorem 3.1. One discrete Laplace count that
    moves by 1 is exactly this pair.
    """
    between = -np.expm1(np.minimum(epsilons, _LARGEST_EXPONENT) - reach) / (1.0 + math.exp(-reach))
    return np.maximum(np.maximum(between, -np.expm1(np.minimum(epsilons, _LARGEST_EXPONENT))), 0.0)


def bounded_range(reach: float, epsilons: Floats) -> Floats:
    """The largest profile of mechanisms whose losses span at most ``reach``.

    The exponential mechanism is one. The worst such pair has two losses, t and t - reach, and this
    is the largest over t. Source: Dong, Durfee, Rogers (arXiv 1909.13830), lemma 3.4 for the two
    losses.
    """
    between = np.square(np.expm1((np.minimum(epsilons, reach) - reach) / 2)) / -math.expm1(-reach)
    return np.where(epsilons < -reach, -np.expm1(np.minimum(epsilons, 0.0)), between)


@dataclass(frozen=True)
class NormalMixture:
    """A mixture of normals of unit variance, against a normal of mean 0.

    Shapes: ``means`` (k,), their probabilities ``weights`` (k,). The worst pair of a sum of sampled
    rows of which one unit owns several: the number sampled is binomial. Source: Charles et al.
    (arXiv 2407.07737); Choquette-Choo et al. (arXiv 2310.15526); also as in `sampled_replaced`.
    """

    means: Floats
    weights: Floats

    @classmethod
    def of(cls, event: events.SampledGaussian) -> NormalMixture:
        """The worst pair of one step."""
        rows = np.arange(event.rows + 1)
        chances = _binomial(rows, event.rows, float(event.rate))
        return cls(rows / float(event.noise_multiplier), chances)

    def loss(self, points: Floats) -> Floats:
        """Log ratio of the mixture to the normal at mean 0, at points (n,); increasing."""
        logs: Floats = np.logaddexp.reduce(
            np.log(self.weights) + np.multiply.outer(points, self.means) - self.means**2 / 2,
            axis=-1,
        )
        return logs

    def removed_profile(self, epsilons: Floats) -> Floats:
        """The profile of the mixture against the normal."""
        points = self._where(epsilons)
        mixture = ndtr(np.subtract.outer(self.means, points)).T @ self.weights
        deltas: Floats = mixture - np.exp(
            np.minimum(epsilons, _LARGEST_EXPONENT) + log_ndtr(-points)
        )
        return np.maximum(deltas, -np.expm1(np.minimum(epsilons, _LARGEST_EXPONENT)))

    def added_profile(self, epsilons: Floats) -> Floats:
        """The profile of the normal against the mixture."""
        points = self._where(-epsilons)
        mixture = ndtr(np.subtract.outer(points, self.means)) @ self.weights
        deltas: Floats = ndtr(points) - np.exp(np.minimum(epsilons, _LARGEST_EXPONENT)) * mixture
        return np.maximum(deltas, -np.expm1(np.minimum(epsilons, _LARGEST_EXPONENT)))

    def _where(self, losses: Floats) -> Floats:
        table = np.arange(-_FARTHEST - self.means[-1], _FARTHEST + 2 * self.means[-1], _TABLE_STEP)
        index = np.clip(np.searchsorted(self.loss(table), losses), 1, table.size - 1)
        low, high = table[index - 1], table[index]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = self.loss(middle) < losses
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high


def _binomial(successes: Integers, trials: int, chance: float) -> Floats:
    """Binomial probabilities (n,) of these numbers of ``trials``, each with the same chance."""
    failures = trials - successes
    ways = gammaln(trials + 1) - gammaln(successes + 1) - gammaln(failures + 1)
    chances: Floats = np.exp(ways + xlogy(successes, chance) + xlog1py(failures, -chance))
    return chances


def _discrete_gaussian(scale: float, step: int) -> Profile:
    edge = math.ceil(_WIDTH * scale) + step + 2
    support = np.arange(-edge, edge + 1)
    below = np.cumsum(np.exp(-(support**2) / (2 * scale**2)))
    below = np.append(0.0, below / below[-1])

    def profile(epsilons: Floats) -> Floats:
        epsilons = np.minimum(epsilons, _LARGEST_EXPONENT)
        last = (
            np.ceil(np.clip(step / 2 - epsilons * scale**2 / step, -edge - 1, edge + 1)).astype(
                np.int64
            )
            - 1
        )
        first, second = np.clip(last + edge + 1, 0, None), np.clip(last - step + edge + 1, 0, None)
        deltas: Floats = np.maximum(
            below[first] - np.exp(epsilons) * below[second], -np.expm1(epsilons)
        )
        return deltas

    return profile


def _symmetric(profile: Profile, reach: float, copies: int = 1) -> WorstPair:
    direction = Direction(profile, -reach, reach)
    return WorstPair(direction, direction, copies)


def _quantile(tail: float) -> float:
    return float(-ndtri(max(tail, TINY)))


def _reach(shift: float, tail: float) -> float:
    reach = shift**2 / 2 + shift * _quantile(tail)
    if reach > _LARGEST_EXPONENT:
        raise UnsupportedEvent(
            "The noise of a sampled sum is too small to account for; raise its noise multiplier."
        )
    return reach
