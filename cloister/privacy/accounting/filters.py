"""A privacy filter: the least cap within which releases stay, each chosen after those before it.

A cap (epsilon, delta) fixes everything that the filter compares with before anything is released:
half of delta covers what events may reveal outright (their leaks, `accountants`), which adds up;
the other half converts Rényi divergences of one order, which follows from the cap alone. Releases
stay within the cap as long as their divergences at that order, and their leaks, add up to no more
than these two. The argument is in docs/privacy.md.

A divergence is held as a rate, its greatest ratio to the order over all orders up to it: rho, of
Gaussian noise. So a greater cap, whose order is lower, admits whatever a smaller one did.

Sources: Feldman, Zrnic, "Individual privacy accounting via a Rényi filter" (arXiv 2008.11193), on
    divergences of one order that add up to no more than a bound, whichever were chosen; Whitehouse,
    Ramdas, Rogers, Wu, "Fully adaptive composition in differential privacy" (arXiv 2203.05481), on
    leaks; Canonne, Kamath, Steinke (arXiv 2004.00010), proposition 12, on the conversion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cloister.arrays import Floats
from cloister.privacy.accounting.accountants import path_leak, without_leak
from cloister.privacy.accounting.composition import Leaves, merge_leaves, paths_of
from cloister.privacy.accounting.divergences import ORDERS, renyi
from cloister.privacy.accounting.loss import OUTWARD
from cloister.privacy.events import Bounded, Event, Relation

_DIGITS = 6
"""Significant digits of a cap, which is rounded up to them: machines differ far below."""

_HALVINGS = 60
"""Halvings of the interval in which a cap is found: more than the 53 bits of a double."""

_GREATEST_CAP = 2.0**20
"""Greatest epsilon that is tried: no budget that protects anybody is near it."""


@dataclass(frozen=True)
class FilterCost:
    """What a filter adds up of a release: rates (orders,) at `ORDERS`, and its leak.

    Rates do not fall with the order; infinite where unknown.
    """

    rates: Floats
    leak: Fraction


def filter_cost(event: Event, relation: Relation | str) -> FilterCost:
    """What a filter adds up of an event, on the worst path through its parts.

    Raises:
        UnsupportedEvent: no Rényi divergence of it is known.
    """
    relation = Relation(relation)
    paths = paths_of(event, relation)
    rates = np.max([_rates(path, relation) for path in paths], axis=0)
    return FilterCost(rates, max(map(path_leak, paths)))


def bounded_cost(epsilon: Fraction, delta: Fraction) -> FilterCost:
    """A filter's cost of a release of which only epsilon and delta are known."""
    return filter_cost(Bounded(epsilon, delta), Relation.ADD_REMOVE)


def _rates(path: Leaves, relation: Relation) -> Floats:
    leaves = merge_leaves((without_leak(leaf), times) for leaf, times in path)
    divergences = sum(
        (times * renyi(leaf, relation) for leaf, times in leaves), np.zeros_like(ORDERS)
    )
    return np.maximum.accumulate(divergences / ORDERS)


def least_cap(costs: Sequence[FilterCost], delta: Fraction) -> Fraction | None:
    """The least epsilon of a cap at ``delta`` that a filter admits all of these under, rounded up.

    None if no cap at this delta does.
    """
    if not costs:
        return Fraction(0)
    rates, half = np.sum([cost.rates for cost in costs], axis=0), delta / 2
    if half <= 0 or sum(cost.leak for cost in costs) > half:
        return None
    conversion = _conversion(half)

    def admits(cap: float) -> bool:
        rooms = (cap - conversion) / ORDERS
        order = int(rooms.argmax())
        return bool(rates[order] <= rooms[order])

    low, high = 0.0, _GREATEST_CAP
    if not admits(high):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return _rounded_up(high * (1 + OUTWARD))


def _conversion(delta: Fraction) -> Floats:
    """Epsilon beyond the divergence at each order, at ``delta``."""
    share = math.nextafter(float(delta), 0)
    beyond: Floats = np.log1p(-1 / ORDERS) - np.log(share * ORDERS) / (ORDERS - 1)
    return beyond


def _rounded_up(cap: float) -> Fraction:
    scale = Fraction(10) ** (_DIGITS - 1 - math.floor(math.log10(cap)))
    return math.ceil(Fraction(cap) * scale) / scale
