"""The interfaces of queries, mechanisms and doors; imports no library of models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from cloister.arrays import Array, Integers
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource

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
        """What the journal records of the query, as JSON values."""

    @abstractmethod
    def sensitivity(self, neighbours: Neighbours) -> SensitivityT:
        """How far one privacy unit can change `exact`."""

    @abstractmethod
    def exact(self, rows: RowsT, source: NoiseSource) -> Array:
        """The exact answer, which never leaves the door; ``source`` draws secret samples."""

    @abstractmethod
    def outcome(self, rows: RowsT, noisy: Array) -> AnswerT:
        """The noisy numbers in the form that callers get.

        Privacy: post-processing, except for looking up the texts of numbers that were released.
        """


class Mechanism(Protocol[SensitivityT_contra]):
    """Makes an exact answer noisy, and names what that did; both from the same fields."""

    def release(self, exact: Any, sensitivity: SensitivityT_contra, source: NoiseSource) -> Array:
        """The noisy answer."""
        ...

    def event(self, sensitivity: SensitivityT_contra) -> Event:
        """What one `release` did."""
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
