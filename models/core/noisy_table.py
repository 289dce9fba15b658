"""A noisy contingency table: what a method is told of the joint distribution of attributes.

Post-processing but for :func:`count_table`, the one place where rows are counted through the door.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.privacy.events import Sensitivity
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.query import Door, Mechanism, TableRows
from cloister.schema.partition import Partition

_LEAST_PRIOR = 1.0
"""Rows that the prior weighs as, without noise."""

_FLOOR = 1e-9
"""Share added to each level of a prior, so that no level is impossible."""


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """Noisy ``counts`` of rows, one axis a partition.

    ``deviation`` is the standard deviation of each count, in rows: one number, or an array of the
    shape of the counts.
    """

    partitions: tuple[Partition, ...]
    counts: Floats
    deviation: Floats | float

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes, in the order of the axes."""
        return tuple(partition.name for partition in self.partitions)

    def over(self, times: int) -> NoisyTable:
        """The table of rows each of which was counted so many times."""
        return NoisyTable(self.partitions, self.counts / times, self.deviation / times)

    @property
    def variances(self) -> Floats:
        """The variance of each count, in the shape of the counts."""
        return np.broadcast_to(np.square(self.deviation), self.counts.shape)

    @property
    def variance(self) -> float:
        """The mean variance of a count."""
        return float(np.mean(np.square(self.deviation)))

    @property
    def noise(self) -> float:
        """The deviation of a count of mean variance."""
        return math.sqrt(self.variance)

    def project(self, names: Sequence[str]) -> NoisyTable:
        """The table summed over all other attributes, with its axes in the order of ``names``."""
        axes, left = self._others(names), [name for name in self.names if name in names]
        order = [left.index(name) for name in names]
        deviation: Floats | float
        if isinstance(self.deviation, np.ndarray) and self.deviation.ndim:
            deviation = np.sqrt(np.square(self.deviation).sum(axis=axes).transpose(order))
        else:
            deviation = float(self.deviation) * float(np.sqrt(self.cells_beside(names)))
        partitions = {partition.name: partition for partition in self.partitions}
        counts = np.asarray(self.counts.sum(axis=axes)).transpose(order)
        return NoisyTable(tuple(partitions[name] for name in names), counts, deviation)

    def cells_beside(self, names: Iterable[str]) -> int:
        """Cells that are summed for each of a projection: the joint size of what it leaves out."""
        shape = [self.counts.shape[axis] for axis in self._others(names)]
        return int(np.prod(shape, dtype=np.int64))

    def add(self, names: Sequence[str], difference: Floats) -> NoisyTable:
        """The table with a ``difference`` of a projection to ``names`` spread evenly over cells."""
        axes = [name for name in self.names if name in names]
        spread = difference.transpose([list(names).index(name) for name in axes])
        even = np.expand_dims(spread / self.cells_beside(names), self._others(names))
        return self.with_counts(self.counts + even)

    def with_counts(self, counts: Floats) -> NoisyTable:
        """The same table with other counts."""
        return replace(self, counts=counts)

    def within(self, coarser: Sequence[NoisyTable]) -> NestedCounts:
        """The counts of cells, with those of ``coarser`` levels that hold them, coarse first."""
        return NestedCounts((*coarser, self))

    def scale(self, times: float) -> NoisyTable:
        """The table of so many times the rows."""
        return replace(self, counts=self.counts * times, deviation=self.deviation * times)

    def pool(self, earlier: NoisyTable, change: float) -> NoisyTable:
        """The means with the counts of an ``earlier`` table, weighted by inverse variance.

        ``change`` is what the counts have changed since, as a variance.
        """
        variance = earlier.variance + change
        weight = self.variance / (self.variance + variance)
        counts = self.counts + weight * (earlier.counts - self.counts)
        return NoisyTable(self.partitions, counts, math.sqrt(variance * weight))

    def conditional(self, prior: Floats) -> Floats:
        """Shares of the last attribute given the others, in the shape of the counts.

        Posterior means of Dirichlet distributions: counts of a configuration are first made the
        nearest that are not negative and have the same total; hyper-parameters are ``prior`` (bins
        of the last attribute,), its released shares, times as many rows as noise adds to a
        configuration. Source: Bindschaedler, Shokri, Gunter (VLDB 2017), equation (13).
        """
        counts = self.counts.reshape(-1, len(prior))
        strength = _LEAST_PRIOR + self.noise * math.sqrt(len(prior))
        alpha = strength * (prior + _FLOOR) / (prior + _FLOOR).sum()
        weights = project_rows(counts, np.maximum(counts.sum(axis=1), 0.0)) + alpha
        return np.asarray(weights / weights.sum(axis=1, keepdims=True)).reshape(self.counts.shape)

    def _others(self, names: Iterable[str]) -> tuple[int, ...]:
        summed = set(self.names).difference(names)
        return tuple(axis for axis, name in enumerate(self.names) if name in summed)


NoisyTables = Mapping[tuple[str, ...], NoisyTable]
"""Tables by their attributes."""


class NoisyCounts(Mechanism[Sensitivity], Protocol):
    """A mechanism for counts whose noise has a known deviation."""

    def deviation(self, sensitivity: Sensitivity) -> float:
        """The standard deviation of the noise of a count, in rows."""
        ...


def count_table(
    private: Door[TableRows],
    partitions: Sequence[Partition],
    mechanism: NoisyCounts,
    label: str,
) -> NoisyTable:
    """The noisy joint table of some attributes.

    Privacy: a partition of the rows, with the noise of ``mechanism``.
    """
    counts = private.answer(PartitionCounts(tuple(partitions)), mechanism, label)
    deviation = mechanism.deviation(private.neighbours.partition)
    return NoisyTable(tuple(partitions), counts.astype(np.float64), deviation)


def project_rows(counts: Floats, totals: Floats) -> Floats:
    """The nearest counts (n, k) in Euclidean distance that are not negative and add up to totals.

    Source: Duchi et al., "Efficient projections onto the l1-ball" (2008), figure 1.
    """
    ordered = -np.sort(-counts, axis=1)
    excess = (np.cumsum(ordered, axis=1) - totals[:, None]) / np.arange(1, counts.shape[1] + 1)
    last = np.maximum((ordered > excess).sum(axis=1) - 1, 0)
    threshold = np.take_along_axis(excess, last[:, None], axis=1)
    return np.asarray(np.maximum(counts - threshold, 0.0))


def to_shares(counts: NDArray[np.generic], rows: float) -> Floats:
    """The nearest non-negative counts of ``rows`` rows, by Euclidean distance, as shares.

    Shape as given.
    """
    nearest = project_rows(counts.astype(np.float64).reshape(1, -1), np.array([rows]))
    return (nearest / nearest.sum()).reshape(counts.shape)


@dataclass(frozen=True)
class NestedCounts:
    """The counts of nested partitions of a column, coarse first, the cells last.

    A part of a coarse one sums few noisy counts, so all that is measured over coarse bins gains;
    inside it the others say how its rows are spread.

    Source: Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms
    through consistency" (PVLDB 3, 2010), theorem 3, for counts of unequal noise.
    """

    tables: tuple[NoisyTable, ...]

    @cached_property
    def parents(self) -> tuple[Integers, ...]:
        """For each level but the coarsest, the part above each part."""
        levels = [table.partitions[0] for table in self.tables]
        firsts = [level.starts[np.unique(level.parts, return_index=True)[1]] for level in levels]
        return tuple(above.index(first) for above, first in zip(levels, firsts[1:], strict=False))

    @cached_property
    def pooled(self) -> tuple[NoisyTable, ...]:
        """All levels by the counts of their parts and all below: means by inverse variance."""
        pooled = [self.tables[-1]]
        for table, of in zip(self.tables[-2::-1], self.parents[::-1], strict=True):
            sums, below = (
                np.bincount(of, each) for each in (pooled[0].counts, pooled[0].variances)
            )
            weights = below / (below + table.variances)
            counts = sums + weights * (table.counts - sums)
            deviations = np.sqrt(below * (1.0 - weights))
            pooled.insert(0, NoisyTable(table.partitions, counts, deviations))
        return tuple(pooled)

    @cached_property
    def sizes(self) -> tuple[Floats, ...]:
        """The number of cells in each part of each level."""
        levels = [table.partitions[0] for table in self.tables]
        return tuple(
            np.bincount(level.index(levels[-1].starts)).astype(np.float64) for level in levels
        )
