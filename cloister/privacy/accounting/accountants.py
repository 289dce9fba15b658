"""What events cost: the least epsilon, at a given delta, that any accountant of the event shows.

Three accountants read events in different ways: privacy loss distributions, Rényi divergences, and
the plain sum. Each gives an upper bound, so the least of the three is one too. An event that no
accountant can read is refused (`UnsupportedEvent`), never guessed. Answers are rounded up.

Mass that an event may reveal outright (a threshold passed by an empty cell, the delta of a bounded
mechanism) is its *leak*. Leaks add up, and the rest of delta is left to the accountant: such an
event is a mixture that is private but for its leak (Kairouz, Oh, Viswanath, arXiv 1311.0776,
theorem 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np

from cloister.errors import UnsupportedEvent
from cloister.privacy.accounting.loss_accountant import LossDistribution
from cloister.privacy.accounting.paths import Leaves, merge_leaves, paths_of
from cloister.privacy.accounting.precision import OUTWARD
from cloister.privacy.accounting.renyi import ORDERS, convert, renyi
from cloister.privacy.events import (
    Bounded,
    Event,
    LaplaceCounts,
    Relation,
    Selection,
    Thresholded,
)
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

    def epsilon(self, leaves: Leaves, delta: float, relation: Relation, /) -> float:
        """The least epsilon this accountant can show, rounded up."""
        ...


class PureSum:
    """Adds the epsilons of mechanisms that are private at delta 0, exactly.

    The only accountant with an answer at delta 0.
    """

    def epsilon(self, leaves: Leaves, _delta: float, _relation: Relation, /) -> float:
        """The sum of epsilons."""
        return float_above(sum((times * self._of(leaf) for leaf, times in leaves), Fraction(0)))

    def _of(self, leaf: Event) -> Fraction:
        if isinstance(leaf, LaplaceCounts | Selection | Bounded):
            return leaf.epsilon
        raise UnsupportedEvent(f"{type(leaf).__name__} events are not private at delta 0.")


class Renyi:
    """Adds Rényi divergences of many orders, and converts the sum.

    Source: conversion of Canonne, Kamath, Steinke (arXiv 2004.00010), proposition 12.
    """

    def epsilon(self, leaves: Leaves, delta: float, relation: Relation, /) -> float:
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


def epsilon(event: Event, delta: float | Fraction, relation: Relation | str) -> float:
    """The least epsilon for which the event is shown (epsilon, delta)-private, rounded up.

    Errors: UnsupportedEvent if no accountant reads the whole event, or delta is too small for what
        it may reveal.
    """
    return spend(event, delta, relation).epsilon


def spend(event: Event, delta: float | Fraction, relation: Relation | str) -> Spend:
    """What the event costs at this delta, and which accountant shows it.

    Of disjoint parts, on the worst path through them. A float delta is read as the decimal number
    that it is written as.

    Errors: as `epsilon`.
    """
    if not 0 <= delta < 1:
        raise UnsupportedEvent(f"Delta lies between 0 and 1, not at {float(delta):g}.")
    return _spend(event, Fraction(str(delta)), Relation(relation))


@lru_cache(maxsize=512)
def _spend(event: Event, delta: Fraction, relation: Relation) -> Spend:
    spends = [_path_spend(path, delta, relation) for path in paths_of(event, relation)]
    return max(spends, key=lambda spent: spent.epsilon)


def readings(event: Event, delta: Fraction, relation: Relation | str) -> dict[str, float]:
    """What the event costs by each accountant that reads it on every path through its parts.

    Errors: UnsupportedEvent if delta is too small for what it may reveal.
    """
    relation = Relation(relation)
    found = [_path_answers(path, delta, relation)[0] for path in paths_of(event, relation)]
    shared = set[str].intersection(*map(set, found))
    return {name: max(answers[name] for answers in found) for name in shared}


def _path_spend(path: Leaves, delta: Fraction, relation: Relation) -> Spend:
    answers, refusals = _path_answers(path, delta, relation)
    if not answers:
        raise UnsupportedEvent(
            f"No accountant reads the whole event at delta {float(delta):g}. {' '.join(refusals)}"
        )
    best = min(answers, key=lambda name: answers[name])
    return Spend(answers[best], float(delta), best)


def _path_answers(
    path: Leaves, delta: Fraction, relation: Relation
) -> tuple[dict[str, float], list[str]]:
    """Epsilons by the accountants that have a finite one, and why others refuse."""
    left = delta - _path_leak(path)
    if left < 0:
        raise UnsupportedEvent(
            f"The event may reveal more than delta {float(delta):g} allows; allow a larger delta."
        )
    leaves = merge_leaves((_without_leak(leaf), times) for leaf, times in path)
    return _answers(leaves, math.nextafter(float(left), 0), relation)


def _answers(
    leaves: Leaves, delta: float, relation: Relation
) -> tuple[dict[str, float], list[str]]:
    answers, refusals = {}, []
    for name, accountant in ACCOUNTANTS.items():
        try:
            answers[name] = accountant.epsilon(leaves, delta, relation)
        except UnsupportedEvent as refusal:
            refusals.append(str(refusal))
    return {name: answer for name, answer in answers.items() if answer < math.inf}, refusals


def _path_leak(path: Leaves) -> Fraction:
    leaking = (
        (leaf.delta, times) for leaf, times in path if isinstance(leaf, Bounded | Thresholded)
    )
    return sum((times * delta for delta, times in leaking), Fraction(0))


def _without_leak(leaf: Event) -> Event:
    if isinstance(leaf, Thresholded):
        return leaf.counts
    return replace(leaf, delta=Fraction(0)) if isinstance(leaf, Bounded) else leaf
