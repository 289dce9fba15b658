"""The noisy counts that a release keeps with its model, and whether two releases differ.

Whether a table changed between two releases, or their noise alone differs:

Of each attribute both releases have noisy counts of the same declared cells. Their shares of the
rows differ by what changed and by noise of a known deviation. Without a change, the sum of squared
differences, each in units of its noise, follows a chi-squared distribution.

Privacy: counts are released numbers; everything here is post-processing. The intervals are of the
two tables as they are: that tables are samples of people is not in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtri

from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import HistogramCounts, levels_above
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.task import Task
from cloister.schema.partition import Partition, counted_values, declared_cells

if TYPE_CHECKING:
    from cloister.models.protocol import Arrays, ModelState

_FORMER_TABLES = "table"
"""What arrays of joint tables of a mixture were called in models of version 0.1 and 0.2 before."""

CONFIDENCE = 0.95
"""With this probability no unchanged attribute of a table seems changed, and all intervals of one
attribute hold."""


@dataclass(frozen=True)
class ReleasedCounts:
    """The noisy counts that a fit of ``rows`` rows received, over ``bins`` and their cells.

    ``tables`` are joint tables over coarsenings of the bins, the newest last; none of a method that
    counts none. With ``worst_first`` they were chosen as those that a model explains worst, so that
    others are explained better.
    """

    rows: int
    histograms: Mapping[str, HistogramCounts]
    bins: Mapping[str, Histogram] = field(default_factory=dict)
    tables: tuple[NoisyTable, ...] = ()
    worst_first: bool = False

    def over(self, times: int) -> ReleasedCounts:
        """The counts of rows each of which was counted so many times."""
        histograms = {name: each.over(times) for name, each in self.histograms.items()}
        tables = tuple(table.over(times) for table in self.tables)
        return replace(self, rows=self.rows // times, histograms=histograms, tables=tables)

    def state(self, sequence: Sequence[str]) -> ModelState:
        """The numbers as JSON and arrays, but for the bins; attributes by ``sequence``."""
        stored = [
            _state_of_histogram(index, self.histograms[name]) for index, name in enumerate(sequence)
        ]
        stored += [_state_of_table(index, table) for index, table in enumerate(self.tables)]
        arrays = {name: array for _, part in stored for name, array in part.items()}
        about = [described for described, _ in stored]
        numbers = {"rows": self.rows, "of": about, "worst_first": self.worst_first}
        return {"numbers": numbers}, arrays


def restore_counts(
    task: Task, bins: Mapping[str, Histogram], meta: Mapping[str, Any], arrays: Arrays
) -> ReleasedCounts | None:
    """The counts whose :meth:`ReleasedCounts.state` is given.

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
    worst_first = meta["numbers"].get("worst_first", True)  # mixtures alone kept counts before
    return ReleasedCounts(meta["numbers"]["rows"], histograms, bins, tables, worst_first)


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

    noise, deviations, values = about["deviation"], about.get("deviations", {}), None
    levels = (
        table(kind := _level(index), partition, deviations.get(kind, noise))
        for index, partition in enumerate(levels_above(cells))
    )
    if f"counted.{number}.values" in arrays:  # of numbers counted otherwise there may be 10^10
        by_value = counted_values(cells.column)
        values = table("values", by_value, about.get("value_deviation", noise))
    return HistogramCounts(
        NoisyTable((cells,), arrays[f"counted.{number}.cells"], noise),
        tuple(level for level in levels if level),
        values,
    )


def _state_of_table(index: int, table: NoisyTable) -> ModelState:
    arrays: dict[str, NDArray[Any]] = {
        f"joint.{index}": table.counts,
        f"joint.{index}.deviation": np.asarray(table.deviation),
    }
    arrays |= {
        f"joint.{index}.{axis}": partition.joined for axis, partition in enumerate(table.partitions)
    }
    return {"attributes": list(table.names)}, arrays


def _restore_table(
    bins: Mapping[str, Histogram], index: int, about: Mapping[str, Any], arrays: Arrays
) -> NoisyTable:
    key = f"{'joint' if f'joint.{index}' in arrays else _FORMER_TABLES}.{index}"
    partitions = tuple(
        bins[name].coarsen(arrays[f"{key}.{axis}"]) for axis, name in enumerate(about["attributes"])
    )
    return NoisyTable(partitions, arrays[key], arrays[f"{key}.deviation"])


@dataclass(frozen=True)
class Drift:
    """The change of one attribute: whether it is a ``signal``, and its largest change of a cell.

    ``before`` and ``now`` are noisy shares of the rows in ``cell``; their difference lies between
    ``least`` and ``most``. ``p_value`` is the probability that noise alone differs by as much.
    """

    attribute: str
    signal: bool
    p_value: float
    cell: str
    before: float
    now: float
    least: float
    most: float


def drifts(before: ReleasedCounts, now: ReleasedCounts) -> tuple[Drift, ...]:
    """The change of each attribute that both declare alike, the surest first."""
    common = [
        name
        for name, counted in now.histograms.items()
        if name in before.histograms
        and _alike(before.histograms[name].partition, counted.partition)
    ]
    level = (1 - CONFIDENCE) / max(len(common), 1)  # Bonferroni: of all attributes together
    changes = [_drift(name, before, now, level) for name in common]
    return tuple(sorted(changes, key=lambda drift: drift.p_value))


def _drift(name: str, before: ReleasedCounts, now: ReleasedCounts, level: float) -> Drift:
    old, new = before.histograms[name], now.histograms[name]
    levels = [(old.cells, new.cells)]
    if [table.counts.shape for table in old.coarser] == [t.counts.shape for t in new.coarser]:
        levels += zip(old.coarser, new.coarser, strict=True)
    scaled = [(ago.scale(1 / before.rows), today.scale(1 / now.rows)) for ago, today in levels]
    squares = sum(
        float(np.square(today.counts - ago.counts).sum()) / (ago.variance + today.variance)
        for ago, today in scaled
    )
    p_value = float(chdtrc(sum(today.counts.size for _, today in scaled), squares))
    earlier, later = scaled[0]
    changes = later.counts - earlier.counts
    largest = int(np.argmax(np.abs(changes)))
    deviation = math.sqrt(earlier.variance + later.variance)
    width = -float(ndtri((1 - CONFIDENCE) / (2 * len(changes)))) * deviation
    change = float(changes[largest])
    return Drift(
        name,
        signal=p_value < level,
        p_value=p_value,
        cell=cell_labels(new.partition, slice(largest, largest + 1))[0],
        before=float(earlier.counts[largest]),
        now=float(later.counts[largest]),
        least=change - width,
        most=change + width,
    )


def _alike(first: Partition, second: Partition) -> bool:
    """Whether cells mean the same values."""
    if not np.array_equal(first.starts, second.starts):
        return False
    return first.column is second.column or cell_labels(first) == cell_labels(second)


def cell_labels(cells: Partition, chosen: slice = slice(None)) -> list[str]:
    """The values of chosen cells as people read them: one, or the first and the last."""
    ends = [cells.column.decode(codes[chosen]) for codes in (cells.starts, cells.stops - 1)]
    first, last = (end.astype(str).mask(end.isna(), "missing") for end in ends)
    return [
        low if low == high else f"{low} to {high}" for low, high in zip(first, last, strict=True)
    ]
