"""One-way histograms: over declared cells, and over single values of wide numbers to find those that many rows hold.

A number in wide cells may have values that stand out (a common fee, a top code, a tax bracket).
Where its domain is not much larger than the table, every single value is counted with noise too,
and a value that no noise explains becomes a cell of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.queries.partition_counts import PartitionCounts
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.cells import Cells, declared_cells
from cloister.schema.columns import Codes, Grid
from cloister.schema.domain import Domain
from models.discretization.denoising import apart, estimate_shares

Shares = NDArray[np.float64]

VALUES_PER_ROW = 4
OCCUPIED = 3.0
FALSE_ALARMS = 0.2


def wide(domain: Domain, names: Sequence[str], rows: int) -> tuple[str, ...]:
    """The numeric attributes whose single values are counted, from public sizes."""
    return tuple(
        name
        for name in names
        if isinstance(domain[name], Grid) and _countable(declared_cells(domain[name]), rows)
    )


def _countable(cells: Cells, rows: int) -> bool:
    return cells.size < cells.column.size <= VALUES_PER_ROW * rows


def released_histogram(
    private: Door[TableRows], cells: Cells, mechanism: DiscreteGaussian, rows: int, by_value: bool
) -> tuple[Cells, Shares]:
    """Cells of one attribute, values that stand out apart, and the released share of rows in each."""
    deviation = mechanism.scale(private.neighbours.partition)
    counts = private.answer(PartitionCounts((cells,)), mechanism, f"histogram {cells.name}")
    shares = estimate_shares(counts, deviation, cells, rows)
    if not by_value:
        return cells, shares
    values = Cells(cells.column, np.arange(cells.column.size, dtype=np.int64))
    single = private.answer(PartitionCounts((values,)), mechanism, f"values {cells.name}")
    return with_spikes(cells, shares, single / rows, deviation / rows)


def with_spikes(
    cells: Cells, shares: Shares, single: Shares, deviation: float
) -> tuple[Cells, Shares]:
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
    held *= np.minimum(1.0, shares / np.maximum(taken, 1e-300))[of]
    left = np.maximum(shares - taken, 0.0)
    calm = np.where(spike, 0, finer.widths)
    room = np.maximum(np.bincount(of, weights=calm, minlength=cells.size), 1.0)
    finer_shares = held + (left / room)[of] * calm
    return finer, finer_shares / finer_shares.sum()


def _outstanding(cells: Cells, shares: Shares, single: Shares, deviation: float) -> Codes:
    """Fine codes of values that noise does not explain, in cells that are occupied."""
    searched = (shares > OCCUPIED * deviation) & (cells.widths > 1) & ~apart(cells)
    inside = np.flatnonzero(np.repeat(searched, cells.widths))
    threshold = deviation * float(norm.isf(FALSE_ALARMS / max(len(inside), 1)))
    return inside[single[inside] > threshold].astype(np.int64)
