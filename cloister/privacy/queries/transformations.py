"""Transformations of rows under which what a unit changes stays known: derived columns, and splits.

Queries may be asked of rows with further columns that are functions of each row, or of disjoint
parts of the rows, where the part of a row depends on that row alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, ClassVar, Generic, Self

import numpy as np

from cloister.arrays import Array, Integers
from cloister.hashing import mix
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import WORD, NoiseSource
from cloister.privacy.queries.query import (
    AnswerT,
    Derivation,
    Divider,
    Door,
    Mechanism,
    Query,
    SensitivityT,
    TableRows,
)
from cloister.schema.domain import Table


@dataclass(frozen=True, eq=False)
class OnDerived(Query[TableRows, SensitivityT, AnswerT], Generic[SensitivityT, AnswerT]):
    """A query on the rows that a derivation makes of the table's.

    Proof: each row is replaced by a public function of that row alone, so tables that differ in one
    unit's rows become tables that differ in as many rows of that unit, and the sensitivity of the
    query on these holds.
    """

    name: ClassVar[str] = "derived"
    query: Query[TableRows, SensitivityT, AnswerT]
    derivation: Derivation

    def request(self) -> Mapping[str, Any]:
        return {"derived": self.query.name, **self.query.request()}

    def sensitivity(self, neighbours: Neighbours) -> SensitivityT:
        return self.query.sensitivity(neighbours)

    def exact(self, rows: TableRows, source: NoiseSource) -> Array:
        return self.query.exact(rows.derived(self.derivation), source)

    def outcome(self, noisy: Array) -> AnswerT:
        return self.query.outcome(noisy)


@dataclass(frozen=True)
class MappedDoor:
    """A door to the rows of another one, ``door``, which is asked what this one maps."""

    door: Door[TableRows]

    @property
    def neighbours(self) -> Neighbours:
        """Which tables are neighbours: rows are mapped one by one."""
        return self.door.neighbours

    @property
    def secure(self) -> bool:
        """Whether the noise is secret."""
        return self.door.secure

    def query(
        self, query: Query[TableRows, SensitivityT, AnswerT]
    ) -> Query[TableRows, SensitivityT, AnswerT]:
        """The query that the other door is asked."""
        return query

    def label(self, label: str) -> str:
        """What the other door calls an answer."""
        return label

    def answer(
        self,
        query: Query[TableRows, SensitivityT, AnswerT],
        mechanism: Mechanism[SensitivityT],
        label: str,
    ) -> AnswerT:
        """The noisy answer; see :class:`Door`."""
        return self.door.answer(self.query(query), mechanism, self.label(label))

    def divide(self, split: Divider[TableRows], label: str) -> tuple[Self, ...]:
        """The doors to disjoint parts of the rows, mapped alike."""
        parts = self.door.divide(split, self.label(label))
        return tuple(replace(self, door=part) for part in parts)


@dataclass(frozen=True)
class DerivedDoor(MappedDoor):
    """A door to derived rows: every query is asked of them."""

    derivation: Derivation

    def query(
        self, query: Query[TableRows, SensitivityT, AnswerT]
    ) -> Query[TableRows, SensitivityT, AnswerT]:
        """The query on derived rows."""
        return OnDerived(query, self.derivation)


@dataclass(frozen=True)
class LabelledDoor(MappedDoor):
    """A door to one table, whose answers are labelled with its name."""

    table: str

    def label(self, label: str) -> str:
        """The label with the name of the table before it."""
        return f"{self.table}: {label}"


@dataclass(frozen=True)
class Split:
    """Disjoint random parts of the rows; part i holds about ``shares[i]`` of them.

    Which part a row is in is a hash of a random key, its values, and its number among the rows with
    the same values.

    Proof: equal rows are interchangeable, so a table is how often each row occurs. Adding a row
    that occurs j times adds its (j + 1)th occurrence; all others keep their numbers, and so their
    parts. So adding a row adds one row to one part, for each value of the key, which therefore need
    not be secret: it is drawn independently of the data. Replacing a row changes at most two parts.

    Source: Bindschaedler, Shokri, Gunter (VLDB 2017), section 3, the parts D_S, D_T, D_P.
    """

    KEY_WORDS: ClassVar[int] = 2
    """Words of 64 bits of a key."""

    shares: tuple[Fraction, ...]

    def divide(self, rows: TableRows, key: Integers) -> tuple[TableRows, ...]:
        """The rows of each part, for a key (KEY_WORDS,)."""
        parts = self.parts(rows.table, key)
        return tuple(TableRows(rows.table.take(parts == part)) for part in range(len(self.shares)))

    def parts(self, table: Table, key: Integers) -> Integers:
        """The part (n,) of each row."""
        words = key.astype(np.uint64)
        occurrence = occurrences(table)
        hashed = np.full(table.rows, words[0], dtype=np.uint64)
        for name in table.domain.names:
            hashed = mix(hashed ^ table.codes[name].astype(np.uint64))
        hashed = mix(mix(hashed ^ occurrence.astype(np.uint64)) ^ words[1])
        edges = [int(edge * WORD) for edge in accumulate(self.shares)][:-1]
        return np.searchsorted(np.array(edges, dtype=np.uint64), hashed, side="right").astype(
            np.int64
        )


def occurrences(table: Table) -> Integers:
    """The place (n,) of each row among those with the same values."""
    row = np.zeros(table.rows, dtype=np.int64)
    for name in table.domain.names:
        column = np.unique(table.codes[name], return_inverse=True)[1]
        row = np.unique(row * (column.max(initial=0) + 1) + column, return_inverse=True)[1]
    order = np.argsort(row, kind="stable")
    first = np.searchsorted(row[order], row[order])
    occurrence = np.empty(table.rows, dtype=np.int64)
    occurrence[order] = np.arange(table.rows) - first
    return occurrence
