"""cloister serve on a real Prefect server: what is due is run once, as the home holds it.

This server's scheduler is off, and runs are made by hand: test_scheduler has one that makes them.
"""

import json
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from once import copy_of
from quick_release import quick_release

from cloister.errors import InputError, VerificationError
from cloister.flows.cli.app import run
from cloister.tasks.home.files import exclusive
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.requests.release_request import ReleaseRequest


def late_imports():
    global DeploymentUpdate, FlowRunFilter, FlowRunFilterId, FlowRunFilterName, MONTHLY, State
    global \
        CronSchedule, \
        DeploymentScheduleUpdate, \
        StateType, \
        charged, \
        flow, \
        get_client, \
        get_current_settings, \
        registered, \
        registrations
    global \
        TerminationSignal, \
        release, \
        serve, \
        serve_due, \
        APILogHandler, \
        PREFECT_API_URL, \
        quiet_logs, \
        temporary_settings
    from deployed import MONTHLY, charged, registered
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleUpdate, DeploymentUpdate
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterName
    from prefect.client.schemas.objects import State, StateType
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.exceptions import TerminationSignal
    from prefect.logging.handlers import APILogHandler
    from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

    from cloister.flows.release import release
    from cloister.flows.serving import serve, serve_due
    from cloister.tasks.stores.prefect_registration import registrations
    from cloister.tasks.stores.prefect_server import quiet_logs


@pytest.fixture
def made() -> list:
    """What the flow was called with."""
    return []


@pytest.fixture
def recorder(made):
    """A flow with the parameters of a release, which notes its calls and fails for epsilon 3."""

    @flow(name="release", persist_result=False)
    def noted(request: ReleaseRequest):
        about = {"data": request.data, "epsilon": request.epsilon, "folder": os.getcwd()}
        made.append({"spec": str(request.spec), **about})
        if request.epsilon == "3":
            raise InputError("no")

    return noted


def scheduled(due: datetime):
    return State(type=StateType.SCHEDULED, state_details={"scheduled_time": due.isoformat()})


def ask(server, due: datetime, **parameters: object):
    """Have the server ask for a run at a time, as its scheduler does; the id of the run."""
    (deployment,) = registered()
    asked = {"request": deployment.parameters["request"] | parameters}
    with get_client(sync_client=True) as client:
        return client.create_flow_run_from_deployment(
            deployment.id, parameters=asked, state=scheduled(due)
        ).id


def name_of(run_id) -> str:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(run_id).name


def state_of(run_id) -> str:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(run_id).state.name


@pytest.fixture
def due(server, deploy, monkeypatch) -> datetime:
    """A minute that was due, after the clubs were registered for each minute."""
    monkeypatch.chdir(server.folder)
    deploy("--cron", "* * * * *")
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    # runs are those that the tests ask for
    asked = replace(registrations(server.home)[0], catch_up=None)
    asked.mark_started(minute - timedelta(minutes=3), server.home)
    return minute - timedelta(minutes=1)


def test_a_due_run_is_made_once_with_what_the_home_holds(
    server, due, recorder, made, monkeypatch, tmp_path_factory
):
    first, again = ask(server, due), ask(server, due)
    cleared: list[object] = []
    monkeypatch.setattr("cloister.flows.serving.delete_due", lambda home, _: cleared.append(home))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    told = serve_due(recorder, server.home)
    assert told[0] == "Completed" and "started before" in told[1]
    assert made == [
        {"spec": str(server.spec), "data": None, "epsilon": None, "folder": str(server.folder)}
    ]
    assert (state_of(first), state_of(again)) == ("Completed", "Refused")
    assert serve_due(recorder, server.home) == []
    assert cleared == [server.home]


def test_a_run_that_fails_is_one_line_without_a_traceback(server, deploy, due, recorder, logs):
    deploy("--cron", "* * * * *", "--epsilon", "3")
    registrations(server.home)[0].mark_started(due - timedelta(minutes=1), server.home)
    ask(server, due)
    assert serve_due(recorder, server.home) == ["Failed"]
    assert logs() == "warning: a run of clubs ended as Failed: no\n"


OTHER = {"spec": "/tmp/other.yaml", "data": "/etc/passwd", "epsilon": "4", "evaluate": "full"}


def test_other_parameters_than_registered_and_a_time_off_the_schedule_are_refused(
    server, due, recorder, made
):
    asked = [ask(server, due, **{name: value}) for name, value in OTHER.items()]
    told = serve_due(recorder, server.home)
    assert all("other parameters" in each for each in told)
    assert all(any(name in each for each in told) for name in OTHER)
    ask(server, due + timedelta(seconds=7))
    assert "not on the schedule" in serve_due(recorder, server.home)[0]
    assert made == [] and {state_of(each) for each in asked} == {"Refused"}
    assert existing_ledger(server.home) is None


def test_a_changed_deployment_releases_nothing_else(server, due, recorder, made):
    """Parameters, command and place of code changed on the server."""
    (deployment,) = registered()
    other = {"request": deployment.parameters["request"] | {"spec": "/tmp/other.yaml"}}
    code = {"entrypoint": "/tmp/other.py:steal", "path": "/tmp"}
    change = DeploymentUpdate(parameters=other, enforce_parameter_schema=False, **code)
    with get_client(sync_client=True) as client:
        client.update_deployment(deployment.id, change)
    ask(server, due)
    assert "other parameters" in serve_due(recorder, server.home)[0]
    (deployment,) = registered()
    ask(server, due, spec=str(server.spec))
    assert serve_due(recorder, server.home) == ["Completed"]
    assert [call["spec"] for call in made] == [str(server.spec)]


@pytest.mark.slow
def test_what_an_earlier_version_registered_is_run(server, due, recorder, made):
    """It wrote the parameters one beside the other, some of them under other names."""
    (deployment,) = registered()
    gone = ("out", "seed_sampling", "accept_reject")
    flat = {n: v for n, v in deployment.parameters["request"].items() if n not in gone}
    flat |= {"tries": None, "database": None}
    (path,) = (server.home.folder / "recurring").iterdir()
    written = json.loads(path.read_text()) | {"parameters": flat}
    path.write_text(json.dumps({name: value for name, value in written.items() if name != "seal"}))
    change = DeploymentUpdate(parameters=flat, enforce_parameter_schema=False)
    with get_client(sync_client=True) as client:
        client.update_deployment(deployment.id, change)
        client.create_flow_run_from_deployment(deployment.id, parameters=flat, state=scheduled(due))
    assert serve_due(recorder, server.home) == ["Completed"]
    assert [call["spec"] for call in made] == [str(server.spec)]


def test_a_run_that_the_budget_does_not_hold_is_declined_and_not_failed(server, due, capsys):
    charged(server, "year")
    asked, before = ask(server, due), pickled()
    assert serve_due(release, server.home) == ["Declined"]
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(asked).state
        own = FlowRunFilter(id=FlowRunFilterId(any_=[asked]))
        steps = client.read_task_runs(flow_run_filter=own)
        name = client.read_flow_run(asked).name
    assert (state.type, state.name) == (StateType.CANCELLED, "Declined")
    assert name == f"clubs {due:%Y-%m-%d} declined"
    assert "epsilon" in state.message
    assert {step.name.split()[0]: step.state.name for step in steps} == {
        "plan": "Completed",
        "reserve": "Completed",
    }
    assert pickled() == before
    assert "a run of clubs ended as Declined: " in capsys.readouterr().err
    assert existing_ledger(server.home).budget("clubs", "row").releases == 1


def pickled() -> set[Path]:
    """The results of steps and flows that Prefect keeps, errors among them."""
    return set(get_current_settings().results.local_storage_path.rglob("*"))


def test_a_changed_spec_is_refused_and_told(server, due, recorder, made, capsys):
    server.edit("max: 80, bins: 16", "max: 90, bins: 18")
    asked = ask(server, due)
    (told,) = serve_due(recorder, server.home)
    assert "was changed since cloister deploy" in told and "deploy it again" in told
    assert told.removeprefix("refused: ") in capsys.readouterr().err
    assert made == [] and state_of(asked) == "Refused"


@pytest.mark.slow
def test_other_settings_than_registered_are_refused(server, due, recorder, made, monkeypatch):
    ask(server, due)
    monkeypatch.setenv("CLOISTER_LEDGER", str(server.folder / "other.db"))
    from cloister.tasks.home.home import Home

    assert "CLOISTER_LEDGER" in serve_due(recorder, Home.current())[0]
    assert made == []


@pytest.fixture
def said_of(server, recorder, monkeypatch, capsys):
    """What serve says on standard error in three rounds."""

    class Ended(Exception):
        pass

    def three_rounds() -> str:
        rounds = iter(range(2))

        def end_after_three(_: float) -> None:
            if next(rounds, None) is None:
                raise Ended

        with monkeypatch.context() as patch, pytest.raises(Ended):
            patch.setattr("cloister.flows.serving.sleep", end_after_three)
            serve(recorder, server.home)
        return capsys.readouterr().err

    return three_rounds


def test_an_altered_registration_runs_nothing_and_stops_nothing_else(
    server, due, recorder, made, said_of
):
    ask(server, due)
    (sound,), (path,) = registrations(server.home), (server.home.folder / "recurring").iterdir()
    path.write_text(path.read_text().replace('"publish": false', '"publish": true'))
    assert serve_due(recorder, server.home) == made == []
    with pytest.raises(VerificationError, match="altered; remove it and run cloister deploy again"):
        serve(recorder, server.home)
    replace(sound, name="other").write(server.home)
    assert said_of().count(f"{path} was altered") == 1
    assert len(made) == 1


def test_a_server_that_died_is_one_line_however_long(server, deploy, said_of):
    deploy("--cron", MONTHLY)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        (line,) = said_of().splitlines()
    assert "http://127.0.0.1:9/api does not answer" in line


@pytest.mark.parametrize("server_died", [False, True])
def test_a_signal_ends_it_with_one_line_also_in_a_run_whose_server_died(
    server, due, recorder, server_died, monkeypatch, tmp_path
):
    """Prefect turns the signal into an error of its own, which that of the server covers."""

    def ended(*_: object, **__: object) -> None:
        if not server_died:
            os.kill(os.getpid(), signal.SIGTERM)
        try:
            raise TerminationSignal(signal.SIGTERM)
        except TerminationSignal:
            raise httpx.ConnectError("refused")  # noqa: B904 - as Prefect does

    ask(server, due)
    monkeypatch.setattr("cloister.flows.serving.run_flow", ended)
    pid = os.fork()
    if not pid:
        with suppress(BaseException), (tmp_path / "said").open("w") as said:
            os.dup2(said.fileno(), 2)
            sys.stderr = said
            serve(recorder, server.home)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGTERM
    *before, last = (tmp_path / "said").read_text().splitlines()
    assert last == "cloister serve was ended; a run that it began is resumed by the next"
    assert not any("broken off" in line for line in before)


def test_what_prefect_tells_of_a_dead_server_is_not_on_the_terminal(capsys, monkeypatch):
    """Its threads for events, logs and state write when they like, runs or none."""
    shown = logging.StreamHandler(sys.stderr)
    with monkeypatch.context() as patch:
        for name in ("prefect._internal", "asyncio", ""):
            patch.setattr(logging.getLogger(name), "handlers", [shown])
        tell = [
            logging.getLogger(name).error
            for name in ("prefect._internal.concurrency", "prefect.events.clients", "asyncio")
        ]
        with quiet_logs():
            for each in tell:
                each("lost")
            APILogHandler().handleError(logging.makeLogRecord({}))
        assert capsys.readouterr().err == ""
        for each in tell:
            each("back")
        assert capsys.readouterr().err.count("back") == len(tell)


@pytest.fixture
def missed(server, deploy) -> datetime:
    """A time three hours ago for which no run was made, of a daily schedule."""
    due = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    deploy("--cron", f"0 {due.hour} * * *")
    registrations(server.home)[0].mark_started(due - timedelta(days=2), server.home)
    return due


def test_a_due_time_without_a_run_is_told_once_with_the_remedy(server, missed, said_of):
    replace(registrations(server.home)[0], catch_up=None).write(server.home)
    (told,) = said_of().splitlines()
    assert f"clubs was due at {missed.isoformat(timespec='minutes')}" in told
    assert "scheduler made no run" in told
    assert "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED" in told and "cloister release" in told


def test_of_the_runs_that_were_missed_the_last_is_made_up_for(
    server, missed, said_of, made, recorder
):
    earlier = ask(server, missed - timedelta(days=1))
    (told,) = said_of().splitlines()
    assert f"due at {missed.isoformat(timespec='minutes')}" in told and "made up for now" in told
    assert len(made) == 1 and state_of(earlier) == "Skipped"
    assert name_of(earlier) == f"clubs {missed - timedelta(days=1):%Y-%m-%d} skipped"
    assert serve_due(recorder, server.home) == []


@pytest.mark.parametrize("change", ["schedule", "parameters", "paused", "gone"])
def test_nothing_is_made_up_for_that_the_server_has_otherwise(
    server, missed, said_of, made, recorder, change
):
    """Another home, or somebody at the server, decides what runs there."""
    (held,) = registered()
    cron = DeploymentScheduleUpdate(schedule=CronSchedule(cron=MONTHLY, timezone="UTC"))
    parameters = {"request": held.parameters["request"] | {"epsilon": "4"}}
    with get_client(sync_client=True) as client:
        if change == "gone":
            client.delete_deployment(held.id)
        elif change == "schedule":
            client.update_deployment(held.id, DeploymentUpdate(schedules=[cron]))
        elif change == "paused":
            client.update_deployment(held.id, DeploymentUpdate(paused=True))
        else:
            client.update_deployment(held.id, DeploymentUpdate(parameters=parameters))
    (told,) = said_of().splitlines()
    assert f"due at {missed.isoformat(timespec='minutes')}" in told
    assert "is not made up for: release/clubs" in told and "--take-over" in told
    assert serve_due(recorder, server.home) == [] and made == []


@pytest.mark.slow
def test_as_many_missed_runs_are_made_up_for_as_was_said(server, missed, recorder, made):
    replace(registrations(server.home)[0], catch_up=2).write(server.home)
    assert serve_due(recorder, server.home) == ["Completed"] * 2
    assert serve_due(recorder, server.home) == [] and len(made) == 2


def test_a_release_is_published_once_approved_where_it_was_deployed_so(
    server, deploy, capsys, tmp_path, monkeypatch
):
    """An altered registration publishes nothing, and stops no approval."""
    deploy("--cron", MONTHLY, "--publish-on-approval")
    assert run([*quick_release(server), "--json"]) == 0
    name = json.loads(capsys.readouterr().out)["release"]
    altered = copy_of(server.home.folder, tmp_path / "altered")
    (path,) = (altered / "recurring").iterdir()
    path.write_text(path.read_text()[:-20])
    with monkeypatch.context() as patch:
        patch.setenv("CLOISTER_HOME", str(altered))
        assert run(["review", "approve", name, "--reason", "read it", "--json"]) == 0
        said = capsys.readouterr()
        assert json.loads(said.out)["state"] == "approved"
        assert f"{path} was altered" in said.err and "cloister review publish" in said.err
        assert run(["verify", "--json"]) == 1
        (finding,) = json.loads(capsys.readouterr().out)["findings"]
        assert finding.startswith(f"{path} was altered")
    assert run(["review", "approve", name, "--reason", "read it", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "published"
    named = FlowRunFilter(name=FlowRunFilterName(any_=[f"publish {name}"]))
    with get_client(sync_client=True) as client:
        (published,) = client.read_flow_runs(flow_run_filter=named)
    assert published.state.is_completed()


@pytest.mark.slow
def test_a_time_for_which_a_run_was_made_is_not_told(server, missed, said_of):
    ask(server, missed, epsilon="4")
    (told,) = said_of().splitlines()
    assert "refused: the server asks for other parameters" in told


def test_a_home_is_served_by_one_process_and_not_without_a_registration(server, deploy, recorder):
    with pytest.raises(InputError, match="no recurring release"):
        serve(recorder, server.home)
    deploy("--cron", MONTHLY)
    with (
        exclusive(server.home.folder / "serve.lock"),
        pytest.raises(InputError, match="another cloister serve"),
    ):
        serve(recorder, server.home)
