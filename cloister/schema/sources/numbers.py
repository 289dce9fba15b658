"""Numbers of a text file with other marks than ``1234.5``: a decimal comma, grouped thousands."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cloister.schema.attributes import AnyAttribute, Categorical, Float, Integer, Ordinal
from cloister.schema.spec import SourceSpec
from cloister.schema.values.number_formats import (
    NO_UNIT,
    Unit,
    is_clock_format,
    number_pattern,
    unit_of,
)
from cloister.schema.values.parsing import holds_numbers, read_distinct, without_unit

_UNREADABLE = "?"
"""Stands for a cell that is no number of its file; no number is read from it."""


def has_own_marks(attribute: AnyAttribute, source: SourceSpec) -> bool:
    """Whether an attribute is of numbers that its source writes in another way than ``1234.5``."""
    if source.decimal == "." and source.thousands is None:
        return False
    if isinstance(attribute, Categorical | Ordinal):
        return holds_numbers(attribute)
    return isinstance(attribute, Integer | Float) and not is_clock_format(attribute.format)


def declared_unit(attribute: AnyAttribute) -> Unit:
    """What a file writes before and after the numbers of an attribute."""
    return unit_of(attribute.format) if isinstance(attribute, Integer | Float) else NO_UNIT


def plain_numbers(texts: pd.Series, source: SourceSpec, unit: Unit = NO_UNIT) -> pd.Series:
    """Texts (n,) of numbers in a source's marks as ``1234.5``; others as unreadable."""
    read = read_distinct(texts, lambda distinct: _plain(without_unit(distinct, unit), source))
    return pd.Series(read.to_pandas()).set_axis(texts.index).astype("str")


def _plain(distinct: pa.Array, source: SourceSpec) -> pa.Array:
    plain = distinct
    if source.thousands:
        plain = pc.replace_substring(plain, source.thousands, "")
    plain = pc.replace_substring(plain, source.decimal, ".")
    known = pc.match_substring_regex(distinct, number_pattern(source.decimal, source.thousands))
    return pc.if_else(known, plain, _UNREADABLE)
