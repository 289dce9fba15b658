"""A column as a draft sees it: its cells, its name, and what is guessed of it.

The name of a column says of its values what is public once a person has confirmed it: public
ranges, codes, keys.

Privacy: a guess holds values of the data, and one row may decide any of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api import types as pt

from cloister.schema import written_numbers
from cloister.schema.attributes import AnyAttribute, Float, Integer
from cloister.schema.parsing import parse, plain_numbers, without_unit
from cloister.schema.spec import SourceSpec

Keys = dict[str, Any]

FEWEST_NUMBERS = 20
"""Different numbers at least with a unit, or beside words: fewer may be categories."""

FEWEST_KEYS = 20
"""Known values of a column at least, for it to be guessed a text key."""

_DIALLED = r"\+[0-9]{7,15}"
_ZERO_AHEAD = r"^\s*[+-]?0[0-9]"


@dataclass(frozen=True)
class Guess:
    """The keys of an attribute, and in words why, and what a person should check."""

    keys: Keys
    why: str


@dataclass(frozen=True)
class ColumnCells:
    """The cells of a column, shape (n,), with missing ones as such.

    ``written`` are native values, or the texts of the file; ``plain`` are the same with numbers as
    ``1234.5``, without the ``unit`` that stands beside them in the file. The file groups
    ``thousands`` if there is a mark. ``missing`` is the text of missing cells, if it is not that of
    the file. ``foreign`` cells are numbers in other marks than the file's, so texts. ``stored`` is
    the dtype of times of day, of lengths of time and of moments in a zone.
    """

    name: str
    written: pd.Series
    plain: pd.Series
    thousands: str | None = None
    missing: str | None = None
    unit: written_numbers.Unit = written_numbers.NO_UNIT
    foreign: bool = False
    stored: str | None = None

    @cached_property
    def known(self) -> pd.Series:
        """The cells that are not missing."""
        return self.written.dropna()

    @cached_property
    def known_plain(self) -> pd.Series:
        """The same with numbers as ``1234.5``."""
        return self.plain.dropna()

    @property
    def is_text(self) -> bool:
        """Whether the cells are texts."""
        return bool(pt.is_string_dtype(self.known.dtype))

    @cached_property
    def distinct(self) -> int:
        """Number of different values."""
        return int(self.known.nunique())

    @cached_property
    def texts(self) -> pd.Series | None:
        """The different values as texts; None of truth values, floats and moments."""
        kind = self.known.dtype
        if pt.is_bool_dtype(kind) or pt.is_float_dtype(kind) or pt.is_datetime64_dtype(kind):
            return None
        return pd.Series(self.known.drop_duplicates()).astype("str")

    @property
    def written_numbers(self) -> pd.Series:
        """The different texts of numbers in the marks of the file, without their unit."""
        return numbers_alone(self.known.drop_duplicates(), self.unit)

    @property
    def unique(self) -> bool:
        """Whether so many values are all different that they tell rows apart."""
        return len(self.known) >= FEWEST_KEYS and self.distinct == len(self.known)

    @property
    def are_persons(self) -> bool:
        """Whether a column names persons, some of them in several rows."""
        return names_a_person(self.name) and FEWEST_KEYS <= self.distinct < len(self.known)

    def match(self, pattern: str) -> bool:
        """Whether all values are texts, or whole numbers, of a pattern."""
        if self.texts is None or re.fullmatch(pattern, str(self.texts.iloc[0])) is None:
            return False  # the first value rules out most patterns
        return bool(self.texts.str.fullmatch(f"(?:{pattern})").all())

    def typed(self, attribute: AnyAttribute) -> pd.Series | None:
        """The typed values if all are of the attribute's type."""
        numeric = isinstance(attribute, Integer | Float)
        if numeric and self.foreign:
            return None
        typed, invalid = parse(self.known_plain if numeric else self.known, attribute)
        return None if invalid.any() else typed

    @cached_property
    def zeros_ahead(self) -> float:
        """The share of texts with a leading zero, which a number would lose; 0 if not texts."""
        if not self.is_text:
            return 0.0
        counts = self.known.value_counts()
        return float(counts[counts.index.str.match(_ZERO_AHEAD)].sum() / len(self.known))

    @property
    def is_written(self) -> bool:
        """Whether numbers would lose what some are written with: zeros ahead, or a plus sign."""
        return self.zeros_ahead > 0 or (self.is_text and self.match(_DIALLED))

    @property
    def stored_as(self) -> Keys:
        """The pandas dtype of native values, without the means to be missing if none is."""
        name = str(self.known.dtype)
        return {} if self.is_text else {"dtype": name if self.nullable else name.lower()}

    @property
    def nullable(self) -> Keys:
        """The key of cells that may be missing, if some are."""
        return {"nullable": True} if len(self.known) < len(self.written) else {}


def numbers_alone(texts: pd.Series, unit: written_numbers.Unit) -> pd.Series:
    """Texts (n,) without the unit that stands beside their numbers."""
    if unit == written_numbers.NO_UNIT:
        return texts
    alone = without_unit(pa.array(texts, pa.large_string(), from_pandas=True), unit)
    return pd.Series(alone.to_pandas()).set_axis(texts.index).astype("str")


_MARKS_BESIDE_SEMICOLONS = (
    written_numbers.MARKS[0],
    *sorted(written_numbers.MARKS[1:], key=lambda marks: marks[0] != ","),
)
"""The usual marks where decimal commas are likelier, since cells are not divided by commas."""


def distinct_cells(cells: pd.Series) -> pd.Series:
    """The different known cells of a column."""
    return pd.Series(cells.dropna().unique(), dtype="str")


def guess_unit(texts: pd.Series) -> written_numbers.Unit:
    """What stands beside all numbers of distinct texts (n,); no unit if they are none, or few."""
    if len(texts) < FEWEST_NUMBERS:
        return written_numbers.NO_UNIT
    inside = texts.str.extract(written_numbers.BELOW_ZERO)[0]
    unit, *more_units = {written_numbers.unit_beside(text) for text in inside.fillna(texts)}
    enclosed = inside.notna()
    if more_units or unit is None or not written_numbers.is_usual_unit(unit) or enclosed.all():
        return written_numbers.NO_UNIT
    return unit._replace(enclosed=bool(enclosed.any()))


def likeliest_marks(columns: Iterable[pd.Series], delimiter: str) -> written_numbers.Marks:
    """The marks by which columns of the most different numbers are numbers throughout.

    One column of many amounts tells more than several of ``1.0`` and ``0.0``. Of two that read as
    many different numbers, the first is taken.
    """
    distinct = [distinct_cells(cells) for cells in columns]

    def numeric(marks: written_numbers.Marks) -> int:
        return sum(len(texts) for texts in distinct if _are_numbers(texts, marks))

    return max(_MARKS_BESIDE_SEMICOLONS if delimiter == ";" else written_numbers.MARKS, key=numeric)


def _are_numbers(distinct: pd.Series, marks: written_numbers.Marks) -> bool:
    """Whether all texts are numbers in these marks; no group of thousands follows a zero alone."""
    texts = pa.array(distinct, pa.large_string())
    if not pc.all(
        pc.match_substring_regex(texts, written_numbers.number_pattern(*marks)), min_count=1
    ).as_py():
        return False
    below_one = pc.match_substring_regex(texts, rf"^\s*[+-]?0+{re.escape(marks[1] or '')}")
    return marks[1] is None or not pc.any(below_one).as_py()


def in_plain_marks(cells: pd.Series, source: SourceSpec) -> tuple[pd.Series, bool]:
    """A column with its numbers as ``1234.5``, if all are numbers; else as it is.

    And whether all are numbers as ``1234.5``, and not in the marks of the file.
    """
    marks, distinct = (source.decimal, source.thousands), distinct_cells(cells)
    if not _are_numbers(distinct, marks):
        return cells, _are_numbers(distinct, written_numbers.MARKS[0])
    return cells if marks == written_numbers.MARKS[0] else plain_numbers(cells, source), False


_Ranges = dict[str, tuple[tuple[int, int], ...]]

_CALENDAR: _Ranges = {
    "day of week, dayofweek, weekday": ((0, 6), (1, 7)),
    "day of year, dayofyear": ((1, 366),),
    "day of month, day": ((1, 31),),
    "month": ((1, 12),),
    "quarter": ((1, 4),),
    "week": ((1, 53),),
    "hour": ((0, 23), (0, 24)),
    "minute, second": ((0, 59),),
}
"""Ranges of what a name ends in, from calendars and clocks: of whole numbers."""

_SCALES: _Ranges = {
    "age": ((0, 120),),
    "percent, percentage, pct, %, share, rate": ((0, 1), (0, 100)),
    "latitude, lat": ((-90, 90),),
    "longitude, lon, lng": ((-180, 180),),
    "rating": ((1, 5), (0, 5), (0, 10), (0, 100)),
    "stars": ((1, 5), (0, 5)),
    "score": ((1, 5), (0, 5), (1, 10), (0, 10), (0, 100)),
    "ratio, fraction, probability": ((0, 1),),
}
"""The same of usual scales, the narrowest first; of decimal numbers too."""

_RATE = "per"
"""The word of a name that makes its last word a unit: ``kWh per hour`` is no hour."""

_YEARS, _DECADE = range(1800, 2200), 10
"""Years that a column may hold that is called by that name, widened to decades."""

_CODES = frozenset(
    (
        *("zip", "zipcode", "postcode", "postal", "plz", "phone", "telephone", "tel", "mobile"),
        *("fax", "code", "provider", "account", "ssn", "npi", "fips", "isbn", "ean", "sku", "icd"),
    )
)
"""Words of names whose digits are no quantity."""

_NUMBERS = frozenset(("number", "no", "nr", "num", "nbr"))
"""The same at the end of a name; ``number of rooms`` is a quantity."""

_KEYS = frozenset(("id", "ids", "identifier", "key", "uuid", "guid", "ref", "reference", "row"))
"""Words of names of keys."""

_PERSONS = frozenset(
    (
        *("person", "user", "patient", "customer", "client", "member", "subject", "participant"),
        *("employee", "student", "pupil", "resident", "household", "citizen", "respondent"),
        *("pat", "cust", "emp"),
    )
)
"""Words of those who may own several rows."""

_GROUPS = frozenset(("people", "staff", "personnel", "clientele"))
"""Words of many of them; other names of tables end in s."""

_OTHER_ROWS = frozenset(
    (
        *("manager", "supervisor", "superior", "boss", "lead", "mentor", "parent", "mother"),
        *("father", "spouse", "partner", "referrer", "predecessor", "successor", "head", "reports"),
    )
)
"""Words of those whom a row of the same table may stand for."""

_WORD = re.compile(r"[A-ZÀ-Þ]?[a-zà-ÿ]+|[A-ZÀ-Þ]+(?![a-zà-ÿ])|%")


def _words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case: ``userId``, ``USER ID`` and ``user_id`` have the same."""
    return tuple(word.lower() for word in _WORD.findall(name))


def public_range(name: str, low: float, high: float) -> tuple[int, int] | None:
    """The range that the name of a column has by itself, if it holds its least and greatest."""
    words = _words_of(name)
    if not words or _RATE in words:
        return None
    endings = " ".join(words[-3:]), words[-1]
    for ending in endings:
        for names, ranges in (_SCALES | (_CALENDAR if isinstance(low, int) else {})).items():
            for first, last in ranges if ending in names.split(", ") else ():
                if first <= low and high <= last:
                    return first, last
    if words[-1] == "year" and low in _YEARS and high in _YEARS:
        return int(low // _DECADE * _DECADE), int(-(-high // _DECADE) * _DECADE)
    return None


def names_a_code(name: str) -> bool:
    """Whether digits under a name are no quantity: codes, numbers of accounts, keys."""
    words = _words_of(name)
    return bool(_CODES.intersection(words)) or bool(words and words[-1] in _NUMBERS | _KEYS)


def names_a_person(name: str) -> bool:
    """Whether a name is that of a person, alone or with a word for keys: ``user``, ``userId``."""
    words = _stem(name)
    return bool(words) and words[-1] in _PERSONS


def names_persons(table: str) -> bool:
    """Whether the name of a table is that of persons: ``users``, ``dim_customer``, ``people``."""
    last = _words_of(table)[-1:]
    return any(word in _GROUPS or _singulars(word) & _PERSONS for word in last)


def names_row_of(name: str, table: str) -> bool:
    """Whether the name of a column is that of a row of a table: ``film_id`` of ``films``.

    Or of what another column is of: ``film_id`` of ``FILM``.
    """
    pairs = zip(_stem(name)[-1:], _stem(table)[-1:], strict=False)
    return any(_singulars(first) & _singulars(last) for first, last in pairs)


def _stem(name: str) -> list[str]:
    """The words of a name but for those of keys."""
    return [word for word in _words_of(name) if word not in _KEYS | _NUMBERS | _CODES]


def _singulars(word: str) -> frozenset[str]:
    """A word, and what it is the plural of, if it is one."""
    ends = (("s", ""), ("es", ""), ("ies", "y"))
    return frozenset(
        (word, *(word.removesuffix(end) + rest for end, rest in ends if word.endswith(end)))
    )


def names_another_row(name: str) -> bool:
    """Whether a name is that of whom a row of the same table may stand for: ``reports_to``."""
    return bool(_OTHER_ROWS.intersection(_words_of(name)))


def names_a_key(name: str) -> bool:
    """Whether a name is that of what tells rows, persons or things apart."""
    words = _words_of(name)
    return bool(words) and (words[-1] in _KEYS | _NUMBERS or words[0] in _KEYS)
