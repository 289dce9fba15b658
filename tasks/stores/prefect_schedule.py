"""The schedule of a recurring release: a cron line and a time zone, read as Prefect reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from prefect.client.schemas.schedules import CronSchedule
from prefect.server.schemas.schedules import CronSchedule as Dates

from cloister.errors import InputError

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

    def runs(self, after: datetime) -> Iterator[datetime]:
        """The times of the runs, without end, earliest first."""
        dates = Dates(cron=self.cron, timezone=self.timezone)
        while True:
            found = asyncio.run(dates.get_dates(_CHUNK, after))
            yield from found
            after = found[-1] + _SECOND

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
