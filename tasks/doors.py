"""Sensitive rows while a release runs: in memory of this process alone, behind a door, forgotten at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from cloister.errors import CloisterError
from cloister.privacy.journal import Journal

Rows = TypeVar("Rows")
Private = TypeVar("Private")


@dataclass(frozen=True)
class Door(Generic[Private]):
    """The one way to the rows for a model, and the journal of its answers."""

    private: Private
    journal: Journal


class Doors(Generic[Rows, Private]):
    """The rows that releases of this process have opened, by the id of the release, and the doors before them."""

    def __init__(self) -> None:
        self._rows: dict[str, Rows] = {}
        self._doors: dict[str, Door[Private]] = {}

    def hold(self, release: str, rows: Rows) -> None:
        """Hold the rows of a release until it is forgotten."""
        self._rows[release] = rows

    def rows(self, release: str) -> Rows:
        """The rows of a release that is running.

        Privacy: raw rows; for a measure that is kept inside.
        """
        return _of(self._rows, release, "data")

    def open(self, release: str, private: Private, journal: Journal) -> None:
        """Put the rows of a release behind a door."""
        self._doors[release] = Door(private, journal)

    def door(self, release: str) -> Door[Private]:
        """The door of a release that is running."""
        return _of(self._doors, release, "door")

    @contextmanager
    def forgetting(self, release: str) -> Iterator[None]:
        """Close the journal and forget the rows of a release at the end, whatever happens."""
        try:
            yield
        finally:
            if release in self._doors:
                self._doors.pop(release).journal.close()
            self._rows.pop(release, None)


Held = TypeVar("Held")


def _of(held: dict[str, Held], release: str, what: str) -> Held:
    if release not in held:
        raise CloisterError(f"the {what} of release {release} is not open in this process; run its command again")
    return held[release]
