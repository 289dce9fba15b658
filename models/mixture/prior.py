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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import HistogramCounts, levels_above
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.protocol import Arrays, ModelState
from cloister.models.task import Task
from cloister.schema.columns import Grid
from cloister.schema.partition import Partition, counted_values, declared_cells, intervals

_SIGNIFICANT = 3.0
"""Standard deviations by which a sum of squares must exceed that of noise to show a change.

A release compares dozens of histograms and tables; at 2, noise alone would change some.
"""

_SPLIT = 3
"""An earlier bin is split if it has parts of at least this many new bins; one is then whole."""


@dataclass(frozen=True)
class ReleasedNumbers:
    """The noisy counts that a fit of ``rows`` rows received, over ``bins`` and their cells.

    ``tables`` are joint tables, the newest last.
    """

    rows: int
    bins: Mapping[str, Histogram]
    histograms: Mapping[str, HistogramCounts]
    tables: tuple[NoisyTable, ...]

    def state(self, sequence: Sequence[str]) -> ModelState:
        """The numbers as JSON and arrays, but for the bins; attributes by ``sequence``."""
        stored = [
            _state_of_histogram(index, self.histograms[name]) for index, name in enumerate(sequence)
        ]
        stored += [_state_of_table(index, table) for index, table in enumerate(self.tables)]
        arrays = {name: array for _, part in stored for name, array in part.items()}
        about = [described for described, _ in stored]
        return {"numbers": {"rows": self.rows, "of": about}}, arrays


def restore_numbers(
    task: Task, bins: Mapping[str, Histogram], meta: Mapping[str, Any], arrays: Arrays
) -> ReleasedNumbers | None:
    """The numbers whose :meth:`ReleasedNumbers.state` is given.

    None if the model was saved without.
    """
    if "numbers" not in meta:
        return None
    sequence, about = meta["sequence"], meta["numbers"]["of"]
    histograms = {
        name: _restore_histogram(task, name, index, about[index], arrays)
        for index, name in enumerate(sequence)
    }
    tables = tuple(
        _restore_table(bins, index, entry, arrays)
        for index, entry in enumerate(about[len(sequence) :])
    )
    return ReleasedNumbers(meta["numbers"]["rows"], bins, histograms, tables)


def _state_of_histogram(number: int, counted: HistogramCounts) -> ModelState:
    levels = {_level(index): table for index, table in enumerate(counted.coarser)}
    tables = {"cells": counted.cells, **levels, "values": counted.values}
    arrays: dict[str, NDArray[Any]] = {
        f"counted.{number}.{kind}": table.counts for kind, table in tables.items() if table
    }
    about: dict[str, Any] = {"deviation": counted.cells.noise}
    if any(table.noise != counted.cells.noise for table in levels.values()):
        about["deviations"] = {kind: table.noise for kind, table in levels.items()}
    if counted.values is not None:
        about["value_deviation"] = counted.values.noise
    return about, arrays


def _level(index: int) -> str:
    """The name of the counts of a level above the cells, the coarsest first."""
    return f"wide.{index}" if index else "wide"


def _restore_histogram(
    task: Task, name: str, number: int, about: Mapping[str, Any], arrays: Arrays
) -> HistogramCounts:
    cells = declared_cells(task.domain[name])

    def table(kind: str, partition: Partition, noise: float) -> NoisyTable | None:
        counts = arrays.get(f"counted.{number}.{kind}")
        return None if counts is None else NoisyTable((partition,), counts, noise)

    noise, deviations = about["deviation"], about.get("deviations", {})
    levels = (
        table(kind := _level(index), partition, deviations.get(kind, noise))
        for index, partition in enumerate(levels_above(cells))
    )
    return HistogramCounts(
        NoisyTable((cells,), arrays[f"counted.{number}.cells"], noise),
        tuple(level for level in levels if level),
        table("values", counted_values(cells.column), about.get("value_deviation", noise)),
    )


def _state_of_table(index: int, table: NoisyTable) -> ModelState:
    arrays: dict[str, NDArray[Any]] = {
        f"table.{index}": table.counts,
        f"table.{index}.deviation": np.asarray(table.deviation),
    }
    arrays |= {
        f"table.{index}.{axis}": partition.joined for axis, partition in enumerate(table.partitions)
    }
    return {"attributes": list(table.names)}, arrays


def _restore_table(
    bins: Mapping[str, Histogram], index: int, about: Mapping[str, Any], arrays: Arrays
) -> NoisyTable:
    partitions = tuple(
        bins[name].coarsen(arrays[f"table.{index}.{axis}"])
        for axis, name in enumerate(about["attributes"])
    )
    return NoisyTable(partitions, arrays[f"table.{index}"], arrays[f"table.{index}.deviation"])


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
    return Histogram.over(cells, parts, bins.shares[whole] * cells.widths / bins.widths[whole])


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
        numbers: ReleasedNumbers,
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
