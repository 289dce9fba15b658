"""A previous release of the same columns as evidence: its noisy numbers beside the new ones.

The noisy numbers of a fit are kept with its model, so that a later fit can reuse them.

Numbers of both are weighted by inverse variance. Where the table has changed in between, the
earlier ones count for less: their difference beyond the noise is added to their variance.
Everything here is post-processing of released numbers.

Source: the variance of a change is estimated as that between studies, DerSimonian and Laird,
"Meta-analysis in clinical trials" (1986).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import HistogramCounts
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.core.released_counts import ReleasedCounts
from cloister.schema.columns import Grid
from cloister.schema.partition import Partition, intervals

_SIGNIFICANT = 3.0
"""Standard deviations by which a sum of squares must exceed that of noise to show a change.

A release compares dozens of histograms and tables; at 2, noise alone would change some.
"""

_SPLIT = 3
"""An earlier bin is split if it has parts of at least this many new bins; one is then whole."""


@dataclass(frozen=True)
class PooledHistogram:
    """Pooled noisy counts of an attribute in two releases, and how far the table changed.

    ``change`` is the sum of squared changes of all counts, in rows, beyond what noise explains.
    """

    counted: HistogramCounts
    change: float


def pool_histograms(new: HistogramCounts, old: HistogramCounts, scale: float) -> PooledHistogram:
    """The pooled counts; old ones are scaled by ``scale``, the new rows per old row.

    Counts of single values are pooled if both releases have them.
    """
    levels = [(new.cells, old.cells.scale(scale))]
    if len(new.coarser) == len(old.coarser):
        ends = zip(new.coarser, old.coarser, strict=True)
        levels += ((table, earlier.scale(scale)) for table, earlier in ends)
    changes = [_change(*tables) for tables in levels]
    most = max(
        change / table.counts.size for change, (table, _) in zip(changes, levels, strict=True)
    )
    cells, *coarser = [table.pool(earlier, most) for table, earlier in levels]
    values = new.values
    if values is not None and old.values is not None:
        earlier = old.values.scale(scale)
        values = values.pool(earlier, _change(values, earlier) / values.counts.size)
    return PooledHistogram(HistogramCounts(cells, tuple(coarser), values), changes[0])


def _change(new: NoisyTable, earlier: NoisyTable) -> float:
    return squared_change(new.counts, earlier.counts, new.variance + earlier.variance)


def squared_change(new: Floats, old: Floats, variance: Floats | float) -> float:
    """The sum of squared differences of noisy counts, less the part that noise explains.

    ``variance`` is that of a difference. Zero if noise alone explains the difference.
    """
    noise = np.broadcast_to(variance, new.shape)
    change = float((np.square(new - old) - noise).sum())
    return change if change > _SIGNIFICANT * math.sqrt(2 * np.square(noise).sum()) else 0.0


def refine_bins(earlier: Histogram, bins: Histogram) -> Histogram:
    """The bins, refined so that none has parts of two earlier ones.

    For a number: the earlier bins, except those much wider than the new ones.
    """
    column = bins.column
    cells = intervals(column, np.union1d(earlier.starts, bins.starts))
    old, current = earlier.index(cells.starts), bins.index(cells.starts)
    if isinstance(column, Grid):
        parts = np.unique(old * bins.size + current) // bins.size
        current = np.where(np.bincount(parts)[old] < _SPLIT, 0, current)
    parts = np.unique(old * bins.size + current, return_inverse=True)[1].astype(np.int64)
    whole = bins.cell_index(cells.starts)
    shares = bins.shares[whole] * cells.widths / bins.widths[whole]
    return replace(Histogram.over(cells, parts, shares), threshold=bins.threshold)


@dataclass(frozen=True)
class EarlierTable:
    """A joint table of a previous release, scaled to the rows of the new one.

    ``expected`` are its rows if attributes were independent. ``change`` is the sum of squared
    changes that histograms suggest, ``compared`` the one that a new table shows; None if none does.
    """

    measured: NoisyTable
    expected: Floats
    change: float
    compared: float | None = None

    @property
    def names(self) -> frozenset[str]:
        """Its attributes."""
        return frozenset(self.measured.names)

    def with_change(self, change: float) -> NoisyTable:
        """The table, in whose variance the change is spread by the expected rows."""
        spread = change * self.expected / self.expected.sum()
        deviation = np.sqrt(np.square(self.measured.deviation) + spread)
        return replace(self.measured, deviation=deviation)


@dataclass(frozen=True)
class EarlierTables:
    """The joint tables of a previous release, trusted as far as new tables agree with them.

    Each is assumed to have changed at least as much as the histograms of its attributes; one
    without a comparable new table, at least as much as the others on average.
    """

    tables: tuple[EarlierTable, ...] = ()

    @classmethod
    def of(
        cls,
        numbers: ReleasedCounts,
        bins: Mapping[str, Histogram],
        changes: Mapping[str, float],
        rows: int,
    ) -> EarlierTables:
        """Those of a release over new ``bins``; ``changes`` are of the pooled histograms."""
        scale = rows / numbers.rows
        return cls(
            tuple(
                _as_of(table, bins, changes, scale, rows)
                for table in numbers.tables
                if all(partition.name in bins for partition in table.partitions)
            )
        )

    def among(self, names: Collection[str]) -> EarlierTables:
        """The tables of these attributes alone."""
        return EarlierTables(tuple(table for table in self.tables if table.names <= set(names)))

    @cached_property
    def marginals(self) -> tuple[NoisyTable, ...]:
        """The tables with noise and change as their deviations.

        Tables of the same attributes share one change, which averaging does not reduce.
        """
        known = [table.compared for table in self.tables if table.compared is not None]
        typical = float(np.mean(known)) if known else 0.0
        shown = (typical if table.compared is None else table.compared for table in self.tables)
        alike = Counter(table.names for table in self.tables)
        return tuple(
            table.with_change(alike[table.names] * max(table.change, change))
            for table, change in zip(self.tables, shown, strict=True)
        )

    def compared_with(self, new: NoisyTable) -> EarlierTables:
        """The tables, with changes updated from a new table that shares at least two attributes."""
        return EarlierTables(tuple(_compared(table, new) for table in self.tables))

    def pooled_with(self, new: NoisyTable) -> tuple[NoisyTable, EarlierTables]:
        """A new table pooled with an earlier one of the same cells, and the remaining tables."""
        for index, table in enumerate(self.tables):
            if _same_cells(table.measured, new):
                rest = EarlierTables(self.tables[:index] + self.tables[index + 1 :])
                return _pooled_table(new, table.measured), rest
        return new, self


NO_TABLES = EarlierTables()
"""No previous release is used."""


def _as_of(
    table: NoisyTable,
    bins: Mapping[str, Histogram],
    changes: Mapping[str, float],
    scale: float,
    rows: int,
) -> EarlierTable:
    coarsenings = tuple(_over(partition, bins[partition.name]) for partition in table.partitions)
    measured = replace(table.scale(scale), partitions=coarsenings)
    expected = np.full((), float(rows))
    for partition in coarsenings:
        expected = np.multiply.outer(
            expected, np.bincount(partition.joined, weights=bins[partition.name].mass)
        )
    return EarlierTable(
        measured, expected, max(changes[partition.name] for partition in coarsenings)
    )


def _over(earlier: Partition, bins: Histogram) -> Partition:
    """An earlier coarsening over bins none of which has parts of two earlier ones."""
    first = np.unique(bins.parts, return_index=True)[1]
    return bins.coarsen(earlier.index(bins.starts[first]))


def _compared(earlier: EarlierTable, new: NoisyTable) -> EarlierTable:
    """The table with its change estimated on the attributes it shares with a new table."""
    axes = {partition.name: partition for partition in new.partitions}
    common = [each for each in earlier.measured.partitions if each.name in axes]
    if len(common) < 2:
        return earlier
    joint = {each.name: _common_parts(each, axes[each.name]) for each in common}
    (first, noise), (second, more) = (_projected(each, joint) for each in (earlier.measured, new))
    change = squared_change(first, second, noise + more)
    return replace(earlier, compared=max(change, earlier.compared or 0.0))


def _common_parts(first: Partition, second: Partition) -> Integers:
    """The finest partition of bins (bins,) that is coarser than both."""
    ends, size = (first.joined, first.size + second.joined), first.size + second.size
    pairs = coo_array((np.ones(len(first.joined)), ends), shape=(size, size))
    return connected_components(pairs, directed=False)[1][first.joined].astype(np.int64)


def _projected(table: NoisyTable, joint: Mapping[str, Integers]) -> tuple[Floats, Floats]:
    """Counts and variances of a table summed to partitions of bins, axes in their order."""
    counts = np.asarray(table.counts, dtype=np.float64)
    variances = table.variances
    axes = {partition.name: axis for axis, partition in enumerate(table.partitions)}
    for name, parts in joint.items():
        onto = _onto(table.partitions[axes[name]], parts)
        counts, variances = (_summed(each, axes[name], onto) for each in (counts, variances))
    summed = tuple(axis for name, axis in axes.items() if name not in joint)
    remaining = [name for name in axes if name in joint]
    order = [remaining.index(name) for name in joint]
    return (
        counts.sum(axis=summed).transpose(order),
        variances.sum(axis=summed).transpose(order),
    )


def _onto(partition: Partition, parts: Integers) -> Integers:
    """The part in a coarser partition (bins,) of each part of a coarsening; shape (size,)."""
    onto = np.empty(partition.size, dtype=np.int64)
    onto[partition.joined] = parts
    return np.unique(onto, return_inverse=True)[1]


def _summed(table: Floats, axis: int, onto: Integers) -> Floats:
    shape = list(table.shape)
    shape[axis] = int(onto.max()) + 1
    summed = np.zeros(shape)
    np.add.at(np.moveaxis(summed, axis, 0), onto, np.moveaxis(table, axis, 0))
    return summed


def _same_cells(earlier: NoisyTable, new: NoisyTable) -> bool:
    return earlier.names == new.names and all(partition.whole for partition in earlier.partitions)


def _pooled_table(new: NoisyTable, earlier: NoisyTable) -> NoisyTable:
    return new.pool(earlier, _change(new, earlier) / earlier.counts.size)


def with_earlier_mass(bins: Histogram, earlier: Histogram) -> Histogram:
    """The same bins, with the released shares of earlier ones.

    What is made of them is then cut at the same places as in the earlier release, so that tables
    of both can be compared.
    """
    whole = earlier.cell_index(bins.starts)
    return replace(bins, shares=earlier.shares[whole] * bins.widths / earlier.widths[whole])
