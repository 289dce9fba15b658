"""How the cells of a drafted column are written: format and unit of numbers, dates, moments.

Privacy: one row may decide a format.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow as pa
from pandas.api import types as pt

from cloister.arrays import Booleans
from cloister.schema.attributes import AnyAttribute, Date, Datetime, Float, Integer
from cloister.schema.parsing import lacks_parts, parse, without_unit
from cloister.schema.written_moments import moment_pattern, partial_pattern, require_moment_format
from cloister.schema.written_numbers import NO_UNIT, SPACES, Unit, with_unit

ANY_DATE = Date(type="date", min=dt.date.min, max=dt.date.max)
ANY_MOMENT = Datetime(type="datetime", min=dt.datetime.min, max=dt.datetime.max)  # noqa: DTZ901

_DAYS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y"),
    *("%m-%d-%Y", "%-d/%-m/%Y", "%-m/%-d/%Y", "%-d.%-m.%Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y"),
    *("%-d/%-m/%y", "%-m/%-d/%y", "%d-%b-%Y", "%d %b %Y", "%-d %b %Y", "%d-%b-%y", "%b %d, %Y"),
    *("%b %-d, %Y", "%d %B %Y", "%-d %B %Y", "%-d. %B %Y", "%B %d, %Y", "%B %-d, %Y", "%Y%m%d"),
    *("%d/%b/%Y", "%-d-%b-%Y", "%Y-%b-%d"),
)
_MONTHS = (
    *("%Y-%m", "%Y/%m", "%m/%Y", "%m-%Y", "%-m/%Y", "%b %Y", "%B %Y", "%b-%Y", "%B-%Y", "%b. %Y"),
    *("%b, %Y", "%B, %Y", "%Y %b", "%Y-%b", "%Y %B"),
)
"""Forms of months; years have four digits, since others may be days."""

_COMPACT = "%Y%m%d"
"""A form without marks: what is left of it without a part is any number."""

_CLOCKS = (
    *("T%H:%M:%S", " %H:%M:%S", "T%H:%M", " %H:%M", " %-H:%M", " %-H:%M:%S", "T%H%M%S"),
    *(" %I:%M %p", " %-I:%M %p", " %I:%M:%S %p", " %-I:%M:%S %p", "T%H:%M:%S.000"),
    *(" %I:%M%p", " %-I:%M%p", " %I:%M:%S%p", " %-I:%M:%S%p"),
    *(" %H:%M:%S.000", "T%H:%M:%S.000000", " %H:%M:%S.000000", "T%H:%M:%S.%3f", " %H:%M:%S.%3f"),
    *("T%H:%M:%S.%6f", " %H:%M:%S.%6f", "T%H:%M:%S.%f", " %H:%M:%S.%f"),
    ":%H:%M:%S",
)
_MIDNIGHTS = ("T00:00:00", " 00:00:00", "T00:00", " 00:00", " 0:00", "T00:00:00.000")
_ZONES = ("", "Z", "+00:00", "+0000", "+00", " +0000")
_OFFSET = re.compile("[+-][01][0-9]:?[0-5][0-9]$")
"""A distance from UTC at the end of a moment."""

_USUAL = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S")
"""What is written without a format."""

_EXCHANGED = (("%d", "%m"), ("%-d", "%-m"))

_DECIMAL_MARKS = ".,"

FEWEST_NUMBERS = 20
"""Different numbers at least with a unit, or beside words: fewer may be categories."""

_LONGEST = 12
"""Letters of a unit at most; longer texts are no unit."""

CURRENCIES = ("$", "€", "£", "¥", "US$", "CHF", "EUR", "USD", "GBP")
"""What stands before a number that is an amount of money; other words name a code."""

_ATTACHED = frozenset(
    (
        *CURRENCIES,
        *("%", "‰", "°", "°C", "°F", "km", "m", "cm", "mm", "kg", "g", "mg", "l", "ml"),
        *("h", "min", "s", "ms", "kB", "KB", "MB", "GB", "TB", "W", "kW", "kWh", "MWh"),
    )
)
"""Units that follow a number without a space; other letters, as in ``12A``, name a code."""

_WITH_UNIT = re.compile(
    rf"\s*[+-]?(?P<before>[^\s\d+\-.,]*{SPACES})[+-]?\d[\d.,' \u00a0\u202f]*?"
    rf"(?P<after>{SPACES}(?:[^\s\d+\-.,][^\d+\-]*)?)"
)


_PLAIN = r"[^A-Za-z]*[0-9]"
"""A number without an exponent."""

_BELOW_ZERO = r"^\s*\(\s*([^()+-]*)\s*\)\s*$"
"""A number below zero, in parentheses, with what stands beside it."""


def date_format(texts: pd.Series) -> str | None:
    """The format that all texts of a column of dates have; None if there is none."""
    midnights = [clock + zone for clock in _MIDNIGHTS for zone in _ZONES]
    day = _first_fit(texts, ANY_DATE, _DAYS, ["", *midnights])
    return day or (
        None if _are_pairs_of_years(texts) else _first_fit(texts, ANY_DATE, _MONTHS, [""])
    )


def _are_pairs_of_years(texts: pd.Series) -> bool:
    """Whether texts such as 2010-11 all name a year and the one after it."""
    years = texts.str.extract("^[0-9]{2}([0-9]{2})[-/]([0-9]{2})$").astype("float64")
    return bool(((years[0] + 1) % 100 == years[1]).all())


def partial_date_format(texts: pd.Series) -> str | None:
    """The format of dates of which some lack the day, or the month; None if there is none."""
    first = str(texts.iloc[0])
    for form in (form for form in _DAYS if form != _COMPACT):
        patterns = moment_pattern(form), partial_pattern(form)
        if not any(re.search(pattern, first) for pattern in patterns):
            continue
        odd = texts[_misfits(texts, ANY_DATE, form)]
        declared = ANY_DATE.model_copy(update={"format": form})
        if 0 < len(odd) < len(texts) and lacks_parts(odd, declared).all():
            return form
    return None


def moment_format(texts: pd.Series) -> str | None:
    """The format that all texts of a column of moments have; None if there is none."""
    own = _OFFSET.search(str(texts.iloc[0]))
    zones = (*_ZONES, *([own[0]] if own else []), "%:z", "%z", " %z")
    ends = [clock + zone for clock in _CLOCKS for zone in zones]
    form = _first_fit(texts, ANY_MOMENT, _DAYS, ends)
    return form and form.replace("%p", half_of_day(texts))


def half_of_day(texts: pd.Series) -> str:
    """The part of a form that writes AM and PM as texts of twelve-hour clocks have it."""
    return "%P" if texts.str.contains("[ap]m").all() else "%p"


def is_compact_date(digits: pd.Series) -> bool:
    """Whether digits are dates of a usual year, as in 20240131."""
    usual = digits.str.match("(?:19|20)[0-9]{6}$").all()
    return bool(usual) and _fits(digits, ANY_DATE, "%Y%m%d")


def is_usual(form: str) -> bool:
    """Whether a format is what is written without one."""
    return form in _USUAL


def is_ambiguous(texts: pd.Series, attribute: Date | Datetime, form: str) -> bool:
    """Whether all texts are read too with days and months exchanged."""
    for day, month in _EXCHANGED:
        if day in form and month in form and "%Y-%m-%d" not in form and "%Y%m%d" not in form:
            other = form.replace(day, "\0").replace(month, day).replace("\0", month)
            return _fits(texts, attribute, other)
    return False


def number_format(
    texts: pd.Series, whole: bool, thousands: str | None, unit: Unit = NO_UNIT
) -> str | None:
    """The format by which numbers come out as they are written; None if the usual one does.

    ``texts`` (n,) are distinct, and lack the ``unit``, which is a part of the format.
    """
    alone = _format_alone(texts, whole, thousands)
    if unit == NO_UNIT:
        return alone
    places = _places(texts, thousands).max()
    usual = "%d" if whole or pd.isna(places) else f"%.{int(places)}f"
    return with_unit(alone or usual, unit)


def _format_alone(texts: pd.Series, whole: bool, thousands: str | None) -> str | None:
    group = "'" if thousands and texts.str.contains(thousands, regex=False).any() else ""
    places = _places(texts, thousands)
    if places.notna().all() and places.nunique() == 1:
        fixed = whole or group or texts.str.endswith("0").any()
        return f"%{group}.{int(places.iloc[0])}f" if fixed else None
    if whole:
        return "%'d" if group else None
    return f"%{group}g" if _lack_zeros(texts, places, bool(group)) else None


def _lack_zeros(texts: pd.Series, places: pd.Series, grouped: bool) -> bool:
    """Whether texts (n,) of so many decimal places have no needless zeros: ``3`` beside ``3.5``."""
    short = places.isna()
    needless = texts[~short].str.endswith("0").any()
    plain = texts[short].str.fullmatch(_PLAIN).all()
    return bool((grouped or short.any()) and plain and not needless)


def guess_unit(texts: pd.Series) -> Unit:
    """What stands beside all numbers of distinct texts (n,); empty texts if they are none."""
    if len(texts) < FEWEST_NUMBERS:
        return NO_UNIT
    inside = texts.str.extract(_BELOW_ZERO)[0]
    found = {_unit(text) for text in inside.fillna(texts)}
    unit = found.pop()
    if found or unit is None or not _is_usual(unit.before, unit.after):
        return NO_UNIT
    enclosed = inside.notna()
    return NO_UNIT if enclosed.all() else unit._replace(enclosed=bool(enclosed.any()))


def numbers_alone(texts: pd.Series, unit: Unit) -> pd.Series:
    """Texts (n,) without the unit that stands beside their numbers."""
    if unit == NO_UNIT:
        return texts
    alone = without_unit(pa.array(texts, pa.large_string(), from_pandas=True), unit)
    return pd.Series(alone.to_pandas()).set_axis(texts.index).astype("str")


def _unit(text: str) -> Unit | None:
    """What stands before and after a number; None of other texts."""
    match = _WITH_UNIT.fullmatch(text)
    return Unit(match["before"], match["after"]) if match else None


def _is_usual(before: str, after: str) -> bool:
    word = after.strip()
    follows = after == "" or word in _ATTACHED or (after != word and len(word) <= _LONGEST)
    return follows and (before == "" or before.strip() in CURRENCIES)


def _places(texts: pd.Series, thousands: str | None) -> pd.Series:
    """Decimal places of each text (n,); missing where there is no decimal mark."""
    marks = "".join(mark for mark in _DECIMAL_MARKS if mark != thousands)
    fixed_places = rf"^[+-]?[0-9\W_]*?[{marks}](?P<places>[0-9]+)$"
    return texts.str.extract(fixed_places)["places"].str.len()


def _first_fit(
    texts: pd.Series, attribute: Date | Datetime, days: Sequence[str], ends: Sequence[str]
) -> str | None:
    """The first format that all texts have: one of the days, and one of the ends after it."""
    distinct = pd.Series(texts.unique(), dtype="str")
    first = str(distinct.iloc[0])
    days = [day for day in days if re.match(moment_pattern(day)[:-1], first)]
    forms = [day + end for day in days for end in ends]
    forms = [form for form in forms if re.search(moment_pattern(form), first)]
    return next((form for form in forms if _fits(distinct, attribute, form)), None)


def _fits(texts: pd.Series, attribute: Date | Datetime, form: str) -> bool:
    return not _misfits(texts, attribute, form).any()


def _misfits(texts: pd.Series, attribute: Date | Datetime, form: str) -> Booleans:
    """Which texts (n,) are not of a form."""
    clock = isinstance(attribute, Datetime)
    declared: AnyAttribute = attribute.model_copy(
        update={"format": require_moment_format(form, clock)}
    )
    return parse(texts, declared)[1]


Keys = dict[str, Any]

FEWEST_KEYS = 20
"""Known values of a column at least, for it to be guessed a text key."""

_DIGITS = r"[0-9]{1,18}"
_DIALLED = r"\+[0-9]{7,15}"
_ZERO_AHEAD = r"^\s*[+-]?0[0-9]"


@dataclass(frozen=True)
class Guess:
    """The keys of an attribute, and in words why, and what a person should check."""

    keys: Keys
    why: str


@dataclass(frozen=True)
class ColumnCells:
    """The known cells of a column, and how many of all are known.

    They are native values, or the texts of the file; ``plain`` are the same with numbers as
    ``1234.5``, without the ``unit`` that stands beside them in the file. The file groups
    ``thousands`` if there is a mark. ``missing`` is the text of missing cells, if it is not that of
    the file. ``foreign`` cells are numbers in other marks than the file's, so texts.
    """

    name: str
    known: pd.Series
    plain: pd.Series
    rows: int
    thousands: str | None = None
    missing: str | None = None
    unit: Unit = NO_UNIT
    foreign: bool = False

    @property
    def written_numbers(self) -> pd.Series:
        """The distinct texts of numbers in the marks of the file, without their unit."""
        return numbers_alone(self.known.drop_duplicates(), self.unit)

    @property
    def is_text(self) -> bool:
        """Whether the cells are texts."""
        return bool(pt.is_string_dtype(self.known.dtype))

    @cached_property
    def distinct(self) -> int:
        """Number of distinct values."""
        return int(self.known.nunique())

    @property
    def unique(self) -> bool:
        """Whether so many values are all different that they tell rows apart."""
        return len(self.known) >= FEWEST_KEYS and self.distinct == len(self.known)

    def typed(self, attribute: AnyAttribute) -> pd.Series | None:
        """The typed values if all are of the attribute's type."""
        numeric = isinstance(attribute, Integer | Float)
        if numeric and self.foreign:
            return None
        typed, invalid = parse(self.plain if numeric else self.known, attribute)
        return None if invalid.any() else typed

    def digits(self) -> pd.Series | None:
        """The values as texts of digits alone, if all are that."""
        if pt.is_bool_dtype(self.known.dtype) or pt.is_float_dtype(self.known.dtype):
            return None
        texts = self.known.astype("str")
        return texts if texts.str.fullmatch(_DIGITS).all() else None

    @cached_property
    def zeros_ahead(self) -> float:
        """The share of texts with a leading zero, which a number would lose; 0 if not texts."""
        if not self.is_text:
            return 0.0
        counts = self.known.value_counts()
        return float(counts[counts.index.str.match(_ZERO_AHEAD)].sum() / len(self.known))

    @cached_property
    def are_dialled(self) -> bool:
        """Whether all are telephone numbers with a plus sign, which a quantity would lose."""
        return self.is_text and bool(self.known.str.fullmatch(_DIALLED).all())

    @property
    def own_dtype(self) -> str:
        """The pandas dtype, without the means to be missing if none is."""
        name = str(self.known.dtype)
        return name if len(self.known) < self.rows else name.lower()
