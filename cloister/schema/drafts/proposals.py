"""What a draft proposes of several columns: dependencies, orders, presence, references.

Privacy: a proposal holds facts of the data, and one row may decide it; a draft comments it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pt

from cloister.arrays import Booleans, Floats, Integers
from cloister.schema.attributes import DATA_DERIVED
from cloister.schema.declarations import quote
from cloister.schema.drafts import columns as drafted
from cloister.schema.spec_files.yaml_text import flow, scalar

_ROWS_EACH = 20
"""Rows at least of a value that decides another column, on average; fewer cost more to learn."""

_FIRST_ROWS = 2_000
"""Rows that rule out most pairs of columns, before all rows are compared."""

CHANCE = math.log(1e-12)
"""The logarithm of the probability at most of a dependency or an order by chance, as if the columns
did not depend on each other: a file has some ten thousand pairs of columns."""

_LEFT = ("categorical", "ordinal", "boolean", "integer", "date")
"""Types of what decides other columns; a decimal number is decided."""


def proposal(form: str, rule: object) -> str:
    """An entry of ``constraints`` that a person has to declare."""
    return flow({form: rule, "provenance": DATA_DERIVED})


def dependency_proposals(frame: pd.DataFrame, guesses: Mapping[str, drafted.Guess]) -> list[str]:
    """Entries of ``constraints`` for the columns that others decide, one for each that decides.

    ``frame`` holds the cells of a file, those of numbers and dates as values. Keys are left out,
    since synthetic rows get them afresh.
    """
    columns = [
        _Codes.of(frame[name], guess.keys["type"])
        for name, guess in guesses.items()
        if guess.keys["type"] != "text"
    ]
    decided = {left.name: list(_decided_by(left, columns)) for left in columns}
    return [
        proposal("fd", f"{quote(name)} -> {', '.join(map(quote, rights))}")
        for name in decided
        if (rights := _without_implied(name, decided))
    ]


@dataclass(frozen=True)
class _Codes:
    """A column as numbers of its values, -1 where it is missing; shape (n,)."""

    name: str
    codes: Integers
    values: int
    may_decide: bool
    """Whether the column may be the left side of a dependency."""

    @classmethod
    def of(cls, cells: pd.Series, kind: str) -> _Codes:
        codes, values = pd.factorize(cells)
        rows = int((codes >= 0).sum())
        decides = kind in _LEFT and 1 < len(values) <= rows // _ROWS_EACH
        return cls(str(cells.name), codes.astype(np.int64), len(values), decides)


def _decided_by(left: _Codes, columns: list[_Codes]) -> Iterator[str]:
    if left.may_decide:
        yield from (
            right.name
            for right in columns
            if right is not left
            and 1 < right.values <= left.values
            and _agree(left.codes[:_FIRST_ROWS], right.codes[:_FIRST_ROWS])
            and _agree(left.codes, right.codes)
            and _log_chance(left.codes, right.codes) <= CHANCE
        )


def _agree(left: Integers, right: Integers) -> bool:
    """Whether rows (n,) with one value on the left never have two on the right."""
    both = (left >= 0) & (right >= 0)
    one = np.full(left.max(initial=0) + 1, -1)
    one[left[both]] = right[both]
    return bool((one[left[both]] == right[both]).all())


def _log_chance(left: Integers, right: Integers) -> float:
    """The logarithm of the probability that independent columns (n,) agree so, at most."""
    both = (left >= 0) & (right >= 0)
    sizes = np.bincount(left[both])
    shares = np.bincount(right[both]) / max(int(both.sum()), 1)
    return float((sizes[sizes > 0] - 1).sum() * math.log(max(float(shares.max(initial=0)), 1e-12)))


def _without_implied(name: str, decided: Mapping[str, list[str]]) -> list[str]:
    """What a column decides, without what follows by a column that it decides.

    Of columns that decide each other the first decides.
    """
    first = list(decided).index
    twins = [column for column in decided[name] if name in decided[column]]
    between = [column for column in decided[name] if column not in twins]
    if any(first(twin) < first(name) for twin in twins):
        return []
    return [
        right
        for right in decided[name]
        if not any(
            right in decided[middle]
            and (middle not in decided[right] or first(middle) < first(right))
            for middle in between
        )
    ]


_USUAL = 0.95
"""The share of pairs of cells of any two rows that are in order, above which that says little."""

_MOST = 20
"""Columns of one type at most, whose orders are looked at: of more, most are chance."""


def order_proposals(
    typed: Mapping[str, pd.Series], guesses: Mapping[str, drafted.Guess]
) -> list[str]:
    """Entries of ``constraints`` for the columns that are in order, without what follows by others.

    ``typed`` are the values (n,) of numbers, dates and moments.
    """
    kinds: dict[str, dict[str, Floats]] = {}
    for name, values in typed.items():
        kinds.setdefault(guesses[name].keys["type"], {})[name] = _as_numbers(values)
    orders = (order for alike in kinds.values() if len(alike) <= _MOST for order in _orders(alike))
    return [proposal("deny", f"t.{quote(less)} > t.{quote(more)}") for less, more in orders]


def _as_numbers(values: pd.Series) -> Floats:
    """Numbers, dates or moments (n,) as numbers, NaN where they are missing."""
    if pt.is_datetime64_any_dtype(values.dtype):
        micros = values.to_numpy().astype("datetime64[us]")
        return np.where(np.isnat(micros), np.nan, micros.astype(np.float64))
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def _orders(columns: Mapping[str, Floats]) -> Iterator[tuple[str, str]]:
    """The names of the less and the greater column of each order that no others imply."""
    orders = {
        (less, more)
        for less, more in permutations(columns, 2)
        if _never_above(columns[less][:_FIRST_ROWS], columns[more][:_FIRST_ROWS])
        and _never_above(columns[less], columns[more])
        and _tells(columns[less], columns[more])
    }
    first = list(columns).index
    for less, more in sorted(orders, key=lambda pair: first(pair[0])):
        if not any((less, name) in orders and (name, more) in orders for name in columns):
            yield less, more


def _never_above(less: Floats, more: Floats) -> bool:
    """Whether no number (n,) is above the other of its row, and some are below."""
    return not (less > more).any() and bool((less < more).any())


def _tells(less: Floats, more: Floats) -> bool:
    """Whether an order in all rows is one that columns without a dependence would not have."""
    both = ~np.isnan(less) & ~np.isnan(more)
    above = np.sort(more[both])
    rows = len(above)
    usual = float((rows - np.searchsorted(above, less[both])).mean()) / rows
    return 0 < usual <= _USUAL and rows * math.log(usual) <= CHANCE


_MOST_VALUES = 12
"""Values at most of a column that may say when another one is missing: a question's answers."""

_MOST_NAMED = 4
"""Values at most that a proposal names; what needs more is no rule that a person would write."""

_FEWEST = 20
"""Rows at least that are missing, and rows that are not: fewer are alike by chance."""

_CHANCE_OF_VALUE = math.log(1e-9)
"""The logarithm of the probability at most with which a value would be without a cell by chance: a
file has some ten thousand pairs of columns."""


def presence_proposals(frame: pd.DataFrame, guesses: Mapping[str, drafted.Guess]) -> list[str]:
    """Entries of ``constraints`` for the columns that are missing where another one says so.

    ``frame`` holds the cells of a file, those of numbers and dates as values. Keys are left out,
    since synthetic rows get them afresh.
    """
    known = {name: guess for name, guess in guesses.items() if guess.keys["type"] != "text"}
    missing = {name: frame[name].isna().to_numpy() for name in known}
    conditions = [
        condition
        for name, guess in known.items()
        if (condition := _Condition.of(frame[name], guess))
    ]
    sentences, before = [], dict[bytes, str]()
    for name, mask in missing.items():
        if not _FEWEST <= mask.sum() <= len(mask) - _FEWEST:
            continue
        twin = before.setdefault(mask.tobytes(), name)
        rule = _best(name, mask, conditions)
        if rule is None and twin != name:
            rule = f"is missing exactly if t.{quote(twin)} is missing"
        if rule is not None:
            sentences.append(f"t.{quote(name)} {rule}")
    return [proposal("check", sentence) for sentence in sentences]


@dataclass(frozen=True)
class _Condition:
    """A column of few values, which may say when another one is missing.

    ``constants`` are its values as rules write them, the last one None where it is missing itself;
    row r has the one at ``codes[r]``.
    """

    name: str
    constants: tuple[str | None, ...]
    codes: Integers

    @classmethod
    def of(cls, cells: pd.Series, guess: drafted.Guess) -> _Condition | None:
        """The condition of a column; None if it has one value, or many, or is measured."""
        if guess.keys["type"] not in ("categorical", "ordinal", "boolean", "integer"):
            return None
        if not 1 < cells.nunique(dropna=False) <= _MOST_VALUES:
            return None
        codes, values = pd.factorize(cells.astype("object"), sort=True)
        constants = (*(_constant(value, guess) for value in values), None)
        return cls(str(cells.name), constants, np.where(codes < 0, len(values), codes))

    def counts(self, mask: Booleans) -> Integers:
        """How many rows of the mask have each value; shape (constants,)."""
        return np.bincount(self.codes[mask], minlength=len(self.constants))


def _constant(value: object, guess: drafted.Guess) -> str:
    """A value of a column as rules write it."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if guess.keys["type"] == "integer":
        return str(value)
    flag = guess.keys["type"] == "boolean" and not isinstance(value, str)
    text = str(int(float(str(value)))) if flag else str(value)
    return "'" + text.replace("'", "''") + "'"


def _best(name: str, mask: Booleans, conditions: Sequence[_Condition]) -> str | None:
    """The rule on a column that says most; of several, that of the first condition."""
    rules = (
        say(condition, condition.counts(mask), condition.counts(~mask))
        for say in (_exactly, _partly)
        for condition in conditions
        if condition.name != name
    )
    return next((rule for rule in rules if rule is not None), None)


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
    named = [condition.constants[code] for code in np.flatnonzero(values)]
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


def reference_hints(
    frame: pd.DataFrame, guesses: Mapping[str, drafted.Guess], table: str, source: Mapping[str, Any]
) -> Iterator[str]:
    """Comments that say how to declare the columns that refer to rows of the same file."""
    for key, column in _self_references(frame, guesses):
        cells = frame[column].dropna()
        texts = texts_of_keys(cells)
        most = int(texts.value_counts().iloc[0])
        remedy = _FILLED.format(column=scalar(column)) * (len(cells) == len(frame))
        remedy += _DECIMAL * (pt.is_string_dtype(cells.dtype) and not cells.equals(texts))
        guessed = guesses[key].keys
        whole = str(guessed.get("dtype", "")).lower().endswith("int64")
        dtype = {"dtype": "Int64"} if whole else {}
        keys = {"type": "text", "pattern": guessed["pattern"], **dtype}
        yield _REFERENCE.format(
            column=scalar(column),
            key=scalar(key),
            remedy=remedy,
            table=scalar(table),
            source=flow(source),
            most=rounded_bound(most),
            key_keys=flow(keys | {"provenance": DATA_DERIVED}),
            column_keys=flow(keys | {"nullable": True, "provenance": DATA_DERIVED}),
        )


def rounded_bound(most: int) -> int:
    """A number of rows, rounded up to one digit."""
    unit = 10 ** max(len(str(most)) - 1, 1)
    return -(-most // unit) * unit


def _self_references(
    frame: pd.DataFrame, guesses: Mapping[str, drafted.Guess]
) -> Iterator[tuple[str, str]]:
    """The columns that refer, each behind the first key that holds all of its values."""
    keys = {
        name: set(texts_of_keys(frame[name]))
        for name, guess in guesses.items()
        if guess.keys["type"] == "text" and frame[name].is_unique and frame[name].notna().all()
    }
    for name, guess in guesses.items():
        if keys and guess.keys["type"] not in ("boolean", "date", "datetime"):
            texts = texts_of_keys(frame[name].dropna())
            other_keys = (key for key in keys if key != name)
            referred = (key for key in other_keys if _names_rows(name, texts, keys[key]))
            yield from ((key, name) for key in islice(referred, 1))


def _names_rows(name: str, texts: pd.Series, keys: set[str]) -> bool:
    """Whether a column holds only keys, not by chance, as counts below the number of rows do."""
    if len(keys) < drafted.FEWEST_KEYS or texts.nunique() < _FEWEST_NAMED:
        return False
    named = (
        drafted.names_a_key(name) or drafted.names_a_person(name) or drafted.names_another_row(name)
    )
    counted = texts.str.fullmatch("[0-9]+").all()
    return (named or not counted) and bool(texts.isin(keys).all())


def texts_of_keys(cells: pd.Series) -> pd.Series:
    """The cells as texts of keys: whole numbers that are stored or written as ``7.0`` as ``7``."""
    return cells.astype("str").str.replace(r"^(\d+)\.0$", r"\1", regex=True)
