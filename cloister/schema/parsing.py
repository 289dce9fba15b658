"""Raw column values to the typed values of an attribute: each on its own, vectorised and exact.

What a value becomes depends on itself, on the storage type of its column
(`cloister.schema.sources.storage_types`) and on the attribute, never on another row. A value that
cannot be read as its attribute's type becomes missing and is marked invalid; it is never quoted.
Text is parsed once per distinct value; numbers with other marks than ``1234.5`` (a decimal comma,
grouped thousands) are brought to those marks first.

    categorical, ordinal   ``str``, or ``Int64`` / ``float64`` when the declared list holds whole
                           numbers / numbers
    boolean                ``boolean``, or the two words as ``str`` when others than True and False
                           are declared; read from the words, from pandas booleans, or from 0 and 1
                           in a numeric column
    integer                ``Int64``; ``7``, ``+7`` and ``7.0`` are seven; at most 18 digits
    float                  ``float64``; decimal or scientific notation, finite
                           both in text with the unit of the declared format, or without; in a
                           format of clocks seconds, or minutes: ``08:30``, ``27:15:30.5``
    date                   ``datetime64[s]``; ``YYYY-MM-DD``, or a moment at midnight; text in the
                           declared format alone, if there is one; missing if a part of it is,
                           and that is declared; months are their first days
    datetime               ``datetime64[us]``; ISO 8601, moments with a time zone are moved to UTC;
                           text in the declared format alone, if there is one
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

from cloister.schema import attributes, written_moments, written_numbers
from cloister.schema.sources import storage_types
from cloister.schema.sources.storage_types import texts
from cloister.schema.spec import SourceSpec

_FIRST_MOMENT = np.datetime64("0001-01-01T00:00:00", "s")
_LAST_MOMENT = np.datetime64("9999-12-31T23:59:59.999999", "us")

_ISO = (
    "^(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    "(?:[T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    "(?::(?P<second>[0-9]{2})(?:[.](?P<fraction>[0-9]{1,9}))?)?"
    "(?:[Zz]|(?P<sign>[+-])(?P<east>[0-9]{2}):?(?P<minutes_east>[0-9]{2})?)?)?$"
)
_MINUTES = r":(?P<minute>[0-5][0-9])(?::(?P<second>[0-5][0-9])(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
_CLOCK = rf"^\s*(?P<hour>[0-9]{{1,6}}){_MINUTES}\s*$"
_CLOCK_OF_TWELVE = rf"^\s*(?P<hour>0?[1-9]|1[0-2]){_MINUTES}\s*(?P<half>(?i:am|pm))\s*$"
_CLOCK_DIGITS = 9
"""Decimal places of a second that clocks have at most."""

_GREATEST = {"hour": 23, "minute": 59, "second": 59, "east": 23, "minutes_east": 59}
"""Greatest value of each part of a moment on the clock, and of its distance from UTC; leap
seconds are refused."""

_KEPT_DIGITS = 6
"""Decimal places of a second that are kept, the resolution of ``datetime64[us]``.

Finer ones are cut off.
"""


def parse(values: pd.Series, attribute: attributes.AnyAttribute) -> tuple[pd.Series, np.ndarray]:
    """Typed values of a raw column, and the mask of values that are not of the attribute's type.

    ``values`` is of any dtype, shape (n,), missing values already missing. Whether a value lies
    within the declared bounds or list is not checked here. Returns (typed, invalid), both of shape
    (n,); invalid values are missing in ``typed``, whose index is that of ``values`` and whose dtype
    is that of the attribute's type. Typed values are read as they are.

    Privacy: row by row. What a value becomes depends on that value, its storage type and the
        attribute.
    """
    typed = storage_types.read_by_storage(values, _parser(attribute)).set_axis(values.index)
    typed.name = values.name
    invalid = typed.isna().to_numpy(dtype=bool) & ~storage_types.missing_mask(values)
    if isinstance(attribute, attributes.Date) and attribute.partial and invalid.any():
        invalid[invalid] = ~lacks_parts(values[invalid], attribute)
    return typed, invalid


def lacks_parts(values: pd.Series, attribute: attributes.Date) -> np.ndarray:
    """Which values (n,) are dates whose day, or day and month, are not known."""
    pattern = written_moments.partial_pattern(attribute.format or "%Y-%m-%d")
    lacking = read_distinct(texts(values), lambda text: pc.match_substring_regex(text, pattern))
    return np.asarray(pc.fill_null(lacking, fill_value=False))


def holds_numbers(attribute: attributes.Categorical | attributes.Ordinal) -> bool:
    """Whether the declared list is of numbers, so that text is parsed before the comparison."""
    if isinstance(attribute.values, attributes.ValuesFile | attributes.ValuesPattern):
        return False
    return all(isinstance(value, int | float) for value in attribute.values)


def read_distinct(text: pd.Series, read: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """``read`` applied to each distinct text once, shape (n,)."""
    array: Any = pa.array(text, type=pa.large_string(), from_pandas=True)
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    coded = whole.dictionary_encode()
    return read(coded.dictionary).take(coded.indices)


def without_unit(distinct: pa.Array, unit: written_numbers.Unit) -> pa.Array:
    """Texts (n,) without their unit; those without it, or with another, as they are.

    Where numbers below zero are in parentheses, those get a sign.
    """
    if unit.enclosed:
        distinct = pc.replace_substring_regex(distinct, written_numbers.ENCLOSED, r"-\1\2\3")
    pattern = written_numbers.unit_pattern(unit)
    return distinct if not pattern else pc.replace_substring_regex(distinct, pattern, r"\1\2")


def _parser(attribute: attributes.AnyAttribute) -> Callable[[pd.Series], pd.Series]:
    if isinstance(attribute, attributes.Boolean):
        return lambda raw: _booleans(raw, attribute)
    if isinstance(attribute, attributes.Categorical | attributes.Ordinal) and holds_numbers(
        attribute
    ):
        return _wholes if all(isinstance(value, int) for value in attribute.values) else _decimals
    if isinstance(attribute, attributes.Date | attributes.Datetime):
        pattern = (
            _ISO if attribute.format is None else written_moments.moment_pattern(attribute.format)
        )
        read = _days if isinstance(attribute, attributes.Date) else _moments
        return lambda raw: read(raw, pattern)
    if isinstance(attribute, attributes.Integer | attributes.Float):
        unit, whole = (
            written_numbers.unit_of(attribute.format),
            isinstance(attribute, attributes.Integer),
        )
        if written_moments.is_clock_format(attribute.format):
            form = str(attribute.format)
            return lambda raw: _clocks(raw, form, whole)
        read_number = _wholes if whole else _decimals
        return lambda raw: read_number(raw, unit)
    return texts


def _is_number(raw: pd.Series) -> bool:
    return bool(pt.is_numeric_dtype(raw.dtype) and not pt.is_bool_dtype(raw.dtype))


def _booleans(raw: pd.Series, attribute: attributes.Boolean) -> pd.Series:
    true, false = (attribute.true, attribute.false) if storage_types.is_text(raw) else (1, 0)
    truth, falsehood = (_equal(raw, word) for word in (true, false))
    unknown = ~(truth | falsehood)
    typed = pd.Series(pd.arrays.BooleanArray(truth, unknown))
    if (attribute.true, attribute.false) == ("True", "False"):
        return typed
    return pd.Series(np.where(truth, attribute.true, attribute.false)).astype("str").mask(unknown)


def _equal(raw: pd.Series, value: str | int) -> np.ndarray:
    """Which values equal one, (n,); no moment equals any."""
    if pt.is_datetime64_dtype(raw.dtype):
        return np.zeros(len(raw), dtype=bool)
    return raw.eq(value).fillna(value=False).to_numpy(dtype=bool)


def _wholes(raw: pd.Series, unit: written_numbers.Unit = written_numbers.NO_UNIT) -> pd.Series:
    if storage_types.is_text(raw):
        parsed = read_distinct(raw, lambda text: _wholes_of_text(without_unit(text, unit)))
        return pd.Series(parsed.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get))
    if not _is_number(raw):
        return storage_types.all_missing(len(raw), "Int64")
    if pt.is_float_dtype(raw.dtype):
        numbers = raw.to_numpy(dtype=np.float64, na_value=np.nan)
        whole = (np.abs(numbers) < storage_types.EXACT_FLOATS) & (np.floor(numbers) == numbers)
    else:
        numbers = raw.to_numpy(dtype=np.dtype(str(raw.dtype).lower()), na_value=0)
        whole = (
            (numbers >= -attributes.LARGEST_WHOLE)
            & (numbers <= attributes.LARGEST_WHOLE)
            & raw.notna().to_numpy(dtype=bool)
        )
    return pd.Series(pd.arrays.IntegerArray(np.where(whole, numbers, 0).astype(np.int64), ~whole))


def _decimals(raw: pd.Series, unit: written_numbers.Unit = written_numbers.NO_UNIT) -> pd.Series:
    if storage_types.is_text(raw):
        read = read_distinct(raw, lambda text: _decimals_of_text(without_unit(text, unit)))
        numbers = read.to_numpy(zero_copy_only=False)
    elif _is_number(raw):
        numbers = raw.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        return storage_types.all_missing(len(raw), "float64")
    return pd.Series(np.where(np.isfinite(numbers), numbers, np.nan), dtype="float64")


def _clocks(raw: pd.Series, form: str, whole: bool) -> pd.Series:
    """Numbers of minutes or seconds (n,) of texts such as 08:30; numbers are these already."""
    if storage_types.is_text(raw):
        read = read_distinct(raw, lambda text: _clocks_of_text(text, form))
        raw = pd.Series(read.to_numpy(zero_copy_only=False), dtype="float64")
    return _wholes(raw) if whole else _decimals(raw)


def _moments(raw: pd.Series, pattern: str) -> pd.Series:
    if storage_types.is_text(raw):
        read = read_distinct(raw, lambda text: _moments_of_text(text, pattern))
        return pd.Series(read.to_pandas()).astype("datetime64[us]")
    if not pt.is_datetime64_dtype(raw.dtype):
        return storage_types.all_missing(len(raw), "datetime64[us]")
    stored = raw.to_numpy()
    if stored.dtype != np.dtype("datetime64[ns]"):  # in their own unit: microseconds overflow
        first, last = (end.astype(stored.dtype) for end in (_FIRST_MOMENT, _LAST_MOMENT))
        stored = np.where((stored >= first) & (stored <= last), stored, np.datetime64("NaT"))
    return pd.Series(stored.astype("datetime64[us]"))


def _days(raw: pd.Series, pattern: str) -> pd.Series:
    moments = _moments(raw, pattern)
    return moments.where(moments.dt.normalize() == moments).astype("datetime64[s]")


def _matching(text: pa.Array, pattern: str) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, text.type))


def _wholes_of_text(text: pa.Array) -> pa.Array:
    return pc.cast(
        pc.replace_substring_regex(
            _matching(text, written_numbers.WHOLE), r"^\s*\+?|(\.0*)?\s*$", ""
        ),
        pa.int64(),
    )


def _decimals_of_text(text: pa.Array) -> pa.Array:
    return pc.cast(
        pc.replace_substring_regex(_matching(text, written_numbers.DECIMAL), r"^\s*\+?|\s*$", ""),
        pa.float64(),
    )


def _moments_of_text(text: pa.Array, pattern: str) -> pa.Array:
    """Microseconds since 1970 in UTC, without regard to any other text.

    Null outside the years 1 to 9999.
    """
    parts = pc.extract_regex(text, pattern)
    part = _parts_of_moments(parts)
    months = (part["year"] - 1970) * 12 + part["month"] - 1
    first, following = (_days_before(month) for month in (months, months + 1))
    west = np.where(_is_part(parts, "sign", "-"), 1, -1)
    minutes = part["hour"] * 60 + part["minute"] + west * (part["east"] * 60 + part["minutes_east"])
    seconds = (
        (first + part["day"] - 1) * written_moments.SECONDS_OF_DAY + minutes * 60 + part["second"]
    )
    moments = (seconds * 10**_KEPT_DIGITS + part["fraction"]).astype("datetime64[us]")
    exists = (part["year"] >= 1) & (part["month"] >= 1) & (part["month"] <= 12)
    exists &= (part["day"] >= 1) & (part["day"] <= following - first)
    exists &= np.logical_and.reduce(
        [part[name] <= greatest for name, greatest in _GREATEST.items()]
    )
    exists &= (moments >= _FIRST_MOMENT) & (moments <= _LAST_MOMENT)
    return pa.array(moments, mask=~exists | np.asarray(parts.is_null()))


def _clocks_of_text(text: pa.Array, form: str) -> pa.Array:
    """Numbers (n,) of texts of times, in the unit of a form; null for others."""
    parts = pc.extract_regex(
        text, _CLOCK_OF_TWELVE if written_moments.is_twelve_hour(form) else _CLOCK
    )
    hours, minutes, seconds = (_counted(_field(parts, name)) for name in list(_GREATEST)[:3])
    hours = _hours_of_day(parts, hours)
    fraction = _counted(pc.utf8_rpad(_field(parts, "fraction"), _CLOCK_DIGITS, "0"))
    numbers = (hours * 60 + minutes) * 60 + seconds + fraction / 10**_CLOCK_DIGITS
    return pa.array(numbers / written_moments.clock_unit(form), mask=np.asarray(parts.is_null()))


def _hours_of_day(parts: pa.StructArray, hours: np.ndarray) -> np.ndarray:
    """Hours (n,), of a clock of twelve those of a day."""
    if written_moments.HALF not in _names(parts):
        return hours
    return hours % 12 + np.where(_is_part(parts, written_moments.HALF, "pm"), 12, 0)


def _parts_of_moments(parts: pa.StructArray) -> dict[str, np.ndarray]:
    """Years, months, days and parts of the clock (n,) as numbers; 0 where there is none."""
    fraction = pc.utf8_slice_codeunits(
        pc.utf8_rpad(_field(parts, "fraction"), _KEPT_DIGITS, "0"), 0, _KEPT_DIGITS
    )
    names = ("year", "month", "day", *_GREATEST)
    part = {name: _counted(_field(parts, name)) for name in names}
    part["fraction"] = _counted(fraction)
    if "day" not in _names(parts):
        part["day"] = np.ones_like(part["month"])
    if written_moments.SHORT_YEAR in _names(parts):
        year = _counted(_field(parts, written_moments.SHORT_YEAR))
        part["year"] = np.where(year < written_moments.PIVOT, 2000, 1900) + year
    if written_moments.MONTH_NAME in _names(parts):
        starts = pc.utf8_slice_codeunits(
            pc.utf8_lower(_field(parts, written_moments.MONTH_NAME)), 0, 3
        )
        months = pc.index_in(
            starts, pa.array([name[:3] for name in written_moments.MONTHS], starts.type)
        )
        part["month"] = np.asarray(pc.fill_null(months, -1)) + 1
    part["hour"] = _hours_of_day(parts, part["hour"])
    return part


def _names(parts: pa.StructArray) -> list[str]:
    return [field.name for field in parts.type]


def _field(parts: pa.StructArray, name: str) -> pa.Array:
    """The texts of one part (n,); empty ones if the pattern has none."""
    if name in _names(parts):
        return parts.field(name)
    return pa.array([""] * len(parts), pa.large_string())


def _is_part(parts: pa.StructArray, name: str, word: str) -> np.ndarray:
    same = pc.equal(pc.utf8_lower(_field(parts, name)), word)
    return np.asarray(pc.fill_null(same, fill_value=False))


def _counted(digits: pa.Array) -> np.ndarray:
    """Whole numbers (n,) of digits; 0 for none."""
    known = pc.if_else(pc.equal(digits, ""), "0", digits)
    return np.asarray(pc.fill_null(pc.cast(known, pa.int64()), 0))


def _days_before(months: np.ndarray) -> np.ndarray:
    """Days (n,) from 1970 to the beginning of months that are counted from January 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


_UNREADABLE = "?"
"""Stands for a cell that is no number of its file; no number is read from it."""


def has_own_marks(attribute: attributes.AnyAttribute, source: SourceSpec) -> bool:
    """Whether an attribute is of numbers that its source writes in another way than ``1234.5``."""
    if source.decimal == "." and source.thousands is None:
        return False
    if isinstance(attribute, attributes.Categorical | attributes.Ordinal):
        return holds_numbers(attribute)
    return isinstance(
        attribute, attributes.Integer | attributes.Float
    ) and not written_moments.is_clock_format(attribute.format)


def declared_unit(attribute: attributes.AnyAttribute) -> written_numbers.Unit:
    """What a file writes before and after the numbers of an attribute."""
    return (
        written_numbers.unit_of(attribute.format)
        if isinstance(attribute, attributes.Integer | attributes.Float)
        else written_numbers.NO_UNIT
    )


def plain_numbers(
    texts: pd.Series, source: SourceSpec, unit: written_numbers.Unit = written_numbers.NO_UNIT
) -> pd.Series:
    """Texts (n,) of numbers in a source's marks as ``1234.5``; others as unreadable."""
    read = read_distinct(texts, lambda distinct: _plain(without_unit(distinct, unit), source))
    return pd.Series(read.to_pandas()).set_axis(texts.index).astype("str")


def _plain(distinct: pa.Array, source: SourceSpec) -> pa.Array:
    plain = distinct
    if source.thousands:
        plain = pc.replace_substring(plain, source.thousands, "")
    plain = pc.replace_substring(plain, source.decimal, ".")
    known = pc.match_substring_regex(
        distinct, written_numbers.number_pattern(source.decimal, source.thousands)
    )
    return pc.if_else(known, plain, _UNREADABLE)
