"""Whether a table changed between two releases, or their noise alone differs.

Of each attribute both releases have noisy counts of the same declared cells. Their shares of the
rows differ by what changed and by noise of a known deviation. Without a change, the sum of squared
differences, each in units of its noise, follows a chi-squared distribution.

Privacy: counts are released numbers; everything here is post-processing. The intervals are of the
two tables as they are: that tables are samples of people is not in them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import chi2, norm

from cloister.models.core.histograms import ReleasedCounts
from cloister.schema.partition import Partition

CONFIDENCE = 0.95
"""With this probability no unchanged attribute of a table seems changed, and all intervals of one
attribute hold."""


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
    p_value = float(chi2.sf(squares, sum(today.counts.size for _, today in scaled)))
    earlier, later = scaled[0]
    changes = later.counts - earlier.counts
    largest = int(np.argmax(np.abs(changes)))
    deviation = math.sqrt(earlier.variance + later.variance)
    width = float(norm.isf((1 - CONFIDENCE) / (2 * len(changes))) * deviation)
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
    first, last = (["missing" if pd.isna(each) else str(each) for each in end] for end in ends)
    return [
        low if low == high else f"{low} to {high}" for low, high in zip(first, last, strict=True)
    ]
