"""What all events of a plan do to the rows of one unit: simple events, on each path through them.

A unit lies in one of the disjoint parts of an event, and it is not known in which: each choice of
the parts is a *path*, a composition of simple events, its *leaves*.

Stages of a plan are composed, and in parallel where they read disjoint parts of the rows. Records
made from seeds have bounds of their own: Theorem 1, for each record, and for all candidates
together.

A candidate that fails the test is an outcome too, and Theorem 1 speaks of released records only.
Whether a candidate failed is private since some are withheld whatever the test says: the argument
is in docs/privacy.md.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Protocol

import numpy as np

from cloister.errors import PlanError, UnsupportedEvent
from cloister.privacy import events
from cloister.privacy.accounting.loss import LARGEST_EXPONENT, OUTWARD
from cloister.privacy.exact import decimal, exact

_DIGITS = 48
"""Binary digits of an epsilon after the point, rounded up."""


@dataclass(frozen=True)
class RecordGuarantee:
    """What Theorem 1 says of one released record, at its choice of ``t``."""

    epsilon: float
    delta: float
    t: int


def record_guarantee(k: int, gamma: Fraction, epsilon0: Fraction, t: int) -> RecordGuarantee:
    """Theorem 1 for one released record and a ``t`` from 1 to k - 1, rounded up.

    >>> from fractions import Fraction
    >>> found = record_guarantee(50, Fraction(4), Fraction(1), 29)
    >>> round(found.epsilon, 4), found.delta < 2**-30
    (1.1292, True)
    """
    epsilon = float(epsilon0) + math.log1p(float(gamma) / t)
    delta = math.exp(-float(epsilon0) * (k - t))
    return RecordGuarantee(epsilon * (1 + OUTWARD), delta * (1 + OUTWARD), t)


def best_record_guarantee(
    k: int, gamma: Fraction, epsilon0: Fraction, delta: float, steps: int = 1
) -> RecordGuarantee:
    """Theorem 1, of a unit of so many ``steps``, with the least epsilon at ``delta`` or less.

    Where no t has such a delta, that of the least delta.
    """
    t = np.arange(1, k, dtype=np.float64)
    one = float(epsilon0) + np.log1p(float(gamma) / t)
    # the logarithm of delta: that of one step, and of the sum of exp(i epsilon) over the steps
    grown = (steps - 1) * one + np.log1p(-np.exp(-steps * one)) - np.log1p(-np.exp(-one))
    logs = grown - float(epsilon0) * (k - t)
    enough = np.flatnonzero(logs <= (math.log(delta) if delta > 0 else -math.inf) - 3 * OUTWARD)
    # epsilon falls with t
    best = int(enough[-1] if enough.size else logs.argmin()) + 1
    return after_steps(record_guarantee(k, gamma, epsilon0, best), steps)


def row_steps(rows: int, relation: events.Relation) -> int:
    """Rows added or removed, one after the other, between neighbours whose units have ``rows``."""
    return rows * (1 if relation is events.Relation.ADD_REMOVE else 2)


def after_steps(one: RecordGuarantee, steps: int) -> RecordGuarantee:
    """A guarantee over several steps of one row each (Dwork and Roth 2014, theorem 2.2)."""
    epsilon = steps * one.epsilon
    if epsilon > LARGEST_EXPONENT:
        return RecordGuarantee(epsilon, 1.0, one.t)
    delta = one.delta * math.expm1(epsilon) / math.expm1(one.epsilon) * (1 + OUTWARD)
    return RecordGuarantee(epsilon, min(delta, 1.0), one.t)


def group_cost(epsilon: Fraction, delta: Fraction, rows: int) -> tuple[Fraction, Fraction]:
    """What is charged for a group of at most so many rows, planned for one row; exact, rounded up.

    Rows are added one after the other, each by (epsilon, delta): epsilons add up, and the delta of
    each is multiplied by e^epsilon for each row after it (Vadhan 2017, lemma 2.2, summed up).

    >>> from fractions import Fraction
    >>> group_cost(Fraction(1, 10), Fraction(1, 10**6), 5)
    (Fraction(1, 2), Fraction(308413, 50000000000))

    Raises:
        PlanError: delta reaches 1.
    """
    whole = rows * epsilon
    if not delta or rows == 1:
        return whole, delta
    grown = Fraction(1)
    if whole <= LARGEST_EXPONENT:
        times = math.expm1(float(whole)) / math.expm1(float(epsilon)) * (1 + OUTWARD)
        grown = delta * Fraction(times)
    if grown >= 1:
        raise PlanError(
            f"for a group of {rows:,} rows, delta {float(delta):g} at epsilon {float(epsilon):g} "
            "reaches 1; ask for a smaller epsilon or delta, or declare the group as the unit"
        )
    return whole, exact(decimal(grown))


def candidate_bound(event: events.SeededRecords, relation: events.Relation) -> events.Bounded:
    """What one candidate reveals, released or not: an (epsilon, delta) of the whole table.

    A unit of m rows, or one that is replaced, is as many rows added and removed one after the other
    (Dwork and Roth 2014, theorem 2.2, for delta above 0).
    """
    one = record_guarantee(event.k, event.gamma, event.epsilon0, event.t)
    epsilon = max(one.epsilon, failure_epsilon(event.withheld, event.least_seeds))
    steps = row_steps(event.rows, relation)
    whole = after_steps(RecordGuarantee(epsilon, one.delta, event.t), steps)
    return events.Bounded(_up(whole.epsilon), min(Fraction(whole.delta), Fraction(1)))


def failure_epsilon(withheld: Fraction, least_seeds: int) -> float:
    """What it reveals at most that a candidate was not released: ln(1 + 1 / (withheld seeds))."""
    return math.log1p(1 / (float(withheld) * least_seeds)) * (1 + OUTWARD)


def least_withheld(epsilon: float, least_seeds: int) -> Fraction:
    """The least share of candidates to withhold, so that a failure reveals at most ``epsilon``."""
    exact = 1 / (least_seeds * math.expm1(epsilon) * (1 - OUTWARD))
    return Fraction(math.ceil(exact * 2**_DIGITS), 2**_DIGITS)


def _up(amount: float) -> Fraction:
    return Fraction(math.ceil(Fraction(amount * (1 + OUTWARD)) * 2**_DIGITS), 2**_DIGITS)


Leaves = tuple[tuple[events.Event, int], ...]
"""Simple events, each with how often it happened."""

_MOST_PATHS = 256
"""Most paths through disjoint parts of an event: each is accounted separately."""


def paths_of(event: events.Event, relation: events.Relation) -> set[Leaves]:
    """The simple events on one unit's rows, for each choice of the parts that they may lie in."""
    if isinstance(event, events.Parallel):
        return _parallel_paths(event, relation)
    if isinstance(event, events.Composed):
        return _composed_paths(event, relation)
    if isinstance(event, events.RepeatedSelection):
        return _repeated_paths(event, relation)
    return {(_simple_leaf(event, relation),)}


def _repeated_paths(event: events.RepeatedSelection, relation: events.Relation) -> set[Leaves]:
    """A selection, of leaves, is itself one, unless it reads disjoint parts or something leaks."""
    paths = paths_of(event.base, relation)
    if len(paths) > 1 or any(map(_leaks, *paths)):
        return paths_of(events.Composed(((event.base, event.most),)), relation)
    (path,) = paths
    return {((events.RepeatedSelection(events.Composed(path), event.most), 1),)}


def _leaks(item: tuple[events.Event, int]) -> bool:
    return isinstance(item[0], events.Bounded | events.Thresholded) and item[0].delta > 0


def unfold(leaves: Leaves) -> Leaves:
    """The leaves with all tries of a selection as if each were released: this costs no less."""
    return merge_leaves(
        item
        for leaf, times in leaves
        for item in (
            ((part, n * times * leaf.most) for part, n in unfold(tries_of(leaf)))
            if isinstance(leaf, events.RepeatedSelection)
            else ((leaf, times),)
        )
    )


def tries_of(leaf: events.RepeatedSelection) -> Leaves:
    """The leaves of one try of a selection that is a leaf itself."""
    assert isinstance(leaf.base, events.Composed)
    return leaf.base.parts


def _simple_leaf(event: events.Event, relation: events.Relation) -> tuple[events.Event, int]:
    """A simple event as accountants read it, and how often it happened."""
    match event:
        case events.SampledGaussian():
            return replace(event, steps=1), event.steps
        case events.SeededRecords():
            return candidate_bound(event, relation), event.candidates
        case events.OnGrid():
            return event.noise, 1
    return event, 1


def _parallel_paths(event: events.Parallel, relation: events.Relation) -> set[Leaves]:
    if relation is events.Relation.ADD_REMOVE and unit_rows(event) in (None, 1):
        return _limit(path for part in event.parts for path in paths_of(part, relation))
    return paths_of(events.Composed(tuple((part, 1) for part in event.parts)), relation)


def unit_rows(event: events.Event) -> int | None:
    """The most rows that one unit owns, according to an event; None where it does not say."""
    match event:
        case events.Parallel():
            declared = event.rows if event.rows > 1 else None  # one is what is left undeclared
            return _most((declared, *map(unit_rows, event.parts)))
        case events.Composed():
            return _most(unit_rows(part) for part, _ in event.parts)
        case (
            events.SampledGaussian()
            | events.SeededRecords()
            | events.UncountedRecords()
            | events.OnGrid()
        ):
            return event.rows
        case events.GaussianCounts() | events.LaplaceCounts():
            return event.sensitivity.step
        case events.Thresholded():
            return event.counts.sensitivity.step
        case events.RepeatedSelection():
            return unit_rows(event.base)
    return None


def _most(rows: Iterable[int | None]) -> int | None:
    return max((one for one in rows if one is not None), default=None)


def _composed_paths(event: events.Composed, relation: events.Relation) -> set[Leaves]:
    paths: set[Leaves] = {()}
    for part, times in event.parts:
        choices = _limit(_join(chosen) for chosen in _choices(paths_of(part, relation), times))
        paths = _limit(_join(pair) for pair in product(paths, choices))
    return paths


def _choices(paths: set[Leaves], times: int) -> Iterator[tuple[Leaves, ...]]:
    if len(paths) == 1:
        (path,) = paths
        return iter([(tuple((leaf, count * times) for leaf, count in path),)])
    return combinations_with_replacement(paths, times)


def _join(paths: Iterable[Leaves]) -> Leaves:
    return merge_leaves(item for path in paths for item in path)


def merge_leaves(items: Iterable[tuple[events.Event, int]]) -> Leaves:
    """Each leaf once, with how often it happened in all, in an order of their own."""
    times: dict[events.Event, int] = {}
    for leaf, count in items:
        times[leaf] = times.get(leaf, 0) + count
    return tuple(sorted(times.items(), key=repr))


def _limit(paths: Iterable[Leaves]) -> set[Leaves]:
    distinct: set[Leaves] = set()
    for path in paths:
        distinct.add(path)
        if len(distinct) > _MOST_PATHS:
            raise UnsupportedEvent(
                f"The event has over {_MOST_PATHS} paths through disjoint parts; use fewer parts."
            )
    return distinct


class PlannedStage(Protocol):
    """A stage of a plan: its name, what it does to the data, and what it is for.

    Stages that name a ``part`` read one of several disjoint parts of the rows.
    """

    @property
    def name(self) -> str:
        """Which step of the method it is."""

    @property
    def event(self) -> events.Event:
        """What it spends."""

    @property
    def explanation(self) -> str:
        """What it is for, in words."""

    @property
    def part(self) -> str | None:
        """The part of the rows that it reads; None if it reads all."""


def event_of_stages(stages: Iterable[PlannedStage]) -> events.Composed:
    """All that stages do: composed, and in parallel where they read disjoint parts of the rows.

    Parts are in the order in which stages first name them.

    Raises:
        UnsupportedEvent: nothing in the parts says how many rows a unit has, as with selections
            alone: it may lie in several of them, and would be charged for one.
    """
    listed = tuple(stages)
    alone = tuple((stage.event, 1) for stage in listed if stage.part is None)
    names = dict.fromkeys(stage.part for stage in listed if stage.part is not None)
    if names and all(unit_rows(stage.event) is None for stage in listed if stage.part is not None):
        raise UnsupportedEvent(
            "The stages on disjoint parts of the rows do not say how many rows a unit has, and "
            "would be charged as if it had one; count something in a part, or plan them for the "
            "whole table. Nothing was charged."
        )
    parts = tuple(
        events.Composed(tuple((stage.event, 1) for stage in listed if stage.part == name))
        for name in names
    )
    return events.Composed((*alone, (events.Parallel(parts), 1)) if parts else alone)


def accountable(stages: Iterable[PlannedStage]) -> tuple[PlannedStage, ...]:
    """The stages that are differentially private."""
    return tuple(stage for stage in stages if stage.event.counted)


def divides_rows(event: events.Event) -> bool:
    """Whether anything in an event is counted on disjoint parts of the rows alone."""
    match event:
        case events.Composed():
            return any(divides_rows(part) for part, _ in event.parts)
        case events.RepeatedSelection():
            return divides_rows(event.base)
    return isinstance(event, events.Parallel | events.UncountedRecords)


def scans(event: events.Event) -> int:
    """Times at most that the rows, or a sample of them, are read to make the answers of an event.

    What is planned for disjoint parts reads each row as often as the part that reads it most.
    """
    match event:
        case events.Composed():
            return sum(scans(part) * times for part, times in event.parts)
        case events.RepeatedSelection():
            return scans(event.base) * event.most
        case events.Parallel():
            return max(map(scans, event.parts))
        case events.SampledGaussian():
            return event.steps
    return 1


def is_counted(event: events.Event) -> bool:
    """Whether all of an event is differentially private."""
    match event:
        case events.Composed():
            return all(is_counted(part) for part, _ in event.parts)
        case events.Parallel():
            return all(is_counted(part) for part in event.parts)
        case events.RepeatedSelection():
            return is_counted(event.base)
    return event.counted
