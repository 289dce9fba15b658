"""Recurring releases as this home registered them: what runs and when, whatever a server says.

One file for each dataset in ``recurring/``. The server of the schedule only says whether a run is
due.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, Self

from cloister.errors import InputError, VerificationError
from cloister.tasks.requests.release_request import nest_parameters
from cloister.tasks.runtime.files import write_json
from cloister.tasks.runtime.home import Home, private_folder
from cloister.tasks.stores.prefect_schedule import ReleaseSchedule

_INSTANT = timedelta(microseconds=1)
"""The resolution of times: schedules are read from just before a time, so that it is included."""

_TAKING = timedelta(seconds=30)
"""What a server may take to make the first runs of a new deployment: it looks every 5 seconds."""


@dataclass(frozen=True)
class Registration:
    """A release that is made again and again, as ``cloister deploy`` registered it here.

    ``deployment`` is its id on the server, ``folder`` the working directory, ``settings`` a digest
    of the places of ledger and stores, ``after`` the time that the last run was due, in ISO 8601:
    only later ones are started.
    """

    name: str
    deployment: str
    parameters: dict[str, Any]
    schedule: ReleaseSchedule
    folder: str
    settings: str
    after: str

    def write(self, home: Home) -> Self:
        """Store it in the home, in place of the one of the same dataset.

        Raises:
            StorageError: it cannot be written.
        """
        write_json(_path(home, self.name), asdict(self))
        return self

    def require_due(self, parameters: dict[str, Any], due: datetime) -> None:
        """Check that a run is one that was registered here and was not started before.

        Raises:
            InputError: says how it differs.
        """
        if nest_parameters(parameters) != self.parameters:
            named = ", ".join(sorted(set(_differing(nest_parameters(parameters), self.parameters))))
            raise InputError(
                f"the server asks for other parameters than were registered in this home ({named})"
            )
        if next(self.schedule.runs(due - _INSTANT)) != due:
            raise InputError(
                "the server asks for a run at a time that is not on the schedule registered in "
                "this home"
            )
        if due <= datetime.fromisoformat(self.after):
            raise InputError("a run that was due then, or later, was started before")

    def last_due(self, after: datetime, until: datetime) -> datetime | None:
        """The last time after ``after``, up to ``until``, at which a run is still to start."""
        first = max(after, datetime.fromisoformat(self.after) + _TAKING)
        due = deque(takewhile(lambda run: run <= until, self.schedule.runs(first)), maxlen=1)
        return due[0] if due else None

    def mark_started(self, due: datetime, home: Home) -> Self:
        """Record that the run of a time was started; no run of that time or before starts again."""
        return replace(self, after=due.isoformat()).write(home)


def registrations(home: Home) -> list[Registration]:
    """All that are registered in a home, by dataset.

    Raises:
        VerificationError: a file cannot be read as a registration.
    """
    return sorted(
        (_read(path) for path in (home.folder / "recurring").glob("*.json")),
        key=lambda held: held.name,
    )


def settings_digest(home: Home) -> str:
    """SHA-256 of the places of ledger, tracking store and remote."""
    return hashlib.sha256(repr((home.ledger, home.tracking, home.remote)).encode()).hexdigest()


def _read(path: Path) -> Registration:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        read = {
            "schedule": ReleaseSchedule(**fields["schedule"]),
            "parameters": nest_parameters(fields["parameters"]),
        }
        held = Registration(**(fields | read))
        datetime.fromisoformat(held.after)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise VerificationError(
            f"{path} was altered; remove it and run cloister deploy again"
        ) from None
    return held


def _path(home: Home, name: str) -> Path:
    """Named by a digest, since a dataset may have any name."""
    return (
        private_folder(home.folder / "recurring")
        / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
    )


def _differing(said: dict[str, Any], held: dict[str, Any]) -> list[str]:
    """The names that differ, those in a request for themselves."""
    names = [name for name in said.keys() | held.keys() if said.get(name) != held.get(name)]
    inner, own = said.get("request"), held.get("request")
    if "request" not in names or not isinstance(inner, dict) or not isinstance(own, dict):
        return names
    return [name for name in names if name != "request"] + _differing(inner, own)
