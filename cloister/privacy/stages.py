"""The stages of a plan, and everything that they do together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cloister.errors import UnsupportedEvent
from cloister.privacy.accounting.paths import unit_rows
from cloister.privacy.events import Composed, Event, Parallel, PlausiblyDeniable


class PlannedStage(Protocol):
    """A stage of a plan: its name, what it does to the data, and what it is for.

    Stages that name a ``part`` read one of several disjoint parts of the rows.
    """

    @property
    def name(self) -> str: ...

    @property
    def event(self) -> Event: ...

    @property
    def explanation(self) -> str: ...

    @property
    def part(self) -> str | None: ...


def event_of_stages(stages: Iterable[PlannedStage]) -> Composed:
    """All that stages do: composed, and in parallel where they read disjoint parts of the rows.

    Parts are in the order in which stages first name them.

    Raises:
        UnsupportedEvent: nothing in the parts says how many rows a unit has, as with selections
            alone: it may lie in several of them, and would be charged for one.
    """
    listed = tuple(stages)
    alone = tuple((stage.event, 1) for stage in listed if stage.part is None)
    names = dict.fromkeys(stage.part for stage in listed if stage.part is not None)
    if names and all(unit_rows(stage.event) is None for stage in listed if stage.part is not None):
        raise UnsupportedEvent(
            "The stages on disjoint parts of the rows do not say how many rows a unit has, and "
            "would be charged as if it had one; count something in a part, or plan them for the "
            "whole table. Nothing was charged."
        )
    parts = tuple(
        Composed(tuple((stage.event, 1) for stage in listed if stage.part == name))
        for name in names
    )
    return Composed((*alone, (Parallel(parts), 1)) if parts else alone)


def accountable(stages: Iterable[PlannedStage]) -> tuple[PlannedStage, ...]:
    """The stages that are differentially private: all but those of plausible deniability alone."""
    return tuple(stage for stage in stages if not isinstance(stage.event, PlausiblyDeniable))


def divides_rows(event: Event) -> bool:
    """Whether anything in an event is counted on disjoint parts of the rows alone."""
    match event:
        case Composed():
            return any(divides_rows(part) for part, _ in event.parts)
    return isinstance(event, Parallel | PlausiblyDeniable)


def is_deniable(event: Event) -> bool:
    """Whether anything in an event is under plausible deniability alone."""
    match event:
        case Composed():
            return any(is_deniable(part) for part, _ in event.parts)
        case Parallel():
            return any(is_deniable(part) for part in event.parts)
    return isinstance(event, PlausiblyDeniable)


def deniable_event(stages: Iterable[PlannedStage]) -> PlausiblyDeniable | None:
    """The event of the stage that is under plausible deniability alone, if there is one."""
    return next((s.event for s in stages if isinstance(s.event, PlausiblyDeniable)), None)
