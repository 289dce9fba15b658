"""Times of day and lengths of time as numbers: of minutes, or of seconds and their fractions.

A form such as ``%H:%M`` writes minutes, ``%H:%M:%S`` seconds, ``%H:%M:%S.%3f`` their fractions
too. Hours are as many as there are, so ``27:15`` is a length of time. Columns of Arrow types hold
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
from cloister.schema.values.number_formats import clock_unit

_NATIVE = re.compile(r"(?:time32\[m?s\]|time64\[[un]s\]|duration\[(?:s|ms|us|ns)\])\[pyarrow\]")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_CLOCK = (
    r"^\s*(?P<hours>[0-9]{1,6}):(?P<minutes>[0-5][0-9])"
    r"(?::(?P<seconds>[0-5][0-9])(?:[.,](?P<fraction>[0-9]{1,9}))?)?\s*$"
)


def numbers_of_clocks(text: pa.Array, form: str) -> pa.Array:
    """The numbers (n,) that texts of times stand for, in the unit of a form; null for others."""
    parts = pc.extract_regex(text, _CLOCK)
    known = [pc.if_else(pc.equal(part, ""), "0", part) for part in parts.flatten()[:3]]
    hours, minutes, seconds = (pc.cast(part, pa.int64()) for part in known)
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
    width = 2 if "%H" in form else 1
    text = f"{hours:0{width}d}:{rest // 60:02d}"
    if "%S" in form:
        text += f":{rest % 60:02d}"
    return f"{text}.{fraction:0{digits}d}" if digits else text
