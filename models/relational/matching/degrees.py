"""Degrees of parents: their released distribution, with the means that relationships say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.relational.matching.rounding import round_unbiased

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
    logs = np.log(np.maximum(shares, _LEAST)) + tilts[:, None] * np.arange(len(shares))
    found = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(found / found.sum(1, keepdims=True))


def with_total(own: Integers, total: int, most: int, rng: np.random.Generator) -> Integers:
    """Degrees with one more or one less at random parents, until they add up to ``total``."""
    while missing := total - int(own.sum()):
        step = 1 if missing > 0 else -1
        able = np.flatnonzero(own < most if step > 0 else own > 0)
        own[rng.permutation(able)[: abs(missing)]] += step
    return own
