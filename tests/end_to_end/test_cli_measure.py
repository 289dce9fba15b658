"""The command that measures domains, on a small file: what it charges, writes, says and refuses.

Killed, it goes on.
"""

import datetime as dt
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import yaml

from cloister.errors import CloisterError
from cloister.flows.cli.app import run
from cloister.privacy.ledger import State
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger
from cloister.tasks.release.verify import verify_records


def late_imports():
    global certify, cloister, declaring, move_release
    from bases import declaring

    import cloister.flows.measure
    import cloister.tasks.release.measure
    from cloister.flows.review import move_release
    from cloister.tasks.release.certify import certify


RARE = ("word-canary-quokka", "987654321", "1899-07-13", "KEY-CANARY-5", "0.1234567")


def people() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    rows = 3000
    frame = pd.DataFrame(
        {
            "id": [f"KEY-CANARY-{number}" for number in range(rows)],
            "home city": rng.choice(["Rome", "Oslo", "no"], rows),
            "age": rng.integers(18, 80, rows).astype(str),
            "wage": np.round(rng.gamma(2, 900, rows), 2).astype(str),
            "since": np.datetime64("1995-01-01") + rng.integers(0, 9000, rows),
            "member": rng.choice(["yes", "no"], rows),
        }
    )
    frame["since"] = frame["since"].astype(str)
    frame.loc[7, ["home city", "age", "since", "wage"]] = RARE[:3] + RARE[4:]
    frame.loc[: rows // 4, "wage"] = None
    return frame


@pytest.fixture
def unread(tmp_path, monkeypatch):
    """A drafted spec of a table with values that occur once, in a home of its own."""
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    people().to_csv(tmp_path / "people.csv", index=False)
    path = tmp_path / "draft.yaml"
    assert run(["spec", "draft", str(tmp_path / "people.csv"), "--out", str(path)]) == 0
    return path


@pytest.fixture
def draft(unread):
    """The draft as a person confirms it: by deleting one line."""
    lines = unread.read_text().splitlines(keepends=True)
    unread.write_text("".join(line for line in lines if not line.startswith("unconfirmed:")))
    return unread


def command(draft, *more: str) -> list[str]:
    out = str(draft.with_name("people.yaml"))
    return ["spec", "measure", str(draft), "--epsilon", "2", "--delta", "5e-7", "--out", out, *more]


def test_a_draft_becomes_a_spec_that_a_release_takes(
    draft, prefect_server, seeded_noise, capsys, basis
):
    capsys.readouterr()
    assert run(command(draft, "--json")) == 0
    said = capsys.readouterr()
    made, home = json.loads(said.out), Home.current()

    spec = load_spec(draft.with_name("people.yaml"))
    source = f"dp: release {made['release']}, epsilon 2, delta 5e-7"
    assert {attribute.provenance for attribute in spec.attributes.values()} == {source}
    assert spec.privacy.rows.provenance == source
    assert abs(spec.privacy.rows.public - 3000) < 300
    assert spec.validation.on_invalid == "clip"
    assert spec.attributes["home city"].values == ["Oslo", "Rome", "no"]
    assert (16, 79) == (spec.attributes["age"].min, spec.attributes["age"].max)
    assert spec.attributes["wage"].nullable
    assert spec.attributes["wage"].decimals == 2
    assert 1990 < spec.attributes["since"].min.year < 2000
    assert (made["problem"], made["not_found"]) == ("", [])
    assert run(["spec", "check", str(draft.with_name("people.yaml"))]) == 0

    ledger = existing_ledger(home)
    (held,) = ledger.releases()
    assert (held.id, held.request.method) == (made["release"], "measure")
    assert [moved.state for moved in held.steps] == [State.RESERVED, State.SPENT, State.CANDIDATE]
    assert float(ledger.budget("people", "row").spent) == 2
    assert made["accounted_epsilon"] <= 2
    assert verify_records(home, None)[1] == []
    assert move_release(home, held.id, "approved", "officer", "read it") == "approved"

    certificate = certify(declaring(basis, attributes=spec.attributes))
    assert {origin.provenance for origin in certificate.attributes} == {source}
    assert "measured with noise" in " ".join(certificate.unprotected)
    assert_silent(draft, said.out + said.err)


def assert_silent(draft, said: str) -> None:
    """No value that occurs once is said or written, but in the data and the draft."""
    for path in draft.parent.rglob("*"):
        if path.is_file() and path.name not in ("people.csv", "draft.yaml"):
            content = path.read_bytes()
            assert not any(canary.encode() in content for canary in RARE), path
    assert not any(canary in said for canary in RARE)


@pytest.mark.slow
def test_a_release_under_measured_domains_shows_them_in_its_certificate(draft, prefect_server):
    assert run(command(draft)) == 0
    out = draft.with_name("out")
    words = ["release", str(draft.with_name("people.yaml")), "--out", str(out)]
    assert run([*words, "--evaluate", "none"]) == 0
    certificate = yaml.safe_load((out / "certificate.yaml").read_text())
    assert all(
        origin["provenance"].startswith("dp: release r-") for origin in certificate["attributes"]
    )
    assert certificate["guarantee"]["rows"].endswith("epsilon 2, delta 5e-7")
    assert certificate["cumulative"]["spent"] == "3"


def refused(draft, capsys, *change: tuple[str, str], more: tuple[str, ...] = ()) -> str:
    text = draft.read_text()
    for old, new in change:
        assert old in text
        text = text.replace(old, new)
    draft.write_text(text)
    capsys.readouterr()
    assert run(command(draft, *more)) == 2
    assert not draft.with_name("people.yaml").exists()
    assert existing_ledger(Home.current()) is None
    return capsys.readouterr().err


def test_a_draft_that_nobody_has_confirmed_is_refused(unread, capsys):
    said = refused(unread, capsys)
    for fact in ("names of columns", "source.delimiter", "source.missing", "types of attributes"):
        assert fact in said
    assert "data-derived" not in said
    assert "names of columns" not in refused(
        unread, capsys, ("unconfirmed: [names, encoding,", "unconfirmed: [encoding,")
    )


@pytest.mark.parametrize(
    ("said", "change", "more"),
    [
        (
            "nothing is marked",
            [("data-derived}", "form}"), ("{measured: true}", "{public: 9}")],
            (),
        ),
        ("order", [("type: categorical", "type: ordinal")], ()),
        ("declares 3000", [("{measured: true}", "{public: 3000}")], ("--epsilon", "0.001")),
        ("nowhere.csv does not exist", [], ("--data", "nowhere.csv")),
        ("delta should be", [], ("--delta", "0")),
        ("delta should be", [], ("--delta", "1")),
        ("delta should be", [], ("--delta", "much")),
        ("too little is left", [], ("--epsilon", "9.5")),
        ("measure with epsilon 9 and delta 9e-07 at most", [], ("--delta", "1e-6")),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_charged(
    draft, capsys, said, change, more
):
    assert said in refused(draft, capsys, *change, more=more)


def test_of_several_tables_each_gap_is_named_and_nothing_is_measured(tmp_path, capsys):
    with sqlite3.connect(tmp_path / "shop.db") as server:
        server.executescript(
            "CREATE TABLE buyers (id INTEGER PRIMARY KEY, born DATE NOT NULL);"
            "CREATE TABLE orders (buyer INTEGER NOT NULL REFERENCES buyers (id), paid REAL);"
        )
    server.close()
    drafted = tmp_path / "shop.yaml"
    url = f"sqlite:///{tmp_path}/shop.db"
    assert run(["spec", "draft", url, "--out", str(drafted)]) == 0
    capsys.readouterr()

    assert run(["spec", "check", str(drafted)]) == 2
    said = capsys.readouterr().err
    for table in ("buyers", "orders"):
        assert f"tables.{table}.attributes: " in said
    assert "privacy.rows: " in said
    assert "tables.orders.rows: " in said
    assert "spec measure" not in said

    assert run(command(drafted)) == 2
    assert "several tables" in capsys.readouterr().err
    assert existing_ledger(Home.current()) is None


def test_nothing_is_overwritten(draft, capsys):
    draft.with_name("people.yaml").write_text("mine")
    assert run(command(draft)) == 2
    assert draft.with_name("people.yaml").read_text() == "mine"


def test_a_spec_with_files_beside_it_stays_beside_them(draft, capsys):
    (draft.parent / "other").mkdir()
    draft.with_name("rules.ic").write_text("t1&t2&EQ(t1.id,t2.id)")
    change = ("constraints: []", "constraints: [{file: rules.ic}]")
    assert "beside it" in refused(
        draft, capsys, change, more=("--out", str(draft.parent / "other" / "new.yaml"))
    )


@contextmanager
def ended_at(number: int) -> Iterator[None]:
    """Measurements end with an error after so many answers."""
    discover = cloister.tasks.release.measure.discover

    def ended(private, plan, _):
        def at(done: int, total: int) -> None:
            if done == number:
                raise CloisterError("ended here")

        return discover(private, plan, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cloister.tasks.release.measure, "discover", ended)
        yield


def test_ended_half_way_the_same_command_goes_on_with_the_same_answers(draft, prefect_server):
    with ended_at(3):
        assert run(command(draft)) == 1
    journal = next((draft.parent / "home" / "journals").rglob("journal.bin"))
    held = journal.read_bytes()
    assert run(command(draft)) == 0
    assert journal.read_bytes().startswith(held)
    (release,) = existing_ledger(Home.current()).releases()
    states = [moved.state for moved in release.steps]
    assert states == [State.RESERVED, State.SPENT, State.CANDIDATE]


@pytest.mark.slow
def test_killed_after_the_candidate_the_same_command_finds_what_was_written(
    draft, prefect_server, monkeypatch, capsys
):
    with monkeypatch.context() as patched:
        patched.setattr(cloister.flows.measure, "deliver", lambda *_: 1 / 0)
        assert run(command(draft)) == 1
    (held,) = existing_ledger(Home.current()).releases()
    assert held.state is State.CANDIDATE
    written = draft.with_name("people.yaml").read_text()
    capsys.readouterr()
    assert run(command(draft)) == 0
    assert "nothing was charged now" in capsys.readouterr().out
    assert draft.with_name("people.yaml").read_text() == written
    assert len(existing_ledger(Home.current()).releases()) == 1
    assert run([*command(draft), "--out", str(draft.with_name("again.yaml"))]) == 0
    assert len(existing_ledger(Home.current()).releases()) == 2


@pytest.mark.slow
def test_a_copied_home_resumes_nothing_resumed_elsewhere(
    draft, prefect_server, monkeypatch, capsys
):
    home = draft.parent / "home"
    monkeypatch.setenv("CLOISTER_LEDGER", str(draft.parent / "ledger.db"))
    with ended_at(3):
        assert run(command(draft)) == 1
    shutil.copytree(home, draft.parent / "copy")
    with ended_at(4):
        assert run(command(draft)) == 1
    monkeypatch.setenv("CLOISTER_HOME", str(draft.parent / "copy"))
    capsys.readouterr()
    assert run(command(draft)) == 1
    assert "review withdraw r-" in capsys.readouterr().err
    monkeypatch.setenv("CLOISTER_HOME", str(home))
    assert run(command(draft)) == 0
    assert len(existing_ledger(Home.current()).releases()) == 1


def test_a_table_that_cannot_be_read_gives_the_reservation_back(draft, prefect_server, capsys):
    draft.with_name("people.csv").write_text("id,home city,age,wage,since,member\n1,2\n")
    assert run(command(draft)) == 2
    (report,) = (draft.parent / "home" / "releases").glob("*/internal/validation.json")
    assert "more or fewer cells" in report.read_text()
    assert str(report) in (said := capsys.readouterr().err) and "more or fewer cells" not in said
    assert not draft.with_name("people.yaml").exists()
    (release,) = existing_ledger(Home.current()).releases()
    assert release.state is State.REFUNDED


@pytest.mark.slow
def test_rows_of_a_person_are_bounded_first_and_a_table_tells_people_what_was_done(
    draft, prefect_server, seeded_noise, capsys
):
    frame = people()
    frame["id"] = ["KEY-CANARY-1"] * 1500 + [f"P{number}" for number in range(1500)]
    frame["home city"] = ["Paris"] * 1500 + ["Oslo"] * 1500
    frame.to_csv(draft.with_name("people.csv"), index=False)
    draft.write_text(draft.read_text().replace("unit: row", "unit: {key: id, max_rows: 2}"))
    capsys.readouterr()
    out = str(draft.with_name("people.yaml"))
    assert run(["spec", "measure", str(draft), "--epsilon", "2", "--out", out]) == 0
    said = capsys.readouterr().out
    assert "Measured domains" in said and "1 value" in said
    assert "cloister release" in said
    (held,) = existing_ledger(Home.current()).releases()
    assert held.request.delta == load_spec(draft).release.delta == Fraction(1, 10**7)
    spec = load_spec(draft.with_name("people.yaml"))
    assert spec.attributes["home city"].values == ["Oslo"]
    assert abs(spec.privacy.rows.public - 1502) < 300
    assert spec.attributes["since"].max <= dt.date(2020, 12, 31)
