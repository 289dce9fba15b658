"""How alike two rows of one parent are, attribute by attribute, where tables refer to each other.

Two rows of each parent are compared, and the kinds of their pairs counted with noise: equal, or how
far apart. Their shares over those of unrelated rows say how much likelier a value is, given another
row of the same parent. Rows are drawn before they have a parent: each parent gets the values of a
row, its anchors, and rows that are like them, so that two of them are as alike as was counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.schema.partition import ALONE, EQUAL, PairKinds

CLEAR = 3.0
"""Standard deviations of noise by which a count must differ from that of unrelated rows.

At two, one kind of some thirty differs by chance in most releases: a rare one then got twelve times
its share, and a user's stars lay 0.9 apart in place of 1.1.
"""

_UNRELATED = 20_000
"""Unrelated pairs from which their shares are computed."""

_FLOOR = 0.5
"""Least count of a kind of pairs, noisy or unrelated: ratios stay finite."""

_GREATEST = 1e4
"""Greatest ratio, and inverse of the least."""

_QUANTILES = 512
"""Values of an attribute, each of as many rows, by which blocks are judged."""

_WITHIN = 0.9
"""Part of the rows that lie in the block of their anchor, beyond those that do by chance, at least.

Blocks leave few pairs of rows and parents to weigh, but of a parent's rows none lies in another: of
a half, 95 % of two marks of a pupil were in one subject where 52 % should be.
"""

_CALIBRATED = 400
"""Anchors, and rows twice, of which the ratios to an anchor are found."""

_CALIBRATIONS = 24
"""Steps in which they are found; most attributes take ten."""

_CALIBRATION_RATE = 0.7
"""Part of a log ratio that a step follows: attributes that depend on each other move each other."""

_BALANCINGS = 4
"""Alternate scalings by which each row has one anchor, and each anchor as many rows."""

_MOST_OF_REST = 4.0
"""Greatest ratio of kinds that noise explains, and inverse of the least: all others are counted, so
these have what is left."""

_NO_SHARE = 1e-6
"""Added to shares of kinds, so that their ratios are finite."""

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
    clear = np.abs(counts - expected) > CLEAR * deviation
    clear[ALONE] = False
    known = np.where(counts > CLEAR * deviation, counts, _FLOOR)
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


def anchor_ratios(
    kinds: Mapping[str, PairKinds],
    ratios: Mapping[str, Floats],
    rows: Mapping[str, Integers],
    rng: np.random.Generator,
) -> dict[str, Floats]:
    """The ratios (kinds,) of rows to an anchor by which two rows of one have those given.

    Two rows that are like a third are less like each other than it. Ratios of all attributes are
    found together on random ones of the rows (n,), whose attributes depend on each other: each is
    multiplied by the share of its kind that there should be over the one that there is, as in
    iterative proportional fitting. Of all steps the one with the nearest shares is taken.
    """
    total = len(next(iter(rows.values())))
    sides = rng.integers(0, total, (3, _CALIBRATED))
    anchored, also_anchored, paired = (
        {
            name: kind.of(rows[name][first][:, None], rows[name][second][None])
            for name, kind in kinds.items()
        }
        for first, second in combinations(sides, 2)
    )
    shares = {name: _shares(kinds[name], paired[name], None) for name in kinds}
    wanted = {name: _wanted(ratios[name], shares[name]) for name in kinds}
    to_anchor, nearest, least = {**ratios}, {**ratios}, np.inf
    for _ in range(_CALIBRATIONS):
        of_anchor = [_balanced(to_anchor, pairs) for pairs in (anchored, also_anchored)]
        joint = of_anchor[0].T @ of_anchor[1]
        known = {name: _shares(kinds[name], paired[name], joint) for name in kinds}
        distance = sum(float(np.abs(known[name] - wanted[name]).sum()) for name in kinds)
        if distance < least:
            nearest, least = to_anchor, distance
        to_anchor = {
            name: np.clip(ratio * _step(wanted[name], known[name]), 1 / _GREATEST, _GREATEST)
            for name, ratio in to_anchor.items()
        }
    return nearest


def _shares(kinds: PairKinds, pairs: Integers, weights: Floats | None) -> Floats:
    """The share (kinds,) of each kind among weighted pairs."""
    flat = None if weights is None else weights.ravel()
    counts = np.bincount(pairs.ravel(), weights=flat, minlength=kinds.size)
    return np.asarray(counts / counts.sum(), dtype=np.float64)


def _wanted(ratios: Floats, shares: Floats) -> Floats:
    """The shares (kinds,) of two rows of one parent; kinds that noise explains have the rest."""
    explained = ratios == 1.0
    rest = max(1 - float(ratios[~explained] @ shares[~explained]), 0.0)
    factor = rest / max(float(shares[explained].sum()), _NO_SHARE)
    factor = min(max(factor, 1 / _MOST_OF_REST), _MOST_OF_REST)
    wanted = np.where(explained, factor, ratios) * shares
    return np.asarray(wanted / wanted.sum())


def _step(wanted: Floats, known: Floats) -> Floats:
    return np.asarray(((wanted + _NO_SHARE) / (known + _NO_SHARE)) ** _CALIBRATION_RATE)


def _balanced(ratios: Mapping[str, Floats], pairs: Mapping[str, Integers]) -> Floats:
    """The probability (anchors, rows) of each row of an anchor, each row as likely as others."""
    weights = np.ones((_CALIBRATED, _CALIBRATED))
    for name, kinds in pairs.items():
        weights *= ratios[name][kinds]
    for _ in range(_BALANCINGS):
        weights /= weights.sum(0)
        weights /= weights.sum(1, keepdims=True)
    return weights


@dataclass(frozen=True, eq=False)
class Anchors:
    """A value of each parent, of each attribute of which two rows of one parent are alike.

    ``ratios`` (kinds,) say how much likelier its rows are so like it; ``parents`` (parents,) and
    ``rows`` (n,) are fine codes, all by attribute. By the ``leading`` one most rows lie in the
    block of their anchor, if there are two.
    """

    kinds: Mapping[str, PairKinds]
    ratios: Mapping[str, Floats]
    parents: Mapping[str, Integers]
    rows: Mapping[str, Integers]
    leading: str

    @classmethod
    def of(
        cls,
        kinds: Mapping[str, PairKinds],
        ratios: Mapping[str, Floats],
        parents: Mapping[str, Integers],
        rows: Mapping[str, Integers],
        rng: np.random.Generator,
    ) -> Anchors:
        """The anchors of parents whose rows have these ratios to each other.

        Which attribute leads is looked up in all rows once.
        """
        ratios = anchor_ratios(kinds, ratios, rows, rng)
        within = {name: _within(kinds[name], ratios[name], rows[name], 2) for name in ratios}
        return cls(kinds, ratios, parents, rows, max(within, key=within.__getitem__))

    def in_blocks(self, most: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Parents and rows, block by block of the leading attribute, in random order inside.

        As many blocks as leave most rows in that of their anchor: a power of two, at most ``most``.
        """
        number, kinds, ratios = 1, self.kinds[self.leading], self.ratios[self.leading]
        codes = self.rows[self.leading]
        while 2 * number <= most and _within(kinds, ratios, codes, 2 * number) >= _WITHIN:
            number *= 2
        sides = (self.parents[self.leading], self.rows[self.leading])
        ordered = (np.lexsort((rng.random(len(codes)), codes)) for codes in sides)
        parents, rows = (
            np.concatenate([rng.permutation(block) for block in np.array_split(each, number)])
            for each in ordered
        )
        return parents, rows

    def spread(self, parents: Integers, rows: Integers, places: Integers) -> Anchors:
        """With quantiles of some rows as the anchors of some parents, in the order of both.

        So as many rows are near each parent as it has ``places`` (parents,).
        """
        codes = np.sort(self.rows[self.leading][rows])
        anchors = self.parents[self.leading].copy()
        order = np.argsort(anchors[parents], kind="stable")
        middles = (np.cumsum(places[order]) - places[order] / 2) / max(places.sum(), 1)
        quantiles = np.minimum(middles * len(codes), len(codes) - 1).astype(np.int64)
        anchors[parents[order]] = codes[quantiles]
        return replace(self, parents={**self.parents, self.leading: anchors})

    def logs(self, parents: Integers, rows: Integers) -> NDArray[np.float32]:
        """The logarithms (p, r) of the ratios of some rows to the anchors of some parents."""
        total = np.zeros((len(parents), len(rows)), dtype=np.float32)
        for name, kinds in self.kinds.items():
            pairs = kinds.of(self.parents[name][parents][:, None], self.rows[name][rows][None])
            total += np.log(self.ratios[name]).astype(np.float32)[pairs]
        return total


def _within(kinds: PairKinds, ratios: Floats, codes: Integers, blocks: int) -> float:
    """The part of rows in the block of their anchor beyond chance; blocks have equal mass."""
    places = np.arange(_QUANTILES)
    quantiles = np.sort(codes)[places * len(codes) // _QUANTILES]
    likelier = ratios[kinds.of(quantiles[:, None], quantiles[None])]
    block = places * blocks // _QUANTILES
    same = block[:, None] == block[None]
    part = float(((likelier * same).sum(1) / likelier.sum(1)).mean())
    return (part - 1 / blocks) / (1 - 1 / blocks)
