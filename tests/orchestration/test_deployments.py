"""cloister deploy and serve on a real Prefect server: what they register, run and refuse."""

import json
import os
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import httpx
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.objects import State, StateType
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    get_current_settings,
    temporary_settings,
)

from cloister.errors import InputError
from cloister.privacy.ledger import Ledger, ReservationRequest
from flows.cli.app import run
from flows.release import release
from flows.serving import serve, serve_due
from tasks.ledger.queries import existing_ledger
from tasks.requests.recurring import registrations
from tasks.requests.release_request import ReleaseRequest
from tasks.runtime.locks import exclusive
from tasks.stores.prefect_deployment import require_server

MONTHLY = "0 3 1 * *"


def registered() -> list:
    with get_client(sync_client=True) as client:
        return client.read_deployments()


@pytest.fixture
def server(prefect_server, place):
    """The server without deployments, and the clubs."""
    yield place
    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            client.delete_deployment(deployment.id)


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
        assert registrations(server.home) == []
        return capsys.readouterr().err

    return command


def test_a_deployment_holds_the_schedule_and_the_parameters_and_no_command(
    server, deploy, monkeypatch
):
    monkeypatch.chdir(server.folder)
    told = deploy(
        *(
            "--cron",
            MONTHLY,
            "--timezone",
            "Europe/Paris",
            "--epsilon",
            "1/2",
            "--rows",
            500,
            "--csv",
        ),
        *("--data", server.data.name, "--evaluate", "none"),
    )
    (held,) = registered()
    assert (str(held.id), told["deployment"]) == (told["id"], "release/clubs")
    (when,) = held.schedules
    assert (when.schedule.cron, when.schedule.timezone, when.active) == (
        MONTHLY,
        "Europe/Paris",
        True,
    )
    assert held.parameters == told["parameters"]
    request = held.parameters["request"]
    assert held.parameters == {
        "request": {
            "spec": str(server.spec),
            "data": str(server.data),
            "method": None,
            "epsilon": "1/2",
            "delta": None,
            "rows": 500,
            "out": None,
            "csv": True,
            "seed": None,
            "evaluate": "none",
            "by": request["by"],
        }
    }
    assert release.validate_parameters(held.parameters)["request"].rows == 500
    assert (held.work_pool_name, held.job_variables, held.pull_steps) == (None, {}, [])


def test_the_home_holds_what_is_run(server, deploy, monkeypatch):
    monkeypatch.chdir(server.folder)
    told = deploy("--cron", MONTHLY)
    (held,) = registrations(server.home)
    assert (held.deployment, held.parameters, held.folder) == (
        told["id"],
        told["parameters"],
        os.getcwd(),
    )
    (path,) = (server.home.folder / "recurring").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def made() -> list:
    """What the flow was called with."""
    return []


@pytest.fixture
def recorder(made):
    """A flow with the parameters of a release, which notes its calls and fails for epsilon 3."""

    @flow(name="release", persist_result=False)
    def noted(request: ReleaseRequest):
        made.append(
            {
                "spec": str(request.spec),
                "data": request.data,
                "epsilon": request.epsilon,
                "folder": os.getcwd(),
            }
        )
        if request.epsilon == "3":
            raise InputError("no")

    return noted


def ask(server, due: datetime, **parameters: object):
    """Have the server ask for a run at a time, as its scheduler does; the id of the run."""
    (deployment,) = registered()
    with get_client(sync_client=True) as client:
        scheduled = State(
            type=StateType.SCHEDULED, state_details={"scheduled_time": due.isoformat()}
        )
        asked = {"request": deployment.parameters["request"] | parameters}
        return client.create_flow_run_from_deployment(
            deployment.id, parameters=asked, state=scheduled
        ).id


def state_of(run_id) -> str:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(run_id).state.name


@pytest.fixture
def due(server, deploy, monkeypatch) -> datetime:
    """A minute that was due, after the clubs were registered for each minute."""
    monkeypatch.chdir(server.folder)
    deploy("--cron", "* * * * *")
    registration, minute = (
        registrations(server.home)[0],
        datetime.now(UTC).replace(second=0, microsecond=0),
    )
    registration.mark_started(minute - timedelta(minutes=3), server.home)
    return minute - timedelta(minutes=1)


def test_a_due_run_is_made_once_with_what_the_home_holds(
    server, due, recorder, made, monkeypatch, tmp_path_factory
):
    first, again = ask(server, due), ask(server, due)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    told = serve_due(recorder, server.home)
    assert told[0] == "Completed" and "started before" in told[1]
    assert made == [
        {"spec": str(server.spec), "data": None, "epsilon": None, "folder": str(server.folder)}
    ]
    assert (state_of(first), state_of(again)) == ("Completed", "Refused")
    assert serve_due(recorder, server.home) == []


@pytest.mark.parametrize(
    "parameters",
    [{"spec": "/tmp/other.yaml"}, {"data": "/etc/passwd"}, {"epsilon": "4"}, {"evaluate": "full"}],
)
def test_other_parameters_than_registered_are_refused(server, due, recorder, made, parameters):
    asked = ask(server, due, **parameters)
    (told,) = serve_due(recorder, server.home)
    assert "other parameters" in told and next(iter(parameters)) in told
    assert made == [] and state_of(asked) == "Refused"
    assert existing_ledger(server.home) is None


def test_a_changed_deployment_releases_nothing_else(server, due, recorder, made):
    """Parameters, command and place of code changed on the server."""
    (deployment,) = registered()
    with get_client(sync_client=True) as client:
        client.update_deployment(
            deployment.id,
            DeploymentUpdate(
                parameters={
                    "request": deployment.parameters["request"] | {"spec": "/tmp/other.yaml"}
                },
                entrypoint="/tmp/other.py:steal",
                path="/tmp",
                enforce_parameter_schema=False,
            ),
        )
    ask(server, due)
    assert "other parameters" in serve_due(recorder, server.home)[0]
    (deployment,) = registered()
    ask(server, due, spec=str(server.spec))
    assert serve_due(recorder, server.home) == ["Completed"]
    assert [call["spec"] for call in made] == [str(server.spec)]


def test_the_form_of_the_server_names_every_field_of_a_request(server, deploy):
    deploy("--cron", MONTHLY)
    form = registered()[0].parameter_openapi_schema
    assert list(form["properties"]) == ["request"]
    shown = form["definitions"]["ReleaseRequest"]["properties"]
    assert list(shown) == list(ReleaseRequest.model_fields)
    assert all(field["description"] for field in shown.values())
    assert shown["evaluate"]["enum"] == ["none", "quick", "full"]


def test_what_an_earlier_version_registered_is_run(server, due, recorder, made):
    """It wrote the parameters one beside the other, in the home and on the server."""
    (deployment,) = registered()
    flat = {
        name: value
        for name, value in deployment.parameters["request"].items()
        if name not in ("out", "seed")
    }
    (path,) = (server.home.folder / "recurring").iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"parameters": flat}))
    with get_client(sync_client=True) as client:
        scheduled = State(
            type=StateType.SCHEDULED, state_details={"scheduled_time": due.isoformat()}
        )
        client.update_deployment(
            deployment.id, DeploymentUpdate(parameters=flat, enforce_parameter_schema=False)
        )
        client.create_flow_run_from_deployment(deployment.id, parameters=flat, state=scheduled)
    assert serve_due(recorder, server.home) == ["Completed"]
    assert [call["spec"] for call in made] == [str(server.spec)]


def test_a_run_that_the_budget_does_not_hold_is_declined_and_not_failed(server, due):
    charged(server, "year")
    asked = ask(server, due)
    assert serve_due(release, server.home) == ["Declined"]
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(asked).state
    assert (state.type, state.name) == (StateType.CANCELLED, "Declined")
    assert "epsilon" in state.message
    assert existing_ledger(server.home).budget("clubs", "row").releases == 1


def test_a_time_off_the_schedule_is_refused(server, due, recorder, made):
    ask(server, due + timedelta(seconds=7))
    assert "not on the schedule" in serve_due(recorder, server.home)[0]
    assert made == []


def test_other_settings_than_registered_are_refused(server, due, recorder, made, monkeypatch):
    ask(server, due)
    monkeypatch.setenv("CLOISTER_LEDGER", str(server.folder / "other.db"))
    from tasks.runtime.home import Home

    assert "CLOISTER_LEDGER" in serve_due(recorder, Home.current())[0]
    assert made == []


def test_an_altered_registration_is_refused(server, due, recorder, made):
    (path,) = (server.home.folder / "recurring").iterdir()
    path.write_text(path.read_text()[:-20])
    with pytest.raises(Exception, match="altered"):
        serve_due(recorder, server.home)


def test_a_home_is_served_by_one_process_and_not_without_a_registration(server, deploy, recorder):
    with pytest.raises(InputError, match="no recurring release"):
        serve(recorder, server.home)
    deploy("--cron", MONTHLY)
    with (
        exclusive(server.home.folder / "serve.lock"),
        pytest.raises(InputError, match="another cloister serve"),
    ):
        serve(recorder, server.home)


@pytest.fixture
def open_server(prefect_server):
    """The URL of a server that asks nobody for a password."""
    from prefect.settings import PREFECT_SERVER_API_AUTH_STRING
    from prefect.testing.utilities import prefect_test_harness

    nobody = {PREFECT_SERVER_API_AUTH_STRING: None, PREFECT_API_AUTH_STRING: None}
    names = ("PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING")
    with pytest.MonkeyPatch.context() as patch, temporary_settings(nobody):
        for name in names:
            patch.delenv(name, raising=False)
        with prefect_test_harness(server_startup_timeout=180):
            yield get_current_settings().api.url


def test_a_server_that_answers_anyone_is_refused_unless_allowed(server, open_server, capsys):
    with temporary_settings({PREFECT_API_URL: open_server}):
        for command in (["deploy", str(server.spec), "--cron", MONTHLY], ["serve"]):
            assert run(command) == 2
            assert "PREFECT_SERVER_API_AUTH_STRING" in capsys.readouterr().err
        assert registered() == []
        assert run(["deploy", str(server.spec), "--cron", MONTHLY, "--allow-unauthenticated"]) == 0
        assert len(registered()) == 1


def test_a_server_with_a_password_is_taken_and_refuses_strangers(server):
    url = require_server(authenticated=True)
    assert httpx.post(f"{url}/deployments/count", json={}).status_code == 401


def test_a_wrong_password_is_named_as_such(refused, server, capsys):
    with temporary_settings({PREFECT_API_AUTH_STRING: "wrong:wrong"}):
        assert run(["deploy", str(server.spec), "--cron", MONTHLY]) == 2
    said = capsys.readouterr().err
    assert "PREFECT_API_AUTH_STRING" in said and "wrong:wrong" not in said


@pytest.mark.parametrize("url", ["http://prefect.example:4200/api", "http://10.1.2.3:4200/api"])
def test_another_machine_without_tls_is_refused(server, url, capsys):
    with temporary_settings({PREFECT_API_URL: url}):
        assert run(["deploy", str(server.spec), "--cron", MONTHLY]) == 2
    assert "without TLS" in capsys.readouterr().err


def test_again_it_is_the_same_deployment_with_another_schedule(deploy):
    first = deploy("--cron", MONTHLY, "--rows", 500)
    second = deploy("--cron", "30 4 * * 1")
    (held,) = registered()
    assert first["id"] == second["id"] == str(held.id)
    assert [when.schedule.cron for when in held.schedules] == ["30 4 * * 1"]
    assert held.parameters["request"]["rows"] is None
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


def test_people_are_told_of_surplus_runs_and_of_the_runner(server, capsys):
    assert run(["deploy", str(server.spec), "--cron", "0 * * * *"]) == 0
    said = capsys.readouterr().out
    assert "refuse the surplus runs" in said
    assert "cloister serve" in said


@pytest.mark.parametrize(
    "words", [("--cron", "0 3 1 *"), ("--cron", MONTHLY, "--timezone", "Mars")]
)
def test_a_wrong_schedule_is_refused_with_an_example(refused, words):
    assert "such as" in refused(*words)


def test_a_wrong_spec_is_refused(server, refused):
    server.edit(
        "age: {type: integer, min: 18, max: 80, bins: 16, provenance: form}", "age: {type: integer}"
    )
    assert str(server.spec) in refused("--cron", MONTHLY)


def test_data_that_is_not_there_is_refused(refused):
    assert "nowhere.csv" in refused("--cron", MONTHLY, "--data", "nowhere.csv")


def test_a_plan_that_cannot_be_is_refused(refused):
    assert "delta" in refused("--cron", MONTHLY, "--delta", "0.5")


def test_more_than_the_budget_is_refused(refused):
    assert "admits 0 releases of epsilon 5" in refused("--cron", MONTHLY, "--epsilon", "5")


def test_a_budget_for_ever_that_is_exhausted_is_refused(server, refused):
    charged(server, "ever")
    assert "admits 4 releases of epsilon 1 at delta 1e-06, 0 of them now" in refused(
        "--cron", MONTHLY
    )


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
    price = {
        "epsilon": Fraction(4),
        "delta": Fraction(0),
        "events": {"type": "none"},
        "spend_id": "other",
    }
    about = {"method": "kamino", "spec_digest": "ab", "code_version": "1"}
    ledger.reserve(
        ReservationRequest(dataset="clubs", unit="row", relation="add_remove", **price, **about),
        "tester",
    )


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


@pytest.mark.slow
def test_each_run_is_a_release_of_its_own(server, deploy):
    deploy("--cron", MONTHLY, "--evaluate", "none", "--rows", 200)
    parameters = registered()[0].parameters
    first, second = release(**parameters), release(**parameters)
    assert first.release != second.release
    budget = existing_ledger(server.home).budget("clubs", "row")
    assert (budget.releases, budget.spent) == (2, 2)
