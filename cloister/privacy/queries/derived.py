"""Queries on rows with further columns that are functions of each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from cloister.arrays import Array
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import (
    AnswerT,
    Divider,
    Door,
    Mechanism,
    Query,
    SensitivityT,
)
from cloister.privacy.queries.table_rows import Derivation, TableRows


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

    def outcome(self, rows: TableRows, noisy: Array) -> AnswerT:
        return self.query.outcome(rows.derived(self.derivation), noisy)


@dataclass(frozen=True)
class DerivedDoor:
    """A door to derived rows: every query is asked of them, by way of the ``door`` to the table."""

    door: Door[TableRows]
    derivation: Derivation

    @property
    def neighbours(self) -> Neighbours:
        """Which tables are neighbours: rows are derived one by one."""
        return self.door.neighbours

    @property
    def secure(self) -> bool:
        """Whether the noise is secret."""
        return self.door.secure

    def answer(
        self,
        query: Query[TableRows, SensitivityT, AnswerT],
        mechanism: Mechanism[SensitivityT],
        label: str,
    ) -> AnswerT:
        """The noisy answer; see :class:`Door`."""
        return self.door.answer(OnDerived(query, self.derivation), mechanism, label)

    def divide(self, split: Divider[TableRows], label: str) -> tuple[DerivedDoor, ...]:
        """The doors to disjoint parts of the derived rows."""
        parts = self.door.divide(split, label)
        return tuple(DerivedDoor(part, self.derivation) for part in parts)
