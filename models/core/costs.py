"""Sizes of draws, and the costs of counting and drawing, in seconds and bytes; public."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cloister.models.task import AnyPlan, Forecast, Task
from cloister.schema.partition import declared_cells

OVERSAMPLING = 4
"""Rows drawn for each row of a balanced sample: a power of two, as sequences of points are even."""

MANY_ROWS = 1 << 19
"""Rows from which on consecutive points of a sequence are as even as balanced chunks.

Mean half L1 of pairs of 15 attributes in 800 components: of 2^20 rows .0013 by both, of 2^17 rows
.0056 by points and .0039 balanced (docs/papers.md).
"""

MOST_PAIRS = 300
"""Most pairs of attributes whose tables are compared."""

POOL_ROWS = 40_000
"""Rows on which a model's own rates of violation are measured."""

EXPECTED_ROWS = 100_000
"""Rows drawn from a model to estimate joint shares that were not measured."""

PAIR_CELLS = 10_000
"""Most cells of a pair of attributes that a mixture may measure."""

MIB = 1 << 20
"""Bytes of a mebibyte."""

DRAWN_CELL = 40
"""Bytes of a cell of drawn rows, in all its copies."""

DEVICE_CONTEXT = 700 * MIB
"""Bytes of a CUDA device that the driver and the libraries of torch take for a process."""

NOISE = 2.2e-5
"""Seconds for the exact noise of one count."""

COUNT = 250
"""Bytes of a count while it gets its noise."""

DRAWN = 5e-7
"""Seconds per cell of rows drawn from tables of shares."""

_START = 0.5
"""Fixed seconds of a fit."""

_LIBRARIES = 250_000_000
"""Bytes of the libraries that counting and drawing need."""

_BYTES_COUNTED, _BYTES_DRAWN = 400, 60
"""Bytes of a counted cell, and of a cell of the table or the drawn rows, in all their copies."""

_EXCHANGED = 3.6e-7
"""Seconds for each row and pair of attributes whose tables are balanced."""


def counting(task: Task, cells: int, *, noise: float = NOISE, drawn: float = DRAWN) -> Forecast:
    """What a fit needs that counts so many cells and little else, and drawing the output from it.

    ``noise`` is the seconds that a counted cell takes, ``drawn`` those of a cell of drawn rows.
    """
    table = max(task.data_rows, task.output_rows) * len(task.domain.names)
    seconds = _START + noise * cells + drawn * table
    return Forecast(round(seconds, 1), _LIBRARIES + _BYTES_COUNTED * cells + _BYTES_DRAWN * table)


def histogram_counts(task: Task) -> int:
    """Counts of the histograms of all attributes."""
    return sum(declared_cells(task.domain[name]).size for name in task.domain.modelled)


def balanced_seconds(rows: int, attributes: int) -> float:
    """Seconds that choosing a balanced part of the drawn rows takes."""
    return _EXCHANGED * rows * min(math.comb(attributes, 2), MOST_PAIRS)


def together(plans: Iterable[AnyPlan]) -> Forecast:
    """The forecast of fits that run one after the other."""
    forecasts = [plan.forecast for plan in plans]
    return Forecast(
        round(sum(each.seconds for each in forecasts), 1),
        max((each.memory for each in forecasts), default=0),
        max((each.device_memory for each in forecasts), default=0),
    )
