"""From shares of relationships to a parent for each row: degrees first, then who refers to whom.

Degrees follow their released distribution, with means by profile as the relationships say. A row
that refers then takes the free place of a parent of its profile, or where there is none, that of
the parent whose profile is likeliest among those that have places left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.arrays import Floats, Integers
from models.relational.matching.profiles import Problem
from models.relational.matching.rounding import round_unbiased

_SCALINGS = 12
"""Times that expected degrees are scaled to their distribution; further ones change little."""

_HALVINGS = 40
"""Halvings of the tilt of a distribution: beyond the digits of what it is to have as mean."""

_STEEPEST = 30.0
"""Greatest tilt of a distribution, over its whole range: its mean is then at one of its ends."""

_LEAST = 1e-12
"""Share of a degree that has none, so that each mean can be had."""

_CURVE = 2_001
"""Points of the curve from tilts to means: a degree is drawn to about a hundredth of its mean."""

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
        for _ in range(_SCALINGS):
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
        steep, known = self._curve
        tilts = np.interp(means, known, steep)
        logs = np.log(np.maximum(self.factors, _LEAST)) + tilts[:, None] * np.arange(self.most + 1)
        heights = np.cumsum(_normalised(logs), axis=1)
        drawn = (heights < rng.random(len(means))[:, None]).sum(1)
        return np.minimum(drawn, self.most).astype(np.int64)

    @cached_property
    def _curve(self) -> tuple[Floats, Floats]:
        """Tilts, and the means that they give."""
        steep = np.linspace(-_STEEPEST, _STEEPEST, _CURVE)
        logs = np.log(np.maximum(self.factors, _LEAST))
        return steep, _normalised(logs + steep[:, None] * np.arange(self.most + 1)) @ np.arange(
            self.most + 1
        )


def _tilted(shares: Floats, means: Floats) -> Floats:
    """Distributions (n, d_max + 1) in proportion to shares times exp(t k), of given means (n,)."""
    numbers = np.arange(len(shares))
    logs = np.log(np.maximum(shares, _LEAST))
    low, high = np.full(len(means), -_STEEPEST), np.full(len(means), _STEEPEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        small = _normalised(logs + middle[:, None] * numbers) @ numbers < means
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return _normalised(logs + ((low + high) / 2)[:, None] * numbers)


def _normalised(logs: Floats) -> Floats:
    found = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(found / found.sum(1, keepdims=True))


def with_total(own: Integers, total: int, most: int, rng: np.random.Generator) -> Integers:
    """Degrees with one more or one less at random parents, until they add up to ``total``."""
    while missing := total - int(own.sum()):
        step = 1 if missing > 0 else -1
        able = np.flatnonzero(own < most if step > 0 else own > 0)
        own[rng.permutation(able)[: abs(missing)]] += step
    return own


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
    kept, waiting = admitted(rows, found, places, rng)
    for _ in range(_TRIES):
        if not len(waiting):
            return found
        free = places - np.bincount(found[kept], minlength=len(places))
        found[waiting] = _choose(problem, unknowns * free[:, None], waiting, rng)
        some, waiting = admitted(waiting, found, free, rng)
        kept = np.append(kept, some)
    free = places - np.bincount(found[kept], minlength=len(places))
    found[waiting] = rng.permutation(np.repeat(np.arange(len(places)), free))
    return found


def admitted(
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
    heights = np.cumsum(weights + 1e-12 * free[:, None], axis=0)
    chosen = np.zeros(len(rows), dtype=np.int64)
    for profile in np.unique(own):
        here = np.flatnonzero(own == profile)
        targets = rng.random(len(here)) * heights[-1, profile]
        chosen[here] = np.searchsorted(heights[:, profile], targets, side="right")
    return np.minimum(chosen, len(weights) - 1)
