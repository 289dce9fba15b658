"""Columns that another one decides in all rows of a file, as lines that a person may declare.

Privacy: a proposal holds facts of the data, and one row may decide it; a draft comments it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cloister.arrays import Integers
from cloister.schema.declarations.constraints import quote
from cloister.schema.drafts.column_cells import Guess
from cloister.schema.spec_files.writing import flow

_ROWS_EACH = 20
"""Rows at least that a value has on average, for it to decide another column: fewer are not learnt
but from much more epsilon."""

_FIRST_ROWS = 2_000
"""Rows that rule out most pairs of columns, before all rows are compared."""

_CHANCE = math.log(1e-12)
"""The logarithm of the probability at most of a dependency or an order by chance, as if the columns
did not depend on each other: a file has some ten thousand pairs of columns."""

_LEFT = ("categorical", "ordinal", "boolean", "integer", "date")
"""Types of what decides other columns; a decimal number is decided."""


def dependency_proposals(frame: pd.DataFrame, guesses: Mapping[str, Guess]) -> list[str]:
    """Entries of ``constraints`` for the columns that others decide, one for each that decides.

    ``frame`` holds the cells of a file, those of numbers and dates as values. Keys are left out,
    since synthetic rows get them afresh.
    """
    columns = [
        _Cells.of(frame[name], name, own.keys["type"])
        for name, own in guesses.items()
        if own.keys["type"] != "text"
    ]
    decided = {left.name: list(_decided_by(left, columns)) for left in columns}
    return [
        flow({"fd": f"{quote(name)} -> {', '.join(map(quote, rights))}"})
        for name in decided
        if (rights := _without_implied(name, decided))
    ]


@dataclass(frozen=True)
class _Cells:
    """A column as numbers of its values, -1 where it is missing; shape (n,)."""

    name: str
    type: str
    places: Integers
    values: int

    @classmethod
    def of(cls, cells: pd.Series, name: str, kind: str) -> _Cells:
        places, values = pd.factorize(cells)
        return cls(name, kind, places.astype(np.int64), len(values))

    @property
    def may_decide(self) -> bool:
        """Whether the column may be the left side of a dependency."""
        rows = int((self.places >= 0).sum())
        return self.type in _LEFT and 1 < self.values <= rows // _ROWS_EACH


def _decided_by(left: _Cells, columns: list[_Cells]) -> Iterator[str]:
    if left.may_decide:
        yield from (
            right.name
            for right in columns
            if right is not left
            and 1 < right.values <= left.values
            and _agree(left.places[:_FIRST_ROWS], right.places[:_FIRST_ROWS])
            and _agree(left.places, right.places)
            and _log_chance(left, right) <= _CHANCE
        )


def _agree(left: Integers, right: Integers) -> bool:
    """Whether rows (n,) with one value on the left never have two on the right."""
    both = (left >= 0) & (right >= 0)
    one = np.full(left.max(initial=0) + 1, -1)
    one[left[both]] = right[both]
    return bool((one[left[both]] == right[both]).all())


def _log_chance(left: _Cells, right: _Cells) -> float:
    """The logarithm of the probability that independent columns agree so, at most."""
    both = (left.places >= 0) & (right.places >= 0)
    sizes = np.bincount(left.places[both])
    shares = np.bincount(right.places[both]) / max(int(both.sum()), 1)
    return float((sizes[sizes > 0] - 1).sum() * math.log(max(float(shares.max(initial=0)), 1e-12)))


def _without_implied(name: str, decided: Mapping[str, list[str]]) -> list[str]:
    """What a column decides, without what follows by a column that it decides.

    Of columns that decide each other the first decides.
    """
    first = list(decided).index
    twins = [other for other in decided[name] if name in decided[other]]
    between = [other for other in decided[name] if other not in twins]
    if any(first(twin) < first(name) for twin in twins):
        return []
    return [
        right
        for right in decided[name]
        if not any(
            right in decided[other] and (other not in decided[right] or first(other) < first(right))
            for other in between
        )
    ]
