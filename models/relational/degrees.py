"""How many rows refer to each row: groups of noisy counts, distributions of given means, numbers.

Shares are rounded to whole numbers without bias. Rows that are drawn with the attributes of a row
that they refer to get one that has them, or the nearest; of those with the same attributes each
gets a part of what refers to them, in proportion to a number drawn from the distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from cloister.arrays import Floats, Integers
from cloister.schema import relations
from cloister.schema.columns import Column
from cloister.schema.domain import Table
from cloister.schema.partition import Partition, intervals

_WIDER = 4 / 3
"""How much wider a group of degrees is than the one before.

Counted one by one, 200 degrees of 943 users drowned in noise, and most users got one of a few
numbers. In groups all of a group get about the same number.
"""

_DEGREE_SCALINGS = 12
"""Scalings of expected degrees to their distribution; more change little."""

_HALVINGS = 40
"""Bisections for the tilt that gives a mean: to the last digit of the mean."""

_STEEPEST = 30.0
"""Greatest tilt of a distribution: its mean is then at an end of its range."""

_LEAST_SHARE = 1e-12
"""Share of a degree that never occurs, so that every mean can be reached."""

_MEANS = 64
"""Most groups of kinds of parents by their mean degrees, each of which has a tilt of its own."""

_EXCHANGES = 40
"""Rounds of exchanges of drawn numbers. Of what kinds have beyond their counts, 17 % of the rows of
4,000 parents of 250 kinds, 3 % is left; 2 of 39 % of a million of 300,000 kinds, in 6 s.
"""

_CLOSE = 1e-9
"""Tolerance for sums of shares that should be whole numbers: floating-point error."""


_DIRECTIONS = 8
"""Coordinates of a value of a list without order: two values are about equally far apart."""

_LEAST_WEIGHT = 0.1
"""Weight of a row for which a degree of none is drawn, where all with its attributes have none."""

_SEED = 20_261_128
"""Public seed of the coordinates of values."""


@dataclass(frozen=True)
class DegreeGroups:
    """The groups in which degrees are counted."""

    partition: Partition

    @classmethod
    def of(cls, key: relations.ForeignKey) -> DegreeGroups:
        """Wider and wider ones, and the bound of a key alone."""
        return cls(intervals(relations.degree_column(key), _starts(key.max_rows)))

    def shares(self, counts: Floats, scale: float, mean: float) -> Floats:
        """The distribution of degrees (max_rows + 1,) by the noisy counts (groups,).

        They are spread evenly inside groups, and shrunk towards the distribution of greatest
        entropy that has a ``mean``, as far as noise of ``scale`` explains the difference. Source:
        James, Stein (1961).
        """
        groups, most = self.partition, self.partition.column.size - 1
        degrees = np.arange(most + 1.0)
        flat = with_means(np.ones(most + 1), np.array([min(mean, most)]), degrees)[0]
        total = max(float(counts.sum()), 1.0)
        expected = np.add.reduceat(flat, groups.starts)
        noise = (groups.size + 2 * math.sqrt(2 * groups.size)) * scale**2
        error = float(((counts - total * expected) ** 2).sum())
        believed = max(1 - noise / max(error, 1.0), 0.0)
        shares = believed * _nearest_counts(counts) / total + (1 - believed) * expected
        return np.repeat(shares / shares.sum() / groups.widths, groups.widths)


def _starts(most: int) -> Integers:
    """The first degrees (groups,) of all groups."""
    starts, start = [], 0
    while start < most:
        starts.append(start)
        start = max(start + 1, round(start * _WIDER))
    return np.array([*starts, most])


def _nearest_counts(noisy: Floats) -> Floats:
    """The nearest non-negative counts (n,), with the same sum where that is positive."""
    total = max(float(noisy.sum()), 1.0)
    falling = -np.sort(-noisy)
    levels = (np.cumsum(falling) - total) / np.arange(1, len(noisy) + 1)
    return np.maximum(noisy - levels[np.flatnonzero(falling > levels)[-1]], 0.0)


@dataclass(frozen=True, eq=False)
class Tilts:
    """Distributions of ``numbers`` (n,), such as degrees, of any mean: ``factors`` (n,) tilted."""

    factors: Floats
    numbers: Floats

    @classmethod
    def of(
        cls, counts: Floats, expected: Floats, shares: Floats, total: int, numbers: Floats
    ) -> Tilts:
        """The family whose members, mixed over all parents, give the distribution of degrees.

        ``counts`` (U,) are the parents of each profile, ``expected`` (U,) their degrees in sum.
        Of all tables with these parents and means, the mixture's is nearest to the distribution.
        """
        everyone = with_means(shares, np.array([total / counts.sum()]), numbers)[0]
        means = np.clip(expected / counts, 0.0, numbers[-1])
        factors = everyone.copy()
        for _ in range(_DEGREE_SCALINGS):
            sums = (counts[:, None] * with_means(factors, means, numbers)).sum(0)
            wanted = everyone * counts.sum()
            factors = factors * np.divide(wanted, sums, out=np.ones_like(sums), where=sums > 0)
            factors = factors / factors.sum()
        return cls(factors, numbers)

    def shares(self, means: Floats) -> Floats:
        """The distributions (means, n) of means (means,)."""
        return with_means(self.factors, np.clip(means, 0.0, self.numbers[-1]), self.numbers)


def with_means(shares: Floats, means: Floats, numbers: Floats) -> Floats:
    """Distributions (means, n) of numbers (n,) like shares times exp(t number), of given means."""
    low, high = np.full(len(means), -_STEEPEST), np.full(len(means), _STEEPEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        small = _tilted_by(shares, middle, numbers) @ numbers < means
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return _tilted_by(shares, (low + high) / 2, numbers)


def _tilted_by(shares: Floats, tilts: Floats, numbers: Floats) -> Floats:
    """Distributions (tilts, n) proportional to shares times exp(t number)."""
    logs = np.log(np.maximum(shares, _LEAST_SHARE)) + tilts[:, None] * numbers
    weights = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def draw_by_group(groups: Integers, weights: Floats, rng: np.random.Generator) -> Integers:
    """A number (n,) for each row, in each group as often as weights (groups, numbers) say.

    ``groups`` (n,) are those of the rows; the weights of a group add up to its rows.
    """
    drawn = np.zeros(len(groups), dtype=np.int64)
    numbers = np.tile(np.arange(weights.shape[1]), len(weights))
    order = np.lexsort((rng.random(len(groups)), groups))
    drawn[order] = np.repeat(numbers, round_unbiased(weights, rng).ravel())
    return drawn


def round_unbiased(weights: Floats, rng: np.random.Generator) -> Integers:
    """Whole numbers (rows, n) with the weights (rows, n) as expectations and the same, whole, sums.

    Source: Madow (1949): systematic sampling, here in an order that is random in each row.
    """
    whole = np.floor(weights + _CLOSE)
    rest = weights - whole
    rest[rest <= _CLOSE] = 0.0
    order = rng.random(weights.shape).argsort(1)
    heights = np.cumsum(np.take_along_axis(rest, order, 1), axis=1)
    number = np.rint(weights.sum(1) - whole.sum(1))
    heights *= (number / np.maximum(heights[:, -1], _CLOSE))[:, None]
    heights[:, -1] = number
    passed = np.floor(heights + rng.random((len(weights), 1)))
    np.put_along_axis(rest, order, np.diff(passed, axis=1, prepend=0.0), 1)
    return (whole + rest).astype(np.int64)


def referred_rows(
    wanted: Table,
    parents: Table,
    degrees: Floats,
    rng: np.random.Generator,
) -> tuple[Integers, Integers]:
    """The row number (m,) of the parent of each row, and the kind (n,) of each parent.

    ``wanted`` are rows with the attributes that parents should have; those of one kind have the
    same.
    ``degrees`` (most + 1,) is the distribution of how many rows refer to the same one, and no row
    gets more than the greatest; there must be places for all.
    """
    rows, columns = wanted.rows, [*parents.domain]
    if not rows:
        return np.zeros(0, dtype=np.int64), np.zeros(parents.rows, dtype=np.int64)
    codes_wanted, listed = (
        np.stack([table.codes[column.name] for column in columns], axis=1)
        for table in (wanted, parents)
    )
    profiles, kinds = np.unique(listed, axis=0, return_inverse=True)
    kinds = kinds.ravel()
    nearest = _nearest(codes_wanted, profiles, columns)
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
    most, drawn = len(degrees) - 1, _drawn_by_means(counts, kinds, degrees, rng)
    drawn = _exchanged(drawn, kinds, counts, rng)
    sums = np.bincount(kinds, drawn, len(counts))
    weights = np.where(sums[kinds] > 0, drawn, _LEAST_WEIGHT)
    sums = np.bincount(kinds, weights, len(counts))
    expected = np.minimum(weights / sums[kinds] * counts[kinds], most)
    missing, room = counts - np.bincount(kinds, expected, len(counts)), most - expected
    rooms = np.maximum(np.bincount(kinds, room, len(counts)), _LEAST_WEIGHT)
    expected += room * np.clip(missing / rooms, 0.0, 1.0)[kinds]
    order, places = np.argsort(kinds, kind="stable"), np.zeros(len(kinds), dtype=np.int64)
    places[order] = _rounded(expected[order], kinds[order], rng)
    return np.minimum(places, most)


def _drawn_by_means(
    counts: Integers, kinds: Integers, degrees: Floats, rng: np.random.Generator
) -> Floats:
    """A number (n,) for each parent, from the distribution tilted to the mean of its kind.

    Kinds of about equal means share a tilt. Groups of degrees have the mean of their middles, and
    numbers are even inside them.
    """
    parents = np.bincount(kinds, minlength=len(counts))
    order = np.argsort(counts / parents, kind="stable")
    ends = np.cumsum(parents[order])
    alike = np.empty(len(counts), dtype=np.int64)
    alike[order] = (ends - 1) * _MEANS // ends[-1]
    _, alike = np.unique(alike, return_inverse=True)
    starts = _starts(len(degrees) - 1)
    widths = np.diff(starts, append=len(degrees))
    middles = starts + (widths - 1) / 2
    shares = np.add.reduceat(degrees, starts)
    numbers, sums = (np.bincount(alike, each).astype(np.float64) for each in (parents, counts))
    tilts = Tilts.of(numbers, sums, shares, int(counts.sum()), middles)
    table = numbers[:, None] * tilts.shares(sums / numbers)
    groups = draw_by_group(alike[kinds], table, rng)
    inside = np.floor(rng.random(len(groups)) * widths[groups])
    return np.asarray(starts[groups] + inside, dtype=np.float64)


def _exchanged(
    drawn: Floats, kinds: Integers, counts: Integers, rng: np.random.Generator
) -> Floats:
    """The same numbers (n,) at other parents, so that those of a kind add up nearer to its count.

    Parents of two kinds exchange them where that lessens the distance, one of each kind at a time.
    """
    for _ in range(_EXCHANGES):
        beyond = np.bincount(kinds, drawn, len(counts)) - counts
        one, two = rng.permutation(len(drawn))[: len(drawn) // 2 * 2].reshape(2, -1)
        given = drawn[one] - drawn[two]
        apart = [np.abs(beyond[kinds[one]] - move) for move in (0, given)]
        apart_too = [np.abs(beyond[kinds[two]] + move) for move in (0, given)]
        nearer = (apart[1] + apart_too[1] < apart[0] + apart_too[0]) & (kinds[one] != kinds[two])
        some = np.flatnonzero(nearer)
        if not len(some):
            break
        _, first = np.unique(kinds[np.concatenate([one[some], two[some]])], return_index=True)
        alone = np.zeros(2 * len(some), dtype=bool)
        alone[first] = True
        some = some[alone.reshape(2, -1).all(0)]
        drawn[one[some]], drawn[two[some]] = drawn[two[some]], drawn[one[some]]
    return drawn


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


def _nearest(codes_wanted: Integers, profiles: Integers, columns: list[Column]) -> Integers:
    """The number (m,) of the profile (U, attributes) nearest to each row (m, attributes)."""
    unique, numbers = np.unique(codes_wanted, axis=0, return_inverse=True)
    points = [_points(columns, codes) for codes in (profiles, unique)]
    _, nearest = cKDTree(points[0]).query(points[1])
    return np.asarray(nearest[numbers.ravel()], dtype=np.int64)


def _points(columns: list[Column], codes: Integers) -> Floats:
    """Coordinates (n, d) of rows (n, attributes): numbers in order, values of lists apart.

    Missing ones, also where no row of a parent may lack them, are about as far from all others.
    """
    coordinates, rng = [], np.random.default_rng(_SEED)
    for column, values in zip(columns, codes.T, strict=True):
        directions = rng.normal(size=(column.size, _DIRECTIONS))
        directions /= np.sqrt(2) * np.linalg.norm(directions, axis=1, keepdims=True)
        if column.kind == "nominal":
            of_none = np.zeros((1, _DIRECTIONS))
            coordinates.append(np.concatenate([directions, of_none])[values])
        else:
            missing = values >= column.values
            numbers = np.where(missing, 1 / 2, values / column.size)
            coordinates.append(np.stack([numbers, 1.0 * missing], axis=1))
    return np.concatenate(coordinates, axis=1)
