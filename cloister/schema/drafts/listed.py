"""Columns of texts from a list: categories, in the order that the file gives them, if it does.

Privacy: guessed from the data; one row may decide any of it.
"""

from __future__ import annotations

import re

import pandas as pd

from cloister.schema.drafts.column_cells import ColumnCells, Guess
from cloister.schema.drafts.written_forms import CURRENCIES

_LISTED_WITHOUT_REMARK = 50
"""Values of a list that a person reads through easily."""

_NUMBERED = re.compile(
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
    parts = [found.groups() for value in values if (found := _NUMBERED.fullmatch(value))]
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
