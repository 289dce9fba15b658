"""The copula's records as a chain of linear conditionals, and chains that follow its scores.

The conditional of an attribute is the linear regression of its columns on those of the attributes
before it, from the moments of the decoded records: for conditions on rows, for supports that are
chosen by likelihood, and for rows that replace others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.copula.decoding import Scores
from cloister.models.discretization.bins import Bins
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import Batch, ConstrainedChain, Probabilities
from cloister.privacy.queries.counts import DummyCoding

_RIDGE = 1e-3
"""Added to the variances of columns: what sampling noise of the moments is, and more."""

_LEAST = 0.02
"""Share of an attribute's own histogram that a conditional has at least."""

_SHARPNESS = 30.0
"""Factor on scores: of two that differ by 0.1, the higher is taken twenty times as often."""

_LOWEST = -20.0
"""Scores further below the highest of an attribute count as this, so that none underflows."""


@dataclass(frozen=True, eq=False)
class LinearChain:
    """Linear regressions on the columns before; attributes outside the coding are alone."""

    sequence: tuple[str, ...]
    bins: Mapping[str, Bins]
    coding: DummyCoding
    means: Floats
    moments: Floats
    _slopes: dict[int, Floats] = field(default_factory=dict, init=False)

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``place``; see `TupleModel`."""
        mass = self.bins[self.sequence[place]].mass
        if place >= len(self.coding.sizes) or not self.coding.begins[place]:
            return mass[None]
        if not self.coding.widths[place]:
            return mass[None]
        slopes = self._slopes_at(place)
        begin = self.coding.begins[place]
        found = np.tile(
            self.means[self.coding.block(place)] - self.means[:begin] @ slopes, (len(context), 1)
        )
        for before in range(place):
            own, columns = context[:, before], slopes[self.coding.block(before)]
            if not self.coding.single[before]:
                found += columns[own]
            elif len(columns):
                found += own[:, None] * columns
        whole = np.hstack([1.0 - found, found]) if self.coding.single[place] else found
        whole = np.maximum(whole, _LEAST * mass + 1e-12)
        return np.asarray(whole / whole.sum(1, keepdims=True))

    def _slopes_at(self, place: int) -> Floats:
        """Slopes (columns before, columns) of the columns of an attribute."""
        if place not in self._slopes:
            begin, own = int(self.coding.begins[place]), self.coding.block(place)
            centred = self.moments - np.outer(self.means, self.means)
            before = centred[:begin, :begin] + _RIDGE * np.eye(begin)
            self._slopes[place] = np.asarray(
                np.linalg.solve(before, centred[:begin, own]), np.float64
            )
        return self._slopes[place]


@dataclass(frozen=True)
class ScoredChain(ConstrainedChain):
    """A chain whose row i takes the parts of highest score in row i, wherever supports allow.

    ``scores`` (n, width) have their offsets; ``parts`` (attributes, n) are those of the highest.
    """

    coding: DummyCoding = field(default_factory=lambda: DummyCoding((), ()))
    scores: Scores = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))
    parts: Integers = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """Weights that fall off with the distance from the highest score; histograms outside."""
        if place >= len(self.coding.sizes):
            return super().conditional(place, context)
        own = self.scores[:, self.coding.block(place)].astype(np.float64)
        if self.coding.single[place]:
            own = np.hstack([np.zeros((len(own), 1)), own])
        weights = np.exp(_SHARPNESS * np.maximum(own - own.max(1, keepdims=True), _LOWEST))
        return np.asarray(weights / weights.sum(1, keepdims=True))

    def free(self, place: int) -> bool:
        """Whether an attribute is scored and in no support."""
        return place < len(self.coding.sizes) and not self.supports_at[place]


@dataclass(frozen=True)
class ScoredSampler(AncestralSampler):
    """Draws rows that follow scores; attributes in no support without computing weights."""

    chain: ScoredChain

    def extend(self, batch: Batch, place: int) -> None:
        """Draw one more attribute of a batch."""
        if not self.chain.free(place):
            super().extend(batch, place)
            return
        name = self.chain.sequence[place]
        bins, parts = self.chain.bins[name], self.chain.parts[place]
        batch.codes[name] = bins.refine(parts, batch.quantiles[name])
