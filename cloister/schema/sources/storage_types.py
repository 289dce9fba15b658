"""Columns as a source stores them, read cell by cell from content and storage type alone.

A storage type is a property of the file, of the database or of one Python value; it is never
inferred from what other rows hold. Columns come in six storages:

    boolean                pandas booleans
    whole numbers          integers of up to 64 bits, signed or not
    numbers                floating point; NaN is missing
    moments                ``datetime64`` without a zone; moments with a zone are moved to UTC
    texts                  ``str``; bytes are read as UTF-8, others become backslash escapes
    objects                Python values, each of the storage of its own type; decimals, days, times
                           and UUIDs as text

Lengths of time are numbers of seconds. Anything else (lists, mappings, ...) is unreadable: a cell
of its own, or a whole Parquet column, which its schema says.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api import types as pt

from cloister.arrays import Booleans
from cloister.schema.series import seconds_of_durations

_Kind = Literal["boolean", "whole", "number", "text"]
_Reader = Callable[[pd.Series], pd.Series]

EXACT_FLOATS = 2.0**53
"""Below it every whole number has a float of its own; greater floats keep their exponent."""

_LONGEST_WHOLE = 10_000
"""Bits of the longest whole number that is written as text; Python refuses above about 14,000."""

_PLAIN_PLACES = 400
"""Digits, and places on either side of the point, up to which a decimal has no exponent."""

_NATIVE: dict[_Kind, str] = {"boolean": "bool", "whole": "int64", "number": "float64"}
_NULLABLE = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}


def is_readable(kind: pa.DataType) -> bool:
    """Whether cells of an Arrow type are single values that a table of attributes can hold."""
    if pa.types.is_dictionary(kind):
        return is_readable(kind.value_type)
    return kind in _NULLABLE or any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_null,
            pa.types.is_floating,
            pa.types.is_decimal,
            pa.types.is_date,
            pa.types.is_time,
            pa.types.is_duration,
            pa.types.is_timestamp,
            is_text_of_arrow,
        )
    )


def is_text_of_arrow(kind: pa.DataType) -> bool:
    """Whether an Arrow type is of texts or bytes."""
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )


def column_of_arrow(column: pa.ChunkedArray) -> pd.Series:
    """A column of a readable Arrow type in its storage, shape (n,).

    Dictionaries of texts become ``category``, ordered if the file has an order for them.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        plain = column_of_arrow(
            pa.chunked_array(
                [piece.dictionary_decode() for piece in column.chunks], kind.value_type
            )
        )
        return plain.astype(_categories(column)) if is_text(plain) else plain
    if pa.types.is_null(kind):
        return pd.Series(column.cast(pa.large_string()).to_pandas())
    if is_text_of_arrow(kind):
        return text_of_arrow(column)
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pd.Series(column.cast(pa.large_string()).to_pandas())
    if pa.types.is_duration(kind):
        return pd.Series(seconds_of_durations(column), dtype="float64")
    if pa.types.is_timestamp(kind):
        return pd.Series(column.cast(pa.int64()).cast(pa.timestamp(kind.unit)).to_pandas())
    if pa.types.is_float16(kind):
        return pd.Series(column.cast(pa.float32()).to_pandas())
    return pd.Series(column.to_pandas(types_mapper=_NULLABLE.get))


def _categories(column: pa.ChunkedArray) -> pd.CategoricalDtype:
    """The categories of a dictionary of texts: of one in order those of its file, else any."""
    pieces = column.chunks if column.type.ordered else []
    lists = {tuple(text_of_arrow(pa.chunked_array([piece.dictionary]))) for piece in pieces}
    names = lists.pop() if len(lists) == 1 else ()
    is_order = bool(names) and len({*names}) == len(names) and None not in names
    return pd.CategoricalDtype(list(names), ordered=True) if is_order else pd.CategoricalDtype()


def text_of_arrow(column: pa.ChunkedArray) -> pd.Series:
    """Texts or bytes as ``str``, shape (n,): UTF-8, with backslash escapes for other bytes."""
    raw = column.cast(pa.large_binary())
    try:
        text = raw.cast(pa.large_string())
    except pa.ArrowInvalid:
        text = pa.chunked_array([[_utf8(cell) for cell in raw.to_pylist()]], pa.large_string())
    return pd.Series(text.to_pandas())


def read_by_storage(values: pd.Series, read: _Reader) -> pd.Series:
    """What ``read`` makes of a column, shape (n,), each cell by its own storage.

    ``read`` takes a column of one storage other than objects, and returns as many values, always of
    the same dtype. The index of the result counts from 0.
    """
    values = _stored(values.reset_index(drop=True))
    if not pt.is_object_dtype(values.dtype):
        return read(values).reset_index(drop=True)
    kinds = np.array([_kind_of(cell) for cell in values], dtype=object)
    parts = [read(_column(values[kinds == kind], kind)) for kind in ("text", *_NATIVE)]
    rows = [np.flatnonzero(kinds == kind) for kind in ("text", *_NATIVE)]
    return _joined(
        [part.set_axis(index) for part, index in zip(parts, rows, strict=True)], len(values)
    )


def texts(values: pd.Series) -> pd.Series:
    """Each value as text, ``str`` of shape (n,), with the index it had.

    Missing and unreadable values are missing. Whole floats are written without a point (``1``, from
    1.0), others as Python writes them; booleans as ``True`` and ``False``; decimals in full;
    moments as ``2020-01-31 10:00:00.5``.
    """
    return read_by_storage(values, _as_texts).set_axis(values.index)


def missing_mask(values: pd.Series) -> Booleans:
    """Which values are missing, (n,): None, ``pd.NA``, not a time, not a number."""
    if pt.is_object_dtype(values.dtype):
        return np.array([_is_missing(cell) for cell in values], dtype=bool)
    return values.isna().to_numpy(dtype=bool)


def all_missing(rows: int, dtype: str) -> pd.Series:
    """A column of missing values, shape (rows,)."""
    return pd.Series(np.full(rows, np.nan)).astype(pt.pandas_dtype(dtype))


def is_text(values: pd.Series) -> bool:
    """Whether a column's storage is text."""
    return isinstance(values.dtype, pd.StringDtype)


def _stored(values: pd.Series) -> pd.Series:
    """The column in one of the six storages, by its dtype."""
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _stored(
            values.astype(dtype.categories.dtype if dtype.categories.dtype == "str" else object)
        )
    if isinstance(dtype, pd.ArrowDtype) and is_readable(dtype.pyarrow_dtype):
        return _stored(column_of_arrow(pa.chunked_array(pa.array(values))))
    if isinstance(dtype, pd.DatetimeTZDtype):
        return values.dt.tz_convert("UTC").dt.tz_localize(None)
    if pt.is_timedelta64_dtype(dtype):
        return values.dt.total_seconds()
    if isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow":
        return values.astype("str")
    if (
        pt.is_datetime64_dtype(dtype)
        or pt.is_bool_dtype(dtype)
        or pt.is_integer_dtype(dtype)
        or pt.is_float_dtype(dtype)
    ):
        return values
    return values.astype(object)


def _kind_of(cell: object) -> _Kind:
    kind = _kind_of_type(type(cell))  # type: ignore[arg-type]
    inside = kind != "whole" or -(2**63) <= cell < 2**63  # type: ignore[operator]
    return kind if inside else "text"


@lru_cache
def _kind_of_type(kind: type) -> _Kind:
    if issubclass(kind, bool | np.bool_):
        return "boolean"
    if issubclass(kind, int | np.integer) and not issubclass(kind, np.timedelta64):
        return "whole"
    return "number" if issubclass(kind, float | np.floating) else "text"


def _column(cells: pd.Series, kind: _Kind) -> pd.Series:
    if kind == "text":
        return pd.Series([_text_of(cell) for cell in cells], dtype="str")
    return pd.Series(np.array(list(cells), dtype=_NATIVE[kind]))


def _joined(parts: list[pd.Series], rows: int) -> pd.Series:
    return pd.concat(parts).reindex(np.arange(rows))


def _is_missing(cell: object) -> bool:
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return True
    if isinstance(cell, np.datetime64 | np.timedelta64):
        return bool(np.isnat(cell))
    return (
        cell.is_nan()
        if isinstance(cell, Decimal)
        else isinstance(cell, float | np.floating) and bool(np.isnan(cell))
    )


def _text_of(cell: object) -> str | None:
    """The text of a value that is neither a boolean nor a number of up to 64 bits.

    None for a value without a text.
    """
    if _is_missing(cell):
        return None
    if isinstance(cell, str):
        return cell.encode("utf-8", "backslashreplace").decode()
    if isinstance(cell, bytes | bytearray | memoryview):
        return _utf8(bytes(cell))
    # numpy counts a duration among its integers, and it has no text of any attribute
    if isinstance(cell, int | np.integer) and not isinstance(cell, np.timedelta64):
        return str(cell) if int(cell).bit_length() <= _LONGEST_WHOLE else None
    if isinstance(cell, Decimal):
        return _text_of_decimal(cell)
    if isinstance(cell, dt.datetime):
        return _text_of_moment(cell)
    return str(cell) if isinstance(cell, dt.date | dt.time | np.datetime64 | uuid.UUID) else None


def _utf8(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "backslashreplace")


def _text_of_decimal(cell: Decimal) -> str:
    short = len(cell.as_tuple().digits) <= _PLAIN_PLACES and abs(cell.adjusted()) <= _PLAIN_PLACES
    return format(cell, "f") if short and cell.is_finite() else str(cell)


def _text_of_moment(cell: dt.datetime) -> str | None:
    try:
        return str(cell if cell.tzinfo is None else cell.astimezone(dt.UTC).replace(tzinfo=None))
    except (OverflowError, ValueError):
        return None


def _as_texts(values: pd.Series) -> pd.Series:
    """The texts of a column of one storage."""
    if is_text(values):
        return values
    missing_mask = values.isna().to_numpy(dtype=bool)
    if pt.is_datetime64_dtype(values.dtype):
        return _written_moments(values).mask(missing_mask)
    if pt.is_float_dtype(values.dtype):
        return _written_numbers(values)
    if pt.is_bool_dtype(values.dtype):
        return (
            pd.Series(np.where(values.fillna(value=False).to_numpy(dtype=bool), "True", "False"))
            .astype("str")
            .mask(missing_mask)
        )
    return pd.Series(pc.cast(pa.array(values, from_pandas=True), pa.large_string()).to_pandas())


def _written_numbers(values: pd.Series) -> pd.Series:
    """Floats as text, each distinct one written once; both zeros are ``0``."""
    width = np.float32 if str(values.dtype).lower() == "float32" else np.float64
    indices, distinct = pd.factorize(values.to_numpy(dtype=width, na_value=np.nan))
    written = pd.Series([_written_number(number) for number in distinct], dtype="str")
    return pd.Series(written.array.take(indices, allow_fill=True))


def _written_number(number: np.floating[Any]) -> str:
    return str(int(number)) if abs(number) < EXACT_FLOATS and int(number) == number else str(number)


def _written_moments(values: pd.Series) -> pd.Series:
    written = pd.Series(np.datetime_as_string(values.to_numpy())).astype("str")
    return (
        written.str.replace("T", " ")
        .str.replace(r"\.?0*$", "", regex=True)
        .where(written.str.contains(".", regex=False), written.str.replace("T", " "))
    )
