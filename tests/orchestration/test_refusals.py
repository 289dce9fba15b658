"""Data that is refused: the detail in the home alone, nothing of it at the orchestrator, and the
refusal is counted."""

import asyncio
import json
import re
import stat
from datetime import UTC, datetime
from itertools import count

import pandas as pd
from quick_release import quick_release

from cloister.flows.cli.app import run
from cloister.privacy.certificate.certificate import read_certificate
from cloister.privacy.ledger import State
from cloister.schema.sources import stored_files
from cloister.tasks.ledger.access import existing_ledger


def late_imports():
    global FlowRunFilter, FlowRunFilterExpectedStartTime, PREFECT_API_URL, every, get_client
    global temporary_settings
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterExpectedStartTime
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from recorded import every


DETAIL = ("(row 42)", "1 value", "home region")


async def messages(since: datetime) -> list[str]:
    """What the server holds of runs of this test, and all that it was ever told by a log."""
    due = FlowRunFilter(expected_start_time=FlowRunFilterExpectedStartTime(after_=since))
    async with get_client() as client:
        runs = [
            run
            for read in (client.read_flow_runs, client.read_task_runs)
            async for run in every(read, flow_run_filter=due)
        ]
        states = [state for made in runs for state in await _states(client, made)]
        logs = [log.message async for log in every(client.read_logs)]
        return [str(state.model_dump(mode="json")) for state in states] + logs


async def _states(client, made):
    read = client.read_task_run_states if hasattr(made, "task_key") else client.read_flow_run_states
    return await read(made.id)


def test_the_detail_of_a_refusal_stays_in_the_home(place, prefect_server, capsys):
    frame = pd.read_csv(place.data)
    frame.loc[41, "home region"] = "nowhere"
    frame.to_csv(place.data, index=False)
    since = datetime.now(UTC)
    for refusals in (1, 2):
        assert run(["release", str(place.spec), "--method", "independent", "--delta", "0"]) == 2
        said = capsys.readouterr()
        held = existing_ledger(place.home).releases()[-1]
        report = place.home.release(held.id) / "internal" / "validation.json"
        assert str(report) in said.err
        assert not any(detail in said.err + said.out for detail in DETAIL)
        problems = "".join(json.loads(report.read_text())["problems"])
        assert all(detail in problems for detail in DETAIL)
        assert stat.S_IMODE(report.stat().st_mode) == 0o600
        assert existing_ledger(place.home).budget("clubs", "row").refusals == refusals
    ours = [text for text in asyncio.run(messages(since)) if str(report) in text]
    assert ours
    assert not any(detail in text for text in ours for detail in DETAIL)
    ledger = json.dumps([entry.line for entry in existing_ledger(place.home).entries()])
    assert not any(detail in ledger for detail in DETAIL)
    assert run(["budget", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["refusals"] == 2
    assert run(["ledger", "list", "--json"]) == 0
    assert [release["refused"] for release in json.loads(capsys.readouterr().out)] == [True, True]
    assert run(["ledger", "show", held.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["refused"] is True
    assert run(["ledger", "list"]) == 0
    assert "refusals of data" in capsys.readouterr().out


def test_a_wrong_file_is_refused_before_a_server_is_asked_and_says_that_nothing_was_charged(
    place, capsys
):
    """No server is there to be asked."""
    pd.read_csv(place.data).rename(columns={"age": "years"}).to_csv(place.data, index=False)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert run(quick_release(place)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'age' are missing" in line and line.endswith("this run charged nothing")
    assert existing_ledger(place.home) is None


def test_a_refusal_is_one_line_beside_the_progress(place, prefect_server, logs, monkeypatch):
    """Of rows, and of a file that changes while it is read."""
    versions = count()
    with monkeypatch.context() as patch:
        patch.setattr(stored_files, "pin_of", lambda file: f"{file} {next(versions)}")
        assert run(quick_release(place)) == 2
    line = logs().splitlines()[-1]
    assert "is no longer the file" in line and line.endswith("this run charged nothing")
    (held,) = existing_ledger(place.home).releases()
    assert held.state is State.REFUNDED
    frame = pd.read_csv(place.data)
    frame.loc[41, "home region"] = "nowhere"
    frame.to_csv(place.data, index=False)
    assert run(quick_release(place)) == 2
    *progress, line = logs().splitlines()
    assert line.startswith("error: the data is not as the spec declares it")
    assert line.endswith("this run charged nothing")
    assert all(re.fullmatch(r"[\d:]{8} \w+ (started|finished|failed)", each) for each in progress)


def test_data_refused_too_often_costs_a_charge_and_certificates_tell_of_it(
    place, prefect_server, capsys
):
    """A first refusal is free, the second is not; after it an officer allows the next run."""
    good = pd.read_csv(place.data)
    bad = good.copy()
    bad.loc[41, "home region"] = "nowhere"
    bad.to_csv(place.data, index=False)
    assert run(["rules", "set", "--refusals", "2", "--reason", "policy"]) == 0
    since = datetime.now(UTC)
    command = quick_release(place)
    said = []
    for code in (2, 2, 2):
        assert run(command) == code
        said.append(capsys.readouterr().err)
    assert "this run charged nothing" in said[0]
    assert "the charge of this run stays" in said[1] and "charged nothing" not in said[1]
    assert "budget allow clubs" in said[1] and "budget allow clubs" in said[2]
    assert "Nothing was charged" in said[2]
    ledger = existing_ledger(place.home)
    assert [held.state for held in ledger.releases()] == [State.REFUNDED, State.FORFEITED]
    assert ledger.budget("clubs", "row").spent == ledger.releases()[1].request.epsilon
    told = asyncio.run(messages(since))
    assert any("the charge of this run stays" in text for text in told)
    assert run(["budget", "allow", "clubs", "--reason", "the export was repaired"]) == 0
    assert run(["rules", "set", "clubs", "--admission", "filter", "--reason", "policy"]) == 0
    good.to_csv(place.data, index=False)
    assert run(command) == 0
    public = place.home.release(existing_ledger(place.home).releases()[-1].id) / "public"
    certificate = read_certificate(public)
    assert any("2 exact answers" in each for each in certificate.limitations)
    text = (public / "certificate.html").read_text(encoding="utf-8")
    assert "2 exact answers" in text and "by a privacy filter, for which a budget of" in text
    capsys.readouterr()
    assert run(["budget", "show", "clubs", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["admission"], shown["refusals"]) == ("filter", 2)
    assert float(shown["filter"]) >= float(certificate.cumulative.filtered) > 1
    assert run(["verify"]) == 0
