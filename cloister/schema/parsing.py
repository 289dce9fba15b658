"""Raw column values to the typed values of an attribute: vectorised and exact.

A value that cannot be read as its attribute's type becomes missing and is marked invalid; it is never quoted. Text is
parsed once per distinct value.

    categorical, ordinal   ``str``, or ``Int64`` / ``float64`` when the declared list holds whole numbers / numbers
    boolean                ``boolean``, or the two words as ``str`` when others than True and False are declared;
                           read from the words, from pandas booleans, or from 0 and 1 in a numeric column
    integer                ``Int64``; ``7``, ``+7`` and ``7.0`` are seven; at most 18 digits
    float                  ``float64``; decimal or scientific notation, finite
    date                   ``datetime64[s]``; ``YYYY-MM-DD``, or a moment at midnight
    datetime               ``datetime64[us]``; ISO 8601, moments with a time zone are moved to UTC
    text                   ``str``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api import types as pt

from cloister.schema.attributes import (
    AnyAttribute,
    Boolean,
    Categorical,
    Date,
    Datetime,
    Float,
    Integer,
    Ordinal,
    ValuesFile,
    ValuesPattern,
)

LARGEST_WHOLE = 10**18 - 1

_WHOLE = r"^\s*[+-]?0*[0-9]{1,18}(\.0*)?\s*$"
_DECIMAL = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$"
_DAY, _CLOCK, _ZONE = (
    "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?",
    "[Zz]|[+-][0-9]{2}:?[0-9]{2}",
)
_MOMENT = f"^{_DAY}([T ]{_CLOCK}({_ZONE})?)?$"


def parse(values: pd.Series, attribute: AnyAttribute) -> tuple[pd.Series, np.ndarray]:
    """Typed values of a raw column and the mask of the values that are not of the attribute's type.

    ``values`` holds text or a native dtype, shape (n,), missing values already missing. Whether a value lies within
    the declared bounds or list is not looked at here. Returns (typed, invalid), both of shape (n,); invalid values
    are missing in ``typed``, whose index is that of ``values``.
    """
    missing = values.isna().to_numpy(dtype=bool)
    typed = _parser(attribute)(_plain(values)).set_axis(values.index)
    typed.name = values.name
    return typed, typed.isna().to_numpy(dtype=bool) & ~missing


def holds_numbers(attribute: Categorical | Ordinal) -> bool:
    """Whether the declared list is of numbers, so that text is parsed before it is compared with the list."""
    if isinstance(attribute.values, ValuesFile | ValuesPattern):
        return False
    return all(isinstance(value, int | float) for value in attribute.values)


def _parser(attribute: AnyAttribute) -> Callable[[pd.Series], pd.Series]:
    if isinstance(attribute, Boolean):
        return lambda raw: _booleans(raw, attribute)
    if isinstance(attribute, Categorical | Ordinal) and holds_numbers(attribute):
        return _wholes if all(isinstance(value, int) for value in attribute.values) else _decimals
    parsers: dict[type, Callable[[pd.Series], pd.Series]] = {
        Integer: _wholes,
        Float: _decimals,
        Date: _days,
        Datetime: _moments,
    }
    return parsers.get(type(attribute), _texts)


def _plain(values: pd.Series) -> pd.Series:
    """The column as a number, boolean, datetime or ``str`` dtype; categories and objects are unpacked."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    if pt.is_object_dtype(values.dtype):
        values = values.infer_objects()
    if pt.is_numeric_dtype(values.dtype) or pt.is_datetime64_any_dtype(values.dtype):
        return values
    if pt.is_string_dtype(values.dtype) and not pt.is_object_dtype(values.dtype):
        return values.astype("str")
    return values.map(str, na_action="ignore").astype("str")


def _is_number(raw: pd.Series) -> bool:
    return bool(pt.is_numeric_dtype(raw.dtype) and not pt.is_bool_dtype(raw.dtype))


def _is_text(raw: pd.Series) -> bool:
    return bool(pt.is_string_dtype(raw.dtype))


def _texts(raw: pd.Series) -> pd.Series:
    if pt.is_float_dtype(raw.dtype) and _wholes(raw).notna().equals(raw.notna()):
        raw = _wholes(raw)
    return raw if _is_text(raw) else raw.map(str, na_action="ignore").astype("str")


def _booleans(raw: pd.Series, attribute: Boolean) -> pd.Series:
    true, false = (attribute.true, attribute.false) if _is_text(raw) else (1, 0)
    if pt.is_datetime64_any_dtype(raw.dtype):
        return _nothing(raw, "boolean")
    truth = raw.eq(true).fillna(False).to_numpy(dtype=bool)
    unknown = ~(truth | raw.eq(false).fillna(False).to_numpy(dtype=bool))
    typed = pd.Series(pd.arrays.BooleanArray(truth, unknown))
    if (attribute.true, attribute.false) == ("True", "False"):
        return typed
    return pd.Series(np.where(truth, attribute.true, attribute.false)).astype("str").mask(unknown)


def _wholes(raw: pd.Series) -> pd.Series:
    if _is_text(raw):
        parsed = _by_distinct(raw, _wholes_of_text)
        return pd.Series(parsed.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get))
    if not _is_number(raw):
        return _nothing(raw, "Int64")
    if not pt.is_float_dtype(raw.dtype):
        kept = raw.where(raw.between(-LARGEST_WHOLE, LARGEST_WHOLE).fillna(False), pd.NA)
        return pd.Series(kept.astype("Int64"))
    numbers = raw.to_numpy(dtype=np.float64, na_value=np.nan)
    whole = (np.abs(numbers) < float(2**53)) & (np.floor(numbers) == numbers)
    return pd.Series(pd.arrays.IntegerArray(np.where(whole, numbers, 0).astype(np.int64), ~whole))


def _decimals(raw: pd.Series) -> pd.Series:
    if _is_text(raw):
        numbers = _by_distinct(raw, _decimals_of_text).to_numpy(zero_copy_only=False)
    elif _is_number(raw):
        numbers = raw.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        return _nothing(raw, "float64")
    return pd.Series(np.where(np.isfinite(numbers), numbers, np.nan), dtype="float64")


def _moments(raw: pd.Series) -> pd.Series:
    if _is_text(raw):
        return _moments_of_text(raw)
    if not pt.is_datetime64_any_dtype(raw.dtype):
        return _nothing(raw, "datetime64[us]")
    naive = raw.dt.tz_convert("UTC").dt.tz_localize(None) if raw.dt.tz is not None else raw
    return naive.astype("datetime64[us]")


def _days(raw: pd.Series) -> pd.Series:
    moments = _moments(raw)
    return moments.where(moments.dt.normalize() == moments).astype("datetime64[s]")


def _nothing(raw: pd.Series, dtype: str) -> pd.Series:
    return pd.Series(np.full(len(raw), np.nan)).astype(pt.pandas_dtype(dtype))


def _by_distinct(text: pd.Series, read: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """``read`` applied to each distinct text once, shape (n,)."""
    array: Any = pa.array(text, type=pa.large_string(), from_pandas=True)
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    coded = whole.dictionary_encode()
    return read(coded.dictionary).take(coded.indices)


def _matching(text: pa.Array, pattern: str) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, text.type))


def _wholes_of_text(text: pa.Array) -> pa.Array:
    return pc.cast(
        pc.replace_substring_regex(_matching(text, _WHOLE), r"^\s*\+?|(\.0*)?\s*$", ""),
        pa.int64(),
    )


def _decimals_of_text(text: pa.Array) -> pa.Array:
    return pc.cast(
        pc.replace_substring_regex(_matching(text, _DECIMAL), r"^\s*\+?|\s*$", ""),
        pa.float64(),
    )


def _moments_of_text(text: pd.Series) -> pd.Series:
    def read(distinct: pa.Array) -> pa.Array:
        iso = _matching(distinct, _MOMENT).to_pandas().astype("str")
        moments = pd.to_datetime(iso, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)
        return pa.array(moments.astype("datetime64[us]"), from_pandas=True)

    return pd.Series(_by_distinct(text, read).to_pandas()).astype("datetime64[us]")
