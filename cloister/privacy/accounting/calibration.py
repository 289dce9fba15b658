"""The least noise for a given epsilon and delta, and ways to divide a budget.

A division is only a plan: what the events cost is for the accountants to say, and `calibrate`
checks its answer with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from cloister.arrays import TINY
from cloister.errors import PlanError, UnsupportedEvent
from cloister.privacy.accounting.accountants import spend
from cloister.privacy.accounting.renyi import ORDERS, convert
from cloister.privacy.events import Event, Relation

_PRECISION = 1e-4
"""Relative precision of a noise level."""

_DIGITS = 6
"""Significant decimal digits of a noise level, which is rounded up to them."""

_STRIDE = 4.0
"""Ratio of the noise levels that are tried until two of them enclose the answer."""

_MOST_NOISE = 2.0**30
"""Largest noise level that is tried."""

_HALVINGS = 60
"""Bisections of rho: more than the 53 bits of a double."""

Excess = Callable[[float], float]


def calibrate(
    event_of: Callable[[Fraction], Event],
    epsilon: float | Fraction,
    delta: float | Fraction,
    relation: Relation | str,
) -> Fraction:
    """The least noise, to a part in ten thousand, for which the event is (epsilon, delta)-private.

    The event costs no more than that: the accountants have checked the answer. ``event_of`` makes
    the event from a noise level, of which more must cost less: a noise multiplier, or the inverse
    of an epsilon.

    Errors: PlanError if no level up to 2^30 is enough, UnsupportedEvent if no accountant reads the
        event.
    """
    if epsilon <= 0:
        raise PlanError("No amount of noise gives an epsilon of 0; allow a larger epsilon.")

    def excess(noise: float) -> float:
        try:
            cost = spend(event_of(_rounded_up(noise)), delta, relation).epsilon
        except UnsupportedEvent:
            if noise >= _MOST_NOISE:
                raise
            return math.inf
        return math.log(max(cost, TINY) / float(epsilon))

    return _rounded_up(_narrow(excess, *_bracket(excess)))


def zcdp_rho(epsilon: float | Fraction, delta: float | Fraction) -> Fraction:
    """A rho, rounded down, such that rho-zero-concentrated privacy gives (epsilon, delta).

    Source: Canonne, Kamath, Steinke (arXiv 2004.00010), proposition 12; never
    less than by Bun and Steinke (arXiv 1605.02065), proposition 1.3.
    """
    low, high = _bun_steinke(float(epsilon), float(delta)), float(epsilon)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = convert(middle * ORDERS, float(delta)) <= float(epsilon)
        low, high = (middle, high) if enough else (low, middle)
    return Fraction(math.floor(low * 999_999 * 10**18), 10**24)


def _bun_steinke(epsilon: float, delta: float) -> float:
    log = math.log(1 / delta)
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2 if delta < 1 else epsilon


def noise_multiplier(rho: Fraction) -> Fraction:
    """The noise multiplier, rounded up, of rho-zero-concentrated counts: 1 / sqrt(2 rho)."""
    rounded = _rounded_up(math.sqrt(1 / (2 * rho)))
    return rounded if 2 * rho * rounded**2 >= 1 else rounded * Fraction(1_000_001, 10**6)


def shares(total: Fraction, weights: Sequence[int | Fraction]) -> tuple[Fraction, ...]:
    """The total in proportion to the weights; exact, so that the shares add up to the total."""
    if not weights or min(weights) <= 0 or total <= 0:
        raise PlanError(
            "A budget is divided by one or more positive weights, and must itself be positive."
        )
    whole = sum(weights, Fraction(0))
    return tuple(total * weight / whole for weight in weights)


def _bracket(excess: Excess) -> tuple[float, float]:
    low = high = 1.0
    while excess(high) > 0:
        if high >= _MOST_NOISE:
            raise PlanError(
                "No amount of noise gives this epsilon and delta; release less, or allow more of "
                "either."
            )
        low, high = high, high * _STRIDE
    while low == high and excess(low / _STRIDE) <= 0 and low > 1 / _MOST_NOISE:
        low, high = low / _STRIDE, low / _STRIDE
    return (low, high) if low < high else (low / _STRIDE, high)


def _narrow(excess: Excess, low: float, high: float) -> float:
    above, below = excess(low), excess(high)
    while high > low * (1 + _PRECISION):
        middle = _guess(low, high, above, below)
        found = excess(middle)
        if found <= 0:
            high, below = middle, found
        else:
            low, above = middle, found
    return high


def _guess(low: float, high: float, above: float, below: float) -> float:
    part = above / (above - below) if math.isfinite(above) else 0.5
    margin = min(0.5, _PRECISION / 3 / math.log(high / low))
    return float(low * (high / low) ** min(max(part + margin, margin), 1 - margin))


def _rounded_up(number: float) -> Fraction:
    digits = _DIGITS - 1 - math.floor(math.log10(number))
    return Fraction(math.ceil(Fraction(number) * Fraction(10) ** digits)) / Fraction(10) ** digits
