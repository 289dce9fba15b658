"""Bounds, decimal places and point masses of drafted numbers.

Privacy: guessed from the data; one row may decide any of it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from cloister.schema.drafts.column_names import public_range

BINS = 50
"""Bins of a guessed number; whole numbers get them where the range is wider than twice as many."""

_BULK, _FAR = 0.9, 10
"""A tail is long where this share of the values is so many times nearer to zero than the last."""

_POINT_MASS = 0.1
"""The share of zeros above which zero is guessed a special value."""

MOST_DECIMALS = 6
"""Decimal places that a guessed grid has at most."""

_STEPS = 5
"""Round steps from the least to the greatest value, at least, to which bounds are rounded."""

_ROUNDED = "bounds are those of the data, rounded outwards: declare what is possible"


def bounds_of(name: str, low: float, high: float, what: str) -> tuple[float, float, str]:
    """Bounds by the name of a column, else those of the data moved outwards; and why."""
    known = public_range(name, low, high)
    if known:
        return *known, f"{what}; bounds as its name has them usually: check that it means that"
    return *_outwards(low, high), f"{what}; {_ROUNDED}"


def _outwards(low: float, high: float) -> tuple[float, float]:
    """Bounds moved outwards to multiples of 1 or 5 times a power of ten, a part of their span."""
    span = high - low or max(abs(high), 1)
    power = math.floor(math.log10(span / _STEPS))
    if isinstance(low, int):
        power = max(power, 0)
    step = Fraction(10) ** power * (5 if 5 * 10.0**power <= span / _STEPS else 1)
    below, above = (math.floor(Fraction(low) / step), math.ceil(Fraction(high) / step))
    return float(below * step), float(above * step)


def decimals_of(typed: pd.Series) -> int:
    """The decimal places of all values (n,), six at most."""
    numbers = typed.to_numpy(dtype=np.float64)
    places = range(MOST_DECIMALS)
    fitting = (p for p in places if np.array_equal(np.round(numbers, p), numbers))
    return next(fitting, MOST_DECIMALS)


def bins_of(typed: pd.Series) -> dict[str, Any]:
    """Bins: equal ones, or growing away from zero where few values lie far out."""
    distance = typed.abs()
    far = float(distance.quantile(_BULK)) * _FAR < float(distance.max())
    return {"bins": BINS, "scale": "log"} if far else {"bins": BINS}


def point_mass(typed: pd.Series, value: float) -> dict[str, Any]:
    """The key of a special value that many rows have, if it is one."""
    return {"special": [value]} if float(typed.eq(value).mean()) > _POINT_MASS else {}
