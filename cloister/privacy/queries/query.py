"""What a query, a mechanism and a door are to each other; imports no library of models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from cloister.arrays import Array
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource

Rows = TypeVar("Rows")
Moved = TypeVar("Moved")
Answer = TypeVar("Answer")

Moved_contra = TypeVar("Moved_contra", contravariant=True)


class Query(ABC, Generic[Rows, Moved, Answer]):
    """One question to sensitive rows: a frozen value, made of public or released facts alone.

    ``name`` is what the journal calls it. ``Rows`` is what it reads, ``Moved`` how it says its
    sensitivity, ``Answer`` what is made of the noisy numbers.
    """

    name: ClassVar[str]

    @abstractmethod
    def request(self) -> Mapping[str, Any]:
        """What the journal holds of the question, as JSON values."""

    @abstractmethod
    def sensitivity(self, neighbours: Neighbours) -> Moved:
        """How far one privacy unit moves `exact`."""

    @abstractmethod
    def exact(self, rows: Rows, source: NoiseSource) -> Array:
        """The exact answer, which never leaves the door; ``source`` draws secret samples."""

    @abstractmethod
    def outcome(self, rows: Rows, noisy: Array) -> Answer:
        """The noisy numbers in the form that is handed out.

        Privacy: post-processing, but for names of what the numbers say was released.
        """


class Mechanism(Protocol[Moved_contra]):
    """Makes an exact answer noisy, and names what that did; both from the same fields."""

    def release(self, exact: Any, sensitivity: Moved_contra, source: NoiseSource) -> Array:
        """The noisy answer."""
        ...

    def event(self, sensitivity: Moved_contra) -> Event:
        """What one `release` did."""
        ...


class Door(Protocol[Rows]):
    """The way to sensitive rows: all that models and measurements hold of them."""

    @property
    def neighbours(self) -> Neighbours:
        """Which tables must be hard to tell apart."""
        ...

    @property
    def secure(self) -> bool:
        """Whether the noise is secret; what comes from behind a seeded source is not private."""
        ...

    def answer(
        self, query: Query[Rows, Moved, Answer], mechanism: Mechanism[Moved], label: str
    ) -> Answer:
        """The noisy answer; UnplannedQuery if the plan does not hold its event."""
        ...
