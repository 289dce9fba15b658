"""Times of day and lengths of time as numbers: of minutes, or of seconds and their fractions.

A form such as ``%H:%M`` writes minutes, ``%H:%M:%S`` seconds, ``%H:%M:%S.%3f`` their fractions
too. Hours are as many as there are, so ``27:15`` is a length of time; those of twelve, as in
``%I:%M %p``, are of a day. Columns of Arrow types hold
the same numbers natively: ``time32[s][pyarrow]``, ``duration[us][pyarrow]``; without a form they
are seconds.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cloister.arrays import Array, Floats
from cloister.schema.values.number_formats import clock_unit, is_twelve_hour

_NATIVE = re.compile(r"(?:time32\[m?s\]|time64\[[un]s\]|duration\[(?:s|ms|us|ns)\])\[pyarrow\]")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_REST = r":(?P<minutes>[0-5][0-9])(?::(?P<seconds>[0-5][0-9])(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
_CLOCK = rf"^\s*(?P<hours>[0-9]{{1,6}}){_REST}(?P<half>)\s*$"
_TWELVE = rf"^\s*(?P<hours>0?[1-9]|1[0-2]){_REST}\s*(?P<half>(?i:am|pm))\s*$"


def numbers_of_clocks(text: pa.Array, form: str) -> pa.Array:
    """The numbers (n,) that texts of times stand for, in the unit of a form; null for others."""
    twelve = is_twelve_hour(form)
    parts = pc.extract_regex(text, _TWELVE if twelve else _CLOCK)
    known = [pc.if_else(pc.equal(part, ""), "0", part) for part in parts.flatten()[:3]]
    hours, minutes, seconds = (pc.cast(part, pa.int64()) for part in known)
    if twelve:
        afternoon = pc.equal(pc.utf8_lower(parts.flatten()[4]), "pm")
        early = pc.if_else(pc.equal(hours, 12), 0, hours)
        hours = pc.if_else(afternoon, pc.add(early, 12), early)
    fraction = pc.cast(pc.utf8_rpad(parts.flatten()[3], 9, "0"), pa.int64())
    whole = pc.add(pc.multiply(pc.add(pc.multiply(hours, 60), minutes), 60), seconds)
    numbers = pc.add(pc.cast(whole, pa.float64()), pc.divide(pc.cast(fraction, pa.float64()), 1e9))
    return pc.divide(numbers, float(clock_unit(form)))


def write_clocks(numbers: Array, form: str) -> Array:
    """Texts (n,) of numbers (n,) in the unit of a form, none of them missing."""
    digits = _fraction_digits(form)
    ticks = np.rint(numbers.astype(np.float64) * clock_unit(form) * 10**digits).astype(np.int64)
    distinct, places = np.unique(ticks, return_inverse=True)
    return np.array([_written(int(tick), form, digits) for tick in distinct], dtype=object)[places]


def native_times(numbers: pd.Series, kind: pa.DataType, form: str | None) -> pd.Series:
    """Numbers (n,) as a column of an Arrow type of times of day or lengths of time."""
    seconds = numbers.to_numpy(dtype=np.float64, na_value=np.nan) * clock_unit(form)
    ticks = np.rint(seconds * _PER_SECOND[kind.unit])
    missing = np.isnan(ticks)
    whole: Any = pa.array(np.where(missing, 0, ticks).astype(np.int64), mask=missing)
    if pa.types.is_time32(kind):
        whole = whole.cast(pa.int32())
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([whole.cast(kind)])))


def seconds_of_durations(column: pa.ChunkedArray) -> Floats:
    """Seconds (n,) of a column of lengths of time; NaN for missing ones."""
    ticks = column.cast(pa.int64()).cast(pa.float64(), safe=False)
    return ticks.to_numpy() / _PER_SECOND[column.type.unit]


def time_type(dtype: str | None) -> pa.DataType | None:
    """The Arrow type of times of day, or of lengths of time, that a dtype names; else None."""
    if dtype is None or _NATIVE.fullmatch(dtype) is None:
        return None
    return pd.api.types.pandas_dtype(dtype).pyarrow_dtype  # type: ignore[union-attr]


def _fraction_digits(form: str) -> int:
    found = re.search(r"%([1-6])f$", form)
    return int(found[1]) if found else 0


def _written(tick: int, form: str, digits: int) -> str:
    whole, fraction = divmod(tick, 10**digits)
    hours, rest = divmod(whole, 3600)
    shown = (hours + 11) % 12 + 1 if is_twelve_hour(form) else hours
    text = f"{shown:0{1 if form.startswith('%-') else 2}d}:{rest // 60:02d}"
    if "%S" in form:
        text += f":{rest % 60:02d}"
    if digits:
        text += f".{fraction:0{digits}d}"
    return text + _half(form, hours)


def _half(form: str, hours: int) -> str:
    """AM or PM as a form ends, of hours of a day; empty without it."""
    if not is_twelve_hour(form):
        return ""
    half = "AM" if hours < 12 else "PM"
    return " " * (form[-3] == " ") + (half if form.endswith("p") else half.lower())
