"""Growing data, month by month: each month is read, charged and certified on its own."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from cloister.flows.cli.app import run
from cloister.privacy.certificate.manifest import RELEASE_TYPE
from cloister.privacy.signing import read_envelope, read_statement
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger
from cloister.tasks.ledger.budgets import allowance_of
from cloister.tasks.release.verify import verify_records
from cloister.tasks.requests.plan import plan_of
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve

SPEC = """
name: stays
source: {path: stays.csv}
privacy: {unit: UNIT, relation: add_remove, block: {column: admitted, per: month},
  rows: {public: 100}, budget: {epsilon: 2, delta: 0, per: ever}}
attributes:
  person: {type: text, pattern: "P{0001..9999}"}
  admitted: {type: date, min: 2026-01-01, max: 2026-12-31, provenance: calendar}
  ward: {type: categorical, values: [a, b, c], provenance: plan}
validation: {on_invalid: drop}
release: {method: independent, epsilon: 1, delta: 0}
"""
QUICK = ["release", "stays.yaml", "--evaluate", "none", "--json"]


@pytest.fixture
def stays(folder: Path):
    """A folder with three hundred stays of three months, and their spec."""
    rng = np.random.default_rng(3)
    days = zip(np.repeat([8, 9, 10], 100), rng.integers(1, 29, 300), strict=True)
    frame = pd.DataFrame({"person": [f"P{number:04}" for number in rng.integers(1, 80, 300)]})
    frame["admitted"] = [f"2026-{month:02}-{day:02}" for month, day in days]
    frame["ward"] = rng.choice(list("abc"), 300)
    frame.to_csv("stays.csv", index=False)

    def write(unit: str) -> Path:
        Path("stays.yaml").write_text(SPEC.replace("UNIT", unit), encoding="utf-8")
        return folder

    write("row")
    return write


def released(capsys, *words: str) -> dict:
    capsys.readouterr()
    assert run([*QUICK, *words]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def certificate_of(said: dict) -> dict:
    path = Path(said["files"]["public"]) / "certificate.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_two_months_of_persons_are_released_each_at_the_budget_of_its_own(
    stays, prefect_server, capsys
) -> None:
    stays("{key: person, max_rows: 4}")
    first = released(capsys, "--block", "2026-08", "--epsilon", "2")
    both = released(capsys, "--block", "2026-09..2026-10")
    assert (first["rows"], both["rows"]) == (100, 200)
    assert (first["block"], first["budget_left"]) == ("2026-08", "0")
    assert (both["block"], both["budget_left"]) == ("2026-09..2026-10", "1")
    assert run([*QUICK, "--block", "2026-08", "--epsilon", "2"]) == 2
    assert "block 2026-08" in " ".join(capsys.readouterr().err.split())
    certificate = certificate_of(both)
    assert certificate["subject"]["blocks"] == ["2026-09", "2026-10"]
    statement = read_statement(read_envelope(Path(both["files"]["public"]) / "candidate.dsse.json"))
    assert statement.facts(RELEASE_TYPE)["blocks"] == ["2026-09", "2026-10"]
    cumulative = certificate["cumulative"]
    assert (cumulative["spent"], cumulative["left"], cumulative["lifetime"]) == ("1", "1", "3")
    meaning = " ".join(certificate["guarantee"]["meaning"])
    assert "whose admitted lies in 2026-09 to 2026-10" in meaning
    assert "A person with rows in several" in meaning
    # of a person, the odds of the period are those of all blocks: (2 + 1) epsilon, not 1
    certain = certificate["guarantee"]["odds"][2]
    expected = [1 / (1 + np.exp(-epsilon)) for epsilon in (1, 3)]
    assert [certain["release"], certain["period"]] == pytest.approx(expected, abs=1e-3)
    assert run(["budget", "show", "stays", "--json"]) == 0
    shown = {each["block"]: each["left"] for each in json.loads(capsys.readouterr().out)}
    assert shown == {"2026-08": "0", "2026-09": "1", "2026-10": "1"}
    assert verify_records(Home.current(), None)[1] == []


def test_what_other_months_hold_changes_nothing_of_a_release(
    stays, prefect_server, seeded_noise, capsys
) -> None:
    words = ("--block", "2026-09", "--seed-sampling", "7")
    whole = pd.read_parquet(Path(released(capsys, *words)["files"]["public"]) / "synthetic.parquet")
    frame = pd.read_csv("stays.csv")
    frame[frame["admitted"].str.startswith("2026-09")].to_csv("stays.csv", index=False)
    alone = released(capsys, *words)
    pd.testing.assert_frame_equal(
        pd.read_parquet(Path(alone["files"]["public"]) / "synthetic.parquet"), whole
    )
    assert "A row is in one month" not in str(certificate_of(alone))  # the noise was seeded


@pytest.mark.parametrize(
    ("old", "new", "words", "why"),
    [
        ("", "", (), "name the months to read with --block"),
        ("", "", ("--block", "2026"), "--block names months"),
        ("block: {column: admitted, per: month},", "", ("--block", "2026-09"), "of growing data"),
        ("add_remove", "replace_one", ("--block", "2026-09"), "needs relation add_remove"),
        ("column: admitted", "column: ward", ("--block", "2026-09"), "is no date"),
        ("column: admitted", "column: left", ("--block", "2026-09"), "is no attribute"),
        ("type: date,", "type: date, nullable: true,", ("--block", "2026-09"), "is nullable"),
    ],
)
def test_what_no_block_can_be_charged_for_is_refused_before_any_charge(
    stays, capsys, old: str, new: str, words: tuple, why: str
) -> None:
    text = Path("stays.yaml").read_text(encoding="utf-8")
    Path("stays.yaml").write_text(text.replace(old, new) if old else text, encoding="utf-8")
    assert run([*QUICK, *words]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert not list((Home.current().folder / "releases").glob("*"))


def test_a_recurring_release_charges_the_month_before_each_run(stays) -> None:
    """A budget for ever admits two releases of each month, and so one a month for ever."""
    now = datetime(2026, 11, 24, 12, tzinfo=UTC)
    resolved = resolve(ReleaseRequest(spec=Path("stays.yaml"), block="previous"), now)
    assert resolved.block == "2026-10"
    context, home = public_context_of(resolved), Home.current()
    plan = plan_of(resolved)
    moving = allowance_of(resolved, context, plan, home, now, moving=True)
    months = [datetime(2026 + at // 12, at % 12 + 1, 2, 3, tzinfo=UTC) for at in range(11, 40)]
    assert not moving.exceeded_by(months, now)
    assert all(fits for _, fits in moving.foreseen(months))
    weeks = [datetime(2026, 12, day, 3, tzinfo=UTC) for day in (2, 9, 16)]
    assert [fits for _, fits in moving.foreseen(weeks)] == [True, True, False]
    assert moving.exceeded_by(weeks, now)
    fixed = allowance_of(resolved, context, plan, home, now)
    assert [fits for _, fits in fixed.foreseen(months[:3])] == [True, True, False]


def test_an_officer_registers_blocks_before_the_first_release_which_a_schedule_makes(
    stays, prefect_server, monkeypatch, capsys
):
    """Its run reads the month before the time it was due."""
    from prefect.runtime import flow_run

    assert run(["spec", "check", "stays.yaml"]) == 0, capsys.readouterr().err  # without a block
    assert "stays" in capsys.readouterr().out
    add = ["dataset", "add", "stays", "--place", "stays.csv", "--reason", "register 13"]
    assert run([*add, "--blocks", "admitted per month"]) == 2
    assert run([*add, "--blocks", "admitted (date) per month"]) == 0
    assert run(["budget", "grant", "stays", "--epsilon", "1", "--delta", "0", "--per", "ever",
                "--reason", "policy 7"]) == 0  # fmt: skip
    assert run([*add, "--place", "stays-*.csv"]) == 0  # further places keep the blocks
    due = datetime(2026, 10, 2, 3, tzinfo=UTC)
    monkeypatch.setitem(flow_run.FIELDS, "scheduled_start_time", lambda: due)
    said = released(capsys, "--block", "previous")
    assert (said["block"], said["budget_left"]) == ("2026-09", "0")
    meaning = " ".join(certificate_of(said)["guarantee"]["meaning"])
    assert "A row is in one month: releases of other months reveal nothing more of it." in meaning
    assert open_ledger(Home.current()).releases()[0].request.blocks == ("2026-09",)
    assert run(["dataset", "list", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["blocks"] == "admitted (date) per month"


HEADERLESS = SPEC.replace(
    "{path: stays.csv}", "{path: visits.csv, header: [person, HEADER, ward]}"
).replace(
    "  ward:",
    "  discharged: {type: date, min: 2026-01-01, max: 2026-12-31, provenance: calendar}\n  ward:",
)
KEYED = "{key: person, max_rows: 4}"


def test_one_file_is_read_in_one_way_until_an_officer_moves_its_account(
    stays, prefect_server, capsys
) -> None:
    """Two days of each stay, exchanged in the header, would give each month its budget twice."""
    frame = pd.read_csv("stays.csv")
    frame.insert(2, "discharged", frame["admitted"].str.replace("-09-", "-10-"))
    frame.to_csv("visits.csv", index=False, header=False)

    def write(header: str) -> None:
        text = HEADERLESS.replace("UNIT", KEYED).replace("HEADER", header)
        Path("stays.yaml").write_text(text, encoding="utf-8")

    write("admitted, discharged")
    first = released(capsys, "--block", "2026-09")
    assert "A person with rows in several" in " ".join(
        certificate_of(first)["guarantee"]["meaning"]
    )
    before = open_ledger(Home.current()).anchor()
    write("discharged, admitted")
    assert run([*QUICK, "--block", "2026-10"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "admitted from cell 2 as date, and here admitted from cell 3 as date" in said
    assert "Nothing was charged" in said and open_ledger(Home.current()).anchor() == before
    why = "by discharge from here on"
    assert run(["dataset", "reread", "stays.yaml", "--reason", why]) == 0
    assert run(["dataset", "reread", "stays.yaml", "--reason", why]) == 2
    certificate = certificate_of(released(capsys, "--block", "2026-10"))
    meaning = " ".join(certificate["guarantee"]["meaning"])
    assert "a row may have been in another month" in meaning
    assert any(why in sentence for sentence in certificate["limitations"])
    assert verify_records(Home.current(), None)[1] == []
