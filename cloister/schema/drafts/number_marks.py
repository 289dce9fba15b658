"""The decimal and thousands marks of a CSV file, by which most of its cells are numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cloister.schema.sources.numbers import plain_numbers
from cloister.schema.spec import SourceSpec
from cloister.schema.values.number_formats import number_pattern

Marks = tuple[str, str | None]

_MARKS: tuple[Marks, ...] = (
    (".", None),
    (".", ","),
    (",", None),
    (",", "."),
    (".", "'"),
    (".", " "),
    (",", " "),
    (",", "\u00a0"),
    (",", "\u202f"),
)
"""Decimal and thousands marks; of two that read as many different numbers, the first is taken."""

_MARKS_BESIDE_SEMICOLONS = (_MARKS[0], *sorted(_MARKS[1:], key=lambda marks: marks[0] != ","))
"""The same where decimal commas are likelier, since cells are not divided by commas."""


def likeliest_marks(columns: Sequence[pd.Series], delimiter: str) -> Marks:
    """The marks by which columns of the most different numbers are numbers throughout.

    One column of many amounts tells more than several of ``1.0`` and ``0.0``. Files with semicolons
    have them for the sake of decimal commas.
    """
    distinct = [_texts(cells) for cells in columns]

    def numeric(marks: Marks) -> int:
        return sum(len(texts) for texts in distinct if _are_numbers(texts, marks))

    return max(_MARKS_BESIDE_SEMICOLONS if delimiter == ";" else _MARKS, key=numeric)


def _are_numbers(texts: pa.Array, marks: Marks) -> bool:
    """Whether all texts are numbers in these marks; no group of thousands follows a zero alone."""
    known = pc.match_substring_regex(texts, number_pattern(*marks))
    if len(texts) == 0 or not pc.all(known).as_py():
        return False
    if marks[1] is None:
        return True
    below_one = pc.match_substring_regex(texts, rf"^\s*[+-]?0+{re.escape(marks[1])}")
    return not pc.any(below_one).as_py()


def in_plain_marks(cells: pd.Series, source: SourceSpec) -> pd.Series:
    """A column with its numbers as ``1234.5``, if all are numbers; else as it is."""
    marks = source.decimal, source.thousands
    if marks == _MARKS[0] or not _are_numbers(_texts(cells), marks):
        return cells
    return plain_numbers(cells, source)


def has_foreign_marks(cells: pd.Series, source: SourceSpec) -> bool:
    """Whether all cells of a column are numbers as ``1234.5``, and not in the marks of the file."""
    texts = _texts(cells)
    own = _are_numbers(texts, (source.decimal, source.thousands))
    return not own and _are_numbers(texts, _MARKS[0])


def _texts(cells: pd.Series) -> pa.Array:
    """The different known cells (n,)."""
    return pa.array(distinct_cells(cells), pa.large_string())


def distinct_cells(cells: pd.Series) -> pd.Series:
    """The different known cells of a column."""
    return pd.Series(cells.dropna().unique(), dtype="str")
