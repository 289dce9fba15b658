"""cloister deploy on a temporary Prefect server: what it registers, and what it refuses."""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL, temporary_settings

from cloister.privacy.ledger import Ledger, Request
from flows.cli import run
from flows.release import release
from tasks.books import existing_ledger
from tasks.deployments import POOL

MONTHLY = "0 3 1 * *"


def registered() -> list:
    with get_client(sync_client=True) as client:
        return client.read_deployments()


@pytest.fixture
def server(prefect_server, place):
    """The server without deployments and work pool, and the clubs."""
    yield place
    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            client.delete_deployment(deployment.id)
    asyncio.run(without_pool())


async def without_pool() -> None:
    async with get_client() as client:
        try:
            await client.delete_work_pool(POOL)
        except ObjectNotFound:
            pass


@pytest.fixture
def deploy(server, capsys):
    """Run the command on the clubs; its JSON."""

    def command(*words: object) -> dict:
        capsys.readouterr()
        code = run(["deploy", str(server.spec), *map(str, words), "--json"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    return command


@pytest.fixture
def refused(server, capsys):
    """Run the command, which is refused with exit code 2 and registers nothing; what it says."""

    def command(*words: object) -> str:
        assert run(["deploy", str(server.spec), *map(str, words)]) == 2
        assert registered() == []
        return capsys.readouterr().err

    return command


def test_a_deployment_holds_the_schedule_and_the_parameters_of_the_release(server, deploy, monkeypatch):
    monkeypatch.chdir(server.folder)
    told = deploy(
        *("--cron", MONTHLY, "--timezone", "Europe/Paris", "--epsilon", "1/2", "--rows", 500, "--csv"),
        *("--data", server.data.name, "--evaluate", "none"),
    )
    (held,) = registered()
    assert (str(held.id), told["deployment"]) == (told["id"], "release/clubs")
    (when,) = held.schedules
    assert (when.schedule.cron, when.schedule.timezone, when.active) == (MONTHLY, "Europe/Paris", True)
    assert held.parameters == told["parameters"]
    assert held.parameters == {
        "spec": str(server.spec),
        "data": str(server.data),
        "method": None,
        "epsilon": "1/2",
        "delta": None,
        "rows": 500,
        "csv": True,
        "evaluate": "none",
        "by": held.parameters["by"],
    }
    assert held.global_concurrency_limit.limit == 1
    assert held.work_pool_name == POOL
    assert release.validate_parameters(held.parameters)["rows"] == 500
    assert load_flow_from_entrypoint(held.entrypoint).name == "release"


def test_a_run_has_the_home_interpreter_and_folder_of_the_command(server, deploy, monkeypatch):
    monkeypatch.chdir(server.folder)
    told = deploy("--cron", MONTHLY)
    variables = registered()[0].job_variables
    assert variables["env"]["CLOISTER_HOME"] == str(server.home.folder)
    assert variables["env"]["CLOISTER_LEDGER"] == server.home.ledger
    assert variables["env"]["DO_NOT_TRACK"] == "1"
    assert variables["working_dir"] == os.getcwd()
    assert variables["command"].split()[0] == sys.executable
    assert told["worker"].startswith(f"PREFECT_API_URL={told['server']} {Path(sys.executable).parent}")


def test_the_work_pool_runs_processes(deploy):
    deploy("--cron", MONTHLY)
    with get_client(sync_client=True) as client:
        pool = client.read_work_pool(POOL)
    assert pool.type == "process"
    assert "working_dir" in pool.base_job_template["variables"]["properties"]


def test_again_it_is_the_same_deployment_with_another_schedule(deploy):
    first = deploy("--cron", MONTHLY, "--rows", 500)
    second = deploy("--cron", "30 4 * * 1")
    (held,) = registered()
    assert first["id"] == second["id"] == str(held.id)
    assert [when.schedule.cron for when in held.schedules] == ["30 4 * * 1"]
    assert held.parameters["rows"] is None
    assert not held.paused


def test_it_touches_no_data_and_charges_nothing(server, deploy):
    deploy("--cron", MONTHLY)
    assert existing_ledger(server.home) is None


def test_it_says_what_the_budget_admits_and_when_runs_are(deploy):
    told = deploy("--cron", MONTHLY)
    assert told["admits"] == {"per": "year", "whole": 4, "left": 4}
    assert told["surplus"] is True
    year = datetime.now(UTC).year
    assert [run["time"][7:] for run in told["first_runs"]] == ["-01T03:00+00:00"] * 3
    assert all(run["admitted"] for run in told["first_runs"])
    assert deploy("--cron", "0 3 1 */3 *")["surplus"] is False
    assert deploy("--cron", "0 3 1 1 *")["first_runs"][0]["time"].startswith(str(year + 1))


def test_people_are_told_of_surplus_runs_and_of_the_worker(server, capsys):
    assert run(["deploy", str(server.spec), "--cron", "0 * * * *"]) == 0
    said = capsys.readouterr().out
    assert "refuse the surplus runs" in said
    assert f"worker start --pool {POOL}" in said


@pytest.mark.parametrize("words", [("--cron", "0 3 1 *"), ("--cron", MONTHLY, "--timezone", "Mars")])
def test_a_wrong_schedule_is_refused_with_an_example(refused, words):
    assert "such as" in refused(*words)


def test_a_wrong_spec_is_refused(server, refused):
    server.edit("age: {type: integer, min: 18, max: 80, bins: 16, provenance: form}", "age: {type: integer}")
    assert str(server.spec) in refused("--cron", MONTHLY)


def test_data_that_is_not_there_is_refused(refused):
    assert "nowhere.csv" in refused("--cron", MONTHLY, "--data", "nowhere.csv")


def test_a_plan_that_cannot_be_is_refused(refused):
    assert "delta" in refused("--cron", MONTHLY, "--delta", "0.5")


def test_more_than_the_budget_is_refused(refused):
    assert "admits 0 releases of epsilon 5" in refused("--cron", MONTHLY, "--epsilon", "5")


def test_a_budget_for_ever_that_is_exhausted_is_refused(server, refused):
    charged(server, "ever")
    assert "admits 4 releases of epsilon 1 at delta 1e-06, 0 of them now" in refused("--cron", MONTHLY)


def test_a_budget_that_is_exhausted_this_year_admits_releases_of_the_next(server, deploy):
    charged(server, "year")
    told = deploy("--cron", "0 3 1 1 *")
    assert told["admits"] == {"per": "year", "whole": 4, "left": 0}
    assert all(run["admitted"] for run in told["first_runs"])


def charged(place, per: str) -> None:
    """A granted budget, all of which a release holds."""
    place.home.prepare()
    ledger = Ledger.open(place.home.ledger)
    ledger.grant("clubs", "row", 4, "1e-5", per, "officer", "policy")
    price = {"epsilon": Fraction(4), "delta": Fraction(0), "events": {"type": "none"}, "spend_id": "other"}
    about = {"method": "kamino", "spec_digest": "ab", "code_version": "1"}
    ledger.reserve(Request(dataset="clubs", unit="row", relation="add_remove", **price, **about), "tester")


def test_without_a_server_it_says_how_to_start_one(refused, server, capsys):
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert run(["deploy", str(server.spec), "--cron", MONTHLY]) == 2
    said = capsys.readouterr().err
    assert "prefect server start" in said
    assert "PREFECT_API_URL" in said
    assert registered() == []


def test_a_server_that_does_not_answer_is_named(server, capsys):
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert run(["deploy", str(server.spec), "--cron", MONTHLY]) == 2
    assert "http://127.0.0.1:9/api" in capsys.readouterr().err


def test_a_password_is_not_handed_to_the_server(refused, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://person:hush@tracking.example")
    said = refused("--cron", MONTHLY)
    assert "MLFLOW_TRACKING_URI holds a password" in said
    assert "hush" not in said


def test_a_work_pool_of_another_type_is_refused(refused):
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="docker"))
    assert "type docker" in refused("--cron", MONTHLY)


@pytest.mark.slow
def test_each_run_is_a_release_of_its_own(server, deploy):
    deploy("--cron", MONTHLY, "--evaluate", "none", "--rows", 200)
    parameters = registered()[0].parameters
    first, second = release(**parameters), release(**parameters)
    assert first.release != second.release
    budget = existing_ledger(server.home).budget("clubs", "row")
    assert (budget.releases, budget.spent) == (2, 2)
