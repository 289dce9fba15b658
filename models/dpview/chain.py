"""The views as a chain of conditionals: for conditions, supports, and rows that are not linked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.discretization.bins import Bins, Coarsening
from cloister.models.dpview.views import Names, View, margin_over
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import Batch, ConstrainedChain, Probabilities

_FLOOR = 1e-9
"""Added to shares, so that a level with a count of 0 can be drawn where supports require it."""


@dataclass(frozen=True, eq=False)
class ViewChain:
    """A chain of conditionals over bins, from views in the order of linking.

    ``sequence`` lists the attributes of the views first, in their order; the others follow their
    histograms.
    """

    sequence: Names
    bins: Mapping[str, Bins]
    coarsenings: Mapping[str, Coarsening]
    views: Sequence[View]

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``place``; see `TupleModel`."""
        name = self.sequence[place]
        if name not in self.coarsenings:
            return self.bins[name].mass[None]
        table, known = self._table(name)
        parts = [self.coarsenings[k].parts[context[:, self.sequence.index(k)]] for k in known]
        return spread_over_bins(
            table[tuple(parts)] if parts else table[None], self.coarsenings[name]
        )

    def _table(self, name: str) -> tuple[Floats, Names]:
        """Shares of an attribute's parts given those before it in the first view that has it."""
        view = next(view for view in self.views if name in view.names)
        place = self.sequence.index(name)
        known = tuple(other for other in view.names if self.sequence.index(other) < place)
        counts = margin_over(view, [*known, name])
        counts = counts + _FLOOR * (counts.sum(axis=tuple(range(len(known)))) + 1.0)
        return counts / counts.sum(axis=-1, keepdims=True), known


def spread_over_bins(shares: Floats, coarsening: Coarsening) -> Floats:
    """Shares of bins (n, bins) from shares of parts (n, parts) and the released histogram."""
    mass = coarsening.bins.mass + 1e-12
    whole = np.bincount(coarsening.parts, weights=mass, minlength=coarsening.size)
    return np.asarray(shares[:, coarsening.parts] * (mass / whole[coarsening.parts]))


@dataclass(frozen=True)
class RecordChain(ConstrainedChain):
    """A chain whose rows follow linked records, wherever the supports allow.

    Row i takes the parts of record i; ``records`` holds parts (n,) by attribute.
    """

    records: Mapping[str, Integers] = field(default_factory=dict)
    coarsenings: Mapping[str, Coarsening] = field(default_factory=dict)

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """The model's probabilities for attributes outside the records.

        Inside, those of the record's part alone.
        """
        name = self.sequence[place]
        if name not in self.records:
            return super().conditional(place, context)
        shares = np.eye(self.coarsenings[name].size)[self.records[name]]
        return spread_over_bins(shares, self.coarsenings[name]) + _FLOOR * self.bins[name].mass

    def free(self, place: int) -> bool:
        """Whether the attribute at a place is in the records and in no support."""
        return self.sequence[place] in self.records and not self.supports_at[place]

    def draw_bins(self, name: str, rng: np.random.Generator) -> Integers:
        """A bin (n,) inside each record's part, by the released histogram."""
        coarsening, parts = self.coarsenings[name], self.records[name]
        order = np.argsort(coarsening.parts, kind="stable")
        heights = np.append(0.0, np.cumsum(coarsening.bins.mass[order] + _FLOOR))
        edges = np.searchsorted(coarsening.parts[order], np.arange(coarsening.size + 1))
        low, high = heights[edges[parts]], heights[edges[parts + 1]]
        found = (
            np.searchsorted(heights, low + rng.random(len(parts)) * (high - low), side="right") - 1
        )
        return order[np.clip(found, edges[parts], edges[parts + 1] - 1)]


@dataclass(frozen=True)
class ViewRecordSampler(AncestralSampler):
    """Draws rows that follow records; attributes in no support without computing probabilities."""

    chain: RecordChain

    def extend(self, batch: Batch, place: int) -> None:
        """Draw one more attribute of a batch."""
        if not self.chain.free(place):
            super().extend(batch, place)
            return
        name = self.chain.sequence[place]
        batch.levels[:, place] = self.chain.draw_bins(name, batch.rng)
        batch.codes[name] = self.chain.refine(batch, name)
