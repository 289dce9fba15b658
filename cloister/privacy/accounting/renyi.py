"""Rényi divergences of the worst pair of each event, in nats, at fixed orders.

Divergences of composed events add up.

Sources: Mironov (arXiv 1702.07476), proposition 1; Bun, Steinke (arXiv 1605.02065) for
    zero-concentrated privacy.
"""

from __future__ import annotations

from functools import lru_cache, singledispatch

import numpy as np
from scipy.special import gammaln

from cloister.arrays import Floats
from cloister.errors import UnsupportedEvent
from cloister.privacy.accounting.profiles import NormalMixture, samples_all
from cloister.privacy.events import (
    Bounded,
    Event,
    GaussianCounts,
    LaplaceCounts,
    Relation,
    SampledGaussian,
    Selection,
)

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
def renyi(event: Event, _relation: Relation) -> Floats:
    """Rényi divergences (orders,) of a simple event at `ORDERS`; infinite where unknown.

    Errors: UnsupportedEvent for an event that none is known of.
    """
    raise UnsupportedEvent(f"No Rényi divergence is known of {type(event).__name__} events.")


@renyi.register
def _(event: GaussianCounts, _relation: Relation) -> Floats:
    """1 / (2 noise_multiplier^2)-zero-concentrated in any dimension.

    Source: Canonne, Kamath, Steinke (arXiv 2004.00010), theorem 14.
    """
    divergences: Floats = ORDERS / (2 * float(event.noise_multiplier) ** 2)
    return divergences


@renyi.register(LaplaceCounts)
@renyi.register(Bounded)
def _(event: LaplaceCounts | Bounded, _relation: Relation) -> Floats:
    if isinstance(event, Bounded) and event.delta:
        raise UnsupportedEvent("The leak of a bounded event is to be taken off first.")
    return _randomized_response(float(event.epsilon))


@renyi.register
def _(event: Selection, _relation: Relation) -> Floats:
    """Cesar, Rogers (arXiv 2004.07223), lemma 3.2: range epsilon gives rho = epsilon^2 / 8."""
    return np.minimum(
        _randomized_response(float(event.epsilon)), ORDERS * float(event.epsilon) ** 2 / 8
    )


@renyi.register
def _(event: SampledGaussian, relation: Relation) -> Floats:
    """A sum for whole orders, an integral for others.

    Source: Mironov, Talwar, Zhang (arXiv 1908.10530).
    """
    sides = 1 if relation is Relation.ADD_REMOVE else 2
    if samples_all(event):
        divergences: Floats = ORDERS * (sides * event.rows / float(event.noise_multiplier)) ** 2 / 2
        return divergences
    if relation is not Relation.ADD_REMOVE:
        raise UnsupportedEvent(
            "Rényi divergences of Poisson-sampled sums are known for adding or removing a unit."
        )
    whole = event.rows == 1 and ORDERS.round() == ORDERS
    return np.where(
        whole, _whole_orders(float(event.rate), float(event.noise_multiplier)), _integrated(event)
    )


@lru_cache(maxsize=64)
def _whole_orders(rate: float, noise_multiplier: float) -> Floats:
    """Source: Mironov, Talwar, Zhang (arXiv 1908.10530), section 3.3, for whole orders."""
    divergences = np.full_like(ORDERS, np.inf)
    for place in np.flatnonzero((ORDERS.round() == ORDERS) & (ORDERS <= _LARGEST_SAMPLED_ORDER)):
        order, taken = ORDERS[place], np.arange(ORDERS[place] + 1)
        ways = gammaln(order + 1) - gammaln(taken + 1) - gammaln(order - taken + 1)
        chances = ways + taken * np.log(rate) + (order - taken) * np.log1p(-rate)
        moments = (taken**2 - taken) / (2 * noise_multiplier**2)
        divergences[place] = max(np.logaddexp.reduce(chances + moments), 0.0) / (order - 1)
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
    orders, at = ORDERS[usable], divergences[usable]
    epsilons = at + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(float(epsilons.min()), 0.0)


def _randomized_response(reach: float) -> Floats:
    logs: Floats = np.logaddexp(ORDERS * reach, (1 - ORDERS) * reach) - np.logaddexp(0.0, reach)
    divergences: Floats = np.minimum(logs / (ORDERS - 1), reach)
    return divergences


@lru_cache(maxsize=64)
def _integrated(event: SampledGaussian) -> Floats:
    pair = NormalMixture.of(event)
    points = np.arange(-_FARTHEST, _FARTHEST + _LARGEST_MIXTURE_ORDER * pair.means[-1], _SPACING)
    loss = pair.loss(points)
    densities = -(points**2) / 2 - np.log(2 * np.pi) / 2 + np.log(_SPACING)
    divergences = np.full_like(ORDERS, np.inf)
    for place in np.flatnonzero(ORDERS <= _LARGEST_MIXTURE_ORDER):
        order = ORDERS[place]
        removed = np.logaddexp.reduce(densities + order * loss)
        added = np.logaddexp.reduce(densities + (1 - order) * loss)
        divergences[place] = max(removed, added, 0.0) / (order - 1)
    return divergences
