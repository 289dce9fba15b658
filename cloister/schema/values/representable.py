"""Measured bounds that the declared dtype and format of an attribute can hold."""

from __future__ import annotations

import datetime as dt
import math
from fractions import Fraction
from typing import Any

import numpy as np

from cloister.schema.attributes import (
    EXACT_STEP,
    EXACT_YEARS,
    AnyAttribute,
    Datetime,
    Float,
    Integer,
    written_years,
)
from cloister.schema.values.formats import SECONDS_OF_DAY, utc_offset
from cloister.schema.values.number_formats import clock_unit, is_twelve_hour
from cloister.schema.values.ticks import EPOCH

_LARGEST_TICK = 2**62
"""Largest number of steps of a decimal grid between zero and a bound: it fits into 64 bits."""

NANOSECOND_DAYS = 106_751
"""Days before and after 1970 that datetime64[ns] can hold."""

Keys = dict[str, Any]


def _in_written_years(form: str, low: int, high: int) -> tuple[int, int]:
    """Seconds in years that a form writes, a whole day inside where its clock is not in UTC."""
    years, margin = written_years(form), int(utc_offset(form) != 0)
    first = (dt.date(years[0], 1, 1) - EPOCH).days + margin
    last = (dt.date(years[-1], 12, 31) - EPOCH).days + 1 - margin
    inside = np.clip([low, high], first * SECONDS_OF_DAY, last * SECONDS_OF_DAY - 1)
    return int(inside[0]), int(inside[1])


def _needs_coarser_step(step: float, *ends: int) -> bool:
    """Whether moments in years of these seconds are not told apart at such a step."""
    years = {(EPOCH + dt.timedelta(seconds=end)).year for end in ends}
    return step < EXACT_STEP and not years <= set(EXACT_YEARS)


def representable(
    attribute: AnyAttribute, low: Any, high: Any, grid: Keys
) -> tuple[Any, Any, Keys]:
    """Bounds that dtype and format can hold, on a grid whose steps are told apart."""
    if isinstance(attribute, Datetime) and attribute.format:
        low, high = _in_written_years(attribute.format, low, high)
        if _needs_coarser_step(grid["step"], low, high):
            grid = {"step": EXACT_STEP}
    dtype = (attribute.dtype or "").lower()
    form = getattr(attribute, "format", None)
    if dtype.startswith("time") or is_twelve_hour(form):
        last = SECONDS_OF_DAY // clock_unit(form) - 1
        return max(low, 0), min(high, last), grid
    if isinstance(attribute, Integer) and "int" in dtype:
        held = np.iinfo(dtype)
        return max(low, held.min), min(high, held.max), grid
    if dtype.startswith("datetime64[ns"):
        reach = NANOSECOND_DAYS * (SECONDS_OF_DAY if isinstance(attribute, Datetime) else 1)
        return max(low, -reach), min(high, reach), grid
    if isinstance(attribute, Float) and "decimals" in grid:
        decimals: int = grid["decimals"]
        while decimals and max(abs(low), abs(high)) * 10**decimals > _LARGEST_TICK:
            decimals -= 1
        ticks = math.floor(Fraction(low) * 10**decimals), math.ceil(Fraction(high) * 10**decimals)
        return (
            float(Fraction(ticks[0], 10**decimals)),
            float(Fraction(ticks[1], 10**decimals)),
            grid if decimals == grid["decimals"] else {"decimals": decimals},
        )
    return low, high, grid
