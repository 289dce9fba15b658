"""The declared range of a column, as comparable numbers."""

from __future__ import annotations

import numpy as np

from cloister.schema.columns import Column, Grid


def declared_range(column: Column) -> tuple[float, float]:
    """The comparable numbers of the first and the last value, without special values outside."""
    last = column.steps if isinstance(column, Grid) else column.values
    first_number, last_number = column.comparable(np.array([0, last - 1], dtype=np.int64))
    return float(first_number), float(last_number)
