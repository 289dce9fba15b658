"""Arrays by what they hold, for annotations."""

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
