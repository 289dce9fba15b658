"""What an event does to the rows of one unit: simple events, on each path through its parts.

A unit lies in one of the disjoint parts of an event, and it is not known in which: each choice of
the parts is a *path*, a composition of simple events, its *leaves*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, product

from cloister.errors import UnsupportedEvent
from cloister.privacy.accounting.deniability import candidate_bound
from cloister.privacy.events import (
    Composed,
    Event,
    GaussianCounts,
    LaplaceCounts,
    OnGrid,
    Parallel,
    PlausiblyDeniable,
    Relation,
    SampledGaussian,
    SeededRecords,
    Thresholded,
)

Leaves = tuple[tuple[Event, int], ...]
"""Simple events, each with how often it happened."""

_MOST_PATHS = 256
"""Most paths through disjoint parts of an event: each is accounted separately."""


def paths_of(event: Event, relation: Relation) -> set[Leaves]:
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
    if relation is Relation.ADD_REMOVE and unit_rows(event) in (None, 1):
        return _limit(path for part in event.parts for path in paths_of(part, relation))
    return paths_of(Composed(tuple((part, 1) for part in event.parts)), relation)


def unit_rows(event: Event) -> int | None:
    """The most rows that one unit owns, according to an event; None where it does not say."""
    match event:
        case Parallel():
            declared = event.rows if event.rows > 1 else None  # one is what is left undeclared
            return _most((declared, *map(unit_rows, event.parts)))
        case Composed():
            return _most(unit_rows(part) for part, _ in event.parts)
        case SampledGaussian() | SeededRecords() | PlausiblyDeniable() | OnGrid():
            return event.rows
        case GaussianCounts() | LaplaceCounts():
            return event.sensitivity.step
        case Thresholded():
            return event.counts.sensitivity.step
    return None


def _most(rows: Iterable[int | None]) -> int | None:
    return max((one for one in rows if one is not None), default=None)


def _composed_paths(event: Composed, relation: Relation) -> set[Leaves]:
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


def merge_leaves(items: Iterable[tuple[Event, int]]) -> Leaves:
    """Each leaf once, with how often it happened in all, in an order of their own."""
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
