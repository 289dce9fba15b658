"""Which row of a catalogue each row refers to: one with its attributes, as often as was counted.

Rows are drawn together with the attributes of the rows that they refer to. Each then gets a row
that has them, or the nearest. Of rows with the same attributes each gets a part of what refers to
them, in proportion to a number drawn from the released distribution of degrees.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.spatial import cKDTree

from cloister.arrays import Floats, Integers
from cloister.schema.columns import Column
from cloister.schema.domain import Table

_DIRECTIONS = 8
"""Coordinates of a value of a list without order: two values are about equally far apart."""

_LEAST = 0.1
"""Weight of a row for which a degree of none is drawn, where all with its attributes have none."""

_SEED = 20_261_128
"""Public seed of the coordinates of values."""


def choose_parents(
    wanted: Mapping[str, Integers],
    parents: Table,
    degrees: Floats,
    rng: np.random.Generator,
) -> tuple[Integers, Integers]:
    """The row number (m,) of the parent of each row, and the kind (n,) of each parent.

    ``wanted`` are the attributes (m,) that parents should have; parents of one kind have the same.
    ``degrees`` (most + 1,) is the distribution of how many rows refer to the same one, and no row
    gets more than the greatest; there must be places for all.
    """
    rows = len(next(iter(wanted.values())))
    listed = np.stack([parents.codes[name].astype(np.int64) for name in wanted], axis=1)
    profiles, kinds = np.unique(listed, axis=0, return_inverse=True)
    kinds = kinds.ravel()
    asked = np.stack([codes.astype(np.int64) for codes in wanted.values()], axis=1)
    nearest = _nearest(asked, profiles, [parents.domain[name] for name in wanted])
    places = _places(np.bincount(nearest, minlength=len(profiles)), kinds, degrees, rng)
    by_kind = np.argsort(kinds, kind="stable")
    seats = np.repeat(by_kind, places[by_kind])
    order = np.lexsort((rng.random(rows), nearest))
    owners, taken = np.full(rows, -1), np.bincount(kinds, places, len(profiles)).astype(np.int64)
    begin = np.cumsum(taken) - taken
    counts = np.bincount(nearest, minlength=len(profiles))
    rank = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    seated = rank < np.repeat(taken, counts)
    shuffled = seats[np.lexsort((rng.random(len(seats)), kinds[seats]))]
    owners[order[seated]] = shuffled[np.repeat(begin, counts)[seated] + rank[seated]]
    if len(waiting := order[~seated]):
        free = np.repeat(np.arange(len(kinds)), len(degrees) - 1 - places)
        owners[waiting] = rng.permutation(free)[: len(waiting)]
    return owners, kinds


def _places(
    counts: Integers, kinds: Integers, degrees: Floats, rng: np.random.Generator
) -> Integers:
    """How many rows (n,) refer to each parent, of ``counts`` (kinds,) that refer to each kind."""
    drawn = rng.choice(len(degrees), len(kinds), p=degrees / degrees.sum()) + 0.0
    sums = np.bincount(kinds, drawn, len(counts))
    weights = np.where(sums[kinds] > 0, drawn, _LEAST)
    sums = np.bincount(kinds, weights, len(counts))
    order = np.argsort(kinds, kind="stable")
    expected = (weights / sums[kinds] * counts[kinds])[order]
    places = np.zeros(len(kinds), dtype=np.int64)
    places[order] = _rounded(expected, kinds[order], rng)
    return np.minimum(places, len(degrees) - 1)


def _rounded(expected: Floats, groups: Integers, rng: np.random.Generator) -> Integers:
    """Whole numbers (n,) with these expectations, and whole sums in each group as they were.

    Groups (n,) are in order. Source: Madow (1949), systematic sampling, one start a group.
    """
    ends = np.cumsum(expected)
    first = np.r_[True, np.diff(groups) > 0]
    before = np.maximum.accumulate(np.where(first, ends - expected, -np.inf))
    start = rng.random(int(first.sum()))[np.cumsum(first) - 1]
    high = np.floor(ends - before + start + 1e-9)
    low = np.floor(ends - expected - before + start + 1e-9)
    return (high - low).astype(np.int64)


def _nearest(asked: Integers, profiles: Integers, columns: list[Column]) -> Integers:
    """The number (m,) of the profile (U, attributes) nearest to each row (m, attributes)."""
    unique, numbers = np.unique(asked, axis=0, return_inverse=True)
    points = [_points(columns, codes) for codes in (profiles, unique)]
    _, nearest = cKDTree(points[0]).query(points[1])
    return np.asarray(nearest[numbers.ravel()], dtype=np.int64)


def _points(columns: list[Column], codes: Integers) -> Floats:
    """Coordinates (n, d) of rows (n, attributes): numbers in order, values of lists apart."""
    coordinates, rng = [], np.random.default_rng(_SEED)
    for column, values in zip(columns, codes.T, strict=True):
        directions = rng.normal(size=(column.size, _DIRECTIONS))
        directions /= np.sqrt(2) * np.linalg.norm(directions, axis=1, keepdims=True)
        if column.kind == "nominal":
            coordinates.append(directions[values])
        else:
            missing = values == (-1 if column.null_code is None else column.null_code)
            coordinates.append(np.stack([values / column.size, 1.0 * missing], axis=1))
    return np.concatenate(coordinates, axis=1)
