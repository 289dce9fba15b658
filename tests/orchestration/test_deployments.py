"""cloister deploy and serve on a real Prefect server: what they register, run and refuse."""

import os
import shutil
from datetime import UTC, datetime

import httpx
import pytest
from deployed import MONTHLY, charged, registered

from cloister.flows.cli.app import run
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.requests.release_request import ReleaseRequest


def late_imports():
    global DeploymentUpdate, PREFECT_API_AUTH_STRING, PREFECT_API_URL, get_client
    global get_current_settings, registrations, release, require_server, temporary_settings
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentUpdate
    from prefect.settings import (
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        get_current_settings,
        temporary_settings,
    )

    from cloister.flows.release import release
    from cloister.tasks.stores.prefect_deployment import require_server
    from cloister.tasks.stores.prefect_registration import registrations


@pytest.fixture
def refused(server, capsys):
    """Run the command, which is refused with exit code 2 and registers nothing; what it says."""

    def command(*words: object) -> str:
        assert run(["deploy", str(server.spec), *map(str, words)]) == 2
        assert registered() == []
        assert registrations(server.home) == []
        return capsys.readouterr().err

    return command


def test_a_deployment_holds_the_schedule_and_the_parameters_and_no_command(
    server, deploy, monkeypatch
):
    monkeypatch.chdir(server.folder)
    told = deploy(
        *("--cron", MONTHLY, "--timezone", "Europe/Paris"),
        *("--epsilon", "1/2", "--rows", 500, "--csv"),
        *("--data", server.data.name, "--evaluate", "none"),
    )
    (held,) = registered()
    assert (str(held.id), told["deployment"]) == (told["id"], "release/clubs")
    (when,) = held.schedules
    schedule = when.schedule
    assert (schedule.cron, schedule.timezone, when.active) == (MONTHLY, "Europe/Paris", True)
    assert held.parameters == told["parameters"]
    request = held.parameters["request"]
    nothing = ("block", "method", "delta", "out", "seed_sampling", "sampling", "resample", "prior")
    nothing += ("accept_reject", "workers", "device")
    given = {"spec": str(server.spec), "data": str(server.data), "epsilon": "1/2", "rows": 500}
    given |= {"replace": False, "csv": True, "evaluate": "none", "purpose": ""}
    assert request == dict.fromkeys(nothing) | given | {"by": request["by"]}
    assert release.validate_parameters(held.parameters)["request"].rows == 500
    assert (held.work_pool_name, held.job_variables, held.pull_steps) == (None, {}, [])


def test_the_home_holds_what_is_run_and_nothing_is_charged(server, deploy, monkeypatch):
    """A deployment of an earlier version, which named the flow elsewhere, is written anew."""
    monkeypatch.chdir(server.folder)
    told = deploy("--cron", MONTHLY)
    (held,) = registrations(server.home)
    assert held.deployment == told["id"]
    assert (held.parameters, held.folder) == (told["parameters"], os.getcwd())
    (path,) = (server.home.folder / "recurring").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert existing_ledger(server.home) is None
    form = registered()[0].parameter_openapi_schema
    assert list(form["properties"]) == ["request"]
    shown = form["definitions"]["ReleaseRequest"]["properties"]
    assert list(shown) == list(ReleaseRequest.model_fields)
    assert all(field["description"] for field in shown.values())
    assert shown["evaluate"]["enum"] == ["none", "quick", "full"]
    (held,) = registered()
    with get_client(sync_client=True) as client:
        client.update_deployment(held.id, DeploymentUpdate(entrypoint="flows.release.release"))
    assert registered()[0].entrypoint == "flows.release.release"
    deploy("--cron", MONTHLY)
    (again,) = registered()
    assert (again.id, again.entrypoint) == (held.id, "cloister.flows.release.release")


def test_the_deployment_of_another_home_is_refused_or_taken_over(
    server, deploy, tmp_path_factory, monkeypatch, capsys
):
    first = deploy("--cron", MONTHLY)
    other = tmp_path_factory.mktemp("other") / "home"
    monkeypatch.setenv("CLOISTER_HOME", str(other))
    assert run(["deploy", str(server.spec), "--cron", "30 4 * * 1"]) == 2
    said = capsys.readouterr().err
    assert f"releases {server.spec} " in said and f"{MONTHLY} (UTC)" in said
    assert "--take-over" in said and registrations(Home.current()) == []
    (held,) = registered()
    assert str(held.id) == first["id"] and held.schedules[0].schedule.cron == MONTHLY
    taken = deploy("--cron", "30 4 * * 1", "--take-over")
    assert [str(held.id) for held in registered()] == [taken["id"]] != [first["id"]]
    assert deploy("--cron", MONTHLY)["id"] == taken["id"]
    monkeypatch.setenv("CLOISTER_HOME", str(server.home.folder))
    assert run(["deploy", str(server.spec), "--cron", MONTHLY]) == 2


@pytest.fixture
def open_server(prefect_server, tmp_path_factory):
    """The URL of a server that asks nobody for a password."""
    from prefect.settings import PREFECT_SERVER_API_AUTH_STRING
    from prefect.testing.utilities import prefect_test_harness

    nobody = {PREFECT_SERVER_API_AUTH_STRING: None, PREFECT_API_AUTH_STRING: None}
    names = ("PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING")
    with pytest.MonkeyPatch.context() as patch, temporary_settings(nobody):
        for name in names:
            patch.delenv(name, raising=False)
        folder = tmp_path_factory.mktemp("open")
        shutil.copyfile(prefect_server, folder / "prefect-test.db")
        patch.setattr("prefect.testing.utilities.mkdtemp", lambda: str(folder))
        with prefect_test_harness(server_startup_timeout=180):
            yield get_current_settings().api.url


@pytest.mark.slow
def test_a_server_that_answers_anyone_is_taken_if_allowed(server, open_server):
    with temporary_settings({PREFECT_API_URL: open_server}):
        assert run(["deploy", str(server.spec), "--cron", MONTHLY]) == 2
        assert registered() == []
        assert run(["deploy", str(server.spec), "--cron", MONTHLY, "--allow-unauthenticated"]) == 0
        assert len(registered()) == 1


def test_a_server_that_answers_anyone_is_refused(server, failing, capsys):
    with temporary_settings({PREFECT_API_URL: failing(200)}):
        for command in (["deploy", str(server.spec), "--cron", MONTHLY], ["serve"]):
            assert run(command) == 2
            assert "PREFECT_SERVER_API_AUTH_STRING" in capsys.readouterr().err


def test_a_server_with_a_password_is_taken_and_refuses_strangers(server):
    url = require_server(authenticated=True)
    assert httpx.post(f"{url}/deployments/count", json={}).status_code == 401


def test_a_wrong_password_is_named_as_such(refused, server, capsys):
    with temporary_settings({PREFECT_API_AUTH_STRING: "wrong:wrong"}):
        assert run(["deploy", str(server.spec), "--cron", MONTHLY]) == 2
    said = capsys.readouterr().err
    assert "PREFECT_API_AUTH_STRING" in said and "wrong:wrong" not in said


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://prefect.example:4200/api", "without TLS"),
        ("http://user:secret@10.1.2.3:4200/api", "without TLS"),
        ("http://user:secret@127.0.0.1:9/api", "http://127.0.0.1:9/api"),
    ],
)
def test_a_server_without_tls_or_an_answer_is_refused(server, capsys, url, said):
    with temporary_settings({PREFECT_API_URL: url}):
        assert run(["deploy", str(server.spec), "--cron", MONTHLY]) == 2
    message = capsys.readouterr().err
    assert said in message and "secret" not in message


def test_again_it_is_the_same_deployment_with_another_schedule(deploy):
    first = deploy("--cron", MONTHLY, "--rows", 500)
    second = deploy("--cron", "30 4 * * 1")
    (held,) = registered()
    assert first["id"] == second["id"] == str(held.id)
    assert [when.schedule.cron for when in held.schedules] == ["30 4 * * 1"]
    assert held.parameters["request"]["rows"] is None
    assert not held.paused


def test_it_says_what_the_budget_admits_and_when_runs_are(server, deploy, capsys):
    told = deploy("--cron", MONTHLY)
    assert told["admits"] == {"per": "year", "whole": 4, "left": 4}
    assert told["surplus"] is True
    year = datetime.now(UTC).year
    assert [run["time"][7:] for run in told["first_runs"]] == ["-01T03:00+00:00"] * 3
    assert all(run["admitted"] for run in told["first_runs"])
    assert deploy("--cron", "0 3 1 */3 *")["surplus"] is False
    assert deploy("--cron", "0 3 1 1 *")["first_runs"][0]["time"].startswith(str(year + 1))
    assert run(["deploy", str(server.spec), "--cron", "0 * * * *"]) == 0
    said = capsys.readouterr().out
    assert "refuse the surplus runs" in said
    assert "cloister serve" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0 3 1 *"], "such as"),
        ([MONTHLY, "--timezone", "Mars"], "such as"),
        ([MONTHLY, "--data", "nowhere.csv"], "nowhere.csv"),
        ([MONTHLY, "--out", "out"], "with --replace"),
        ([MONTHLY, "--out", "sqlite:///taken.db"], "with --replace"),
        ([MONTHLY, "--delta", "0.5"], "delta"),
        ([MONTHLY, "--epsilon", "5"], "admits 0 releases of epsilon 5"),
    ],
)
def test_what_could_not_be_run_is_refused(refused, words, said):
    assert said in refused("--cron", *words)


def test_a_wrong_spec_is_refused(server, refused):
    server.edit("type: integer, min: 18, max: 80, bins: 16, provenance: form", "type: integer")
    assert str(server.spec) in refused("--cron", MONTHLY)


def test_a_database_whose_tables_each_run_replaces_is_registered(server, deploy):
    place = f"sqlite:///{server.folder}/out.db"
    deploy("--cron", MONTHLY, "--data", server.data, "--out", place, "--replace")
    (held,) = registered()
    assert held.parameters["request"]["out"] == place
    assert held.parameters["request"]["replace"]


def test_a_budget_for_ever_that_is_exhausted_is_refused(server, refused):
    charged(server, "ever")
    assert "admits 4 releases of epsilon 1 at delta 1e-06, 0 of them now" in refused(
        "--cron", MONTHLY
    )


@pytest.mark.slow
def test_a_budget_that_is_exhausted_this_year_admits_releases_of_the_next(server, deploy):
    charged(server, "year")
    told = deploy("--cron", "0 3 1 1 *")
    assert told["admits"] == {"per": "year", "whole": 4, "left": 0}
    assert all(run["admitted"] for run in told["first_runs"])


def test_without_a_server_it_says_how_to_start_one(refused, server, capsys):
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert run(["deploy", str(server.spec), "--cron", MONTHLY]) == 2
    said = capsys.readouterr().err
    assert "prefect server start" in said
    assert "PREFECT_API_URL" in said
    assert registered() == []


@pytest.mark.slow
def test_each_run_is_a_release_of_its_own(server, deploy):
    deploy("--cron", MONTHLY, "--evaluate", "none", "--rows", 200)
    parameters = registered()[0].parameters
    first, second = release(**parameters), release(**parameters)
    assert first.release != second.release
    budget = existing_ledger(server.home).budget("clubs", "row")
    assert (budget.releases, budget.spent) == (2, 2)
