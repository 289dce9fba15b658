"""How accountants read events: Rényi divergences, in nats, and distributions of privacy loss.

Rényi divergences are those of the worst pair of each event, at fixed orders, and those of composed
events add up. Loss distributions are composed on a grid that is made finer until it is fine for the
epsilon that it gives.

Sources: Mironov (arXiv 1702.07476), proposition 1; Bun, Steinke (arXiv 1605.02065) for
    zero-concentrated privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, singledispatch

import numpy as np
from scipy.special import gammaln

from cloister.arrays import Floats
from cloister.errors import UnsupportedEvent
from cloister.privacy import events
from cloister.privacy.accounting.composition import Leaves, tries_of, unfold
from cloister.privacy.accounting.loss import (
    LARGEST_EXPONENT,
    OUTWARD,
    Loss,
    connect_the_dots,
    convolve,
    epsilon_at,
    repeated_response,
)
from cloister.privacy.accounting.profiles import Direction, NormalMixture, samples_all, worst_pair

ORDERS = np.unique(
    np.concatenate(
        [1 + np.geomspace(0.02, 5, 30), np.arange(2.0, 64), np.geomspace(64, 16384, 40).round()]
    )
)
"""Orders of divergences: closer together where most budgets have their best one."""

_LARGEST_SAMPLED_ORDER = 512
"""Largest whole order at which sampled Gaussians are summed; higher ones count as unknown."""

_LARGEST_MIXTURE_ORDER = 128
"""Largest order at which sampled Gaussians are integrated here; higher ones count as unknown."""

_LEAST_CONVERTED_ORDER = 1.01
"""Orders from here on are converted to an epsilon: nearer to 1 the formula loses its digits."""

_SPACING = 0.05
"""Distance of the points of integration, in standard deviations of the noise."""


_FARTHEST = 40.0
"""Standard deviations to which is integrated beyond the means: the mass outside is below the least
double."""


@singledispatch
def renyi(event: events.Event, _relation: events.Relation) -> Floats:
    """Rényi divergences (orders,) of a simple event at `ORDERS`; infinite where unknown.

    Errors: UnsupportedEvent for an event that none is known of.
    """
    raise UnsupportedEvent(f"No Rényi divergence is known of {type(event).__name__} events.")


@renyi.register
def _(event: events.GaussianCounts, _relation: events.Relation) -> Floats:
    """1 / (2 noise_multiplier^2)-zero-concentrated in any dimension.

    Source: Canonne, Kamath, Steinke (arXiv 2004.00010), theorem 14.
    """
    divergences: Floats = ORDERS / (2 * float(event.noise_multiplier) ** 2)
    return divergences


@renyi.register(events.LaplaceCounts)
@renyi.register(events.Bounded)
def _(event: events.LaplaceCounts | events.Bounded, _relation: events.Relation) -> Floats:
    if isinstance(event, events.Bounded) and event.delta:
        raise UnsupportedEvent("The leak of a bounded event is to be taken off first.")
    return _randomized_response(float(event.epsilon))


@renyi.register
def _(event: events.Selection, _relation: events.Relation) -> Floats:
    """Cesar, Rogers (arXiv 2004.07223), lemma 3.2: range epsilon gives rho = epsilon^2 / 8."""
    return np.minimum(
        _randomized_response(float(event.epsilon)), ORDERS * float(event.epsilon) ** 2 / 8
    )


@renyi.register
def _(event: events.SampledGaussian, relation: events.Relation) -> Floats:
    """A sum for whole orders, an integral for others.

    Source: Mironov, Talwar, Zhang (arXiv 1908.10530).
    """
    sides = 1 if relation is events.Relation.ADD_REMOVE else 2
    if samples_all(event):
        divergences: Floats = ORDERS * (sides * event.rows / float(event.noise_multiplier)) ** 2 / 2
        return divergences
    if relation is not events.Relation.ADD_REMOVE:
        raise UnsupportedEvent(
            "Rényi divergences of Poisson-sampled sums are known for adding or removing a unit."
        )
    whole = event.rows == 1 and ORDERS.round() == ORDERS
    return np.where(
        whole, _whole_orders(float(event.rate), float(event.noise_multiplier)), _integrated(event)
    )


@renyi.register
def _(event: events.RepeatedSelection, relation: events.Relation) -> Floats:
    """The least of that of all tries, and of the selection."""
    one = sum((times * renyi(leaf, relation) for leaf, times in tries_of(event)), _NONE)
    return np.minimum(event.most * one, selection(even_tries(event.most), one))


_NONE = np.zeros_like(ORDERS)
"""The divergences of what reads nothing."""

_INTERVALS = 2**14
"""Intervals of a chance from 0 to 1, on each of which a selection is bounded by its ends."""


def even_tries(most: int) -> Floats:
    """The chances (most,) of 1, 2, ... tries that are equally likely."""
    return np.full(most, 1 / most)


def selection(chances: Floats, divergences: Floats) -> Floats:
    """The divergences (orders,) of the best outcome of a random number of tries.

    Shapes: ``chances`` (n,) of 1, 2, ..., n tries, ``divergences`` (orders,) of one, at `ORDERS`.

    Source: Papernot, Steinke (arXiv 2110.03620), lemma 7. A test that an outcome passes with the
        chance q on one table is passed with one of q' at least on its neighbour, so the largest
        value lies on the curve of least q'. Values are bounded on intervals of q by their ends,
        since both grow with q. Divergences do not fall with the order.
    """
    ends = np.linspace(0, 1, _INTERVALS + 1)
    known = np.isfinite(divergences) & (ORDERS > _LEAST_CONVERTED_ORDER)
    least = np.zeros(_INTERVALS)
    for order, divergence in zip(ORDERS[known], divergences[known], strict=True):
        passed = ends[:-1] ** (order / (order - 1)) * math.exp(-divergence)
        share = (order - 1) / order
        failed = (1 - ends[:-1]) ** share * math.exp(min(share * divergence, LARGEST_EXPONENT))
        least = np.maximum(least, np.maximum(passed, 1 - failed))
    grown, left = _log_slopes(chances, ends[1:]), _log_slopes(chances, least)
    excess = np.array([(order / (order - 1) * grown - left).max() for order in ORDERS])
    bounds: Floats = np.minimum.accumulate((divergences + excess)[::-1])[::-1]
    return bounds


def pure_selection(epsilon: float, most: int) -> float:
    """The epsilon of a selection of up to ``most`` tries, each of ``epsilon`` at delta 0."""
    ends = np.linspace(0, 1, _INTERVALS + 1)
    factor = math.exp(min(epsilon, LARGEST_EXPONENT))
    least = np.maximum(ends[:-1] / factor, 1 - factor * (1 - ends[:-1]))
    chances = even_tries(most)
    excess = (_log_slopes(chances, ends[1:]) - _log_slopes(chances, least)).max()
    return min(epsilon + float(excess), most * epsilon) * (1 + OUTWARD)


def _log_slopes(chances: Floats, points: Floats) -> Floats:
    """Logarithm of the derivative, at points (n,), of the generating function of tries."""
    times = np.arange(1, len(chances) + 1)
    with np.errstate(divide="ignore"):
        slopes: Floats = np.log(np.polynomial.polynomial.polyval(points, times * chances))
    return slopes


@lru_cache(maxsize=64)
def _whole_orders(rate: float, noise_multiplier: float) -> Floats:
    """Source: Mironov, Talwar, Zhang (arXiv 1908.10530), section 3.3, for whole orders."""
    divergences = np.full_like(ORDERS, np.inf)
    for index in np.flatnonzero((ORDERS.round() == ORDERS) & (ORDERS <= _LARGEST_SAMPLED_ORDER)):
        order, rows = ORDERS[index], np.arange(ORDERS[index] + 1)
        ways = gammaln(order + 1) - gammaln(rows + 1) - gammaln(order - rows + 1)
        chances = ways + rows * np.log(rate) + (order - rows) * np.log1p(-rate)
        moments = (rows**2 - rows) / (2 * noise_multiplier**2)
        divergences[index] = max(np.logaddexp.reduce(chances + moments), 0.0) / (order - 1)
    return divergences


def convert(divergences: Floats, delta: float) -> float:
    """The least epsilon at ``delta`` of Rényi divergences (orders,) at `ORDERS`.

    Source: Canonne, Kamath, Steinke (arXiv 2004.00010), proposition 12; and epsilon 0 where the
    total variation is at most delta (Bretagnolle, Huber: at most sqrt(1 - exp(-divergence))).
    """
    if delta <= 0:
        return 0.0 if not divergences.any() else float(np.inf)
    if (delta**2 + np.expm1(-divergences) > 0).any():
        return 0.0
    usable = ORDERS > _LEAST_CONVERTED_ORDER
    orders, values = ORDERS[usable], divergences[usable]
    epsilons = values + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(float(epsilons.min()), 0.0)


def _randomized_response(reach: float) -> Floats:
    logs: Floats = np.logaddexp(ORDERS * reach, (1 - ORDERS) * reach) - np.logaddexp(0.0, reach)
    divergences: Floats = np.minimum(logs / (ORDERS - 1), reach)
    return divergences


@lru_cache(maxsize=64)
def _integrated(event: events.SampledGaussian) -> Floats:
    pair = NormalMixture.of(event)
    points = np.arange(-_FARTHEST, _FARTHEST + _LARGEST_MIXTURE_ORDER * pair.means[-1], _SPACING)
    loss = pair.loss(points)
    densities = -(points**2) / 2 - np.log(2 * np.pi) / 2 + np.log(_SPACING)
    divergences = np.full_like(ORDERS, np.inf)
    for index in np.flatnonzero(ORDERS <= _LARGEST_MIXTURE_ORDER):
        order = ORDERS[index]
        removed = np.logaddexp.reduce(densities + order * loss)
        added = np.logaddexp.reduce(densities + (1 - order) * loss)
        divergences[index] = max(removed, added, 0.0) / (order - 1)
    return divergences


_SMALLEST_DELTA = 1e-10
"""Least delta at which loss distributions are used: below it the rounding of Fourier transforms, at
least 1e-13, would count."""

_TAIL_SHARE = 1e-6
"""Shares of delta given to the tails cut off the losses of all events, and to the mass outside the
window of their composition."""

_COARSEST_STEP = 2.0**-6
"""Step of the first grid, in nats."""

_FINEST_STEP = 2.0**-20
"""Finest step of any grid, in nats."""

_POINTS_PER_EPSILON = 4096
"""Grid steps in one epsilon, up to as many mechanisms; beyond, in proportion to the square root of
their number."""

_MANY_COPIES = 4096
"""Copies of a bounded mechanism from which on the loss of all of them is written down at once:
below it, a grid for one copy is tighter."""

_MOST_GRID_POINTS = 2**18
"""Most points of the grid of one event: finer ones take minutes where losses are rare and large."""

_WIDEST = 2.0**12
"""Nats of loss at most, on both sides of zero: larger losses count as infinite, smaller as this."""


class LossDistribution:
    """Composes privacy loss distributions on a grid that is fine for the epsilon that it gives.

    Has no bound at delta below 1e-10, where the rounding of Fourier transforms would count.
    """

    def epsilon(self, leaves: Leaves, delta: float, relation: events.Relation, /) -> float:
        """The epsilon at which the divergence of the composition falls to delta."""
        if delta < _SMALLEST_DELTA or not leaves:
            return math.inf
        leaves = unfold(leaves)
        copies = sum(1 if _at_once(leaf, times) else times for leaf, times in leaves)
        fineness = _POINTS_PER_EPSILON * max(1.0, math.sqrt(copies / _POINTS_PER_EPSILON))
        finest = max(_FINEST_STEP, self._width(leaves, delta, relation) / _MOST_GRID_POINTS)
        step = _COARSEST_STEP
        while True:
            answer = self._on_grid(leaves, delta, relation, step)
            wanted = max(finest, min(answer, 1 / _COARSEST_STEP) / fineness)
            if step <= 2 * wanted:
                return answer * (1 + OUTWARD)
            step = 2.0 ** math.floor(math.log2(max(wanted, step / 64)))

    def _parts(
        self, leaves: Leaves, delta: float, relation: events.Relation, step: float
    ) -> list[tuple[_GridLosses, int]]:
        tail = delta * _TAIL_SHARE / sum(times for _, times in leaves)
        return [_losses_of(leaf, times, relation, step, tail) for leaf, times in leaves]

    def _width(self, leaves: Leaves, delta: float, relation: events.Relation) -> float:
        return max(
            losses.width for losses, _ in self._parts(leaves, delta, relation, _COARSEST_STEP)
        )

    def _on_grid(
        self, leaves: Leaves, delta: float, relation: events.Relation, step: float
    ) -> float:
        composed = self.composed(leaves, delta, relation, step)
        return max(epsilon_at(loss, delta) for loss in composed)

    def composed(
        self, leaves: Leaves, delta: float, relation: events.Relation, step: float
    ) -> list[Loss]:
        """The loss of all leaves on a grid: where a unit is removed, and where it is added.

        One where both are the same. Mass cut off is at most a millionth of ``delta``, and infinite.
        """
        slack, parts = delta * _TAIL_SHARE, self._parts(leaves, delta, relation, step)
        removed = [(losses.removed, times * losses.copies) for losses, times in parts]
        added = [(losses.added, times * losses.copies) for losses, times in parts]
        orders = [removed] if all(losses.symmetric for losses, _ in parts) else [removed, added]
        return [convolve(order, slack) for order in orders]


@dataclass(frozen=True)
class _GridLosses:
    removed: Loss
    added: Loss
    copies: int

    @property
    def width(self) -> float:
        """Nats from the least to the greatest finite loss of one copy."""
        return max(self.removed.mass.size, self.added.mass.size) * self.removed.step

    @property
    def symmetric(self) -> bool:
        return self.removed is self.added


def _at_once(leaf: events.Event, times: int) -> bool:
    return isinstance(leaf, events.Bounded) and times >= _MANY_COPIES


@lru_cache(maxsize=128)
def _losses_of(
    leaf: events.Event, times: int, relation: events.Relation, step: float, tail: float
) -> tuple[_GridLosses, int]:
    """The losses of a leaf, and how often they are still to be composed."""
    if isinstance(leaf, events.Bounded) and _at_once(leaf, times):
        together = repeated_response(float(leaf.epsilon), times, step, tail * times)
        return _GridLosses(together, together, 1), 1
    return _grid_losses(leaf, relation, step, tail), times


@lru_cache(maxsize=128)
def _grid_losses(
    leaf: events.Event, relation: events.Relation, step: float, tail: float
) -> _GridLosses:
    pair = worst_pair(leaf, relation, tail)
    removed = _on_grid(pair.removed, step)
    return _GridLosses(
        removed, removed if pair.added is pair.removed else _on_grid(pair.added, step), pair.copies
    )


def _on_grid(way: Direction, step: float) -> Loss:
    low, high = max(way.low, -_WIDEST), min(way.high, _WIDEST)
    return connect_the_dots(way.profile, low, high, step)
