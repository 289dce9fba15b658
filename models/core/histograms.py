"""One-way histograms, counted once or on two levels, and the stages that measure them.

A histogram is over declared cells, and over single values of numbers in wide cells. A number in
wide cells may have values that many rows hold (a common fee, a top code, a tax bracket). Where its
domain is not much larger than the table, every single value is counted with noise too, and a value
that noise does not explain becomes a cell of its own.

Some are counted twice: in wide cells, and in the declared cells, which split these.

A range of wide cells sums few noisy counts, so the distribution function and everything measured
over coarse bins gain; inside a wide cell the declared ones say how its rows are spread.

The stages that several methods share are histograms, and joint tables of hard constraints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from cloister.arrays import TINY, Booleans, Floats, Integers
from cloister.models.core import denoising
from cloister.models.core.bins import NUMERIC_BINS, Histogram, bin_cells, bin_values
from cloister.models.core.denoising import estimate_shares
from cloister.models.core.noisy_table import NoisyTable, count_table
from cloister.models.task import Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.columns import Codes, Grid
from cloister.schema.domain import Domain
from cloister.schema.partition import Partition, declared_cells, intervals, single_values

Counts = Integers | Floats

_WIDE = 16
"""Wide cells of an attribute, special and missing values apart."""

MOST_ONCE = 24
"""Ordinary cells of an attribute at most that are counted once: more gain by wide cells."""

_LEAST_ROWS = 1e-6
"""Rows of a wide cell below which how they are spread does not matter."""

_LEAST_SHARE = 1e-12
"""Share of all rows that each cell has at least where shares are weights."""

_VALUES_PER_ROW = 4
"""Values of a domain for each row at most, for its single values to be counted."""

_OCCUPIED = 3.0
"""Standard deviations of the noise above which a cell is searched for values that stand out."""

_FALSE_ALARMS = 0.2
"""Expected number of values of an attribute that stand out by noise alone."""


@dataclass(frozen=True)
class TwoLevels:
    """The ``cells`` of an ordered attribute, and ``wide`` ones that hold several of them each."""

    cells: Partition
    wide: Partition

    @classmethod
    def of(cls, cells: Partition) -> TwoLevels | None:
        """Wide cells of about equally many cells; None where there are too few cells."""
        alone = denoising.apart(cells)
        ordinary = int((~alone).sum())
        if not isinstance(cells.column, Grid) or ordinary <= MOST_ONCE:
            return None
        wide = (np.cumsum(~alone) - 1) * _WIDE // ordinary
        begins = alone | (np.diff(np.where(alone, -1, wide), prepend=-2) != 0)
        return cls(cells, intervals(cells.column, cells.starts[begins]))

    @cached_property
    def of_cell(self) -> Codes:
        """The wide cell of each cell; shape (cells,)."""
        return self.wide.index(self.cells.starts)

    @cached_property
    def members(self) -> Floats:
        """The number of cells in each wide cell; shape (wide cells,)."""
        return np.bincount(self.of_cell).astype(np.float64)

    def total_deviations(self, deviation: float) -> Floats:
        """Standard deviations (wide cells,) of totals that both counts give together.

        ``deviation`` is that of a single count of either kind.
        """
        return deviation * np.sqrt(self.members / (self.members + 1.0))

    def estimate_shares(
        self, counts: Counts, wide_counts: Counts, deviation: float, rows: int
    ) -> Floats:
        """The share of rows in each cell, (cells,), from noisy counts of both kinds.

        Totals of wide cells are means weighted by inverse variance. All noise has the standard
        deviation ``deviation``, in rows, and ``rows`` is the public number of rows.
        """
        sums = np.bincount(self.of_cell, weights=counts)
        totals = (wide_counts + sums / self.members) / (1.0 + 1.0 / self.members)
        typical = float(np.sqrt(np.mean(np.square(self.total_deviations(deviation)))))
        held = estimate_shares(totals, typical, self.wide, rows) * rows
        corrected = counts + ((held - sums) / self.members)[self.of_cell]
        split = self._split(
            denoising.NoisyCells(corrected, denoising.apart(self.cells), None, deviation, rows),
            held,
        )
        return split / split.sum()

    def _split(self, noisy: denoising.NoisyCells, held: Floats) -> Floats:
        """Counts (cells,) of the rows ``held`` (wide cells,) in each wide cell."""
        smooth, weights = denoising.neighbourhood_means(noisy.counts, noisy.deviation, noisy.alone)
        curved = self._curved(held)
        counts = held[self.of_cell] / self.members[self.of_cell]
        for at in np.flatnonzero((held > _LEAST_ROWS) & (self.members > 1)):
            own = self.of_cell == at
            counts[own] = best_split(
                noisy.counts[own],
                noisy.deviation,
                float(held[at]),
                (smooth[own], float(weights[own].sum() - weights[own].mean())),
                curved[own],
            )
        return counts

    def _curved(self, held: Floats) -> Floats:
        """Counts (cells,) that follow a parabola in each wide cell and have its rows, ``held``.

        At its ends the density is the mean of its own and its neighbour's, or goes on straight.
        """
        of_cell, density = self.of_cell, held / self.members
        left, right = _ends(density, denoising.apart(self.wide))
        bend = 3 * (left + right) - 6 * density
        first = np.searchsorted(of_cell, np.arange(len(held)))
        place = (np.arange(self.cells.size) - first[of_cell] + 0.5) / self.members[of_cell]
        heights = left[of_cell] + place * ((right - left - bend)[of_cell] + place * bend[of_cell])
        heights = np.maximum(heights, 0.0) + _LEAST_ROWS
        return heights * (held / np.bincount(of_cell, weights=heights))[of_cell]


def best_split(
    noisy: Floats, deviation: float, rows: float, smooth: tuple[Floats, float], curved: Floats
) -> Floats:
    """How ``rows`` rows of a wide cell are spread over its cells: the estimate of least risk.

    Of their ``noisy`` counts (cells,), these smoothed, with their degrees of freedom, a ``curved``
    shape (cells,) that the wide cells suggest, and no shape at all. Source of the risk:
    :mod:`cloister.models.core.denoising`.
    """
    means, freedom = smooth
    candidates = (
        (denoising.project_counts(means, deviation, rows).counts, freedom),
        (curved, 0.0),
        (np.full(len(noisy), rows / len(noisy)), 0.0),
    )
    estimates = [
        denoising.Estimate(counts, denoising.stein_risk(noisy, counts, deviation, free))
        for counts, free in candidates
    ]
    own = denoising.project_counts(noisy, deviation, rows)
    return min((own, *estimates), key=lambda estimate: estimate.risk).counts


def _ends(density: Floats, alone: Booleans) -> tuple[Floats, Floats]:
    """The density at the left and the right end of each wide cell; shapes (wide cells,)."""
    joined = ~(alone[1:] | alone[:-1])
    between = np.where(joined, (density[1:] + density[:-1]) / 2, np.nan)
    left, right = np.append(np.nan, between), np.append(between, np.nan)
    straight = [np.where(np.isnan(other), density, 2 * density - other) for other in (right, left)]
    return (
        np.where(np.isnan(left), straight[0], left),
        np.where(np.isnan(right), straight[1], right),
    )


def bin_deviations(bins: Histogram, levels: TwoLevels | None, deviation: float) -> Floats:
    """Standard deviations (bins,) of the noise of the bins' counts, in rows.

    ``deviation`` is that of a single count. A bin of whole wide cells has the noise of their
    totals, a part of one also that of the cells which split it. What holds little counts for
    little: in a tail, whose rows are known as well as those of the few cells at its beginning.
    """
    if levels is None:
        owner, totals = np.arange(bins.cells), np.full(bins.cells, deviation)
    else:
        owner = levels.wide.index(bins.starts)
        totals = levels.total_deviations(deviation)
    shares = bins.shares + _LEAST_SHARE
    both, piece = np.unique(bins.parts * len(totals) + owner, return_inverse=True)
    of_bin, of_owner = np.divmod(both, len(totals))
    mass = np.bincount(piece, weights=shares)
    part = mass / np.bincount(owner, weights=shares)[of_owner]
    cells = np.square(mass) / np.bincount(piece, weights=np.square(shares))
    variance = np.square(part * totals[of_owner]) + deviation**2 * cells * (1.0 - part)
    weighted, squared, whole = (
        np.bincount(of_bin, weights=values) for values in (mass * variance, np.square(mass), mass)
    )
    return np.sqrt(weighted * whole / squared)


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

    @cached_property
    def levels(self) -> TwoLevels | None:
        """The cells and the wide ones, if these are counted."""
        return None if self.wide is None else TwoLevels.of(self.partition)

    def estimate(self, rows: int) -> tuple[Partition, Floats]:
        """The cells, values that stand out apart, and their shares of ``rows`` rows."""
        counts, noise = self.cells.counts, self.cells.noise
        if self.levels is None or self.wide is None:
            shares = estimate_shares(counts, noise, self.partition, rows)
        else:
            shares = self.levels.estimate_shares(counts, self.wide.counts, noise, rows)
        if self.values is None:
            return self.partition, shares
        single = self.values
        return with_spikes(self.partition, shares, single.counts / rows, single.noise / rows)


@dataclass(frozen=True)
class ReleasedCounts:
    """Noisy counts of each attribute that a fit was told, of a table of ``rows`` rows."""

    rows: int
    histograms: Mapping[str, HistogramCounts]


def count_histogram(
    private: Door[TableRows],
    cells: Partition,
    mechanism: DiscreteGaussian,
    by_value: DiscreteGaussian | None,
    levels: TwoLevels | None = None,
) -> HistogramCounts:
    """The noisy counts of one attribute.

    ``mechanism`` counts the cells and the wide cells of ``levels``, ``by_value`` the single values,
    if these are counted.

    Privacy: one to three partitions of the rows, each with the noise of its mechanism.
    """

    def count(partition: Partition, noise: DiscreteGaussian, label: str) -> NoisyTable:
        return count_table(private, (partition,), noise, f"{label} {cells.name}")

    return HistogramCounts(
        count(cells, mechanism, "histogram"),
        None if levels is None else count(levels.wide, mechanism, "wide histogram"),
        None if by_value is None else count(single_values(cells.column), by_value, "values"),
    )


def with_spikes(
    cells: Partition, shares: Floats, single: Floats, deviation: float
) -> tuple[Partition, Floats]:
    """Cells with the values apart whose noisy share stands out, and shares of all; post-processing.

    Shapes: ``shares`` (cells,), ``single`` (fine codes,) with noise of standard deviation
        ``deviation``.
    """
    codes = _outstanding(cells, shares, single, deviation)
    starts = np.unique(np.concatenate([cells.starts, codes, codes + 1]))
    finer = intervals(cells.column, starts[starts < cells.column.size])
    of = cells.index(finer.starts)
    spike = np.isin(finer.starts, codes) & (cells.widths[of] > 1)
    held = np.where(spike, single[finer.starts], 0.0)
    taken = np.bincount(of, weights=held, minlength=cells.size)
    held *= np.minimum(1.0, shares / np.maximum(taken, TINY))[of]
    left = np.maximum(shares - taken, 0.0)
    calm = np.where(spike, 0, finer.widths)
    size = np.maximum(np.bincount(of, weights=calm, minlength=cells.size), 1.0)
    finer_shares = held + (left / size)[of] * calm
    return finer, finer_shares / finer_shares.sum()


def _outstanding(cells: Partition, shares: Floats, single: Floats, deviation: float) -> Codes:
    """Fine codes of values that noise does not explain, in cells that are occupied."""
    searched = (shares > _OCCUPIED * deviation) & (cells.widths > 1) & ~denoising.apart(cells)
    inside = np.flatnonzero(np.repeat(searched, cells.widths))
    threshold = -deviation * float(ndtri(_FALSE_ALARMS / max(len(inside), 1)))
    return inside[single[inside] > threshold].astype(np.int64)


def measure_histogram(
    private: Door[TableRows],
    task: Task,
    name: str,
    mechanism: DiscreteGaussian,
    by_value: DiscreteGaussian | None,
    most: int = NUMERIC_BINS,
    levels: TwoLevels | None = None,
) -> Histogram:
    """The bins of one attribute, at most ``most`` of a numeric one, from its noisy histogram.

    ``mechanism`` counts the cells, and the wide cells of ``levels``, ``by_value`` every single
    value too.

    Privacy: one to three partitions of the rows, each with the noise of its mechanism.
    """
    declared = declared_cells(task.domain[name])
    counted = count_histogram(private, declared, mechanism, by_value, levels)
    return bins_of_histogram(task, counted, most)


def bins_of_histogram(task: Task, counted: HistogramCounts, most: int = NUMERIC_BINS) -> Histogram:
    """The bins of an attribute, at most ``most`` of a numeric one, from its noisy counts.

    Values of attributes in hard constraints are not merged.
    """
    cells, shares = counted.estimate(task.data_rows)
    constrained = any(cells.name in constraint.attributes for constraint in task.hard)
    return bin_cells(cells, shares, counted.cells.noise / task.data_rows, constrained, most)


def measure_values(
    private: Door[TableRows],
    task: Task,
    name: str,
    mechanism: DiscreteGaussian,
    by_value: DiscreteGaussian | None,
    most: int,
    levels: TwoLevels | None = None,
) -> Histogram:
    """The bins of a numeric attribute whose values matter; see :func:`measure_histogram`."""
    declared = declared_cells(task.domain[name])
    counted = count_histogram(private, declared, mechanism, by_value, levels)
    return bins_of_values(task, counted, most)


def bins_of_values(task: Task, counted: HistogramCounts, most: int = NUMERIC_BINS) -> Histogram:
    """The bins of a numeric attribute whose values matter, from its noisy counts."""
    cells, shares = counted.estimate(task.data_rows)
    noise = (counted.values or counted.cells).noise
    return bin_values(cells, shares, noise / task.data_rows, most)
