"""Values of columns as pandas holds them: lists, moments, and times of day as numbers.

:mod:`cloister.schema.columns` imports this module where it meets a series, so that public domains
can be used without pandas and pyarrow.

Times of day and lengths of time are numbers of minutes, or of seconds and their fractions. Columns
of Arrow types hold the same numbers natively: ``time32[s][pyarrow]``, ``duration[us][pyarrow]``;
without a form they are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cloister.arrays import Floats, Integers
from cloister.schema.attributes import Scalar
from cloister.schema.written_moments import clock_unit


def label_index(labels: Sequence[str]) -> pd.Index:
    """An index that finds the positions of labels."""
    return pd.Index(np.array(labels, dtype=object))


def positions_of(typed: pd.Series, index: pd.Index) -> Integers:
    """The positions (n,) of values, as text, in an index of labels; -1 where it has none."""
    texts = pd.Index(typed.astype(str).astype(object))
    return index.get_indexer(texts).astype(np.int64)


def listed_values(listed: Sequence[Scalar], dtype: str, positions: Integers) -> pd.Series:
    """The values (n,) at positions (n,) of a list."""
    return pd.Series(list(listed), dtype=dtype).take(positions).reset_index(drop=True)


def typed_values(values: np.ndarray, dtype: str) -> pd.Series:
    """An array (n,) as a series."""
    return pd.Series(values, dtype=dtype)


def numbered_texts(prefix: str, numbers: Integers, width: int, suffix: str) -> pd.Series:
    """Texts (n,) of a numbered pattern; numbers are padded with zeros to ``width`` digits."""
    return prefix + pd.Series(numbers).astype(str).str.zfill(width) + suffix


def numbers_in(texts: pd.Series, prefix: str, suffix: str, otherwise: int) -> Integers:
    """The numbers (n,) between prefix and suffix, of at most 18 digits, as a code has."""
    pattern = f"^{re.escape(prefix)}(?P<number>0*[0-9]{{1,18}}){re.escape(suffix)}$"
    array: Any = pa.array(texts.astype("str"), type=pa.large_string())
    digits = pc.struct_field(pc.extract_regex(array, pattern), "number")
    numbers: Integers = pc.fill_null(pc.cast(digits, pa.int64()), otherwise).to_numpy(
        zero_copy_only=False
    )
    return numbers


def hash_texts(texts: pd.Series, bits: int) -> Integers:
    """Hashes (n,) of so many bits that depend on each text alone."""
    hashes = pd.util.hash_array(texts.to_numpy(dtype=object))
    return (hashes >> np.uint64(64 - bits)).astype(np.int64)


def zoned_dtype(name: str) -> str | None:
    """The name of a pandas dtype of moments in a time zone; None of any other text."""
    try:
        kind = pd.api.types.pandas_dtype(name)
    except TypeError:
        return None
    return str(kind) if isinstance(kind, pd.DatetimeTZDtype) else None


def in_zone(moments: pd.Series, dtype: str) -> pd.Series:
    """Moments (n,) in UTC as a column of a dtype that may name a time zone."""
    if zoned_dtype(dtype) is None:
        return moments.astype(dtype)  # type: ignore[call-overload]
    return moments.dt.tz_localize("UTC").astype(dtype)


def in_categories(values: pd.Series, listed: Sequence[Scalar], ordered: bool) -> pd.Series:
    """Listed values (n,) as pandas categories: all of the list, in its order."""
    return values.astype(pd.CategoricalDtype(list(listed), ordered=ordered))


_NATIVE = re.compile(r"(?:time32\[m?s\]|time64\[[un]s\]|duration\[(?:s|ms|us|ns)\])\[pyarrow\]")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


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
