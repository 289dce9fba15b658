"""What events cost, by all accountants that read them, and the least noise for a given cost.

Three accountants read events in different ways: privacy loss distributions, Rényi divergences, and
the plain sum. Each gives an upper bound, so the least of the three is one too. An event that no
accountant can read is refused (`UnsupportedEvent`), never guessed. Answers are rounded up.

Mass that an event may reveal outright (a threshold passed by an empty cell, the delta of a bounded
mechanism) is its *leak*. Leaks add up, and the rest of delta is left to the accountant: such an
event is a mixture that is private but for its leak (Kairouz, Oh, Viswanath, arXiv 1311.0776,
theorem 3.1).

A division of a budget is only a plan: what the events cost is for the accountants to say, and
`calibrate` checks its answer with them.

Advanced composition is as papers account: k mechanisms of one epsilon, at a delta for all.
Source: Dwork, Rothblum, Vadhan, "Boosting and differential privacy" (2010); Asghar et al. (arXiv
    1902.01499), theorem 3 and section 4.2, where 14, 27 and 9 attributes at delta 2^-30 and an
    epsilon just under 1 have 0.014782, 0.007791 and 0.022579 for each of their one- and two-way
    tables; Bindschaedler, Shokri, Gunter (VLDB 2017), section 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np

from cloister.arrays import TINY
from cloister.errors import PlanError, UnsupportedEvent
from cloister.privacy import events
from cloister.privacy.accounting.composition import Leaves, merge_leaves, paths_of, tries_of, unfold
from cloister.privacy.accounting.divergences import (
    ORDERS,
    LossDistribution,
    convert,
    pure_selection,
    renyi,
)
from cloister.privacy.accounting.loss import OUTWARD, Loss
from cloister.privacy.exact import float_above


@dataclass(frozen=True)
class Spend:
    """What an event costs: (epsilon, delta), and the name of the accountant that shows it."""

    epsilon: float
    delta: float
    accountant: str


class Accountant(Protocol):
    """One way to read simple events, none composed, parallel, thresholded or leaking.

    - The composition of the leaves, each as often as listed, is (epsilon, delta)-private under the
      relation.
    - Infinity if there is no bound at this delta; UnsupportedEvent if a leaf cannot be read.
    """

    def epsilon(self, leaves: Leaves, delta: float, relation: events.Relation, /) -> float:
        """The least epsilon this accountant can show, rounded up."""
        ...


class PureSum:
    """Adds the epsilons of mechanisms that are private at delta 0, exactly.

    The only accountant with an answer at delta 0.
    """

    def epsilon(self, leaves: Leaves, _delta: float, _relation: events.Relation, /) -> float:
        """The sum of epsilons."""
        return float_above(self._sum(leaves))

    def _sum(self, leaves: Leaves) -> Fraction:
        return sum((times * self._of(leaf) for leaf, times in leaves), Fraction(0))

    def _of(self, leaf: events.Event) -> Fraction:
        if isinstance(leaf, events.LaplaceCounts | events.Selection | events.Bounded):
            return leaf.epsilon
        if isinstance(leaf, events.RepeatedSelection):
            one = self._sum(tries_of(leaf))
            selected = Fraction(pure_selection(float_above(one), leaf.most))
            return min(leaf.most * one, selected)
        raise UnsupportedEvent(f"{type(leaf).__name__} events are not private at delta 0.")


class Renyi:
    """Adds Rényi divergences of many orders, and converts the sum.

    Source: conversion of Canonne, Kamath, Steinke (arXiv 2004.00010), proposition 12.
    """

    def epsilon(self, leaves: Leaves, delta: float, relation: events.Relation, /) -> float:
        """The least epsilon over the orders."""
        divergences = sum(
            (times * renyi(leaf, relation) for leaf, times in leaves), np.zeros_like(ORDERS)
        )
        return convert(divergences, delta) * (1 + OUTWARD)


ACCOUNTANTS: Mapping[str, Accountant] = {
    "sum of epsilons": PureSum(),
    "Rényi divergences": Renyi(),
    "privacy loss distribution": LossDistribution(),
}


def epsilon(event: events.Event, delta: float | Fraction, relation: events.Relation | str) -> float:
    """The least epsilon for which the event is shown (epsilon, delta)-private, rounded up.

    Errors: UnsupportedEvent if no accountant reads the whole event, or delta is too small for what
        it may reveal.
    """
    return spend(event, delta, relation).epsilon


def spend(event: events.Event, delta: float | Fraction, relation: events.Relation | str) -> Spend:
    """What the event costs at this delta, and which accountant shows it.

    Of disjoint parts, on the worst path through them. A float delta is read as the decimal number
    that it is written as.

    Errors: as `epsilon`.
    """
    if not 0 <= delta < 1:
        raise UnsupportedEvent(f"Delta lies between 0 and 1, not at {float(delta):g}.")
    return _spend(event, Fraction(str(delta)), events.Relation(relation))


@lru_cache(maxsize=512)
def _spend(event: events.Event, delta: Fraction, relation: events.Relation) -> Spend:
    spends = [_path_spend(path, delta, relation) for path in paths_of(event, relation)]
    return max(spends, key=lambda spent: spent.epsilon)


def readings(
    event: events.Event, delta: Fraction, relation: events.Relation | str
) -> dict[str, float]:
    """What the event costs by each accountant that reads it on every path through its parts.

    Errors: UnsupportedEvent if delta is too small for what it may reveal.
    """
    relation = events.Relation(relation)
    by_path = [_path_answers(path, delta, relation)[0] for path in paths_of(event, relation)]
    shared = set[str].intersection(*map(set, by_path))
    return {name: max(answers[name] for answers in by_path) for name in shared}


def _path_spend(path: Leaves, delta: Fraction, relation: events.Relation) -> Spend:
    answers, refusals = _path_answers(path, delta, relation)
    if not answers:
        raise UnsupportedEvent(
            f"No accountant reads the whole event at delta {float(delta):g}. {' '.join(refusals)}"
        )
    best = min(answers, key=lambda name: answers[name])
    return Spend(answers[best], float(delta), best)


def _path_answers(
    path: Leaves, delta: Fraction, relation: events.Relation
) -> tuple[dict[str, float], list[str]]:
    """Epsilons by the accountants that have a finite one, and why others refuse."""
    left = delta - path_leak(path)
    if left < 0:
        raise UnsupportedEvent(
            f"The event may reveal more than delta {float(delta):g} allows; allow a larger delta."
        )
    leaves = merge_leaves((without_leak(leaf), times) for leaf, times in path)
    return _answers(leaves, math.nextafter(float(left), 0), relation)


def _answers(
    leaves: Leaves, delta: float, relation: events.Relation
) -> tuple[dict[str, float], list[str]]:
    answers, refusals = {}, []
    for name, accountant in ACCOUNTANTS.items():
        try:
            answers[name] = accountant.epsilon(leaves, delta, relation)
        except UnsupportedEvent as refusal:
            refusals.append(str(refusal))
    return {name: answer for name, answer in answers.items() if answer < math.inf}, refusals


def losses(
    event: events.Event, delta: float, relation: events.Relation | str, step: float
) -> list[Loss]:
    """The privacy loss distributions of an event on a grid: of each path, in each order.

    ``delta`` is the mass of which a millionth may be cut off. What leaks is infinite loss. Gaussian
    counts that cannot all move by a full step are read as normals of as many deviations: for
    audits, which are not so exact; what is charged for them is by their Rényi divergences.

    Errors: UnsupportedEvent if one is not known.
    """
    relation = events.Relation(relation)
    distributions: list[Loss] = []
    for path in paths_of(event, relation):
        known = ((_as_normals(without_leak(leaf), relation), times) for leaf, times in path)
        leaves = unfold(merge_leaves(known))
        leak = float_above(path_leak(path))
        composed = LossDistribution().composed(leaves, delta, relation, step)
        distributions += [
            replace(loss, infinite=min(loss.infinite + leak, 1.0)) for loss in composed
        ]
    return distributions


def _as_normals(leaf: events.Event, relation: events.Relation) -> events.Event:
    """A simple event, or a normal in place of Gaussian counts whose worst pair is not known."""
    if not isinstance(leaf, events.GaussianCounts):
        return leaf
    bounds = leaf.sensitivity
    if bounds.cells * bounds.step**2 == bounds.l2_squared:
        return leaf
    sides = 1 if relation is events.Relation.ADD_REMOVE else 2
    return events.SampledGaussian(Fraction(1), sides * leaf.noise_multiplier, 1)


def path_leak(path: Leaves) -> Fraction:
    """The leaks of simple events, added up."""
    leaking = (
        (leaf.delta, times)
        for leaf, times in path
        if isinstance(leaf, events.Bounded | events.Thresholded)
    )
    return sum((times * delta for delta, times in leaking), Fraction(0))


def without_leak(leaf: events.Event) -> events.Event:
    """A simple event as it is where nothing leaks."""
    if isinstance(leaf, events.Thresholded):
        return leaf.counts
    return replace(leaf, delta=Fraction(0)) if isinstance(leaf, events.Bounded) else leaf


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
    event_of: Callable[[Fraction], events.Event],
    epsilon: float | Fraction,
    delta: float | Fraction,
    relation: events.Relation | str,
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
        value = excess(middle)
        if value <= 0:
            high, below = middle, value
        else:
            low, above = middle, value
    return high


def _guess(low: float, high: float, above: float, below: float) -> float:
    part = above / (above - below) if math.isfinite(above) else 0.5
    margin = min(0.5, _PRECISION / 3 / math.log(high / low))
    return float(low * (high / low) ** min(max(part + margin, margin), 1 - margin))


def _rounded_up(number: float) -> Fraction:
    digits = _DIGITS - 1 - math.floor(math.log10(number))
    return Fraction(math.ceil(Fraction(number) * Fraction(10) ** digits)) / Fraction(10) ** digits


_PRINTED_DECIMALS = 6
"""Decimals of the epsilons that Asghar et al. print, to which they are rounded down."""

_COMPOSITION_HALVINGS = 200
"""Halvings of the interval in which the epsilon is found."""

_LARGEST_POWER = 700.0
"""Power of e that is still a double; the plain sum is far less long before."""


def composed_epsilon(epsilon: float, delta: float, mechanisms: int) -> float:
    """The epsilon of ``mechanisms`` adaptive ones of epsilon ``epsilon``, with delta in all.

    That of advanced composition, or the plain sum where it is less: of few mechanisms.

    >>> round(composed_epsilon(0.01, 2**-30, 132), 4)
    0.7542
    """
    drift = mechanisms * epsilon * math.expm1(min(epsilon, _LARGEST_POWER))
    advanced = math.sqrt(2 * mechanisms * math.log(1 / delta)) * epsilon + drift
    return min(advanced, mechanisms * epsilon)


def epsilon_of_each(
    epsilon: Fraction, delta: Fraction, mechanisms: int, digits: int = _PRINTED_DECIMALS
) -> Fraction:
    """The largest epsilon, of so many decimals, with which all compose to at most ``epsilon``.

    Raises:
        PlanError: it has more decimals.
    """
    low, high = 0.0, float(epsilon)
    for _ in range(_COMPOSITION_HALVINGS):
        middle = (low + high) / 2
        enough = composed_epsilon(middle, float(delta), mechanisms) <= float(epsilon)
        low, high = (middle, high) if enough else (low, middle)
    exact = max(Fraction(low), epsilon / mechanisms)
    rounded = Fraction(math.floor(exact * 10**digits), 10**digits)
    if not rounded:
        raise PlanError(
            f"advanced composition leaves less than epsilon 1e-{digits} for each of {mechanisms:,} "
            "answers; allow a larger epsilon, or use the method without '-paper'"
        )
    return rounded
