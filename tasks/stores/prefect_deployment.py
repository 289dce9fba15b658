"""Recurring releases: registered in the home, on the schedule of a Prefect server.

The server holds a schedule, and no command that is run: it only says whether a run is due. What
runs and when is what this home registered, one file for each dataset in ``recurring/``. Neither
``Flow.serve`` nor ``Flow.deploy`` runs them: the first takes its parameters and the second the
command of its work pool from the server (:mod:`cloister.flows.serving`). The cron line and the time
zone of a schedule are read as Prefect reads them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from ipaddress import ip_address
from itertools import takewhile
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
)
from prefect.client.schemas.objects import FlowRun, State, StateType, VersionInfo
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import DeploymentApplyError
from prefect.exceptions import PrefectHTTPStatusError
from prefect.schedules import Cron
from prefect.server.schemas.schedules import CronSchedule as Dates
from prefect.settings import get_current_settings
from prefect.types.entrypoint import EntrypointType

from cloister.errors import CloisterError, InputError, VerificationError
from cloister.tasks.home.files import write_json
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.home.process import flow_version
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
    """SHA-256 of the places of ledger, tracking store, remote and, if there are any, anchors."""
    anchors = (home.anchors,) if home.anchors else ()
    places = (home.ledger, home.tracking, home.remote, *anchors)
    return hashlib.sha256(repr(places).encode()).hexdigest()


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


_VERSION = VersionInfo(type="prefect:simple", version=flow_version())
"""Without it, Prefect would send what it finds out about the Git repository."""

_EXAMPLE_URL = "http://127.0.0.1:4200/api"

_PATIENCE = 20.0
"""Seconds that a server may take to answer: one may just be starting."""

_MOST_RUNS = 50
"""Due runs that are requested at once; the rest come with the next request."""


@dataclass(frozen=True)
class Recurring:
    """A recurring release: its name on the server, the arguments of the flow, and the schedule."""

    name: str
    parameters: dict[str, Any]
    schedule: ReleaseSchedule


def require_server(*, authenticated: bool) -> str:
    """The URL of the Prefect server that is configured, which answers, on this machine or over TLS.

    With ``authenticated``, it must refuse a request without a password.

    Raises:
        InputError: none is configured, it does not answer, it lies elsewhere, or it answers anyone.
    """
    url = get_current_settings().api.url
    how = f"start one with prefect server start and set PREFECT_API_URL, e.g. to {_EXAMPLE_URL}"
    if not url:
        raise InputError(
            f"a recurring release needs a Prefect server, and none is configured; {how}"
        )
    _require_near(url)
    try:
        stranger = httpx.post(f"{url}/deployments/count", json={}, timeout=_PATIENCE)
    except (httpx.HTTPError, httpx.InvalidURL):
        raise InputError(f"no Prefect server answers at {url}; {how}") from None
    if authenticated and stranger.is_success:
        raise InputError(
            f"the Prefect server at {url} answers anyone, so any user of this machine may change "
            "what it holds; start it with PREFECT_SERVER_API_AUTH_STRING=NAME:PASSWORD, set "
            "PREFECT_API_AUTH_STRING to the same here, or give --allow-unauthenticated"
        )
    _require_taken(url)
    return url


def register_deployment(flow: Flow[..., Any], recurring: Recurring) -> UUID:
    """Make the deployment of a recurring release, or update the one of the same name.

    The id it has on the server.

    It belongs to no work pool, so that the server holds no command, and no worker takes its runs.

    Raises:
        CloisterError: the server refuses.
    """
    with _explained("take the deployment"):
        return asyncio.run(_apply_deployment(flow, recurring))


async def _apply_deployment(flow: Flow[..., Any], recurring: Recurring) -> UUID:
    schedule = recurring.schedule
    deployment = await flow.ato_deployment(
        recurring.name,
        schedule=Cron(schedule.cron, timezone=schedule.timezone),
        parameters=recurring.parameters,
        tags=["release"],
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    return await deployment.aapply(version_info=_VERSION)


def due_runs(deployments: list[str], now: datetime) -> list[FlowRun]:
    """The runs of some deployments that are due, earliest first.

    Raises:
        CloisterError: the server does not say.
    """
    with _explained("say which runs are due"), get_client(sync_client=True) as client:
        found = client.get_scheduled_flow_runs_for_deployments(
            [UUID(each) for each in deployments], now, _MOST_RUNS
        )
        return [client.read_flow_run(run.id) for run in found]


def has_run(deployment: str, due: datetime) -> bool:
    """Whether the server holds a run of a deployment for a time, whatever became of it.

    Raises:
        CloisterError: the server does not say.
    """
    then = FlowRunFilterExpectedStartTime(after_=due, before_=due)
    with _explained("say which runs it made"), get_client(sync_client=True) as client:
        return bool(
            client.read_flow_runs(
                deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[UUID(deployment)])),
                flow_run_filter=FlowRunFilter(expected_start_time=then),
                limit=1,
            )
        )


def refuse_run(run: FlowRun, reason: str) -> None:
    """Tell the server that a run is not made.

    Raises:
        CloisterError: it does not take that.
    """
    state: State[Any] = State(type=StateType.CANCELLED, name="Refused", message=reason)
    with _explained("take a refusal"), get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, state, force=True)


def _require_near(url: str) -> None:
    """A password in clear text stays on this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
        raise InputError(
            f"the Prefect server at {url} is another machine's without TLS; use 127.0.0.1, or https"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _require_taken(url: str) -> None:
    """Check that the server takes the password of this process."""
    try:
        with get_client(sync_client=True) as client:
            _count(client)
    except PrefectHTTPStatusError:
        raise InputError(
            f"the Prefect server at {url} refuses this command; set PREFECT_API_AUTH_STRING to "
            "what the server was started with as PREFECT_SERVER_API_AUTH_STRING"
        ) from None
    except httpx.HTTPError:
        raise InputError(f"no Prefect server answers at {url}; check PREFECT_API_URL") from None


def _count(client: SyncPrefectClient) -> None:
    client.request("POST", "/deployments/count", json={})


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except (DeploymentApplyError, PrefectHTTPStatusError, httpx.HTTPError) as error:
        raise CloisterError(
            f"the Prefect server did not {what} ({type(error).__name__}); see its log"
        ) from None
