"""Relationships of more pairs of profiles than one problem holds: one fit for all, row by row.

The relaxed problem is solved by mirror descent in place of the projected gradient. Its iterates are
products of factors, one for each cell of each joint table, over the simplex of each row that
refers; factors found on some rows are therefore good for all. Each step takes the gradient of a
random slice of both tables. Rows are then matched in disjoint random slices by these factors.

Source: arXiv 2405.18670, section 6 (random slicing); Nemirovski and Yudin (1983), mirror descent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models.relational.matching.degrees import Tilts, with_total
from cloister.models.relational.matching.match import split_by_places
from cloister.models.relational.matching.profiles import Problem, ProfileTarget

PAIRS = 200_000
"""Pairs of rows in one slice: a matrix of them stays in the cache of a processor."""

_STEPS = 150
"""Steps of mirror descent; the later half moves factors by less than noise does."""

_RATE = 0.3
"""First step size: the part of an error that a step removes where tables do not overlap."""

_SLOWER = 20.0
"""Steps after which step sizes are halved, so that the randomness of slices averages out."""

_FURTHEST = 2.0
"""Greatest logarithm of a ratio that one step answers to: of cells that should be empty."""

_SCALINGS = 6
"""Times that rows and columns of a slice are scaled to degrees and to one parent each."""

_TRIES = 12
"""Rounds in which rows without a place choose among the places that are left."""

_LEAST = 1e-9
"""Added to shares: below any that matters, but not zero."""

Logs = list[NDArray[np.float32]]
Weights = NDArray[np.float32]


def match_in_slices(problem: Problem, degrees: Floats, rng: np.random.Generator) -> Integers:
    """The parent (children,) of each row that refers; no parent has more than the greatest degree.

    ``degrees`` (d_max + 1,) is their distribution among parents.
    """
    parents, children = len(problem.parents.of_rows), len(problem.children.of_rows)
    logs = fit_factors(problem, rng)
    count = _slices(parents, children, len(degrees) - 1)
    found = np.zeros(children, dtype=np.int64)
    own_rows, referring_rows = rng.permutation(parents), rng.permutation(children)
    tilts = None
    for at in range(count):
        own = own_rows[parents * at // count : parents * (at + 1) // count]
        referring = referring_rows[children * at // count : children * (at + 1) // count]
        weights = _weights(problem, logs, own, referring)
        tilts = tilts or Tilts.of(np.ones(len(own)), weights.sum(1), degrees, len(referring))
        found[referring] = own[_matched(weights, tilts, rng)]
    return found


def fit_factors(problem: Problem, rng: np.random.Generator) -> Logs:
    """The logarithm of the factor of each cell of each joint table."""
    logs = [np.zeros(target.shares.shape, dtype=np.float32) for target in problem.targets]
    side = round(np.sqrt(PAIRS))
    parents, children = problem.parents.of_rows, problem.children.of_rows
    for step in range(_STEPS):
        own, referring = (
            rng.choice(len(rows), min(side, len(rows)), replace=False)
            for rows in (parents, children)
        )
        weights = _weights(problem, logs, own, referring) / np.float32(len(referring))
        rate = _RATE / (1 + step / _SLOWER)
        for at, target in enumerate(problem.targets):
            answer = _answer(weights, target, parents[own], children[referring])
            known = np.maximum(target.shares, 0.0)
            wanted = known * (answer.sum(0) / np.maximum(known.sum(0), _LEAST))
            ratio = np.log((wanted + _LEAST) / (answer + _LEAST))
            logs[at] += (rate * ratio.clip(-_FURTHEST, _FURTHEST)).astype(np.float32)
    return logs


def _answer(weights: Weights, target: ProfileTarget, own: Integers, referring: Integers) -> Floats:
    """The joint table of relationships of some rows, by their profiles."""
    sides = (target.parent[own], target.child[referring])
    one, other = (
        np.eye(size, dtype=np.float32)[cells]
        for size, cells in zip(target.shares.shape, sides, strict=True)
    )
    return np.asarray(one.T @ weights @ other, dtype=np.float64)


def _weights(problem: Problem, logs: Logs, own: Integers, referring: Integers) -> Weights:
    """The probability (own, referring) of each parent, of each row that refers."""
    parents, children = problem.parents.of_rows[own], problem.children.of_rows[referring]
    total = np.zeros((len(own), len(referring)), dtype=np.float32)
    for log, target in zip(logs, problem.targets, strict=True):
        total += log[target.parent[parents]][:, target.child[children]]
    total -= total.max(0)
    np.exp(total, out=total)
    total += np.float32(_LEAST)
    total /= total.sum(0)
    return total


def _slices(parents: int, children: int, most: int) -> int:
    """Slices of few enough pairs, each with places for all of its rows."""
    count = max(min(round(np.sqrt(parents * children / PAIRS)), parents, children), 1)
    while count > 1 and -(-children // count) > most * (parents // count):
        count = count // 2
    return count


def _matched(weights: Weights, tilts: Tilts, rng: np.random.Generator) -> Integers:
    """The parent (referring,) of each row of a slice, among its own."""
    total = weights.shape[1]
    places = with_total(tilts.draw(weights.sum(1), rng), total, tilts.most, rng)
    for _ in range(_SCALINGS):
        scale = places / np.maximum(weights.sum(1), np.float32(_LEAST))
        weights = weights * scale.astype(np.float32)[:, None]
        weights = weights / np.maximum(weights.sum(0), np.float32(_LEAST))
    found = np.zeros(total, dtype=np.int64)
    waiting = np.arange(total)
    for _ in range(_TRIES):
        heights = np.cumsum(weights[:, waiting] * (places > 0)[:, None], axis=0)
        marks = rng.random(len(waiting)) * heights[-1]
        found[waiting] = np.minimum((heights <= marks).sum(0), len(places) - 1)
        kept, waiting = split_by_places(waiting, found, places, rng)
        places = places - np.bincount(found[kept], minlength=len(places))
        if not len(waiting):
            return found
    found[waiting] = rng.permutation(np.repeat(np.arange(len(places)), places))
    return found
