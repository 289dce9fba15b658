"""What a home holds about the data goes once a release is decided: by an entry that is verified."""

import hashlib
import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from postgres_schemas import schema

from cloister.errors import VerificationError
from cloister.flows.cli.app import run
from cloister.privacy.door.journal_format import ANSWER, JOURNAL_NAME, read_frames
from cloister.privacy.ledger import State
from cloister.privacy.ledger.governance import record_deletions
from cloister.tasks.data.sources import kept_frame
from cloister.tasks.home.files import write_json, write_sealed
from cloister.tasks.home.home import Home
from cloister.tasks.ledger import access
from cloister.tasks.release import retention
from cloister.tasks.release.retention import delete_due, holdings, leftovers
from cloister.tasks.release.verify import verify_records


def late_imports():
    global review
    from cloister.flows import review


def findings(home: Home) -> list[str]:
    return verify_records(home, None)[1]


def decide(move: str, release: str) -> None:
    assert run(["review", move, release, "--reason", "why"]) == 0


def held(home: Home) -> dict[str, list[str]]:
    """The places that the home holds of its releases, by kind."""
    return {each.kind: list(each.places) for each in holdings(home)}


def files(home: Home) -> list[Path]:
    return [path for path in home.folder.rglob("*") if path.is_file()]


def measured(home: Home, release: str) -> Iterator[bytes]:
    """Figures that were measured on the real rows, as text and as SQLite holds them."""
    path = home.release(release) / "internal" / "evaluation.json"
    for figure in json.loads(path.read_text())["metrics"].values():
        if len(repr(figure)) > 10:  # shorter ones may be anything else's
            yield repr(figure).encode()
            yield struct.pack(">d", figure)


def raw(home: Home, released) -> dict[str, list[bytes]]:
    """What is in the home before it is deleted: pieces of what each kind holds."""
    data = released.place.data.read_bytes()
    journal = home.journal(released.id) / JOURNAL_NAME
    content = journal.read_bytes()
    answers = [frame for frame in read_frames(content) if frame.kind == ANSWER]
    pieces = [content[answer.payload][:64] for answer in answers if len(content[answer.payload])]
    validation = home.release(released.id) / "internal" / "validation.json"
    return {
        "source": [hashlib.md5(data, usedforsecurity=False).hexdigest().encode()],
        "measures": [*measured(home, released.id), validation.read_bytes()],
        "exact digests": [hashlib.sha256(validation.read_bytes()).hexdigest().encode()],
        "journal": pieces,
        "scores": [path.read_bytes() for path in (home.folder / "truths").glob("*")],
    }


def traces(home: Home, pieces: dict[str, list[bytes]]) -> dict[str, set[str]]:
    """The kinds of pieces that files of the home hold, and in which."""
    found: dict[str, set[str]] = {}
    for path in files(home):
        content = path.read_bytes()
        for kind, each in pieces.items():
            if any(piece in content for piece in each):
                found.setdefault(kind, set()).add(path.relative_to(home.folder).as_posix())
    return found


def test_after_approval_no_file_of_the_home_holds_what_is_not_needed(home, released, tmp_path):
    write_json(home.folder / "truths" / "0123456789abcdef.json", {"scores": 0.123456789})
    pieces = raw(home, released)
    assert traces(home, pieces).keys() == pieces.keys()
    rows = b"\n".join(released.place.data.read_bytes().splitlines()[1:4])
    decide("approve", released.id)
    assert traces(home, pieces | {"rows": [rows]}) == {}
    own = home.release(released.id)
    gone = (own / "internal", own / "trained", home.journal(released.id))
    assert not any(path.exists() for path in gone)
    assert list(held(home)) == ["models"]
    assert findings(home) == []
    assert run(["verify", released.id]) == 0
    table = tmp_path / "rows.parquet"
    assert run(["sample", released.id, "--rows", "5", "--out", str(table)]) == 0
    assert run(["fetch", released.id, "--out", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "synthetic.csv").exists()
    assert run(["review", "countersign", released.id]) == 0
    decide("publish", released.id)
    assert findings(home) == []
    decide("withdraw", released.id)
    assert findings(home) == [] and held(home) == {}


def test_of_a_candidate_all_stays(home, released):
    before = {path: path.read_bytes() for path in files(home)}
    assert run(["retention", "run"]) == 0
    assert set(held(home)) == {"source", "measures", "journal", "models"}
    changed = {path for path, content in before.items() if not path.exists()}
    assert not changed and len(access.existing_ledger(home).release(released.id).deletions) == 0


@pytest.mark.parametrize("move", ["reject", pytest.param("withdraw", marks=pytest.mark.slow)])
def test_a_release_that_was_given_up_loses_its_model_and_keeps_its_files(
    home, released, tmp_path, move
):
    arrays = [path for path in files(home) if path.name == "arrays.npz"]
    assert len(arrays) == 3  # of MLflow too, and before the weights
    pulled = home.versions / "releases" / released.id / "input.csv"
    shutil.copyfile(released.place.data, pulled)
    decide(move, released.id)
    assert not any(path.exists() for path in (*arrays, pulled))
    assert held(home) == {} and findings(home) == []
    assert (home.release(released.id) / "public" / "synthetic.csv").exists()
    assert not [path for path in Path(home.remote).rglob("*") if path.is_file()]
    assert run(["fetch", released.id, "--out", str(tmp_path / "again")]) == 2


@pytest.mark.slow
def test_rules_keep_what_they_name(home, released):
    words = ["rules", "set", "--keep", "journal=365", "--keep", "measures=1", "--reason", "policy"]
    assert run(words) == 0
    decide("approve", released.id)
    assert set(held(home)) == {"journal", "measures", "models"}
    assert home.journal(released.id).exists() and findings(home) == []


def killed_at(home: Home, step: int, act: Callable[[], object], patch: pytest.MonkeyPatch) -> bool:
    """Do something in a process that is killed before it deletes the place of a number."""
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            left, delete = iter(range(step)), retention._delete

            def deleting(*arguments: object) -> None:
                if next(left, None) is None:
                    os._exit(9)
                delete(*arguments)

            patch.setattr(retention, "_delete", deleting)
            act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def held_home(request, home, tmp_path, monkeypatch) -> Iterator[Home]:
    """The home, with its ledger on either database."""
    if request.param == "sqlite":
        yield home
        return
    access.export_ledger(home, tmp_path / "ledger.jsonl")
    for path in home.folder.glob("ledger.db*"):
        path.unlink()
    with schema() as url:
        monkeypatch.setenv("CLOISTER_LEDGER", url)
        access.restore_ledger(Home.current(), tmp_path / "ledger.jsonl")
        yield Home.current()


@pytest.mark.parametrize(
    "step", [3, *(pytest.param(step, marks=pytest.mark.slow) for step in (0, 1, 6))]
)
def test_what_a_kill_left_of_a_deletion_is_named_and_ended(held_home, released, monkeypatch, step):
    home = held_home
    ledger = access.open_ledger(home)
    with monkeypatch.context() as patch:
        patch.setattr(review, "_delete_due", lambda *_: None)
        decide("approve", released.id)
    assert killed_at(home, step, lambda: delete_due(home, "officer"), monkeypatch)
    (deletion,) = ledger.release(released.id).deletions
    named = findings(home)
    listed = f"{home.release(released.id) / 'kept.json'}: lists what was deleted"
    assert sum("is there, although entry" in each for each in named) == 7 - step
    assert sum(each.startswith(listed) for each in named) == 1
    assert all("cloister retention run" in each for each in named)
    assert run(["verify"]) == 1
    assert run(["retention", "run"]) == 0
    assert findings(home) == []
    assert ledger.release(released.id).deletions == (deletion,)
    assert list(held(home)) == ["models"]


def test_what_is_missing_without_an_entry_is_named(home, released):
    for path in (home.journal(released.id), home.release(released.id) / "trained"):
        shutil.rmtree(path)
    missing = [each for each in findings(home) if "is missing" in each]
    assert any("journal.bin" in each for each in missing)
    assert any("trained/arrays.npz" in each for each in missing)


def test_what_is_back_from_a_backup_is_named(home, released, tmp_path):
    backup = shutil.copytree(home.folder, tmp_path / "backup")
    decide("approve", released.id)
    for name in (f"journals/{released.id}", f"releases/{released.id}/internal"):
        shutil.copytree(backup / name, home.folder / name)
    store = sqlite3.connect(home.folder / "mlflow" / "mlflow.db")
    with closing(store), store:
        (run_id,) = store.execute("SELECT run_uuid FROM latest_metrics LIMIT 1").fetchone()
        into = "latest_metrics (key, value, timestamp, run_uuid, step, is_nan)"
        values = ("detection.auc", 0.5, 0, run_id, 0, 0)
        store.execute(f"INSERT INTO {into} VALUES (?, ?, ?, ?, ?, ?)", values)  # noqa: S608
    named = sorted(each.partition(": is there, although")[0] for each in findings(home))
    places = (f"journals/{released.id}", "mlflow.db#measures", f"releases/{released.id}/internal")
    assert named == [str(home.folder / place) for place in places]
    assert run(["retention", "run"]) == 0
    assert findings(home) == []
    own = home.release(released.id)
    shutil.copytree(own / "public", own / "internal")
    assert len(findings(home)) == 1
    decide("publish", released.id)  # the next move ends what is left, too
    assert findings(home) == []


def test_a_list_that_was_altered_stops_a_deletion_before_its_entry(home, released, capsys):
    path = home.release(released.id) / "kept.json"
    access.open_ledger(home).advance(released.id, State.APPROVED, "officer", "why")
    path.write_text(path.read_text().replace("internal/evaluation", "internal/evaluatiom"))
    entries = access.existing_ledger(home).entries()
    assert run(["retention", "run"]) == 1
    assert "nothing of release" in capsys.readouterr().err
    assert access.existing_ledger(home).entries() == entries
    assert home.journal(released.id).exists()


@pytest.mark.parametrize("place", ["releases/{}/public", "key", "releases/r-0/internal", "end"])
def test_an_entry_of_whoever_writes_the_ledger_deletes_nothing_else(home, released, place):
    ledger = access.open_ledger(home)
    ledger.advance(released.id, State.APPROVED, "officer", "why")
    named = place.format(released.id)
    (home.release("r-0") / "internal").mkdir(parents=True)
    record_deletions(
        ledger, {released.id: {"kinds": {"journal": {named: ""}}}}, "officer", "forged"
    )
    with pytest.raises(VerificationError, match="no part of release"):
        delete_due(home, "officer")
    assert (home.folder / named).exists()


@pytest.mark.slow
def test_a_model_stays_while_an_unfinished_release_uses_its_numbers(home, released, monkeypatch):
    decide("approve", released.id)
    request = access.release_of(home, released.id).request
    body = {**request.body, "spend_id": "other", "release": "r-1111111111"}
    pending = access.open_ledger(home).reserve(type(request).from_body(body), "engineer").release.id
    for prior in (None, {"prior": released.id}):  # its request is not written yet; then it is
        if prior:
            write_sealed(home.release(pending) / "order.json", prior, home)
        else:
            decide("withdraw", released.id)
        assert run(["retention", "run"]) == 0
        (model,) = [each for each in holdings(home) if each.kind == "models"]
        assert model.goes == "an unfinished release may use it" and not model.due
        assert findings(home) == []
    write_sealed(home.release(pending) / "order.json", {"prior": None}, home)
    assert run(["retention", "run"]) == 0
    assert held(home) == {} and findings(home) == []


def test_frames_of_killed_processes_are_named_and_deleted_and_those_in_use_stay(home, released):
    import pandas as pd

    frame = pd.DataFrame({"a": np.arange(3)})
    with kept_frame(frame, home) as used:
        left = used.with_name("left.parquet")
        left.write_bytes(used.read_bytes())
        assert leftovers(home) == [] and findings(home) == []
        assert run(["retention", "run"]) == 0
        assert left.exists() and used.exists()
    assert leftovers(home) == [left]
    (finding,) = findings(home)
    assert finding.startswith(f"{left}: is a copy of data")
    assert run(["retention", "run"]) == 0
    assert not left.exists() and findings(home) == []


@pytest.mark.slow
def test_commands_say_what_is_held_and_was_deleted(home, released, cloister, capsys, monkeypatch):
    tables = []
    shown = cloister("retention", "show")["holdings"]
    assert {(each["kind"], each["goes"]) for each in shown} == {
        (kind, "until it is decided") for kind in ("source", "measures", "journal", "models")
    }
    access.open_ledger(home).advance(released.id, State.REJECTED, "officer", "why")
    times = {each["goes"] for each in cloister("retention", "show")["holdings"]}
    assert times == {access.release_of(home, released.id).steps[-1].time}
    with monkeypatch.context() as patch:
        shows = "cloister.flows.cli.retention.show_table"
        patch.setattr(shows, lambda *shown: tables.append(shown))
        assert run(["retention", "show"]) == 0
    assert [row[-1] for row in tables[0][2]] == ["now"] * 4
    done = cloister("retention", "run")["deleted"]
    assert [each["kind"] for each in done] == ["source", "measures", "journal", "models"]
    assert cloister("retention", "run")["deleted"] == []
    assert run(["retention", "show"]) == run(["retention", "run"]) == 0
