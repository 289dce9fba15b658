"""Within-person correlation: how alike two rows of one person are, attribute by attribute.

Two rows of each person are compared, and the kinds of their pairs counted with noise: equal, or how
far apart. Their shares over those of unrelated rows say how much likelier a value is, given another
row of the same person. The first row of a synthetic person is drawn from the model alone, the
others with these ratios to the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.arrays import TINY, Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.schema.columns import Grid
from cloister.schema.partition import ALONE, EQUAL, NEAR, PairKinds

_CLEAR = 2.0
"""Standard deviations of noise by which a count must differ from that of unrelated rows."""

_UNRELATED = 20_000
"""Unrelated pairs from which their shares are computed."""

_FLOOR = 0.5
"""Least count of a kind of pairs, noisy or unrelated: ratios stay finite."""

_GREATEST = 1e4
"""Greatest ratio, and inverse of the least."""

_POINTS = 64
"""Values of a level over which ratios are averaged, and of which one is chosen.

With 16, moments three days apart in levels of eighty days came out ten times as far apart.
"""

_BLOCK = 1_024
"""Distinct values of first rows whose ratios to all levels are computed at a time."""

_SEED = 20_261_124
"""Public seed of the unrelated pairs."""


def released_ratios(kinds: PairKinds, counts: Floats, deviation: float, bins: Histogram) -> Floats:
    """How much likelier each kind (size,) is within a person than among unrelated rows.

    From noisy ``counts`` of persons; 1 where noise explains the difference. Counts that noise
    explains are treated as zero.
    """
    rng = np.random.default_rng(_SEED)
    shares = np.bincount(kinds.of(*_unrelated(bins, rng)), minlength=kinds.size) / _UNRELATED
    expected = np.maximum(shares * max(float(counts[EQUAL:].sum()), 1.0), _FLOOR)
    clear = np.abs(counts - expected) > _CLEAR * deviation
    clear[ALONE] = False
    known = np.where(counts > _CLEAR * deviation, counts, _FLOOR)
    ratios = np.where(clear, known / expected, 1.0)
    return np.clip(ratios, 1 / _GREATEST, _GREATEST)


def _unrelated(bins: Histogram, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """The fine codes of two unrelated rows, by the released histogram; each (pairs,)."""
    shares = bins.mass / bins.mass.sum()
    first, second = (
        bins.refine(rng.choice(bins.size, _UNRELATED, p=shares), rng.random(_UNRELATED))
        for _ in range(2)
    )
    return first, second


@dataclass(frozen=True)
class Likeness:
    """The ratios (kinds,) of an attribute, over the bins of the model of rows."""

    kinds: PairKinds
    values: Floats
    bins: Histogram

    def of_levels(self, anchors: Integers) -> Floats:
        """The mean ratio (n, levels) of the values of each level to anchors (n,)."""
        distinct, row = np.unique(anchors, return_inverse=True)
        if not isinstance(self.kinds.column, Grid):
            return self._of_listed(distinct)[row]
        blocks = np.array_split(distinct, -(-len(distinct) // _BLOCK))
        return np.concatenate([self._of_numbers(block) for block in blocks])[row]

    def _of_numbers(self, anchors: Integers) -> Floats:
        kinds = self.kinds.of(self._points[None], anchors[:, None, None])
        return np.asarray(self.values[kinds].mean(axis=2))

    def _of_listed(self, anchors: Integers) -> Floats:
        cells, levels = self.bins.cell_index(anchors), self.bins.index(anchors)
        equal = self.bins.shares[cells] / np.maximum(self.bins.mass[levels], TINY)
        ratios = np.full((len(anchors), self.bins.size), self.values[NEAR])
        ratios[np.arange(len(anchors)), levels] += equal * (self.values[EQUAL] - self.values[NEAR])
        return ratios

    def choose(self, levels: Integers, anchors: Integers, rng: np.random.Generator) -> Floats:
        """Quantiles (n,) inside levels (n,), proportional to the ratios of their values."""
        quantiles = rng.random((len(levels), _POINTS))
        codes = self.bins.refine(np.repeat(levels, _POINTS), quantiles.ravel())
        kinds = self.kinds.of(codes.reshape(quantiles.shape), anchors[:, None])
        heights = np.cumsum(self.values[kinds], axis=1)
        target = rng.random(len(levels)) * heights[:, -1]
        points = np.minimum((heights <= target[:, None]).sum(1), _POINTS - 1)
        return np.asarray(quantiles[np.arange(len(levels)), points])

    @cached_property
    def _points(self) -> Integers:
        quantiles = np.tile((np.arange(_POINTS) + 0.5) / _POINTS, self.bins.size)
        levels = np.repeat(np.arange(self.bins.size), _POINTS)
        return self.bins.refine(levels, quantiles).reshape(self.bins.size, _POINTS)


@dataclass(frozen=True)
class LikeFirstRow:
    """Rows drawn like the first of their person.

    Implements :class:`cloister.models.sampling.ancestral.ImportanceWeight`; ``anchors`` are its
    codes (n,) by attribute.
    """

    likeness: Mapping[str, Likeness]
    anchors: Mapping[str, Integers]

    def factors(self, name: str) -> Floats | None:
        """Factors (n, levels) on the probabilities of an attribute."""
        if name not in self.likeness:
            return None
        return self.likeness[name].of_levels(self.anchors[name])

    def quantiles(self, name: str, levels: Integers, rng: np.random.Generator) -> Floats | None:
        """Quantiles (n,) of an attribute inside its levels (n,)."""
        if name not in self.likeness:
            return None
        return self.likeness[name].choose(levels, self.anchors[name], rng)
