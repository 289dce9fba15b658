"""What forecasts of several methods share, from public sizes."""

from __future__ import annotations

import math

from models.sampling.sizes import MOST_PAIRS

MIB = 1 << 20
"""Bytes of a mebibyte."""

DRAWN_CELL = 40
"""Bytes that a cell of drawn rows takes, in all its copies."""

_EXCHANGED = 3.6e-7
"""Seconds for each row and pair of attributes whose tables are balanced."""


def balanced_seconds(rows: int, attributes: int) -> float:
    """Seconds that choosing a balanced part of the drawn rows takes."""
    return _EXCHANGED * rows * min(math.comb(attributes, 2), MOST_PAIRS)
