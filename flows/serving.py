"""The runner of recurring releases: it polls a Prefect server and runs what is registered here.

The server holds a schedule and a copy of the parameters. No command, code or path from the server
is used: a run that differs from what ``cloister deploy`` registered here is refused, so that a
changed server starts nothing else.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import PrefectException
from prefect.flow_engine import run_flow

from cloister.errors import CloisterError, InputError, VerificationError
from cloister.flows.cli.console import progress, warn
from cloister.tasks.home.files import exclusive
from cloister.tasks.home.home import Home
from cloister.tasks.home.identity import identity
from cloister.tasks.home.process import is_interruption, reporting_to
from cloister.tasks.ledger.notifications import send_due
from cloister.tasks.release.retention import delete_due
from cloister.tasks.stores import prefect_deployment
from cloister.tasks.stores.prefect_registration import (
    Registration,
    altered_registrations,
    registrations,
    settings_digest,
)
from cloister.tasks.stores.prefect_server import answering, quiet_logs

_INTERVAL = 10.0
"""Seconds between two requests to the server: schedules have a resolution of a minute."""


_LATE = timedelta(seconds=90)
"""After a due time, when its run should be there: servers look at their schedules every minute."""


def serve(flow: Flow[..., Any], home: Home) -> None:
    """Run what is due, one release at a time, until this process is ended.

    Raises:
        InputError: nothing is registered in the home, or another process serves it.
        VerificationError: all that is registered was altered.
    """
    if not registrations(home):
        for problem in altered_registrations(home):
            raise VerificationError(problem)
        raise InputError("no recurring release is registered in this home; see cloister deploy")
    checked, problem = datetime.min.replace(tzinfo=UTC), ""
    with _alone(home), quiet_logs(), _ended_in_words():
        while True:
            before, problem = problem, "; ".join(altered_registrations(home))
            try:
                checked = warn_of_missing(home, checked)
                serve_due(flow, home)
            except CloisterError as error:
                problem = str(error)  # a server that is down may come back
            if problem not in ("", before):
                warn(problem)
            notify(home)
            sleep(_INTERVAL)


def notify(home: Home) -> None:
    """Send what is due to the subscribers of a home; warn of what could not be sent."""
    try:
        for problem in send_due(home):
            warn(problem)
    except CloisterError as error:
        warn(str(error))  # a full disk, or one that is read-only, may be mended


def serve_due(flow: Flow[..., Any], home: Home) -> list[str]:
    """Run what is due now, missed runs included; how each run ended, or why it did not start.

    Runs that the server believes to be running belong to processes that died, since this one has
    started none yet. Then delete what is no longer needed.

    Raises:
        CloisterError: the server does not answer, or what is due cannot be deleted.
    """
    known, now = _registered(home), datetime.now(UTC)
    for name in prefect_deployment.mark_crashed(list(known)) if known else ():
        warn(f"the process of run {name} ended: it is marked as crashed, and the next resumes it")
    for registration in known.values():
        missed = [
            due
            for due in registration.missed(now - _LATE)
            if not prefect_deployment.has_run(registration.deployment, due)
        ]
        if missed and not prefect_deployment.difference(registration):
            for due in missed:
                prefect_deployment.add_run(registration, due)
    runs = prefect_deployment.due_runs(list(known), now) if known else []
    ended = [_served(flow, run, known | _registered(home), home) for run in runs]
    if ended:
        delete_due(home, identity())
    return ended


def warn_of_missing(home: Home, checked: datetime) -> datetime:
    """Warn of each release for which the server has made no run after ``checked``.

    The time up to which this was checked; of several times without a run the last is named.

    Raises:
        CloisterError: the server does not answer.
    """
    until = datetime.now(UTC) - _LATE
    for registration in registrations(home):
        due = registration.last_due(checked, until)
        if due and not prefect_deployment.has_run(registration.deployment, due):
            if differs := prefect_deployment.difference(registration):
                warn(
                    f"{registration.name} was due at {due.isoformat(timespec='minutes')}, and is "
                    f"not made up for: release/{registration.name} on the Prefect server {differs}"
                    "; another home may have taken it over, or somebody changed it there: cloister "
                    "deploy --take-over registers it here again, or delete its file in "
                    f"{home.folder / 'recurring'}"
                )
                continue
            remedy = (
                "it is made up for now"
                if registration.catch_up
                else "make the missed release with cloister release"
            )
            warn(
                f"{registration.name} was due at {due.isoformat(timespec='minutes')}, but the "
                "Prefect server's scheduler made no run for it; see the server's log, check that "
                "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED is not false there and that "
                f"release/{registration.name} is not paused; {remedy}"
            )
    return until


def _registered(home: Home) -> dict[str, Registration]:
    """What is registered now, by the id of the deployment: each run changes it."""
    return {registration.deployment: registration for registration in registrations(home)}


def _served(
    flow: Flow[..., Any], run: FlowRun, known: Mapping[str, Registration], home: Home
) -> str:
    registration = known[str(run.deployment_id)]
    account = registration.account or registration.name
    try:
        due = _required_time(run, registration, home)
    except InputError as error:
        prefect_deployment.refuse_run(run, account, str(error))
        warn(f"a run of {registration.name} was refused: {error}")
        return f"refused: {error}"
    if registration.skips(due, datetime.now(UTC) - _LATE):
        reason = f"missed; the last {registration.catch_up} are made up for"
        prefect_deployment.refuse_run(run, account, reason, "Skipped")
        return "skipped"
    registration.mark_started(due, home)
    try:
        with (
            chdir(registration.folder),
            progress(pulses=False) as watcher,
            reporting_to(watcher),
            quiet_logs(),
            answering(),
        ):
            state: Any = run_flow(
                flow, flow_run=run, parameters=dict(registration.parameters), return_type="state"
            )
    except (PrefectException, CloisterError) as error:
        if is_interruption(error):  # Prefect, which could not say so to its server, drops it
            signal.raise_signal(signal.SIGTERM)
        warn(f"a run of {registration.name} was broken off by the server: {_reason(error)}")
        return "broken off"
    if not state.is_completed():
        failure = state.result(raise_on_failure=False)
        warn(f"a run of {registration.name} ended as {state.name}: {_reason(failure)}")
    return str(state.name)


def _reason(error: Exception) -> str:
    """The message of an error of this project, which holds no data; the type of another one."""
    return str(error) if isinstance(error, CloisterError) else type(error).__name__


def _required_time(run: FlowRun, registration: Registration, home: Home) -> datetime:
    """When a run was due, if it is one that this home has registered.

    Raises:
        InputError: says how it differs.
    """
    due = run.expected_start_time
    if due is None:
        raise InputError("the server names no time")
    registration.require_due(run.parameters, due)
    if not Path(registration.folder).is_dir():
        raise InputError(
            f"the folder {registration.folder} that it was registered in is gone; deploy it again"
        )
    _require_same_settings(registration, home)
    registration.require_same_spec()
    return due


def _require_same_settings(registration: Registration, home: Home) -> None:
    if registration.settings != settings_digest(home):
        raise InputError(
            "CLOISTER_LEDGER, MLFLOW_TRACKING_URI, CLOISTER_REMOTE or CLOISTER_ANCHORS differ from "
            "those that it was registered under"
        )


@contextmanager
def _ended_in_words() -> Iterator[None]:
    """Have SIGTERM end this process with one line, as it ends others without a word."""

    def end(number: int, _: object) -> None:
        line = b"cloister serve was ended; a run that it began is resumed by the next\n"
        os.write(2, line)  # no buffer may be in use when a signal comes
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """One process serves a home."""
    home.prepare()
    with exclusive(
        home.folder / "serve.lock", "another cloister serve runs on this home; end that one first"
    ):
        yield
