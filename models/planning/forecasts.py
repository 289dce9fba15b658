"""What forecasts of several methods share, from public sizes."""

from __future__ import annotations

import math

from cloister.models.sampling.sizes import MOST_PAIRS
from cloister.models.task import Task
from cloister.schema.domain import declared_cells

MIB = 1 << 20
"""Bytes of a mebibyte."""

DRAWN_CELL = 40
"""Bytes that a cell of drawn rows takes, in all its copies."""

DEVICE_CONTEXT = 700 * MIB
"""Bytes of a CUDA device that the driver and the libraries of torch take for a process."""

NOISE = 2.2e-5
"""Seconds for the exact noise of one count."""

COUNT = 250
"""Bytes that a count takes while it gets its noise."""

_EXCHANGED = 3.6e-7
"""Seconds for each row and pair of attributes whose tables are balanced."""


def histogram_counts(task: Task) -> int:
    """Counts of the histograms of all attributes."""
    return sum(declared_cells(task.domain[name]).size for name in task.domain.modelled)


def balanced_seconds(rows: int, attributes: int) -> float:
    """Seconds that choosing a balanced part of the drawn rows takes."""
    return _EXCHANGED * rows * min(math.comb(attributes, 2), MOST_PAIRS)
