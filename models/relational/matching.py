"""From shares of relationships to a parent for each row: degrees first, then who refers to whom.

Degrees follow their released distribution, with the means by profile that relationships imply. A
row that refers takes a free place of a parent with the profile drawn for it, or of the likeliest
with places left.

Where there are more pairs of profiles than one problem holds, factors are fitted once for all rows:
the relaxed problem is solved by mirror descent. Its iterates are products of factors, one for each
cell of each joint table, over the simplex of each row that refers, so factors fitted on some rows
apply to all. Each step takes the gradient of a random slice of both tables. Rows are then matched
in disjoint random slices. Source: section 6 (random slicing); Nemirovski and Yudin (1983).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models.relational.degrees import Tilts, draw_by_group, draw_degrees, with_total
from cloister.models.relational.likeness import Anchors
from cloister.models.relational.profiles import Problem

_ANY_FREE = 1e-12
"""Weight of any profile with free places: chosen when no likelier one has any."""

_TRIES = 20
"""Rounds in which rows without a place choose among the places that are left."""

PAIRS = 200_000
"""Pairs of rows in one slice: their matrix fits a processor's cache."""

_STEPS = 150
"""Steps of mirror descent; the later half moves factors by less than noise does."""

_RATE = 0.3
"""First step size: the part of an error that a step removes if tables do not overlap."""

_SLOWER = 20.0
"""Steps after which step sizes are halved, so that the randomness of slices averages out."""

_FURTHEST = 2.0
"""Cap on the log ratio that one step follows: cells that should be empty would have it infinite."""

_SLICE_SCALINGS = 6
"""Alternate scalings of a slice: its rows to degrees, its columns to one parent each."""

_SLICE_TRIES = 12
"""Rounds in which rows without a place choose among the places that are left."""

_ADDED_SHARE = 1e-9
"""Added to shares to keep them positive: too small to matter."""

Logs = list[NDArray[np.float32]]

Weights = NDArray[np.float32]


def match(
    problem: Problem, unknowns: Floats, degrees: Floats, rng: np.random.Generator
) -> Integers:
    """The parent (children,) of each row that refers; no parent has more than the greatest degree.

    ``degrees`` (d_max + 1,) is their distribution among parents.
    """
    parents, children = problem.parents, problem.children
    total = len(children.of_rows)
    expected = problem.shares(unknowns).sum(1) * total
    parent_degrees = draw_degrees(parents.of_rows, parents.counts, expected, degrees, total, rng)
    places = np.bincount(parents.of_rows, parent_degrees, minlength=parents.number).astype(np.int64)
    profiles = _profiles_of_parents(problem, unknowns, places, rng)
    order = np.lexsort((rng.random(total), profiles))
    owners = np.repeat(np.arange(len(parent_degrees)), parent_degrees)
    by_profile = np.lexsort((rng.random(total), parents.of_rows[owners]))
    owners_of_rows = np.zeros(total, dtype=np.int64)
    owners_of_rows[order] = owners[by_profile]
    return owners_of_rows


def _profiles_of_parents(
    problem: Problem, unknowns: Floats, places: Integers, rng: np.random.Generator
) -> Integers:
    """The profile (children,) of each row's parent, each at most as often as it has places."""
    children = problem.children
    weights = problem.shares(unknowns) * len(children.of_rows)
    profiles = draw_by_group(children.of_rows, weights.T, rng)
    return _fitted(profiles, problem, unknowns, places, rng)


def _fitted(
    profiles: Integers,
    problem: Problem,
    unknowns: Floats,
    places: Integers,
    rng: np.random.Generator,
) -> Integers:
    """The profiles, with rows in excess of a profile's places moved to free ones."""
    rows = np.arange(len(profiles))
    settled, waiting = split_by_places(rows, profiles, places, rng)
    for _ in range(_TRIES):
        if not len(waiting):
            return profiles
        free = places - np.bincount(profiles[settled], minlength=len(places))
        profiles[waiting] = _choose(problem, unknowns * free[:, None], waiting, rng)
        some, waiting = split_by_places(waiting, profiles, free, rng)
        settled = np.append(settled, some)
    free = places - np.bincount(profiles[settled], minlength=len(places))
    profiles[waiting] = rng.permutation(np.repeat(np.arange(len(places)), free))
    return profiles


def split_by_places(
    rows: Integers, profiles: Integers, places: Integers, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """The rows (n,) that get a place in their profile and those that get none, at random."""
    rows = rng.permutation(rows)
    rows = rows[np.argsort(profiles[rows], kind="stable")]
    counts = np.bincount(profiles[rows], minlength=len(places))
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    fits = rank < places[profiles[rows]]
    return rows[fits], rows[~fits]


def _choose(
    problem: Problem, weights: Floats, rows: Integers, rng: np.random.Generator
) -> Integers:
    """A profile (n,) of parents for each row, by weights (U, V); any free one if all are zero."""
    child_profiles = problem.children.of_rows[rows]
    free = weights.sum(1) > 0
    heights = np.cumsum(weights + _ANY_FREE * free[:, None], axis=0)
    chosen = np.zeros(len(rows), dtype=np.int64)
    for profile in np.unique(child_profiles):
        here = np.flatnonzero(child_profiles == profile)
        targets = rng.random(len(here)) * heights[-1, profile]
        chosen[here] = np.searchsorted(heights[:, profile], targets, side="right")
    return np.minimum(chosen, len(weights) - 1)


def match_in_slices(
    problem: Problem, degrees: Floats, rng: np.random.Generator, anchors: Anchors | None = None
) -> Integers:
    """The parent (children,) of each row that refers; no parent has more than the greatest degree.

    ``degrees`` (d_max + 1,) is their distribution among parents. With ``anchors`` rows are like
    that of their parent, and slices lie in blocks of these.
    """
    parents, children = len(problem.parents.of_rows), len(problem.children.of_rows)
    logs = fit_factors(problem, rng, anchors)
    count = _slices(parents, children, len(degrees) - 1)
    owners = np.zeros(children, dtype=np.int64)
    referred_rows, referring_rows = (
        anchors.in_blocks(count, rng)
        if anchors
        else (rng.permutation(parents), rng.permutation(children))
    )
    tilts = None
    for part in range(count):
        referred = referred_rows[parents * part // count : parents * (part + 1) // count]
        referring = referring_rows[children * part // count : children * (part + 1) // count]
        weights = _weights(problem, logs, referred, referring, anchors)
        numbers = np.arange(1.0 * len(degrees))
        tilts = tilts or Tilts.of(
            np.ones(len(referred)), weights.sum(1), degrees, len(referring), numbers
        )
        places = with_total(tilts.draw(weights.sum(1), rng), len(referring), tilts.most, rng)
        if anchors:
            anchors = anchors.spread(referred, referring, places)
            weights = _weights(problem, logs, referred, referring, anchors)
        owners[referring] = referred[_matched(weights, places, rng)]
    return owners


def fit_factors(problem: Problem, rng: np.random.Generator, anchors: Anchors | None = None) -> Logs:
    """The logarithm of the factor of each cell of each joint table, by their groups."""
    logs = [np.zeros(group.shares.shape, dtype=np.float32) for group in problem.groups]
    side = round(np.sqrt(PAIRS))
    parents, children = problem.parents.of_rows, problem.children.of_rows
    for step in range(_STEPS):
        referred, referring = (
            rng.choice(len(rows), min(side, len(rows)), replace=False)
            for rows in (parents, children)
        )
        weights = _weights(problem, logs, referred, referring, anchors)
        weights /= np.float32(len(referring))
        rate = _RATE / (1 + step / _SLOWER)
        for index, group in enumerate(problem.groups):
            some = group.take(parents[referred], children[referring])
            answer = some.sums(weights).astype(np.float64)
            known = np.maximum(group.shares, 0.0)
            wanted = known * (answer.sum(0) / np.maximum(known.sum(0), _ADDED_SHARE))
            ratio = np.log((wanted + _ADDED_SHARE) / (answer + _ADDED_SHARE))
            logs[index] += (rate * ratio.clip(-_FURTHEST, _FURTHEST)).astype(np.float32)
    return logs


def _weights(
    problem: Problem,
    logs: Logs,
    referred: Integers,
    referring: Integers,
    anchors: Anchors | None,
) -> Weights:
    """The probability (referred, referring) of each parent for each row that refers."""
    parents, children = problem.parents.of_rows[referred], problem.children.of_rows[referring]
    total = np.zeros((len(referred), len(referring)), dtype=np.float32)
    if anchors:
        total += anchors.logs(referred, referring)
    for log, group in zip(logs, problem.groups, strict=True):
        total += group.take(parents, children).spread(log)
    total -= total.max(0)
    np.exp(total, out=total)
    total += np.float32(_ADDED_SHARE)
    total /= total.sum(0)
    return total


def _slices(parents: int, children: int, most: int) -> int:
    """How many slices keep pairs few and leave each with places for all of its rows."""
    count = max(min(round(np.sqrt(parents * children / PAIRS)), parents, children), 1)
    while count > 1 and -(-children // count) > most * (parents // count):
        count = count // 2
    return count


def _matched(weights: Weights, places: Integers, rng: np.random.Generator) -> Integers:
    """The parent (referring,) of each row of a slice, by its index in the slice.

    ``places`` (referred,) are how many rows each parent gets.
    """
    total = weights.shape[1]
    for _ in range(_SLICE_SCALINGS):
        scale = places / np.maximum(weights.sum(1), np.float32(_ADDED_SHARE))
        weights = weights * scale.astype(np.float32)[:, None]
        weights = weights / np.maximum(weights.sum(0), np.float32(_ADDED_SHARE))
    owners = np.zeros(total, dtype=np.int64)
    waiting = np.arange(total)
    for _ in range(_SLICE_TRIES):
        heights = np.cumsum(weights[:, waiting] * (places > 0)[:, None], axis=0)
        marks = rng.random(len(waiting)) * heights[-1]
        owners[waiting] = np.minimum((heights <= marks).sum(0), len(places) - 1)
        settled, waiting = split_by_places(waiting, owners, places, rng)
        places = places - np.bincount(owners[settled], minlength=len(places))
        if not len(waiting):
            return owners
    owners[waiting] = rng.permutation(np.repeat(np.arange(len(places)), places))
    return owners
