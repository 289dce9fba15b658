"""A Bayesian network over bins, whose conditional tables are drawn from exactly.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), section 3.1, equations (2), (3) and (7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models.deniability.bayes.structure import Parents
from cloister.models.discretization.bins import Bins, Coarsening
from cloister.models.sampling.chain import Probabilities

PROBABILITY_STEPS = 2**32
"""Probabilities are multiples of one over this: a record is drawn exactly with the probability by
which its plausible seeds are counted."""

Words = NDArray[np.uint64]
Tables = Mapping[str, Words]


@dataclass(frozen=True, eq=False)
class BayesianNetwork:
    """Conditional tables of attributes in the order ``sequence``, parents before children.

    Shapes: ``tables[name]`` (configurations, bins) uint64, each row summing to 2^32; configurations
    are those of the parents' parts, the last parent fastest. Parents are bucketised, equation (7),
    by their ``coarsenings``.
    """

    sequence: tuple[str, ...]
    bins: Mapping[str, Bins]
    coarsenings: Mapping[str, Coarsening]
    parents: Parents
    tables: Tables

    @cached_property
    def partitions(self) -> tuple[Bins, ...]:
        """The bins of each attribute, in order."""
        return tuple(self.bins[name] for name in self.sequence)

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``place``; see `TupleModel`."""
        shares = self._shares[place]
        return shares if len(shares) == 1 else shares[self.configurations(place, context)]

    def configurations(self, place: int, levels: Integers) -> Integers:
        """The configuration (n,) of the parents of an attribute, from levels (n, k) before it."""
        found = np.zeros(len(levels), dtype=np.int64)
        for parent in self.parents.get(self.sequence[place], ()):
            coarsening = self.coarsenings[parent]
            found *= coarsening.size
            found += coarsening.parts[levels[:, self._places[parent]]]
        return found

    def draw(self, place: int, levels: Integers, words: Words) -> Integers:
        """A level (n,), by even numbers (n,) below 2^32; see `RecordModel`."""
        rows = self.configurations(place, levels)
        wanted = (rows.astype(np.uint64) << np.uint64(32)) + words
        size = self.bins[self.sequence[place]].size
        found = np.searchsorted(self._heights[place], wanted, side="right") - rows * size
        return found.astype(np.int64)

    def logs(self, place: int, levels: Integers) -> Floats:
        """log2 of the probability (n,) of the level at a place; see `RecordModel`."""
        return self._logs[place][self.configurations(place, levels), levels[:, place]]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.sequence)}

    @cached_property
    def _shares(self) -> tuple[Floats, ...]:
        return tuple(self.tables[n].astype(np.float64) / PROBABILITY_STEPS for n in self.sequence)

    @cached_property
    def _logs(self) -> tuple[Floats, ...]:
        with np.errstate(divide="ignore"):
            return tuple(np.log2(shares) for shares in self._shares)

    @cached_property
    def _heights(self) -> tuple[Words, ...]:
        """Cumulative tables, flat: those of configuration c lie above c 2^32."""
        return tuple(_heights(self.tables[name]) for name in self.sequence)


def _heights(table: Words) -> Words:
    below = np.cumsum(table, axis=1, dtype=np.uint64)
    above = np.arange(len(table), dtype=np.uint64)[:, None] << np.uint64(32)
    return np.asarray((below + above).ravel(), dtype=np.uint64)


def in_steps(shares: Floats) -> Words:
    """Probabilities (configurations, bins) as multiples of 2^-32 that add up to one exactly."""
    whole = shares / shares.sum(axis=1, keepdims=True)
    steps = np.floor(whole * PROBABILITY_STEPS).astype(np.int64)
    rows, largest = np.arange(len(steps)), steps.argmax(axis=1)
    steps[rows, largest] += PROBABILITY_STEPS - steps.sum(axis=1)
    return steps.astype(np.uint64)
