"""One-way histograms: over declared cells, and over single values of numbers in wide cells.

A number in wide cells may have values that many rows hold (a common fee, a top code, a tax
bracket). Where its domain is not much larger than the table, every single value is counted with
noise too, and a value that noise does not explain becomes a cell of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from cloister.arrays import TINY, Floats
from cloister.models.discretization.denoising import apart, estimate_shares
from cloister.models.discretization.two_levels import TwoLevels
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.columns import Codes, Grid
from cloister.schema.domain import Cells, Domain, declared_cells

_VALUES_PER_ROW = 4
"""Values of a domain for each row at most, for its single values to be counted."""

_OCCUPIED = 3.0
"""Standard deviations of the noise above which a cell is searched for values that stand out."""

_FALSE_ALARMS = 0.2
"""Expected number of values of an attribute that stand out by noise alone."""


def counted_by_value(domain: Domain, names: Sequence[str], rows: int) -> tuple[str, ...]:
    """The numeric attributes whose single values are counted, from public sizes."""
    return tuple(
        name
        for name in names
        if isinstance(domain[name], Grid) and _countable(declared_cells(domain[name]), rows)
    )


def _countable(cells: Cells, rows: int) -> bool:
    return cells.size < cells.column.size <= _VALUES_PER_ROW * rows


@dataclass(frozen=True)
class HistogramCounts:
    """Noisy counts of one attribute: of its cells, and of wide cells and single values, if counted.

    Shapes: ``counts`` (cells,), ``wide`` (wide cells,), ``values`` (fine codes,). ``deviation`` is
    the standard deviation of the noise of cells and wide cells, in rows, ``value_deviation`` that
    of single values.
    """

    cells: Cells
    counts: Floats
    deviation: float
    wide: Floats | None = None
    values: Floats | None = None
    value_deviation: float = math.inf

    @cached_property
    def levels(self) -> TwoLevels | None:
        """The cells and the wide ones, if these are counted."""
        return None if self.wide is None else TwoLevels.of(self.cells)

    def estimate(self, rows: int) -> tuple[Cells, Floats]:
        """The cells, values that stand out apart, and their shares of ``rows`` rows."""
        if self.levels is None or self.wide is None:
            shares = estimate_shares(self.counts, self.deviation, self.cells, rows)
        else:
            shares = self.levels.estimate_shares(self.counts, self.wide, self.deviation, rows)
        if self.values is None:
            return self.cells, shares
        return with_spikes(self.cells, shares, self.values / rows, self.value_deviation / rows)


def count_histogram(
    private: Door[TableRows],
    cells: Cells,
    mechanism: DiscreteGaussian,
    by_value: DiscreteGaussian | None,
    levels: TwoLevels | None = None,
) -> HistogramCounts:
    """The noisy counts of one attribute.

    ``mechanism`` counts the cells and the wide cells of ``levels``, ``by_value`` the single values,
    if these are counted.

    Privacy: one to three partitions of the rows, each with the noise of its mechanism.
    """

    def count(own: Cells, with_noise: DiscreteGaussian, label: str) -> Floats:
        query, label = PartitionCounts((own,)), f"{label} {cells.name}"
        return private.answer(query, with_noise, label).astype(np.float64)

    partition = private.neighbours.partition
    counts = count(cells, mechanism, "histogram")
    wide = None if levels is None else count(levels.wide, mechanism, "wide histogram")
    if by_value is None:
        return HistogramCounts(cells, counts, mechanism.scale(partition), wide)
    single = Cells(cells.column, np.arange(cells.column.size, dtype=np.int64))
    values = count(single, by_value, "values")
    return HistogramCounts(
        cells, counts, mechanism.scale(partition), wide, values, by_value.scale(partition)
    )


def with_spikes(
    cells: Cells, shares: Floats, single: Floats, deviation: float
) -> tuple[Cells, Floats]:
    """Cells with the values apart whose noisy share stands out, and shares of all; post-processing.

    Shapes: ``shares`` (cells,), ``single`` (fine codes,) with noise of standard deviation
        ``deviation``.
    """
    codes = _outstanding(cells, shares, single, deviation)
    starts = np.unique(np.concatenate([cells.starts, codes, codes + 1]))
    finer = Cells(cells.column, starts[starts < cells.column.size])
    of = cells.of(finer.starts)
    spike = np.isin(finer.starts, codes) & (cells.widths[of] > 1)
    held = np.where(spike, single[finer.starts], 0.0)
    taken = np.bincount(of, weights=held, minlength=cells.size)
    held *= np.minimum(1.0, shares / np.maximum(taken, TINY))[of]
    left = np.maximum(shares - taken, 0.0)
    calm = np.where(spike, 0, finer.widths)
    size = np.maximum(np.bincount(of, weights=calm, minlength=cells.size), 1.0)
    finer_shares = held + (left / size)[of] * calm
    return finer, finer_shares / finer_shares.sum()


def _outstanding(cells: Cells, shares: Floats, single: Floats, deviation: float) -> Codes:
    """Fine codes of values that noise does not explain, in cells that are occupied."""
    searched = (shares > _OCCUPIED * deviation) & (cells.widths > 1) & ~apart(cells)
    inside = np.flatnonzero(np.repeat(searched, cells.widths))
    threshold = -deviation * float(ndtri(_FALSE_ALARMS / max(len(inside), 1)))
    return inside[single[inside] > threshold].astype(np.int64)
