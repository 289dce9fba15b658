"""Values of a number, a date or a moment as whole grid units: ticks from zero or from 1970.

A tick of a date is a day, or a month if its format has no day. Measured bounds are moved to those
that the declared dtype and format of an attribute can hold.
"""

from __future__ import annotations

import datetime as dt
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.schema import attributes, written_moments

if TYPE_CHECKING:
    import pandas as pd


_FARTHEST_TICK = 2.0**62
"""Ticks from zero to which greater floats are clipped: outside every domain, and fits int64."""

EPOCH = dt.date(1970, 1, 1)
"""The day from which dates are numbered."""

_EPOCH_MOMENT = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def tick_of(attribute: attributes.AnyAttribute, value: object) -> int:
    """The whole number of grid units of one declared value."""
    if isinstance(attribute, attributes.Datetime):
        micros = (attributes.as_moment(value) - _EPOCH_MOMENT) // dt.timedelta(microseconds=1)
        return round(Fraction(micros, attribute.tick_micros))
    if is_month(attribute):
        day = attributes.as_date(value)
        return (day.year - EPOCH.year) * 12 + day.month - 1
    return round(number_of(attribute, value) * ticks_per_unit(attribute))


def stride_of(attribute: attributes.AnyAttribute) -> int:
    """The number of ticks from one value of a grid to the next."""
    if isinstance(attribute, attributes.Datetime):
        return attribute.step_micros // attribute.tick_micros
    if isinstance(attribute, attributes.Float) and attribute.step is not None:
        return round(attribute.step * ticks_per_unit(attribute))
    return attribute.step if isinstance(attribute, attributes.Integer) else 1


def float_decimals(attribute: attributes.AnyAttribute) -> int:
    """Decimal places of a float attribute's grid.

    As declared, else as many as give at least a million steps.
    """
    declared: int | None = getattr(attribute, "decimals", None)
    if declared is not None:
        return declared
    span = float(attribute.max) - float(attribute.min)  # type: ignore[union-attr, arg-type]
    return int(np.clip(np.ceil(6 - np.log10(span)), 0, 12)) if span > 0 else 6


def is_month(attribute: attributes.AnyAttribute) -> bool:
    """Whether values are months."""
    return isinstance(attribute, attributes.Date) and written_moments.is_of_months(attribute.format)


def moment_dtype(attribute: attributes.AnyAttribute) -> str:
    """The pandas dtype of dates and moments of an attribute."""
    fine = isinstance(attribute, attributes.Datetime) and attribute.places > 0
    return "datetime64[us]" if fine else "datetime64[s]"


def ticks_per_unit(attribute: attributes.AnyAttribute) -> float:
    """How many grid units a unit of a number, or a second, has."""
    if isinstance(attribute, attributes.Datetime):
        return float(10**attribute.places)
    return float(10 ** float_decimals(attribute)) if attribute.type == "float" else 1.0


def number_of(attribute: attributes.AnyAttribute, value: object) -> float:
    """One declared value as a number; TypeError if it is none."""
    if attribute.type == "date":
        return float((attributes.as_date(value) - EPOCH).days)
    if attribute.type == "datetime":
        return attributes.as_moment(value).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        raise TypeError("not a number that can be counted with") from None


def ticks_of_series(attribute: attributes.AnyAttribute, typed: pd.Series) -> Integers:
    """Grid units (n,) of typed values (n,), none missing."""
    if isinstance(attribute, attributes.Datetime):
        micros = typed.to_numpy().astype("datetime64[us]").astype(np.int64)
        return micros // attribute.tick_micros
    if attribute.type == "date":
        return typed.to_numpy().astype(_unit_of_dates(attribute)).astype(np.int64)
    if attribute.type == "integer":
        return typed.to_numpy(dtype=np.int64)
    with np.errstate(over="ignore"):  # a warning would tell of one row
        ticks = np.rint(typed.to_numpy(dtype=np.float64) * ticks_per_unit(attribute))
    return np.clip(ticks, -_FARTHEST_TICK, _FARTHEST_TICK).astype(np.int64)


def values_of_ticks(
    attribute: attributes.AnyAttribute, ticks: Integers
) -> tuple[NDArray[Any], str]:
    """Values (n,) of ticks, and their pandas dtype."""
    if attribute.type == "float":
        values = np.round(ticks / ticks_per_unit(attribute), float_decimals(attribute))
        return values, "float64"
    if attribute.type == "integer":
        return ticks, "Int64" if attribute.nullable else "int64"
    if isinstance(attribute, attributes.Datetime):
        dtype = moment_dtype(attribute)
        return (ticks * attribute.tick_micros).astype("datetime64[us]").astype(dtype), dtype
    return ticks.astype(_unit_of_dates(attribute)).astype("datetime64[s]"), "datetime64[s]"


def numbers_of_ticks(attribute: attributes.AnyAttribute, ticks: Integers) -> Floats:
    """Numbers (n,) of ticks: days or seconds since 1970 of dates and moments."""
    if is_month(attribute):
        days = ticks.astype(_unit_of_dates(attribute)).astype("datetime64[D]")
        return days.astype(np.int64).astype(np.float64)
    return ticks / ticks_per_unit(attribute)


def _unit_of_dates(attribute: attributes.AnyAttribute) -> str:
    return "datetime64[M]" if is_month(attribute) else "datetime64[D]"


_LARGEST_TICK = 2**62
"""Largest number of steps of a decimal grid between zero and a bound: it fits into 64 bits."""

NANOSECOND_DAYS = 106_751
"""Days before and after 1970 that datetime64[ns] can hold."""

Keys = dict[str, Any]


def _in_written_years(form: str, low: int, high: int) -> tuple[int, int]:
    """Seconds in years that a form writes, a whole day inside where its clock is not in UTC."""
    years, margin = written_moments.written_years(form), int(written_moments.utc_offset(form) != 0)
    first = (dt.date(years[0], 1, 1) - EPOCH).days + margin
    last = (dt.date(years[-1], 12, 31) - EPOCH).days + 1 - margin
    inside = np.clip(
        [low, high],
        first * written_moments.SECONDS_OF_DAY,
        last * written_moments.SECONDS_OF_DAY - 1,
    )
    return int(inside[0]), int(inside[1])


def _needs_coarser_step(step: float, *ends: int) -> bool:
    """Whether moments in years of these seconds are not told apart at such a step."""
    years = {(EPOCH + dt.timedelta(seconds=end)).year for end in ends}
    return step < attributes.EXACT_STEP and not years <= set(attributes.EXACT_YEARS)


def representable(
    attribute: attributes.AnyAttribute, low: Any, high: Any, grid: Keys
) -> tuple[Any, Any, Keys]:
    """Bounds that dtype and format can hold, on a grid whose steps are told apart."""
    if isinstance(attribute, attributes.Datetime) and attribute.format:
        low, high = _in_written_years(attribute.format, low, high)
        if _needs_coarser_step(grid["step"], low, high):
            grid = {"step": attributes.EXACT_STEP}
    dtype = (attribute.dtype or "").lower()
    form = getattr(attribute, "format", None)
    if dtype.startswith("time") or written_moments.is_twelve_hour(form):
        last = written_moments.SECONDS_OF_DAY // written_moments.clock_unit(form) - 1
        return max(low, 0), min(high, last), grid
    if isinstance(attribute, attributes.Integer) and "int" in dtype:
        limits = np.iinfo(dtype)
        return max(low, limits.min), min(high, limits.max), grid
    if dtype.startswith("datetime64[ns"):
        reach = NANOSECOND_DAYS * (
            written_moments.SECONDS_OF_DAY if isinstance(attribute, attributes.Datetime) else 1
        )
        return max(low, -reach), min(high, reach), grid
    if isinstance(attribute, attributes.Float) and "decimals" in grid:
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
