"""What of a release goes when: kinds of what a home holds of it, and the entry that deletes some.

An entry names each place, relative to the home, with a keyed digest of what the home's list of the
release said of it: a copy that turns up later is recognised by who holds the key, and nobody
without it can test a guess of what was deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Self

from cloister.errors import InputError
from cloister.privacy.ledger.records import State

if TYPE_CHECKING:
    from cloister.privacy.ledger.entries import Entry
    from cloister.privacy.ledger.house import Rules
    from cloister.privacy.ledger.records import Release

DELETED = "deleted"
"""The kind of an entry that deletes some of what a home holds of a release."""

DAYS = {"source": 0, "measures": 0, "journal": 0, "models": 0, "refusals": 30}
"""Days that each kind stays after it is needed, unless rules say otherwise. Why data was refused is
read while the data or its spec is corrected, which takes people days."""

_DECIDED = (State.APPROVED, State.REJECTED, State.WITHDRAWN)

_ENDS: Mapping[str, tuple[State, ...]] = {
    "models": (State.REJECTED, State.WITHDRAWN),
    "refusals": (State.REFUNDED, State.FORFEITED),
}
"""The states from which a kind is needed no more; for the others, those that decide a release."""

_MOST_DAYS = 36_525
"""Days that a kind stays at most: a century."""


@dataclass(frozen=True)
class Deletion:
    """What was deleted of a release: keyed digests by place, by kind.

    ``listed`` is the keyed digest of the list of what stays; releases of version 0.1 have none.
    """

    seq: int
    time: str
    kinds: Mapping[str, Mapping[str, str]]
    listed: str

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """The deletion that an entry records.

        Errors: ``ValueError`` for kinds or places that no ledger writes.
        """
        kinds: dict[str, dict[str, str]] = entry.body["kinds"]
        places = [place for places in kinds.values() for place in places]
        if set(kinds) - set(DAYS) or not places or not all(map(_inside, places)):
            raise ValueError("no kinds or places")
        return cls(entry.seq, entry.time, kinds, str(entry.body.get("listed", "")))

    @property
    def places(self) -> list[str]:
        """All places, whatever their kind."""
        return [place for places in self.kinds.values() for place in places]


def deletion_slot(release: Release) -> str:
    """The slot of the next deletion of a release."""
    return f"deletion/{release.id}/{len(release.deletions)}"


def is_deleted(release: Release, place: str) -> bool:
    """Whether an entry says that a place of a release was deleted."""
    return any(place in each.places for each in release.deletions)


def goes_at(release: Release, kind: str, rules: Rules) -> str | None:
    """When what a home holds of a release may go, by kind; None while it is needed."""
    ends = _ENDS.get(kind, _DECIDED)
    ended = next((step.time for step in release.steps if step.state in ends), None)
    if ended is None:
        return None
    days = timedelta(days=rules.keep.get(kind, DAYS[kind]))
    return (datetime.fromisoformat(ended) + days).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def require_days(keep: Mapping[str, Any]) -> None:
    """Check the days that rules name. Errors: ``InputError`` for kinds or numbers that are none."""
    for kind, days in keep.items():
        if kind not in DAYS or type(days) is not int or not 0 <= days <= _MOST_DAYS:
            raise InputError(f"'keep' is 0 to {_MOST_DAYS} days of {', '.join(DAYS)}.")


def _inside(place: str) -> bool:
    """Whether a place is a path inside of a home."""
    path = PurePosixPath(place)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts
