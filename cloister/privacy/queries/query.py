"""What a query, a mechanism and a door are, and coded rows as queries read them.

Rows are sensitive; a cache holds what several queries share. Imports no library of models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from cloister.arrays import Array, Integers
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.schema.domain import Table
from cloister.schema.joint_counts import Joint, JointCounts
from cloister.schema.partition import Partition, PartNumbers


class Derivation(Protocol):
    """A public function of single rows: the same rows, with further columns."""

    def of(self, table: Table) -> Table:
        """The derived table, whose row r depends on row r of ``table`` alone."""
        ...


class TableRows:
    """The rows of a table behind the door.

    Counts are cached by the identity of partitions, so that none is made twice.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._counts: dict[tuple[int, ...], tuple[Joint, Integers]] = {}
        self._stacks: dict[tuple[int, ...], tuple[Sequence[Partition], PartNumbers]] = {}
        self._pairs: dict[tuple[int, ...], tuple[Sequence[Partition], Integers]] = {}
        self._derived: dict[int, tuple[Derivation, TableRows]] = {}

    def derived(self, derivation: Derivation) -> TableRows:
        """The rows that a derivation makes of these; cached by identity."""
        if id(derivation) not in self._derived:
            rows = TableRows(self.table.mapped(derivation.of))
            self._derived[id(derivation)] = (derivation, rows)
        return self._derived[id(derivation)][1]

    def counts(self, partitions: Joint) -> Integers:
        """Rows in each joint part, flat."""
        return JointCounts([partitions]).of(self.table)[0]

    def remembered_counts(self, tables: Sequence[Joint]) -> list[Integers]:
        """Rows in each joint part of each table, flat; cached, and counted in one pass if not."""
        keys = [tuple(map(id, table)) for table in tables]
        new = {k: table for k, table in zip(keys, tables, strict=True) if k not in self._counts}
        if new:
            counted = JointCounts(list(new.values())).of(self.table)
            self._counts |= dict(zip(new, zip(new.values(), counted, strict=True), strict=True))
        return [self._counts[key][1] for key in keys]

    def part_matrix(self, partitions: Sequence[Partition]) -> PartNumbers:
        """Parts (n, k) of all rows in several partitions, int32.

        Cached, since each step of a training needs them.
        """
        key = tuple(map(id, partitions))
        if key not in self._stacks:
            self._stacks[key] = (partitions, _stacked(self.table, partitions))
        return self._stacks[key][1]

    def parts_of(self, rows: Integers, partitions: Sequence[Partition]) -> PartNumbers:
        """Parts (m, k) of some rows in several partitions, int32; see :meth:`part_matrix`."""
        if self.table.in_memory:
            return self.part_matrix(partitions)[rows]
        return _stacked(self.table.select(part.name for part in partitions).take(rows), partitions)

    def remembered_pairs(
        self, partitions: Sequence[Partition], count: Callable[[TableRows], Integers]
    ) -> Integers:
        """What ``count`` makes of all pairs of some partitions; cached."""
        key = tuple(map(id, partitions))
        if key not in self._pairs:
            self._pairs[key] = (partitions, count(self))
        return self._pairs[key][1]


def _stacked(table: Table, partitions: Sequence[Partition]) -> PartNumbers:
    parts = (part.index(table.stored[part.name]) for part in partitions)
    return np.stack([numbers.astype(np.int32) for numbers in parts], axis=1)


RowsT = TypeVar("RowsT")
SensitivityT = TypeVar("SensitivityT")
AnswerT = TypeVar("AnswerT")

SensitivityT_contra = TypeVar("SensitivityT_contra", contravariant=True)


class Query(ABC, Generic[RowsT, SensitivityT, AnswerT]):
    """One query to sensitive rows: a frozen value, made of public or released facts alone.

    ``name`` is what the journal calls it. The type ``RowsT`` is of what it reads,
    ``SensitivityT`` of its sensitivity, ``AnswerT`` of what is made of the noisy numbers.
    """

    name: ClassVar[str]

    @abstractmethod
    def request(self) -> Mapping[str, Any]:
        """The query as the journal records it, as JSON values."""

    @abstractmethod
    def sensitivity(self, neighbours: Neighbours) -> SensitivityT:
        """How far one privacy unit can change `exact`."""

    @abstractmethod
    def exact(self, rows: RowsT, source: NoiseSource) -> Array:
        """The exact answer, which never leaves the door; ``source`` draws secret samples."""

    @abstractmethod
    def outcome(self, noisy: Array) -> AnswerT:
        """The noisy numbers in the form that callers get; post-processing, which sees no row."""


class Mechanism(Protocol[SensitivityT_contra]):
    """Makes an exact answer noisy, and names what that did; both from the same fields."""

    def release(self, exact: Any, sensitivity: SensitivityT_contra, source: NoiseSource) -> Array:
        """The noisy answer."""
        ...

    def event(self, sensitivity: SensitivityT_contra) -> Event:
        """The event of one `release`."""
        ...


class Divider(Protocol[RowsT]):
    """Divides rows into disjoint parts, in which the part of a row depends on that row alone."""

    KEY_WORDS: ClassVar[int]

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """About what share of the rows each part has; they add up to one."""
        ...

    def divide(self, rows: RowsT, key: Integers) -> tuple[RowsT, ...]:
        """The rows of each part, by a random key (KEY_WORDS,)."""
        ...


class Door(Protocol[RowsT]):
    """The only access that models and measurements have to sensitive rows."""

    @property
    def neighbours(self) -> Neighbours:
        """Which tables are neighbours."""
        ...

    @property
    def secure(self) -> bool:
        """Whether the noise is secret; answers with noise from a seeded source are not private."""
        ...

    def answer(
        self,
        query: Query[RowsT, SensitivityT, AnswerT],
        mechanism: Mechanism[SensitivityT],
        label: str,
    ) -> AnswerT:
        """The noisy answer; UnplannedQuery if the plan does not hold its event."""
        ...

    def divide(self, split: Divider[RowsT], label: str) -> Sequence[Door[RowsT]]:
        """The doors to disjoint parts of the rows; UnplannedQuery if the plan has no such parts."""
        ...
