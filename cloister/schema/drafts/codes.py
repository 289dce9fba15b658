"""Columns that are no quantity: keys of rows and persons, codes, and texts from a list.

The name of a column says of its values what is public once a person has confirmed it: public
ranges, codes, keys. Texts from a list are categories, in the order of the file if it gives one.

Privacy: that values fit is read from the data; one row may decide any guess.
"""

from __future__ import annotations

import re

import pandas as pd
from pandas.api import types as pt

from cloister.schema.codelists import MOST_PATTERN_DIGITS
from cloister.schema.drafts.written_forms import (
    CURRENCIES,
    FEWEST_KEYS,
    ColumnCells,
    Guess,
    is_compact_date,
)

Range = tuple[int, int]

_WORD = re.compile(r"[A-ZÀ-Þ]?[a-zà-ÿ]+|[A-ZÀ-Þ]+(?![a-zà-ÿ])|%")

_CALENDAR: dict[str, tuple[Range, ...]] = {
    "day of week": ((0, 6), (1, 7)),
    "dayofweek": ((0, 6), (1, 7)),
    "weekday": ((0, 6), (1, 7)),
    "day of year": ((1, 366),),
    "dayofyear": ((1, 366),),
    "day": ((1, 31),),
    "day of month": ((1, 31),),
    "month": ((1, 12),),
    "quarter": ((1, 4),),
    "week": ((1, 53),),
    "hour": ((0, 23), (0, 24)),
    "minute": ((0, 59),),
    "second": ((0, 59),),
}
"""Ranges of what a name ends in, from calendars and clocks: of whole numbers."""

_SCALES: dict[str, tuple[Range, ...]] = {
    "age": ((0, 120),),
    "percent": ((0, 1), (0, 100)),
    "percentage": ((0, 1), (0, 100)),
    "pct": ((0, 1), (0, 100)),
    "%": ((0, 1), (0, 100)),
    "latitude": ((-90, 90),),
    "lat": ((-90, 90),),
    "longitude": ((-180, 180),),
    "lon": ((-180, 180),),
    "lng": ((-180, 180),),
    "rating": ((1, 5), (0, 5), (0, 10), (0, 100)),
    "stars": ((1, 5), (0, 5)),
    "score": ((1, 5), (0, 5), (1, 10), (0, 10), (0, 100)),
    "share": ((0, 1), (0, 100)),
    "rate": ((0, 1), (0, 100)),
    "ratio": ((0, 1),),
    "fraction": ((0, 1),),
    "probability": ((0, 1),),
}
"""The same of usual scales, the narrowest first; of decimal numbers too."""

_RATE = "per"
"""The word of a name that makes its last word a unit: ``kWh per hour`` is no hour."""

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

_OTHER_ROWS = frozenset(
    (
        *("manager", "supervisor", "superior", "boss", "lead", "mentor", "parent", "mother"),
        *("father", "spouse", "partner", "referrer", "predecessor", "successor", "head", "reports"),
    )
)
"""Words of those whom a row of the same table may stand for."""

_YEARS = range(1800, 2200)
"""Years that a column may hold that is called by that name."""

_DECADE = 10
"""Years to whose multiples a range of years is widened."""


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case: ``userId``, ``USER ID`` and ``user_id`` have the same."""
    return tuple(word.lower() for word in _WORD.findall(name))


def public_range(name: str, low: float, high: float) -> Range | None:
    """The range that the name of a column has by itself, if it holds its least and greatest."""
    words = words_of(name)
    if _RATE in words:
        return None
    ranges = _SCALES | (_CALENDAR if isinstance(low, int) else {})
    for length in (3, 1):
        for first, last in ranges.get(" ".join(words[-length:]), ()) if words else ():
            if first <= low and high <= last:
                return first, last
    if words and words[-1] == "year" and low in _YEARS and high in _YEARS:
        return int(low // _DECADE * _DECADE), int(-(-high // _DECADE) * _DECADE)
    return None


def names_a_code(name: str) -> bool:
    """Whether digits under a name are no quantity: codes, numbers of accounts, keys."""
    words = words_of(name)
    return bool(_CODES.intersection(words)) or bool(words and words[-1] in _NUMBERS | _KEYS)


def names_a_person(name: str) -> bool:
    """Whether a name is that of a person, alone or with a word for keys: ``user``, ``userId``."""
    words = words_of(name)
    while words and words[-1] in _KEYS | _NUMBERS | _CODES:
        words = words[:-1]
    return bool(words) and words[-1] in _PERSONS


def names_another_row(name: str) -> bool:
    """Whether a name is that of whom a row of the same table may stand for: ``reports_to``."""
    return bool(_OTHER_ROWS.intersection(words_of(name)))


def names_a_key(name: str) -> bool:
    """Whether a name is that of what tells rows, persons or things apart."""
    words = words_of(name)
    return bool(words) and (words[-1] in _KEYS | _NUMBERS or words[0] in _KEYS)


_NEARLY_ALL = 0.9
"""The share of distinct values from which texts are taken for a key, or for free text."""

_CODE_DIGITS = 5
"""Digits from which numbers of one length, each in several rows, are taken for codes."""

_ROUND = 100
"""Counters start at multiples of it, or one above: 0, 1, 100001."""

_NUMBERED = re.compile(rf"([^{{}}]*?)(\d{{1,{MOST_PATTERN_DIGITS}}})")

_ROW = "another value in each row: a key, not modelled; synthetic rows get fresh numbers"
_PERSON = (
    "by its name a person, with several rows: a key; if a person is to be protected, write "
    "privacy.unit: {key: ..., max_rows: ...}"
)


def guess_digits(cells: ColumnCells) -> Guess | None:
    """Digits that are no quantity: a key, dates without marks, or codes."""
    texts = cells.digits()
    if texts is None:
        return _long_digits(cells)
    if _are_persons(cells):
        return _numbered_key(texts, cells, _PERSON)
    if cells.unique and (_names_rows(cells.name) or _counts_up(texts, cells.name)):
        return _numbered_key(texts, cells, f"{_ROW}; integer if it is a quantity")
    if cells.is_text and is_compact_date(texts):
        return None
    numbers = texts.astype("int64")
    if public_range(cells.name, int(numbers.min()), int(numbers.max())):
        return None
    reason = _code_reason(texts, cells)
    return _code_list(cells, reason) if reason else None


def _long_digits(cells: ColumnCells) -> Guess | None:
    """Digits too long for a whole number: a key where nearly each row has its own, else codes."""
    if pt.is_bool_dtype(cells.known.dtype) or pt.is_float_dtype(cells.known.dtype):
        return None
    if not cells.known.astype("str").str.fullmatch("[0-9]+").all():
        return None
    if cells.distinct < max(_NEARLY_ALL * len(cells.known), FEWEST_KEYS):
        return _code_list(cells, f"digits, some more than {MOST_PATTERN_DIGITS}")
    dtype = {} if cells.is_text else {"dtype": cells.own_dtype}
    pattern = f"{{{10 ** (MOST_PATTERN_DIGITS - 1)}..{'9' * MOST_PATTERN_DIGITS}}}"
    return Guess({"type": "text", "pattern": pattern, **dtype}, _ROW)


def _names_rows(name: str) -> bool:
    """Whether a name is that of a key, of digits that are no quantity, or of a person."""
    return names_a_key(name) or names_a_code(name) or names_a_person(name)


def _counts_up(texts: pd.Series, name: str) -> bool:
    """Whether different numbers follow each other, in some order, from where counters start."""
    numbers = texts.astype("int64")
    first, last = int(numbers.min()), int(numbers.max())
    usual = first > 1 and public_range(name, first, last) is not None
    return first % _ROUND in (0, 1) and last - first == len(numbers) - 1 and not usual


def _code_reason(texts: pd.Series, cells: ColumnCells) -> str:
    lengths = texts.str.len()
    if cells.zeros_ahead:
        return "digits with leading zeros"
    if names_a_code(cells.name):
        return "digits, and by its name no quantity"
    several = cells.distinct <= len(texts) // 2 and len(texts) >= FEWEST_KEYS
    rounded = texts.str.endswith("0").all()
    if lengths.nunique() == 1 and lengths.iloc[0] >= _CODE_DIGITS and several and not rounded:
        return f"always {lengths.iloc[0]} digits, each value in several rows"
    return ""


def _code_list(cells: ColumnCells, reason: str) -> Guess:
    values = sorted(cells.known.unique().tolist())
    why = (
        f"{reason}: taken for codes; declare the public list or {{pattern: ...}}, type text if it "
        "names a person or row, integer if it is a quantity"
    )
    return Guess({"type": "categorical", "values": values}, why)


def _are_persons(cells: ColumnCells) -> bool:
    """Whether a column names persons, some of them in several rows."""
    return names_a_person(cells.name) and FEWEST_KEYS <= cells.distinct < len(cells.known)


def _numbered_key(texts: pd.Series, cells: ColumnCells, why: str) -> Guess:
    lengths, width = texts.str.len(), int(texts.str.len().max())
    padded = lengths.nunique() == 1 and texts.str.startswith("0").any()
    first = "0" * (width - 1) + "1" if padded else "1"
    dtype = {} if cells.is_text else {"dtype": cells.own_dtype}
    return Guess({"type": "text", "pattern": f"{{{first}..{'9' * width}}}", **dtype}, why)


def guess_key(cells: ColumnCells) -> Guess | None:
    """A text key: many texts that are one prefix and a number, each different, or free text."""
    known, persons = cells.known, _are_persons(cells)
    many = len(known) >= FEWEST_KEYS and cells.distinct >= _NEARLY_ALL * len(known)
    if not cells.is_text or not (many or persons):
        return None
    parts = known.str.extract(f"^{_NUMBERED.pattern}$")
    if (cells.unique or persons) and parts[0].nunique() == 1 and parts[1].notna().all():
        width = int(parts[1].str.len().max())
        start = "0" * width if parts[1].str.len().nunique() == 1 else "0"
        pattern = f"{parts[0].iloc[0]}{{{start}..{'9' * width}}}"
        return Guess({"type": "text", "pattern": pattern}, _PERSON if persons else _ROW)
    why = (
        _PERSON
        if persons
        else (
            "a text of its own in nearly each row: not modelled, synthetic rows get neutral keys; "
            "categorical with a public list, or ignore, may be better"
        )
    )
    return Guess({"type": "text", "pattern": f"KEY{{{'0' * 8}1..{'9' * 9}}}"}, why)


_LISTED_WITHOUT_REMARK = 50
"""Values of a list that a person reads through easily."""

_NUMBER_WITH_UNIT = re.compile(
    r"(\D{0,12}?)\s?([+-]?\d+(?:[.,' \u00a0]\d{3})*(?:[.,]\d+)?)\s?([^\d\s]\D{0,9})?"
)
"""A number with what stands before it, and its unit."""

_DECIMAL = re.compile(r"\s*[+-]?\d+(?:[.,]\d+)?\s*")
"""A plain number, with either decimal mark."""

_MOSTLY = 0.9
"""The share of values that must be alike for a hint on all of them."""

_MOST_MARKS = 3
"""Texts beside numbers at most that are named: ``<0.5``, ``trace``."""


def guess_ordered(cells: ColumnCells) -> Guess | None:
    """The list of a column that its file stores as categories in an order."""
    kind = cells.known.dtype
    if not isinstance(kind, pd.CategoricalDtype) or not kind.ordered:
        return None
    why = "categories in the order of the file's own list: declare the public list"
    return Guess({"type": "ordinal", "values": list(map(str, kind.categories))}, why)


def guess_listed(cells: ColumnCells) -> Guess:
    """All texts that occur, unordered."""
    values = sorted(cells.known.astype("str").unique())
    why = "texts; all that occur: declare the public list, and ordinal if they have an order"
    if len(values) == 1:
        why = "one text alone: declare what else it may be, or put it in ignore"
    elif len(values) > _LISTED_WITHOUT_REMARK:
        why = _many_words(values)
    return Guess({"type": "categorical", "values": values}, why)


def _many_words(values: list[str]) -> str:
    """Why a long list of texts was guessed, and what it may be instead."""
    words = f"{len(values)} texts"
    parts = [found.groups() for value in values if (found := _NUMBER_WITH_UNIT.fullmatch(value))]
    if len(parts) >= _MOSTLY * len(values) and len({before for before, _, _ in parts}) == 1:
        units = sorted({after for _, _, after in parts if after})
        before = parts[0][0]
        if units or before.strip() in CURRENCIES:
            unit = " and ".join(f"'{unit}'" for unit in units[:3]) or f"'{before}'"
            return f"{words}, nearly all of them numbers with {unit}: write the numbers alone"
        return (
            f"{words}, all of them one word and a number: type text with a pattern if they name "
            "persons or rows, else the public list as {pattern: ...} or {file: NAME}"
        )
    marks = [value for value in values if not _DECIMAL.fullmatch(value)]
    if len(marks) <= _MOST_MARKS:
        named = " and ".join(f"'{mark}'" for mark in marks)
        return f"{words}, all but {named} numbers: write a number in its place, and make it special"
    return (
        f"{words}; give the public list as {{file: NAME}}, type text with a pattern if they name "
        "persons or rows, or ignore free text"
    )
