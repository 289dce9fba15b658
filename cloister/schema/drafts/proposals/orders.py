"""Numbers and dates of which one is at most another in all rows, as lines to declare if rules.

Privacy: a proposal holds facts of the data, and one row may decide it; a draft comments it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pandas as pd

from cloister.arrays import Floats
from cloister.schema.declarations.constraints import quote
from cloister.schema.drafts.column_cells import Guess
from cloister.schema.drafts.proposals.dependencies import _CHANCE, _FIRST_ROWS
from cloister.schema.spec_files.writing import flow

_USUAL = 0.95
"""The share of pairs of cells of any two rows that are in order, above which that says little."""

_MOST = 20
"""Columns of one type at most, whose orders are looked at: of more, most are chance."""


def order_proposals(typed: Mapping[str, pd.Series], guesses: Mapping[str, Guess]) -> list[str]:
    """Entries of ``constraints`` for the columns that are in order, without what follows by others.

    ``typed`` are the values (n,) of numbers, dates and moments.
    """
    kinds: dict[str, list[_Numbers]] = {}
    for name, values in typed.items():
        kinds.setdefault(guesses[name].keys["type"], []).append(_Numbers.of(name, values))
    found = [rule for alike in kinds.values() if len(alike) <= _MOST for rule in _orders(alike)]
    return [flow({"deny": f"t.{quote(less)} > t.{quote(more)}"}) for less, more in found]


@dataclass(frozen=True)
class _Numbers:
    """A column as numbers (n,), NaN where it is missing."""

    name: str
    numbers: Floats

    @classmethod
    def of(cls, name: str, values: pd.Series) -> _Numbers:
        if pd.api.types.is_datetime64_any_dtype(values.dtype):
            micros = values.to_numpy().astype("datetime64[us]")
            return cls(name, np.where(np.isnat(micros), np.nan, micros.astype(np.float64)))
        return cls(name, values.to_numpy(dtype=np.float64, na_value=np.nan))


def _orders(columns: Sequence[_Numbers]) -> Iterator[tuple[str, str]]:
    """The names of the less and the greater column of each order that no others imply."""
    found = {
        (less.name, more.name)
        for less, more in permutations(columns, 2)
        if _never_above(less.numbers[:_FIRST_ROWS], more.numbers[:_FIRST_ROWS])
        and _never_above(less.numbers, more.numbers)
        and _tells(less.numbers, more.numbers)
    }
    for less, more in sorted(found, key=lambda pair: [own.name for own in columns].index(pair[0])):
        if not any((less, own.name) in found and (own.name, more) in found for own in columns):
            yield less, more


def _never_above(less: Floats, more: Floats) -> bool:
    """Whether no number (n,) is above the other one of its row, and some are below."""
    return not (less > more).any() and bool((less < more).any())


def _tells(less: Floats, more: Floats) -> bool:
    """Whether an order in all rows is one that columns without a dependence would not have."""
    both = ~np.isnan(less) & ~np.isnan(more)
    above = np.sort(more[both])
    rows = len(above)
    usual = float((rows - np.searchsorted(above, less[both])).mean()) / rows
    return 0 < usual <= _USUAL and rows * math.log(usual) <= _CHANCE
