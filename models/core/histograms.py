"""One-way histograms: counted once or on two levels, and made into bins.

A histogram is over declared cells, and over single values of numbers in wide cells. A number in
wide cells may have values that many rows hold (a common fee, a top code, a tax bracket). Where its
domain is not much larger than the table, every single value is counted with noise too.

Some are counted twice: in wide cells, and in the declared cells, which split these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cloister.arrays import Floats
from cloister.models.core.bins import NUMERIC_BINS, Histogram, bin_cells, bin_values
from cloister.models.core.estimator import TwoLevels, estimate_shares
from cloister.models.core.noisy_table import NoisyCounts, NoisyTable, count_table
from cloister.models.task import Task
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.columns import Grid
from cloister.schema.domain import Domain
from cloister.schema.partition import Partition, declared_cells, intervals, single_values

_WIDE = 16
"""Wide cells of an attribute, special and missing values apart."""

MOST_ONCE = 24
"""Ordinary cells of an attribute at most that are counted once: more gain by wide cells."""

_LEAST_SHARE = 1e-12
"""Share of all rows that each cell has at least where shares are weights."""

_VALUES_PER_ROW = 4
"""Values of a domain for each row at most, for its single values to be counted."""


def wide_cells(cells: Partition) -> Partition | None:
    """Wide cells of about equally many cells; None where there are too few, or without an order."""
    ordinary = int((~cells.apart).sum())
    if not isinstance(cells.column, Grid) or ordinary <= MOST_ONCE:
        return None
    wide = (np.cumsum(~cells.apart) - 1) * _WIDE // ordinary
    begins = cells.apart | (np.diff(np.where(cells.apart, -1, wide), prepend=-2) != 0)
    return intervals(cells.column, cells.starts[begins])


def counted_by_value(domain: Domain, names: Sequence[str], rows: int) -> tuple[str, ...]:
    """The numeric attributes whose single values are counted, from public sizes."""
    return tuple(
        name
        for name in names
        if isinstance(domain[name], Grid) and _countable(declared_cells(domain[name]), rows)
    )


def _countable(cells: Partition, rows: int) -> bool:
    return cells.size < cells.column.size <= _VALUES_PER_ROW * rows


@dataclass(frozen=True)
class HistogramCounts:
    """Noisy counts of one attribute: of its cells, and of wide cells and single values, if counted.

    Those of cells and wide cells have the same noise.
    """

    cells: NoisyTable
    wide: NoisyTable | None = None
    values: NoisyTable | None = None

    @property
    def partition(self) -> Partition:
        """The cells."""
        return self.cells.partitions[0]

    def shares(self, rows: int) -> tuple[Partition, Floats]:
        """The cells, values that stand out apart, and their shares of ``rows`` rows."""
        return estimate_shares(rows, self.cells, self.wide, self.values)

    def bins(self, task: Task, most: int = NUMERIC_BINS) -> Histogram:
        """The bins of the attribute, at most ``most`` of a numeric one.

        Values of attributes in hard constraints are not merged.
        """
        cells, shares = self.shares(task.data_rows)
        constrained = any(cells.name in constraint.attributes for constraint in task.hard)
        return bin_cells(cells, shares, self.cells.noise / task.data_rows, constrained, most)

    def value_bins(self, task: Task, most: int = NUMERIC_BINS) -> Histogram:
        """The bins of a numeric attribute whose values matter."""
        cells, shares = self.shares(task.data_rows)
        noise = (self.values or self.cells).noise
        return bin_values(cells, shares, noise / task.data_rows, most)

    def deviations(self, bins: Histogram) -> Floats:
        """Standard deviations (bins,) of the noise of the bins' counts, in rows.

        A bin of whole wide cells has the noise of their totals, a part of one also that of the
        cells which split it. What holds little counts for little: in a tail, whose rows are known
        as well as those of the few cells at its beginning.
        """
        deviation = self.cells.noise
        if self.wide is None:
            owner, totals = np.arange(bins.cells), np.full(bins.cells, deviation)
        else:
            owner = self.wide.partitions[0].index(bins.starts)
            totals = np.sqrt(TwoLevels(self.cells, self.wide).totals.variances)
        shares = bins.shares + _LEAST_SHARE
        both, piece = np.unique(bins.parts * len(totals) + owner, return_inverse=True)
        of_bin, of_owner = np.divmod(both, len(totals))
        mass = np.bincount(piece, weights=shares)
        part = mass / np.bincount(owner, weights=shares)[of_owner]
        cells = np.square(mass) / np.bincount(piece, weights=np.square(shares))
        variance = np.square(part * totals[of_owner]) + deviation**2 * cells * (1.0 - part)
        weighted, squared, whole = (
            np.bincount(of_bin, weights=values)
            for values in (mass * variance, np.square(mass), mass)
        )
        return np.sqrt(weighted * whole / squared)


@dataclass(frozen=True)
class ReleasedCounts:
    """Noisy counts of each attribute that a fit was told, of a table of ``rows`` rows.

    ``bins`` are what it made of them, and ``tables`` joint tables over their coarsenings; none of a
    method that counts none.
    """

    rows: int
    histograms: Mapping[str, HistogramCounts]
    bins: Mapping[str, Histogram] = field(default_factory=dict)
    tables: tuple[NoisyTable, ...] = ()


def count_histogram(
    private: Door[TableRows],
    cells: Partition,
    mechanism: NoisyCounts,
    by_value: NoisyCounts | None = None,
    wide: Partition | None = None,
) -> HistogramCounts:
    """The noisy counts of one attribute.

    ``mechanism`` counts the cells and the ``wide`` ones, ``by_value`` the single values, if these
    are counted.

    Privacy: one to three partitions of the rows, each with the noise of its mechanism.
    """

    def count(partition: Partition, noise: NoisyCounts, label: str) -> NoisyTable:
        return count_table(private, (partition,), noise, f"{label} {cells.name}")

    return HistogramCounts(
        count(cells, mechanism, "histogram"),
        None if wide is None else count(wide, mechanism, "wide histogram"),
        None if by_value is None else count(single_values(cells.column), by_value, "values"),
    )


def measure_histogram(
    private: Door[TableRows],
    task: Task,
    name: str,
    mechanism: NoisyCounts,
    by_value: NoisyCounts | None = None,
    most: int = NUMERIC_BINS,
) -> Histogram:
    """The bins of one attribute, at most ``most`` of a numeric one, from its noisy histogram.

    ``mechanism`` counts the cells, ``by_value`` every single value too.

    Privacy: one or two partitions of the rows, each with the noise of its mechanism.
    """
    cells = declared_cells(task.domain[name])
    return count_histogram(private, cells, mechanism, by_value).bins(task, most)
