"""From shares of relationships to a parent for each row: degrees first, then who refers to whom.

Degrees follow their released distribution, with means by profile as the relationships say. A row
that refers then takes the free place of a parent of its profile, or where there is none, that of
the parent whose profile is likeliest among those that have places left.

Shares are rounded to whole numbers without bias: arXiv 2405.18670, algorithm 3 (SAMPLE).

Relationships of more pairs of profiles than one problem holds have one fit for all. The relaxed
problem is then solved by mirror descent. Its iterates are products of factors, one for each cell of
each joint table, over the simplex of each row that refers; factors found on some rows are therefore
good for all. Each step takes the gradient of a random slice of both tables. Rows are then matched
in disjoint random slices by these factors. Source: section 6 (random slicing); Nemirovski and Yudin
(1983), mirror descent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models.relational.profiles import Problem, ProfileTarget

_CLOSE = 1e-9
"""How far sums of shares may be from whole numbers, by floating-point error."""

_DEGREE_SCALINGS = 12
"""Times that expected degrees are scaled to their distribution; further ones change little."""

_HALVINGS = 40
"""Halvings of the tilt of a distribution: beyond the digits of what it is to have as mean."""

_STEEPEST = 30.0
"""Greatest tilt of a distribution, over its whole range: its mean is then at one of its ends."""

_LEAST_SHARE = 1e-12
"""Share of a degree that has none, so that each mean can be had."""

_CURVE = 2_001
"""Points of the curve from tilts to means: a degree is drawn to about a hundredth of its mean."""

_ANY_FREE = 1e-12
"""Weight of a profile with free places: it is chosen where no likely profile has one left."""

_TRIES = 20
"""Rounds in which rows without a place choose among the places that are left."""

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

_SLICE_SCALINGS = 6
"""Times that rows and columns of a slice are scaled to degrees and to one parent each."""

_SLICE_TRIES = 12
"""Rounds in which rows without a place choose among the places that are left."""

_ADDED_SHARE = 1e-9
"""Added to shares: below any that matters, but not zero."""

Logs = list[NDArray[np.float32]]

Weights = NDArray[np.float32]


def sample_exactly(shares: Floats, number: int, rng: np.random.Generator) -> Integers:
    """``number`` different indices, each chosen with the probability of its share (n,).

    Shares lie in [0, 1] and add up to ``number``. Algorithm 3: shares in random order are merged
    into groups of at most 1, groups to leave out are chosen by their complements, and of each other
    group one index.
    """
    if number == 0:
        return np.zeros(0, dtype=np.int64)
    if number == len(shares):
        return np.arange(number)
    order = rng.permutation(len(shares))
    heights = np.cumsum(shares[order])
    ends = np.array([len(order)]) if number == 1 else _ends_of_groups(heights)
    starts = np.append(0, ends[:-1])
    tops = heights[ends - 1]
    bottoms = np.append(0.0, tops[:-1])
    complements = (1 - (tops - bottoms)).clip(0, 1)
    left_out = sample_exactly(complements, len(ends) - number, rng)
    kept = np.setdiff1d(np.arange(len(ends)), left_out)
    marks = bottoms[kept] + rng.random(len(kept)) * (tops - bottoms)[kept]
    places = np.searchsorted(heights, marks, side="right")
    return order[np.clip(places, starts[kept], ends[kept] - 1)]


def round_unbiased(weights: Floats, rng: np.random.Generator) -> Integers:
    """Whole numbers (n,) whose expectations are weights (n,) with a whole sum, of the same sum."""
    whole = np.floor(weights + _CLOSE)
    rest = (weights - whole).clip(0, 1)
    number = round(float(weights.sum() - whole.sum()))
    some = np.flatnonzero(rest > _CLOSE)
    counts = whole.astype(np.int64)
    if number > 0 and len(some):
        number = min(number, len(some))
        shares = rest[some] * (number / rest[some].sum())
        counts[some[sample_exactly(shares.clip(0, 1), number, rng)]] += 1
    return counts


def _ends_of_groups(heights: Floats) -> Integers:
    """Where groups of consecutive shares end: as long as they add up to at most 1."""
    ends, base = [0], 0.0
    while ends[-1] < len(heights):
        end = int(np.searchsorted(heights, base + 1 + _CLOSE, side="right"))
        ends.append(max(end, ends[-1] + 1))
        base = float(heights[ends[-1] - 1])
    return np.array(ends[1:])


def draw_degrees(
    profiles: Integers,
    counts: Floats,
    expected: Floats,
    degrees: Floats,
    total: int,
    rng: np.random.Generator,
) -> Integers:
    """The degree (parents,) of each parent: ``total`` in all, each at most the greatest.

    ``expected`` (U,) is the sum over each profile that relationships say.
    """
    table = counts[:, None] * Tilts.of(counts, expected, degrees, total).shares(expected / counts)
    own = np.zeros(len(profiles), dtype=np.int64)
    order = np.lexsort((rng.random(len(profiles)), profiles))
    ends = np.cumsum(counts).astype(np.int64)
    for profile, end in enumerate(ends):
        drawn = np.repeat(np.arange(len(degrees)), round_unbiased(table[profile], rng))
        own[order[end - len(drawn) : end]] = rng.permutation(drawn)
    return with_total(own, total, len(degrees) - 1, rng)


@dataclass(frozen=True, eq=False)
class Tilts:
    """Distributions of degrees of given means: ``factors`` (d_max + 1,), tilted."""

    factors: Floats

    @classmethod
    def of(cls, counts: Floats, expected: Floats, degrees: Floats, total: int) -> Tilts:
        """The family in which counted parents (U,) of expected sums (U,) have all the distribution.

        Of all tables with these parents by profile and these means, theirs is the one nearest to
        the distribution, which has the mean of all parents.
        """
        everyone = _tilted(degrees, np.array([total / counts.sum()]))[0]
        means = np.clip(expected / counts, 0.0, len(degrees) - 1)
        factors = everyone.copy()
        for _ in range(_DEGREE_SCALINGS):
            sums = (counts[:, None] * _tilted(factors, means)).sum(0)
            wanted = everyone * counts.sum()
            factors = factors * np.divide(wanted, sums, out=np.ones_like(sums), where=sums > 0)
            factors = factors / factors.sum()
        return cls(factors)

    @property
    def most(self) -> int:
        """The greatest degree."""
        return len(self.factors) - 1

    def shares(self, means: Floats) -> Floats:
        """The distributions (n, d_max + 1) of means (n,)."""
        return _tilted(self.factors, np.clip(means, 0.0, self.most))

    def draw(self, means: Floats, rng: np.random.Generator) -> Integers:
        """A degree (n,) of each mean."""
        tilts, known = self._curve
        heights = np.cumsum(_tilted_by(self.factors, np.interp(means, known, tilts)), axis=1)
        drawn = (heights < rng.random(len(means))[:, None]).sum(1)
        return np.minimum(drawn, self.most).astype(np.int64)

    @cached_property
    def _curve(self) -> tuple[Floats, Floats]:
        """Tilts, and the means that they give."""
        tilts = np.linspace(-_STEEPEST, _STEEPEST, _CURVE)
        return tilts, _tilted_by(self.factors, tilts) @ np.arange(self.most + 1)


def _tilted(shares: Floats, means: Floats) -> Floats:
    """Distributions (n, d_max + 1) in proportion to shares times exp(t k), of given means (n,)."""
    numbers = np.arange(len(shares))
    low, high = np.full(len(means), -_STEEPEST), np.full(len(means), _STEEPEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        small = _tilted_by(shares, middle) @ numbers < means
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return _tilted_by(shares, (low + high) / 2)


def _tilted_by(shares: Floats, tilts: Floats) -> Floats:
    """Distributions (n, d_max + 1) in proportion to shares times exp(t k), of tilts t (n,)."""
    logs = np.log(np.maximum(shares, _LEAST_SHARE)) + tilts[:, None] * np.arange(len(shares))
    found = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(found / found.sum(1, keepdims=True))


def with_total(own: Integers, total: int, most: int, rng: np.random.Generator) -> Integers:
    """Degrees with one more or one less at random parents, until they add up to ``total``."""
    while missing := total - int(own.sum()):
        step = 1 if missing > 0 else -1
        able = np.flatnonzero(own < most if step > 0 else own > 0)
        own[rng.permutation(able)[: abs(missing)]] += step
    return own


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
            wanted = known * (answer.sum(0) / np.maximum(known.sum(0), _ADDED_SHARE))
            ratio = np.log((wanted + _ADDED_SHARE) / (answer + _ADDED_SHARE))
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
    total += np.float32(_ADDED_SHARE)
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
    for _ in range(_SLICE_SCALINGS):
        scale = places / np.maximum(weights.sum(1), np.float32(_ADDED_SHARE))
        weights = weights * scale.astype(np.float32)[:, None]
        weights = weights / np.maximum(weights.sum(0), np.float32(_ADDED_SHARE))
    found = np.zeros(total, dtype=np.int64)
    waiting = np.arange(total)
    for _ in range(_SLICE_TRIES):
        heights = np.cumsum(weights[:, waiting] * (places > 0)[:, None], axis=0)
        marks = rng.random(len(waiting)) * heights[-1]
        found[waiting] = np.minimum((heights <= marks).sum(0), len(places) - 1)
        kept, waiting = split_by_places(waiting, found, places, rng)
        places = places - np.bincount(found[kept], minlength=len(places))
        if not len(waiting):
            return found
    found[waiting] = rng.permutation(np.repeat(np.arange(len(places)), places))
    return found
