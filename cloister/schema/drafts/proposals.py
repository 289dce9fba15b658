"""What a draft proposes of several columns: dependencies, orders, presence, references.

Privacy: a proposal holds facts of the data, and one row may decide it; a draft comments it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pt

from cloister.arrays import Booleans, Floats, Integers
from cloister.schema.attributes import DATA_DERIVED
from cloister.schema.declarations import quote
from cloister.schema.drafts.columns import (
    FEWEST_KEYS,
    Guess,
    names_a_key,
    names_a_person,
    names_another_row,
)
from cloister.schema.spec_files.yaml_text import flow, scalar

_ROWS_EACH = 20
"""Rows at least of a value that decides another column, on average; fewer cost more to learn."""

_FIRST_ROWS = 2_000
"""Rows that rule out most pairs of columns, before all rows are compared."""

_CHANCE = math.log(1e-12)
"""The logarithm of the probability at most of a dependency or an order by chance, as if the columns
did not depend on each other: a file has some ten thousand pairs of columns."""

_LEFT = ("categorical", "ordinal", "boolean", "integer", "date")
"""Types of what decides other columns; a decimal number is decided."""


def _proposal(form: str, rule: str) -> str:
    return flow({form: rule, "provenance": DATA_DERIVED})


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
        _proposal("fd", f"{quote(name)} -> {', '.join(map(quote, rights))}")
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
    return [_proposal("deny", f"t.{quote(less)} > t.{quote(more)}") for less, more in found]


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


_MOST_VALUES = 12
"""Values at most of a column that may say when another one is missing: a question's answers."""

_MOST_NAMED = 4
"""Values at most that a proposal names; what needs more is no rule that a person would write."""

_FEWEST = 20
"""Rows at least that are missing, and rows that are not: fewer are alike by chance."""

_CHANCE_OF_VALUE = math.log(1e-9)
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
    return [_proposal("check", sentence) for sentence in sentences]


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
    never = (there == 0) & (gone >= _FEWEST) & (gone * rate <= _CHANCE_OF_VALUE)
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
