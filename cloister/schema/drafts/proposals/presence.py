"""Rules on when a cell is missing that the rows of a file obey, as lines that a person may declare.

Privacy: a proposal holds facts of the data, and one row may decide it; a draft comments it out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cloister.arrays import Booleans, Integers
from cloister.schema.declarations.constraints import quote
from cloister.schema.drafts.column_cells import Guess
from cloister.schema.spec_files.writing import flow

_MOST_VALUES = 12
"""Values at most of a column that may say when another one is missing: a question's answers."""

_MOST_NAMED = 4
"""Values at most that a proposal names; what needs more is no rule that a person would write."""

_FEWEST = 20
"""Rows at least that are missing, and rows that are not: fewer are alike by chance."""

_CHANCE = math.log(1e-9)
"""The logarithm of the probability at most with which a value would be without a cell by chance: a
file has some ten thousand pairs of columns."""


def presence_proposals(frame: pd.DataFrame, guesses: Mapping[str, Guess]) -> list[str]:
    """Entries of ``constraints`` for the columns that are missing where another one says so.

    ``frame`` holds the cells of a file, those of numbers and dates as values. Keys are left out,
    since synthetic rows get them afresh.
    """
    known = {name: own for name, own in guesses.items() if own.keys["type"] != "text"}
    missing = {name: frame[name].isna().to_numpy() for name in known}
    candidates = [
        found for name, own in known.items() if (found := _Condition.of(frame[name], name, own))
    ]
    sentences, before = [], dict[bytes, str]()
    for name, mask in missing.items():
        if not _FEWEST <= mask.sum() <= len(mask) - _FEWEST:
            continue
        twin = before.setdefault(mask.tobytes(), name)
        own = _best(name, mask, candidates)
        if own is None and twin != name:
            own = f"is missing exactly if t.{quote(twin)} is missing"
        if own is not None:
            sentences.append(f"t.{quote(name)} {own}")
    return [flow({"check": sentence}) for sentence in sentences]


@dataclass(frozen=True)
class _Condition:
    """A column of few values, which may say when another one is missing.

    ``constants`` are its values as rules write them, the last one None where it is missing itself;
    row r has the one at ``places[r]``.
    """

    name: str
    constants: tuple[str | None, ...]
    places: Integers

    @classmethod
    def of(cls, cells: pd.Series, name: str, guess: Guess) -> _Condition | None:
        """The condition of a column; None if it has one value, or many, or is measured."""
        if guess.keys["type"] not in ("categorical", "ordinal", "boolean", "integer"):
            return None
        if not 1 < cells.nunique(dropna=False) <= _MOST_VALUES:
            return None
        places, values = pd.factorize(cells.astype("object"), sort=True)
        constants = [_constant(value, guess) for value in values]
        return cls(name, (*constants, None), np.where(places < 0, len(values), places))

    def counts(self, mask: Booleans) -> Integers:
        """How many rows of the mask have each value; shape (constants,)."""
        return np.bincount(self.places[mask], minlength=len(self.constants))


def _constant(value: object, guess: Guess) -> str:
    """A value of a column as rules write it."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if guess.keys["type"] == "integer":
        return str(value)
    flag = guess.keys["type"] == "boolean" and not isinstance(value, str)
    text = str(int(float(str(value)))) if flag else str(value)
    return "'" + text.replace("'", "''") + "'"


def _best(name: str, mask: Booleans, candidates: Sequence[_Condition]) -> str | None:
    """The rule on a column that says most; of several, that of the first condition."""
    others = [condition for condition in candidates if condition.name != name]
    for say in (_exactly, _partly):
        for condition in others:
            found = say(condition, condition.counts(mask), condition.counts(~mask))
            if found is not None:
                return found
    return None


def _exactly(condition: _Condition, gone: Integers, there: Integers) -> str | None:
    """The rule that the values of a condition decide, all of them, whether a cell is missing."""
    if ((gone > 0) & (there > 0)).any() or not gone[:-1].any():
        return None
    if there[-1] or (not gone[-1] and (gone > 0).sum() <= (there > 0).sum()):
        return _sentence("is missing exactly if", condition, gone > 0)
    return _sentence("is not missing exactly if", condition, there > 0)


def _partly(condition: _Condition, gone: Integers, there: Integers) -> str | None:
    """The rule that under some values of a condition, too frequent for chance, no cell is there."""
    rate = math.log(gone.sum() / (gone + there).sum())
    never = (there == 0) & (gone >= _FEWEST) & (gone * rate <= _CHANCE)
    if not never.any():
        return None
    if never[-1] and not never[:-1].any():
        together = gone[-1] == gone.sum()
        return None if together else f"is missing if t.{quote(condition.name)} is missing"
    if never[-1]:
        return _sentence("is not missing only if", condition, ((gone + there) > 0) & ~never)
    return _sentence("is missing if", condition, never)


def _sentence(words: str, condition: _Condition, values: Booleans) -> str | None:
    """The rule with the values of a mask (constants,); None if they are many, or none."""
    named = [condition.constants[at] for at in np.flatnonzero(values)]
    if not 0 < len(named) <= _MOST_NAMED or None in named:
        return None
    cell = f"t.{quote(condition.name)}"
    return f"{words} " + " or ".join(f"{cell} = {constant}" for constant in named)
