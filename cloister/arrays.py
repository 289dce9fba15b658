"""Arrays by what they hold, for annotations, and places in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

Array = NDArray[Any]
"""Of any type."""

TINY = 1e-300
"""In place of zero where that would be divided by, or have an infinite logarithm."""


def place_among_equal(grouped: Array) -> Integers:
    """The rank of each row among equal ones, from 0; equal rows are adjacent."""
    if not len(grouped):
        return np.zeros(0, dtype=np.int64)
    starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]])
    sizes = np.diff(np.r_[starts, len(grouped)])
    return np.arange(len(grouped)) - np.repeat(starts, sizes)
