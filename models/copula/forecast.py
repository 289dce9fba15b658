"""What a fit and a draw of the copula will need, from public sizes."""

from __future__ import annotations

from cloister.models.planning import COUNT, NOISE, histogram_counts
from cloister.models.task import Forecast, Task
from cloister.privacy.queries.counts import DummyCoding

_LOOKUP = 4e-9
"""Seconds to count a row in one pair of attributes."""

_PRODUCT = 2.6e-11
"""Seconds for a row, for each product of two columns."""

_PAIR = 2e-5
"""Seconds to find the correlations of a pair of columns, refinements included."""

_CUBE = 4e-9
"""Seconds for each cubed column of all eigendecompositions of a fit."""

_DRAWN = 2.5e-8
"""Seconds for a binary column of a row that is drawn and decoded."""

_HELD = 400_000_000
"""Bytes of the rows that are counted or drawn at a time, in all copies."""

_ROW = 24
"""Bytes for each row: one column is counted, or put together, at a time."""

_SQUARE = 120
"""Bytes for each pair of columns: counts, correlations, eigenvectors, and their copies."""

_START = 4.0
"""Seconds of a fit and a draw that do not depend on the table."""


def forecast_copula(task: Task, coding: DummyCoding, *, pairs: bool) -> Forecast:
    """Seconds of processor time and bytes of memory of counting, fitting and drawing."""
    width, attributes, rows = coding.width, len(coding.sizes), task.data_rows
    products = _PRODUCT * width**2
    counted = rows * min(_LOOKUP * attributes**2 / 2, products) + NOISE * width**2 / 2
    fitted = _PAIR * width**2 / 2 + _CUBE * width**3
    drawn = task.output_rows * (_DRAWN * width + products)
    histograms = histogram_counts(task)
    seconds = _START + NOISE * histograms + drawn + (counted + fitted if pairs else 0.0)
    memory = _HELD + _ROW * max(rows, task.output_rows) + _SQUARE * width**2 + COUNT * histograms
    return Forecast(round(seconds, 1), int(memory))
