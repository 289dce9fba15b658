"""Values of a number, a date or a moment as whole grid units: ticks from zero or from 1970.

A tick of a date is a day, or a month if its format has no day.
"""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.schema.attributes import (
    AnyAttribute,
    Date,
    Datetime,
    Float,
    Integer,
    as_date,
    as_moment,
)
from cloister.schema.values.formats import is_of_months

if TYPE_CHECKING:
    import pandas as pd

_FARTHEST_TICK = 2.0**62
"""Ticks from zero to which greater floats are clipped: outside every domain, and fits int64."""

EPOCH = dt.date(1970, 1, 1)
"""The day from which dates are numbered."""

_EPOCH_MOMENT = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def tick_of(attribute: AnyAttribute, value: object) -> int:
    """The whole number of grid units of one declared value."""
    if isinstance(attribute, Datetime):
        micros = (as_moment(value) - _EPOCH_MOMENT) // dt.timedelta(microseconds=1)
        return round(Fraction(micros, attribute.tick_micros))
    if is_month(attribute):
        day = as_date(value)
        return (day.year - EPOCH.year) * 12 + day.month - 1
    return round(number_of(attribute, value) * ticks_per_unit(attribute))


def stride_of(attribute: AnyAttribute) -> int:
    """The number of ticks from one value of a grid to the next."""
    if isinstance(attribute, Datetime):
        return attribute.step_micros // attribute.tick_micros
    if isinstance(attribute, Float) and attribute.step is not None:
        return round(attribute.step * ticks_per_unit(attribute))
    return attribute.step if isinstance(attribute, Integer) else 1


def float_decimals(attribute: AnyAttribute) -> int:
    """Decimal places of a float attribute's grid.

    As declared, else as many as give at least a million steps.
    """
    declared: int | None = getattr(attribute, "decimals", None)
    if declared is not None:
        return declared
    span = float(attribute.max) - float(attribute.min)  # type: ignore[union-attr, arg-type]
    return int(np.clip(np.ceil(6 - np.log10(span)), 0, 12)) if span > 0 else 6


def is_month(attribute: AnyAttribute) -> bool:
    """Whether values are months."""
    return isinstance(attribute, Date) and is_of_months(attribute.format)


def moment_dtype(attribute: AnyAttribute) -> str:
    """The pandas dtype of dates and moments of an attribute."""
    fine = isinstance(attribute, Datetime) and attribute.places > 0
    return "datetime64[us]" if fine else "datetime64[s]"


def ticks_per_unit(attribute: AnyAttribute) -> float:
    """How many grid units a unit of a number, or a second, has."""
    if isinstance(attribute, Datetime):
        return float(10**attribute.places)
    return float(10 ** float_decimals(attribute)) if attribute.type == "float" else 1.0


def number_of(attribute: AnyAttribute, value: object) -> float:
    """One declared value as a number; TypeError if it is none."""
    if attribute.type == "date":
        return float((as_date(value) - EPOCH).days)
    if attribute.type == "datetime":
        return as_moment(value).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    return float(value)


def ticks_of_series(attribute: AnyAttribute, typed: pd.Series) -> Integers:
    """Grid units (n,) of typed values (n,), none missing."""
    if isinstance(attribute, Datetime):
        micros = typed.to_numpy().astype("datetime64[us]").astype(np.int64)
        return micros // attribute.tick_micros
    if attribute.type == "date":
        return typed.to_numpy().astype(_unit_of_dates(attribute)).astype(np.int64)
    if attribute.type == "integer":
        return typed.to_numpy(dtype=np.int64)
    with np.errstate(over="ignore"):  # a warning would tell of one row
        ticks = np.rint(typed.to_numpy(dtype=np.float64) * ticks_per_unit(attribute))
    return np.clip(ticks, -_FARTHEST_TICK, _FARTHEST_TICK).astype(np.int64)


def values_of_ticks(attribute: AnyAttribute, ticks: Integers) -> tuple[NDArray[Any], str]:
    """Values (n,) of ticks, and their pandas dtype."""
    if attribute.type == "float":
        values = np.round(ticks / ticks_per_unit(attribute), float_decimals(attribute))
        return values, "float64"
    if attribute.type == "integer":
        return ticks, "Int64" if attribute.nullable else "int64"
    if isinstance(attribute, Datetime):
        dtype = moment_dtype(attribute)
        return (ticks * attribute.tick_micros).astype("datetime64[us]").astype(dtype), dtype
    return ticks.astype(_unit_of_dates(attribute)).astype("datetime64[s]"), "datetime64[s]"


def numbers_of_ticks(attribute: AnyAttribute, ticks: Integers) -> Floats:
    """Numbers (n,) of ticks: days or seconds since 1970 of dates and moments."""
    if is_month(attribute):
        days = ticks.astype(_unit_of_dates(attribute)).astype("datetime64[D]")
        return days.astype(np.int64).astype(np.float64)
    return ticks / ticks_per_unit(attribute)


def _unit_of_dates(attribute: AnyAttribute) -> str:
    return "datetime64[M]" if is_month(attribute) else "datetime64[D]"
