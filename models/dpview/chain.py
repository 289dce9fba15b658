"""The views as a chain of conditionals: for conditions, for supports, and for rows beyond those that are linked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cloister.arrays import Integers
from models.discretization.bins import Bins
from models.discretization.coarsening import Coarsening
from models.dpview.tables import Counts, Names, View, margin_over
from models.sampling.ancestral import AncestralSampler, Batch, Chain, Probabilities

FLOOR = 1e-9


@dataclass(frozen=True, eq=False)
class ViewChain:
    """A chain of conditionals over groups, from views in the order of linking.

    ``sequence`` lists the attributes of the views first, in their order; the others follow their
    histograms.
    """

    sequence: Names
    groups: Mapping[str, Bins]
    readings: Mapping[str, Coarsening]
    views: Sequence[View]

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``place``.

        See :class:`models.sampling.ancestral.TupleModel`.
        """
        name = self.sequence[place]
        if name not in self.readings:
            return self.groups[name].mass[None]
        table, known = self._table(name)
        parts = [self.readings[k].parts[context[:, self.sequence.index(k)]] for k in known]
        return spread(table[tuple(parts)] if parts else table[None], self.readings[name])

    def _table(self, name: str) -> tuple[Counts, Names]:
        """Shares of the parts of an attribute given those before it in the view that brings it in."""
        view = next(view for view in self.views if name in view.names)
        place = self.sequence.index(name)
        known = tuple(other for other in view.names if self.sequence.index(other) < place)
        counts = margin_over(view, [*known, name])
        counts = counts + FLOOR * (counts.sum(axis=tuple(range(len(known)))) + 1.0)
        return counts / counts.sum(axis=-1, keepdims=True), known


def spread(shares: Counts, reading: Coarsening) -> Counts:
    """Shares of groups (n, groups) from shares of parts (n, parts): inside a part, by the released histogram."""
    mass = reading.groups.mass + 1e-12
    whole = np.bincount(reading.parts, weights=mass, minlength=reading.size)
    return np.asarray(shares[:, reading.parts] * (mass / whole[reading.parts]))


@dataclass(frozen=True)
class RecordChain(Chain):
    """A chain whose rows follow linked records: row i takes the parts (n,) of record i wherever the supports allow."""

    records: Mapping[str, Integers] = field(default_factory=dict)
    readings: Mapping[str, Coarsening] = field(default_factory=dict)

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """The model's probabilities for attributes outside the records.

        Inside, those of the record's part alone.
        """
        name = self.sequence[place]
        if name not in self.records:
            return super().conditional(place, context)
        shares = np.eye(self.readings[name].size)[self.records[name]]
        return spread(shares, self.readings[name]) + FLOOR * self.groups[name].mass

    def free(self, place: int) -> bool:
        """Whether records alone decide the attribute at a place: it is in them, and in no support."""
        return self.sequence[place] in self.records and not self.supports_at[place]

    def drawn(self, name: str, rng: np.random.Generator) -> Integers:
        """A group (n,) inside each record's part, by the released histogram."""
        reading, parts = self.readings[name], self.records[name]
        order = np.argsort(reading.parts, kind="stable")
        heights = np.append(0.0, np.cumsum(reading.groups.mass[order] + FLOOR))
        edges = np.searchsorted(reading.parts[order], np.arange(reading.size + 1))
        low, high = heights[edges[parts]], heights[edges[parts + 1]]
        found = (
            np.searchsorted(heights, low + rng.random(len(parts)) * (high - low), side="right") - 1
        )
        return order[np.clip(found, edges[parts], edges[parts + 1] - 1)]


@dataclass(frozen=True)
class RecordDraw(AncestralSampler):
    """Draws rows that follow records; where no support has a say, without a look at all levels."""

    chain: RecordChain

    def extend(self, batch: Batch, place: int) -> None:
        """Draw one more attribute of a batch."""
        if not self.chain.free(place):
            super().extend(batch, place)
            return
        name = self.chain.sequence[place]
        batch.levels[:, place] = self.chain.drawn(name, batch.rng)
        batch.codes[name] = self.chain.refined(batch, name)
