"""From shares of relationships to a parent for each row: degrees first, then who refers to whom.

Degrees follow their released distribution, with means by profile as the relationships say. A row
that refers then takes the free place of a parent of its profile, or where there is none, that of
the parent whose profile is likeliest among those that have places left.
"""

from __future__ import annotations

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.relational.matching.degrees import draw_degrees
from cloister.models.relational.matching.profiles import Problem
from cloister.models.relational.matching.rounding import round_unbiased

_ANY_FREE = 1e-12
"""Weight of a profile with free places: it is chosen where no likely profile has one left."""

_TRIES = 20
"""Rounds in which rows without a place choose among the places that are left."""


def match(
    problem: Problem, unknowns: Floats, degrees: Floats, rng: np.random.Generator
) -> Integers:
    """The parent (children,) of each row that refers; no parent has more than the greatest degree.

    ``degrees`` (d_max + 1,) is their distribution among parents.
    """
    parents, children = problem.parents, problem.children
    total = len(children.of_rows)
    expected = problem.shares(unknowns).sum(1) * total
    own = draw_degrees(parents.of_rows, parents.counts, expected, degrees, total, rng)
    places = np.bincount(parents.of_rows, own, minlength=parents.number).astype(np.int64)
    profiles = _profiles_of_parents(problem, unknowns, places, rng)
    order = np.lexsort((rng.random(total), profiles))
    owners = np.repeat(np.arange(len(own)), own)
    by_profile = np.lexsort((rng.random(total), parents.of_rows[owners]))
    found = np.zeros(total, dtype=np.int64)
    found[order] = owners[by_profile]
    return found


def _profiles_of_parents(
    problem: Problem, unknowns: Floats, places: Integers, rng: np.random.Generator
) -> Integers:
    """The profile (children,) of each row's parent, as many of each as it has places."""
    children = problem.children
    weights = problem.shares(unknowns) * len(children.of_rows)
    found = np.zeros(len(children.of_rows), dtype=np.int64)
    order = np.lexsort((rng.random(len(found)), children.of_rows))
    ends = np.cumsum(children.counts).astype(np.int64)
    for profile, end in enumerate(ends):
        counts = round_unbiased(weights[:, profile], rng)
        drawn = np.repeat(np.arange(len(places)), counts)
        found[order[end - len(drawn) : end]] = rng.permutation(drawn)
    return _fitted(found, problem, unknowns, places, rng)


def _fitted(
    found: Integers, problem: Problem, unknowns: Floats, places: Integers, rng: np.random.Generator
) -> Integers:
    """The profiles, with rows beyond a profile's places moved to places that are free."""
    rows = np.arange(len(found))
    kept, waiting = split_by_places(rows, found, places, rng)
    for _ in range(_TRIES):
        if not len(waiting):
            return found
        free = places - np.bincount(found[kept], minlength=len(places))
        found[waiting] = _choose(problem, unknowns * free[:, None], waiting, rng)
        some, waiting = split_by_places(waiting, found, free, rng)
        kept = np.append(kept, some)
    free = places - np.bincount(found[kept], minlength=len(places))
    found[waiting] = rng.permutation(np.repeat(np.arange(len(places)), free))
    return found


def split_by_places(
    rows: Integers, found: Integers, places: Integers, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """The rows (n,) that have a place in their profile, and those that have none, at random."""
    rows = rng.permutation(rows)
    rows = rows[np.argsort(found[rows], kind="stable")]
    counts = np.bincount(found[rows], minlength=len(places))
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    fits = rank < places[found[rows]]
    return rows[fits], rows[~fits]


def _choose(
    problem: Problem, weights: Floats, rows: Integers, rng: np.random.Generator
) -> Integers:
    """A profile (n,) of parents for each row, by weights (U, V); any that is free if none has."""
    own = problem.children.of_rows[rows]
    free = weights.sum(1) > 0
    heights = np.cumsum(weights + _ANY_FREE * free[:, None], axis=0)
    chosen = np.zeros(len(rows), dtype=np.int64)
    for profile in np.unique(own):
        here = np.flatnonzero(own == profile)
        targets = rng.random(len(here)) * heights[-1, profile]
        chosen[here] = np.searchsorted(heights[:, profile], targets, side="right")
    return np.minimum(chosen, len(weights) - 1)
