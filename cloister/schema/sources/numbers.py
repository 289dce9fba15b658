"""Numbers of a text file with other marks than ``1234.5``: a decimal comma, grouped thousands."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cloister.schema.attributes import AnyAttribute, Categorical, Float, Integer, Ordinal
from cloister.schema.formats import number_pattern
from cloister.schema.parsing import holds_numbers
from cloister.schema.spec import SourceSpec

_UNREADABLE = "?"
"""Stands for a cell that is no number of its file; no number is read from it."""


def read_numbers(
    frame: pd.DataFrame, attributes: Mapping[str, AnyAttribute], source: SourceSpec
) -> pd.DataFrame:
    """The texts of a file with the numbers of all numeric attributes as ``1234.5``.

    Privacy: row by row; a cell with another mark than its file's becomes unreadable.
    """
    if source.decimal == "." and source.thousands is None:
        return frame
    numeric = {name for name, attribute in attributes.items() if _is_numeric(attribute)}
    attrs = frame.attrs
    read = {
        name: plain_numbers(frame[name], source) if name in numeric else frame[name]
        for name in frame.columns
    }
    frame = pd.DataFrame(read, index=frame.index)
    frame.attrs = attrs
    return frame


def plain_numbers(texts: pd.Series, source: SourceSpec) -> pd.Series:
    """Texts (n,) of numbers in a source's marks as ``1234.5``; others as unreadable."""
    array = pa.array(texts, type=pa.large_string(), from_pandas=True)
    coded = array.dictionary_encode()
    distinct = coded.dictionary
    plain = distinct
    if source.thousands:
        plain = pc.replace_substring(plain, source.thousands, "")
    plain = pc.replace_substring(plain, source.decimal, ".")
    known = pc.match_substring_regex(distinct, number_pattern(source.decimal, source.thousands))
    read = pc.if_else(known, plain, _UNREADABLE).take(coded.indices)
    return pd.Series(read.to_pandas(), index=texts.index).astype("str")


def _is_numeric(attribute: AnyAttribute) -> bool:
    if isinstance(attribute, Categorical | Ordinal):
        return holds_numbers(attribute)
    return isinstance(attribute, Integer | Float)
