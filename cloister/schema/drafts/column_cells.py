"""The cells of a column that is drafted, and a guess of what it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from pandas.api import types as pt

from cloister.schema.attributes import AnyAttribute, Float, Integer
from cloister.schema.drafts.written_forms import numbers_alone
from cloister.schema.values.number_formats import NO_UNIT, Unit
from cloister.schema.values.parsing import parse

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
