"""Columns whose values name other rows of the same file, and how to declare them.

Privacy: a hint holds facts of the data, and one row may decide it; a draft comments it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pandas.api import types as pt

from cloister.schema.attributes import DATA_DERIVED
from cloister.schema.drafts.column_cells import FEWEST_KEYS, Guess
from cloister.schema.drafts.column_names import names_a_key, names_a_person, names_another_row
from cloister.schema.spec_files.writing import flow, scalar

_FEWEST_NAMED = 5
"""Rows at least that others refer to: fewer are a column of few values."""

_REFERENCE = """\
# {column} holds values of {key}, so it names other rows; here it does not. To keep whom it names,
# write in place of source, ignore, attributes and constraints{remedy}:
# tables:
#   {table}:
#     source: {source}
#     key: {key}
#     references: {{{column}: {{table: {table}, max_rows: {most}}}}} # most rows that refer to one
#     attributes: # as above, but both of these alike
#       {key}: {key_keys}
#       {column}: {column_keys}
"""

_FILLED = ", with no value in {column} where a row is the first"
_DECIMAL = ", and its whole numbers in the file without decimals"


@dataclass(frozen=True)
class _SelfReference:
    """A column whose values are all among those of a unique one."""

    key: str
    column: str
    most: int
    remedy: str


def reference_hints(
    frame: pd.DataFrame, guesses: Mapping[str, Guess], table: str, source: Mapping[str, Any]
) -> Iterator[str]:
    """Comments that say how to declare the columns that refer to rows of the same file."""
    for found in _self_references(frame, guesses):
        guessed = guesses[found.key].keys
        whole = str(guessed.get("dtype", "")).lower().endswith("int64")
        dtype = {"dtype": "Int64"} if whole else {}
        keys = {"type": "text", "pattern": guessed["pattern"], **dtype}
        yield _REFERENCE.format(
            column=scalar(found.column),
            key=scalar(found.key),
            remedy=found.remedy,
            table=scalar(table),
            source=flow(source),
            most=found.most,
            key_keys=flow(keys | {"provenance": DATA_DERIVED}),
            column_keys=flow(keys | {"nullable": True, "provenance": DATA_DERIVED}),
        )


def _self_references(frame: pd.DataFrame, guesses: Mapping[str, Guess]) -> Iterator[_SelfReference]:
    """The columns that refer, each to the first key that holds all of its values."""
    keys = {
        name: set(_texts(frame[name]))
        for name, own in guesses.items()
        if own.keys["type"] == "text" and frame[name].is_unique and frame[name].notna().all()
    }
    for name, own in guesses.items():
        if own.keys["type"] in ("boolean", "date", "datetime"):
            continue
        cells = frame[name].dropna()
        texts = _texts(cells)
        for key, values in keys.items():
            if key != name and _names_rows(name, texts, values):
                most = int(texts.value_counts().iloc[0])
                unit = 10 ** max(len(str(most)) - 1, 1)
                most = -(-most // unit) * unit  # rounded up to one digit, and at least ten
                remedy = _FILLED.format(column=scalar(name)) * (len(cells) == len(frame))
                remedy += _DECIMAL * (pt.is_string_dtype(cells.dtype) and not cells.equals(texts))
                yield _SelfReference(key, name, most, remedy)
                break


def _names_rows(name: str, texts: pd.Series, keys: set[str]) -> bool:
    """Whether a column holds only keys, not by chance, as counts below the number of rows do."""
    if len(keys) < FEWEST_KEYS or texts.nunique() < _FEWEST_NAMED:
        return False
    named = names_a_key(name) or names_a_person(name) or names_another_row(name)
    counted = texts.str.fullmatch("[0-9]+").all()
    return (named or not counted) and bool(texts.isin(keys).all())


def _texts(cells: pd.Series) -> pd.Series:
    """The cells as texts of keys: whole numbers that are stored or written as ``7.0`` as ``7``."""
    return cells.astype("str").str.replace(r"^(\d+)\.0$", r"\1", regex=True)
