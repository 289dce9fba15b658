"""Columns that are no quantity though digits: keys of rows and persons, and codes.

Privacy: guessed from the data; one row may decide any of it.
"""

from __future__ import annotations

import re

import pandas as pd
from pandas.api import types as pt

from cloister.schema.drafts.column_cells import FEWEST_KEYS, ColumnCells, Guess
from cloister.schema.drafts.column_names import (
    names_a_code,
    names_a_key,
    names_a_person,
    public_range,
)
from cloister.schema.drafts.written_forms import is_compact_date
from cloister.schema.values.codelists import MOST_PATTERN_DIGITS

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
