"""Deployments of recurring releases on a Prefect server, and the runs that it says are due.

The server holds a schedule, and no command that is run: it only says whether a run is due. What
runs and when is what this home registered (:mod:`cloister.tasks.stores.prefect_registration`).
Neither ``Flow.serve`` nor ``Flow.deploy`` runs them: the first takes its parameters and the second
the command of its work pool from the server (:mod:`cloister.flows.serving`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    DeploymentFilterName,
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType, VersionInfo
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import DeploymentApplyError
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.schedules import Cron
from prefect.settings import get_current_settings
from prefect.states import Cancelled, Crashed, Scheduled
from prefect.types.entrypoint import EntrypointType

from cloister.errors import CloisterError, InputError
from cloister.schema.sources.files_and_urls import is_loopback, without_credentials
from cloister.tasks.home.process import flow_version
from cloister.tasks.requests.release_request import nest_parameters
from cloister.tasks.stores.prefect_registration import Registration, ReleaseSchedule

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
        raise InputError(
            f"no Prefect server answers at {without_credentials(url)}; {how}"
        ) from None
    if authenticated and stranger.is_success:
        raise InputError(
            f"the Prefect server at {url} answers anyone, so any user of this machine may change "
            "what it holds; start it with PREFECT_SERVER_API_AUTH_STRING=NAME:PASSWORD, set "
            "PREFECT_API_AUTH_STRING to the same here, or give --allow-unauthenticated"
        )
    _require_taken(url)
    return url


def register_deployment(
    flow: Flow[..., Any],
    recurring: Recurring,
    registered: Registration | None,
    *,
    take_over: bool = False,
) -> UUID:
    """Make the deployment of a recurring release, or update what this home has ``registered``.

    The id it has on the server. One that another home made is refused, or with ``take_over``
    replaced under a new id, so that the other home has no run of it any more.

    It belongs to no work pool, so that the server holds no command, and no worker takes its runs.

    Raises:
        CloisterError: the server refuses.
        InputError: another home made the deployment.
    """
    with _explained("take the deployment"):
        _replace_other(flow.name, recurring.name, registered, take_over)
        return asyncio.run(_apply_deployment(flow, recurring))


def _replace_other(flow: str, name: str, registered: Registration | None, take_over: bool) -> None:
    """Delete the deployment of a name that another home made.

    Raises:
        InputError: there is one, which is not to be taken over.
    """
    with get_client(sync_client=True) as client:
        same_name = client.read_deployments(
            flow_filter=FlowFilter(name=FlowFilterName(any_=[flow])),
            deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=[name])),
        )
        for deployment in same_name:
            if registered and registered.deployment == str(deployment.id):
                continue
            if not take_over:
                request = nest_parameters(deployment.parameters).get("request") or {}
                raise InputError(
                    f"the Prefect server has {flow}/{name} already, which this home did not "
                    f"register: it releases {request.get('spec')} for {request.get('by')}, "
                    f"{_schedules(deployment) or 'on no schedule'}; give --take-over to replace "
                    "it, so that no other home runs it any more; nothing was changed"
                )
            client.delete_deployment(deployment.id)


def _schedules(deployment: DeploymentResponse) -> str:
    """The active schedules of a deployment, as a registration shows its own."""
    active = [
        each.schedule for each in deployment.schedules if each.active and not deployment.paused
    ]
    return ", ".join(
        str(ReleaseSchedule(each.cron, each.timezone or "UTC"))
        if isinstance(each, CronSchedule)
        else type(each).__name__
        for each in active
    )


def difference(registration: Registration) -> str:
    """How the server's deployment differs from what this home registered; empty if it does not.

    Raises:
        CloisterError: the server does not say.
    """
    with _explained("show a deployment"), get_client(sync_client=True) as client:
        try:
            deployment = client.read_deployment(UUID(registration.deployment))
        except ObjectNotFound:
            return "is no longer there"
    if (schedules := _schedules(deployment)) != str(registration.schedule):
        return f"has the schedule {schedules or 'of no time'}, and not {registration.schedule}"
    if nest_parameters(deployment.parameters) != registration.parameters:
        return "has other parameters"
    return ""


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
        runs = client.get_scheduled_flow_runs_for_deployments(
            [UUID(deployment) for deployment in deployments], now, _MOST_RUNS
        )
        return [client.read_flow_run(run.id) for run in runs]


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


def add_run(registration: Registration, due: datetime) -> None:
    """Have the server hold a run that it should have made for a time.

    Raises:
        CloisterError: it does not take that.
    """
    scheduled: State[Any] = Scheduled(scheduled_time=due)
    with _explained("take a run that was missed"), get_client(sync_client=True) as client:
        client.create_flow_run_from_deployment(
            UUID(registration.deployment),
            parameters=registration.parameters,
            state=scheduled,
            name=f"{registration.account or registration.name} {due:%Y-%m-%d}",
        )


def mark_crashed(deployments: list[str]) -> list[str]:
    """Mark all runs of some deployments that the server takes for running; their names.

    For the only process that runs them, while it runs none: their processes have died.

    Raises:
        CloisterError: the server does not say, or does not take that.
    """
    running = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])
    ids = DeploymentFilterId(any_=[UUID(deployment) for deployment in deployments])
    state: State[Any] = Crashed(
        message="the process that ran it ended; the next run resumes its release"
    )
    with _explained("mark runs whose process ended"), get_client(sync_client=True) as client:
        dead = client.read_flow_runs(
            deployment_filter=DeploymentFilter(id=ids),
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=running)),
        )
        for run in dead:
            client.set_flow_run_state(run.id, state, force=True)
    return [run.name for run in dead]


def refuse_run(run: FlowRun, account: str, reason: str, name: str = "Refused") -> None:
    """Tell the server that a run is not made; it is called by its account, its day and why.

    Raises:
        CloisterError: it does not take that.
    """
    state: State[Any] = Cancelled(name=name, message=reason)
    day = f"{run.expected_start_time:%Y-%m-%d}" if run.expected_start_time else ""
    called = " ".join(filter(None, (account, day, name.lower())))
    with _explained("take a refusal"), get_client(sync_client=True) as client:
        client.update_flow_run(run.id, name=called)
        client.set_flow_run_state(run.id, state, force=True)


def _require_near(url: str) -> None:
    """A password in clear text stays on this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise InputError(
            f"the Prefect server at {without_credentials(url)} is another machine's without TLS; "
            "use 127.0.0.1, or https"
        )


def _require_taken(url: str) -> None:
    """Check that the server takes the password of this process."""
    try:
        with get_client(sync_client=True) as client:
            _count(client)
    except PrefectHTTPStatusError:
        raise InputError(
            f"the Prefect server at {without_credentials(url)} refuses this command; set "
            "PREFECT_API_AUTH_STRING to what the server was started with as "
            "PREFECT_SERVER_API_AUTH_STRING"
        ) from None
    except httpx.HTTPError:
        raise InputError(
            f"no Prefect server answers at {without_credentials(url)}; check PREFECT_API_URL"
        ) from None


def _count(client: SyncPrefectClient) -> None:
    client.request("POST", "/deployments/count", json={})


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except httpx.TransportError:
        url = str(get_current_settings().api.url)
        raise CloisterError(
            f"the Prefect server at {without_credentials(url)} does not answer; start it, or "
            "correct PREFECT_API_URL"
        ) from None
    except (DeploymentApplyError, PrefectHTTPStatusError, httpx.HTTPError) as error:
        raise CloisterError(
            f"the Prefect server did not {what} ({type(error).__name__}); see its log"
        ) from None
