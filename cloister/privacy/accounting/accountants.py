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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement, product
from typing import Protocol

import numpy as np

from cloister.errors import UnsupportedEvent
from cloister.privacy.accounting.deniability import candidate_bound
from cloister.privacy.accounting.loss import Loss, connect_the_dots, convolve, epsilon_at
from cloister.privacy.accounting.profiles import Direction, worst_pair
from cloister.privacy.accounting.renyi import ORDERS, convert, renyi
from cloister.privacy.accounting.responses import repeated_response
from cloister.privacy.events import (
    Bounded,
    Composed,
    Event,
    GaussianCounts,
    LaplaceCounts,
    OnGrid,
    Parallel,
    Relation,
    SampledGaussian,
    SeededRecords,
    Selection,
    Thresholded,
)

# Relative margin added to an epsilon that was computed in floating point.
_OUTWARD = 1e-9

# Most paths through disjoint parts of an event: each is accounted separately.
_MOST_PATHS = 256

# Least delta at which loss distributions are used: below it the rounding of Fourier transforms,
# at least 1e-13, would count.
_SMALLEST_DELTA = 1e-10

# Shares of delta given to the tails cut off the losses of all events, and to the mass outside the
# window of their composition.
_TAIL_SHARE = 1e-6

# Step of the first grid, in nats.
_COARSEST_STEP = 2.0**-6

# Finest step of any grid, in nats.
_FINEST_STEP = 2.0**-20

# Grid steps in one epsilon, up to as many mechanisms; beyond, in proportion to the square root of
# their number.
_POINTS_PER_EPSILON = 4096

# Copies of a bounded mechanism from which on the loss of all of them is written down at once: below
# it, a grid for one copy is tighter.
_MANY_COPIES = 4096

# Most points of the grid of one event: finer ones take minutes where losses are rare and large.
_MOST_GRID_POINTS = 2**18

# Nats of loss at most, on both sides of zero: larger losses count as infinite, smaller as this.
_WIDEST = 2.0**12

Leaves = tuple[tuple[Event, int], ...]


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
        return _ceiling(sum((times * self._of(leaf) for leaf, times in leaves), Fraction(0)))

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
        return _outward(convert(divergences, delta))


class LossDistribution:
    """Composes privacy loss distributions on a grid that is fine for the epsilon that it gives.

    Has no bound at delta below 1e-10, where the rounding of Fourier transforms would count.
    """

    def epsilon(self, leaves: Leaves, delta: float, relation: Relation, /) -> float:
        """The epsilon at which the divergence of the composition falls to delta."""
        if delta < _SMALLEST_DELTA or not leaves:
            return math.inf
        copies = sum(1 if _at_once(leaf, times) else times for leaf, times in leaves)
        fineness = _POINTS_PER_EPSILON * max(1.0, math.sqrt(copies / _POINTS_PER_EPSILON))
        finest = max(_FINEST_STEP, self._width(leaves, delta, relation) / _MOST_GRID_POINTS)
        step = _COARSEST_STEP
        while True:
            answer = self._on_grid(leaves, delta, relation, step)
            wanted = max(finest, min(answer, 1 / _COARSEST_STEP) / fineness)
            if step <= 2 * wanted:
                return _outward(answer)
            step = 2.0 ** math.floor(math.log2(max(wanted, step / 64)))

    def _parts(
        self, leaves: Leaves, delta: float, relation: Relation, step: float
    ) -> list[tuple[_GridLosses, int]]:
        tail = delta * _TAIL_SHARE / sum(times for _, times in leaves)
        return [_losses_of(leaf, times, relation, step, tail) for leaf, times in leaves]

    def _width(self, leaves: Leaves, delta: float, relation: Relation) -> float:
        return max(
            losses.width for losses, _ in self._parts(leaves, delta, relation, _COARSEST_STEP)
        )

    def _on_grid(self, leaves: Leaves, delta: float, relation: Relation, step: float) -> float:
        slack, parts = delta * _TAIL_SHARE, self._parts(leaves, delta, relation, step)
        removed = [(losses.removed, times * losses.copies) for losses, times in parts]
        added = [(losses.added, times * losses.copies) for losses, times in parts]
        orders = [removed] if all(losses.symmetric for losses, _ in parts) else [removed, added]
        return max(epsilon_at(convolve(order, slack), delta) for order in orders)


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
    spends = [_path_spend(path, delta, relation) for path in _paths(event, relation)]
    return max(spends, key=lambda spent: spent.epsilon)


def readings(event: Event, delta: Fraction, relation: Relation | str) -> dict[str, float]:
    """What the event costs by each accountant that reads it on every path through its parts.

    Errors: UnsupportedEvent if delta is too small for what it may reveal.
    """
    relation = Relation(relation)
    found = [_path_answers(path, delta, relation)[0] for path in _paths(event, relation)]
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
    leaves = _merge((_without_leak(leaf), times) for leaf, times in path)
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


def _paths(event: Event, relation: Relation) -> set[Leaves]:
    """The simple events on one unit's rows, for each choice of the parts that they may lie in."""
    if isinstance(event, Parallel):
        return _parallel_paths(event, relation)
    if isinstance(event, Composed):
        return _composed_paths(event, relation)
    return {(_simple_leaf(event, relation),)}


def _simple_leaf(event: Event, relation: Relation) -> tuple[Event, int]:
    """A simple event as accountants read it, and how often it happened."""
    match event:
        case SampledGaussian():
            return replace(event, steps=1), event.steps
        case SeededRecords():
            return candidate_bound(event, relation), event.candidates
        case OnGrid():
            return event.noise, 1
    return event, 1


def _parallel_paths(event: Parallel, relation: Relation) -> set[Leaves]:
    if relation is Relation.ADD_REMOVE and _rows_at_most(event) == 1:
        return _limit(path for part in event.parts for path in _paths(part, relation))
    return _paths(Composed(tuple((part, 1) for part in event.parts)), relation)


def _rows_at_most(event: Event) -> int:
    """The most rows that one unit owns, according to an event."""
    match event:
        case Parallel():
            return max(event.rows, *(_rows_at_most(part) for part in event.parts))
        case Composed():
            return max((_rows_at_most(part) for part, _ in event.parts), default=1)
        case SampledGaussian() | SeededRecords() | OnGrid():
            return event.rows
        case GaussianCounts() | LaplaceCounts():
            return event.sensitivity.step
        case Thresholded():
            return event.counts.sensitivity.step
    return 1


def _composed_paths(event: Composed, relation: Relation) -> set[Leaves]:
    paths: set[Leaves] = {()}
    for part, times in event.parts:
        choices = _limit(_join(chosen) for chosen in _choices(_paths(part, relation), times))
        paths = _limit(_join(pair) for pair in product(paths, choices))
    return paths


def _choices(paths: set[Leaves], times: int) -> Iterator[tuple[Leaves, ...]]:
    if len(paths) == 1:
        (path,) = paths
        return iter([(tuple((leaf, count * times) for leaf, count in path),)])
    return combinations_with_replacement(paths, times)


def _join(paths: Iterable[Leaves]) -> Leaves:
    return _merge(item for path in paths for item in path)


def _merge(items: Iterable[tuple[Event, int]]) -> Leaves:
    times: dict[Event, int] = {}
    for leaf, count in items:
        times[leaf] = times.get(leaf, 0) + count
    return tuple(sorted(times.items(), key=repr))


def _limit(paths: Iterable[Leaves]) -> set[Leaves]:
    kept: set[Leaves] = set()
    for path in paths:
        kept.add(path)
        if len(kept) > _MOST_PATHS:
            raise UnsupportedEvent(
                f"The event has over {_MOST_PATHS} paths through disjoint parts; use fewer parts."
            )
    return kept


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


def _at_once(leaf: Event, times: int) -> bool:
    return isinstance(leaf, Bounded) and times >= _MANY_COPIES


@lru_cache(maxsize=128)
def _losses_of(
    leaf: Event, times: int, relation: Relation, step: float, tail: float
) -> tuple[_GridLosses, int]:
    """The losses of a leaf, and how often they are still to be composed."""
    if isinstance(leaf, Bounded) and _at_once(leaf, times):
        together = repeated_response(float(leaf.epsilon), times, step, tail * times)
        return _GridLosses(together, together, 1), 1
    return _grid_losses(leaf, relation, step, tail), times


@lru_cache(maxsize=128)
def _grid_losses(leaf: Event, relation: Relation, step: float, tail: float) -> _GridLosses:
    pair = worst_pair(leaf, relation, tail)
    removed = _on_grid(pair.removed, step)
    return _GridLosses(
        removed, removed if pair.added is pair.removed else _on_grid(pair.added, step), pair.copies
    )


def _on_grid(way: Direction, step: float) -> Loss:
    low, high = max(way.low, -_WIDEST), min(way.high, _WIDEST)
    return connect_the_dots(way.profile, low, high, step)


def _outward(answer: float) -> float:
    return answer * (1 + _OUTWARD)


def _ceiling(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)
