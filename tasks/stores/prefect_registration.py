"""What recurs, as ``cloister deploy`` registered it in the home, one file for each dataset.

What runs and when is what the home holds. The cron line and the time zone of a schedule are read as
Prefect reads them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, Self

from prefect.client.schemas.schedules import CronSchedule
from prefect.server.schemas.schedules import CronSchedule as Dates

from cloister.errors import InputError, VerificationError
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.tasks.home.files import read_sealed, write_sealed
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.requests.release_request import nest_parameters

_FIELDS = 5
"""Fields of a cron line: minute, hour, day, month, weekday."""

_CHUNK = 50
"""Dates that are computed at once; the iterator computes more as they are needed."""

_SECOND = timedelta(seconds=1)
"""Added to the last date of a chunk, so that the next chunk begins after it."""


@dataclass(frozen=True)
class ReleaseSchedule:
    """A cron line of five fields, read in a time zone of the IANA database."""

    cron: str
    timezone: str

    @classmethod
    def of(cls, cron: str, timezone: str, now: datetime) -> Self:
        """The schedule of a cron line and a time zone.

        Raises:
            InputError: one of them cannot be read, or no run follows ``now``.
        """
        if len(cron.split()) != _FIELDS or not _accepted(cron, "UTC"):
            raise InputError(
                f"the schedule '{cron}' cannot be used; give five fields, minute hour day month "
                "weekday, "
                'such as --cron "0 3 1 * *" for three o\'clock on the first of each month'
            )
        if not _accepted(cron, timezone):
            raise InputError(
                f"there is no time zone '{timezone}'; give one such as UTC or Europe/Paris with "
                "--timezone"
            )
        schedule = cls(cron, timezone)
        schedule._require_a_run(now)
        return schedule

    def __str__(self) -> str:
        return f"{self.cron} ({self.timezone})"

    def runs(self, after: datetime) -> Iterator[datetime]:
        """The times of the runs, without end, earliest first."""
        dates = Dates(cron=self.cron, timezone=self.timezone)
        while True:
            times = asyncio.run(dates.get_dates(_CHUNK, after))
            yield from times
            after = times[-1] + _SECOND

    def _require_a_run(self, now: datetime) -> None:
        try:
            next(self.runs(now))
        except (ValueError, IndexError):
            raise InputError(
                f"the schedule '{self.cron}' names a day that never comes; give one such as --cron "
                '"0 3 1 * *"'
            ) from None


def _accepted(cron: str, timezone: str) -> bool:
    try:
        CronSchedule(cron=cron, timezone=timezone)
    except ValueError:
        return False
    return bool(timezone)


_INSTANT = timedelta(microseconds=1)
"""The resolution of times: schedules are read from just before a time, so that it is included."""

_TAKING = timedelta(seconds=30)
"""What a server may take to make the first runs of a new deployment: it looks every 5 seconds."""


@dataclass(frozen=True)
class Registration:
    """A release that is made again and again, as ``cloister deploy`` registered it here.

    ``deployment`` is its id on the server, ``folder`` the working directory, ``settings`` a digest
    of the places of ledger and stores, ``after`` the time that the last run was due, in ISO 8601:
    only later ones are started. ``spec_digest`` is that of the spec which was deployed, ``account``
    what it is charged to. The last ``catch_up`` missed runs are made up for, or all that the server
    made if it is None. ``publish`` says that an approved release is published at once.
    Registrations of earlier versions lack the fields that have defaults.
    """

    name: str
    deployment: str
    parameters: dict[str, Any]
    schedule: ReleaseSchedule
    folder: str
    settings: str
    after: str
    spec_digest: str = ""
    account: str = ""
    catch_up: int | None = None
    publish: bool = False

    def write(self, home: Home) -> Self:
        """Store it in the home, in place of the one of the same dataset.

        Raises:
            StorageError: it cannot be written.
        """
        write_sealed(_path(home, self.name), asdict(self), home)
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

    def next_run(self, now: datetime) -> str:
        """The next time at which it is due, to the minute, in the zone of the schedule."""
        return next(self.schedule.runs(now)).isoformat(timespec="minutes")

    def missed(self, until: datetime) -> list[datetime]:
        """The times up to ``until`` whose runs were missed and are made up for, earliest first."""
        first = datetime.fromisoformat(self.after) + _TAKING
        due = takewhile(lambda run: run <= until, self.schedule.runs(first))
        return list(deque(due, maxlen=self.catch_up or 0))

    def skips(self, due: datetime, until: datetime) -> bool:
        """Whether a run that was missed before ``until`` is not made up for."""
        return self.catch_up is not None and due <= until and due not in self.missed(until)

    def require_same_spec(self) -> None:
        """Check that the spec is the one that was deployed.

        Raises:
            InputError: it was changed since.
            SpecError: it cannot be read.
        """
        path = Path(self.parameters["request"]["spec"])
        if self.spec_digest and spec_digest(load_spec(path)) != self.spec_digest:
            raise InputError(
                f"{path} was changed since cloister deploy; look at what changed, and deploy it "
                "again"
            )

    def mark_started(self, due: datetime, home: Home) -> Self:
        """Record that the run of a time was started; no run of that time or before starts again."""
        return replace(self, after=due.isoformat()).write(home)


def registrations(home: Home) -> list[Registration]:
    """All that are registered in a home, by dataset, without those that were altered."""
    return sorted(_all(home)[0], key=lambda registration: registration.name)


def altered_registrations(home: Home) -> list[str]:
    """What is wrong with the files that cannot be read as registrations: nothing of theirs runs."""
    return _all(home)[1]


def _all(home: Home) -> tuple[list[Registration], list[str]]:
    """The registrations of a home, and what is wrong with those that were altered."""
    sound, altered = [], []
    for path in sorted((home.folder / "recurring").glob("*.json")):
        try:
            sound.append(_read(path, home))
        except VerificationError as error:
            altered.append(str(error))
    return sound, altered


def registration_of(home: Home, name: str) -> Registration | None:
    """What is registered in a home under a name, if anything.

    Raises:
        VerificationError: its file cannot be read as a registration.
    """
    path = _path(home, name)
    return _read(path, home) if path.exists() else None


def is_published_on_approval(home: Home, account: str) -> bool:
    """Whether a recurring release of an account was deployed to be published once approved.

    What was altered says nothing, and so publishes nothing.
    """
    return any(
        registration.publish and registration.account == account
        for registration in registrations(home)
    )


def settings_digest(home: Home) -> str:
    """SHA-256 of the places of ledger, tracking store, remote and, if there are any, anchors."""
    anchors = (home.anchors,) if home.anchors else ()
    places = (home.ledger, home.tracking, home.remote, *anchors)
    return hashlib.sha256(repr(places).encode()).hexdigest()


def _read(path: Path, home: Home) -> Registration:
    fields, _ = read_sealed(path, home)
    try:
        read = {
            "schedule": ReleaseSchedule(**fields["schedule"]),
            "parameters": nest_parameters(fields["parameters"]),
        }
        registration = Registration(**(fields | read))
        datetime.fromisoformat(registration.after)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise VerificationError(
            f"{path} was altered; remove it and run cloister deploy again"
        ) from None
    return registration


def _path(home: Home, name: str) -> Path:
    """Named by a digest, since a dataset may have any name."""
    return (
        private_folder(home.folder / "recurring")
        / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
    )


def _differing(named: dict[str, Any], registered: dict[str, Any]) -> list[str]:
    """The names that differ, those in a request for themselves."""
    names = [
        name for name in named.keys() | registered.keys() if named.get(name) != registered.get(name)
    ]
    inner, registered_request = named.get("request"), registered.get("request")
    if (
        "request" not in names
        or not isinstance(inner, dict)
        or not isinstance(registered_request, dict)
    ):
        return names
    return [name for name in names if name != "request"] + _differing(inner, registered_request)
