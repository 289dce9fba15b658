"""verify finds every change of a release in its home, and no command samples a changed model."""

import hashlib
import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from quick_release import quick_release

import cloister.flows.cli.console
import cloister.flows.sampling
from cloister.errors import CloisterError, VerificationError
from cloister.flows.cli.app import run
from cloister.tasks.home.home import Home, open_to_others
from cloister.tasks.ledger.access import existing_ledger, open_ledger
from cloister.tasks.release.kept_files import kept_findings, write_kept
from cloister.tasks.release.kept_request import keep_request, kept_request
from cloister.tasks.release.verify import verify_records


def late_imports():
    global ModelRegistry, cloister, mlflow, move_release
    import mlflow.pyfunc

    import cloister.tasks.release.publish
    from cloister.flows.review import move_release
    from cloister.tasks.stores.mlflow_registry import ModelRegistry


SEEN_BY_SQLITE = ".db"
"""Ending of databases, whose flips have tests of their own: a byte of a free page is no change."""

UNREAD = ("prefect/", "mlflow/mlflow.db", "dvc/.dvc", "dvc/lock", "dvc/site", ".lock", ".tmp")
"""Settings, locks and caches of the tools: nothing of ours decides by them."""


def findings(home: Home) -> list[str]:
    return verify_records(home, None)[1]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.chmod(0o600)
    path.write_bytes(content)


def kept(home: Home) -> list[Path]:
    files = (path for path in home.folder.rglob("*") if path.is_file() and path.stat().st_size)
    named = {path: path.relative_to(home.folder).as_posix() for path in files}
    return [
        path
        for path, name in named.items()
        if path.suffix != SEEN_BY_SQLITE and not any(u in name for u in UNREAD)
    ]


def test_a_flip_in_any_file_is_found_and_the_file_named(home):
    files = kept(home)
    part = home.folder / "dvc-remote" / "files" / "md5" / "ab" / ".being-sent.tmp"
    part.parent.mkdir(parents=True)
    part.write_text("half")  # is no object yet
    assert findings(home) == []
    kinds = {path.name for path in files}
    assert kinds >= {
        *("key", "end", "journal.bin", "order.json", "plan.json", "kept.json", "runs.json"),
        *("manifest.json", "arrays.npz", "validation.json", "evaluation.json", "input.dvc"),
        *("MLmodel", "mlflow_pyfunc.py"),
    }
    for path in files:
        whole = path.read_bytes()
        flip(path)
        assert any(str(path) in finding for finding in findings(home)), path
        path.write_bytes(whole)
    assert findings(home) == []


def test_files_and_folders_that_are_missing_or_added_are_named(home, released):
    folder = home.release(released.id)
    gone = ("plan.json", "model/spec.json", "public/manifest.json", "kept.json")
    for path in (*map(folder.joinpath, gone), home.journal(released.id) / "journal.bin", home.end):
        content = path.read_bytes()
        path.unlink()
        assert any(str(path) in finding for finding in findings(home)), path
        path.write_bytes(content)
    (folder / "internal" / "note.txt").write_text("mine")
    assert findings(home) == [f"{folder / 'internal' / 'note.txt'}: is not part of the release"]
    (folder / "internal" / "note.txt").unlink()
    plan = folder / "plan.json"
    elsewhere = plan.rename(home.folder.with_name("plan.json"))
    plan.symlink_to(elsewhere)
    assert findings(home) == [f"{plan}: was altered"]
    elsewhere.replace(plan)
    unknown = shutil.copytree(folder, home.release("r-0000000000"))
    said = findings(home)
    assert any(unknown.name in each and "no such release" in each for each in said)
    shutil.rmtree(unknown)
    for place in ("journals", "releases"):
        shutil.rmtree(home.folder / place / released.id)
        assert any(released.id in each and "missing" in each for each in findings(home))


def test_another_releases_request_is_named_and_no_command_is_made_of_it(home, released, capsys):
    ledger, order = open_ledger(home), kept_request(home, released.id)
    request, paths = ledger.release(released.id).request, []
    for number, epsilon in enumerate(("1/2", "1/3")):
        named = {"spend_id": f"run-{number}", "release": f"r-000000000{number}"}
        ledger.reserve(type(request).from_body(request.body | named), "engineer")
        keep_request(home, named["release"], order.filled(epsilon=epsilon))
        paths.append(home.release(named["release"]) / "order.json")
    assert findings(home) == []
    first, second = (path.read_text() for path in paths)
    paths[0].write_text(second)
    paths[1].write_text(first)
    assert all(any(f"{path} was altered" in each for each in findings(home)) for path in paths)
    assert run(["ledger", "show", paths[0].parent.name]) == 1
    assert f"{paths[0]} was altered" in capsys.readouterr().err.replace("\n", "")
    paths[0].write_text(second.replace('"seal"', '"note"'))
    assert any(f"{paths[0]}: has no seal" in each for each in findings(home))
    paths[1].write_text(second)
    ledger.spend(paths[1].parent.name, "engineer", "journal", "cd" * 32)
    paths[1].unlink()
    assert any(f"{paths[1]}: is missing" in each for each in findings(home))
    assert run(["ledger", "show", paths[1].parent.name]) == 2


def test_a_decision_is_not_reported_without_its_statement(home, released, capsys):
    move_release(home, released.id, "approved", "officer", "read")
    statement = home.release(released.id) / "public" / "approved.dsse.json"
    statement.unlink()
    assert any(f"{statement}: is missing" in finding for finding in findings(home))
    assert run(["report", released.id, "--json"]) == 2
    assert "review countersign" in capsys.readouterr().err
    assert run(["review", "countersign", released.id]) == 0
    assert run(["report", released.id, "--json"]) == 0
    assert '"statement": "approved.dsse.json"' in capsys.readouterr().out
    assert findings(home) == []


def test_a_list_of_files_names_no_part_that_a_kill_left_of_it(home, released, monkeypatch):
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(Path, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        write_kept(home, released.id)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert len(list(home.release(released.id).glob(".*.part"))) == 1
    assert list(kept_findings(home, released.id, write_kept(home, released.id))) == []


def test_another_key_and_a_key_that_others_may_read_are_named(home):
    key = home.folder / "key"
    key.chmod(0o640)
    assert any(str(key) in finding and "640" in finding for finding in findings(home))
    assert findings(home) == []
    key.write_bytes(os.urandom(32))
    assert any(str(key) in finding for finding in findings(home))
    key.write_bytes(bytes(31))
    with pytest.raises(CloisterError, match="key"):
        findings(home)


def test_another_or_no_key_of_fingerprints_is_named(home, released):
    path = home.folder / "fingerprint.key"
    whole = path.read_bytes()
    path.unlink()
    (finding,) = findings(home)
    assert finding == f"{path}: is missing; restore it from a backup"
    home.fingerprint_key()  # made anew, and sound by itself
    (finding,) = findings(home)
    assert finding.startswith(f"{path}: is not the key under which release {released.id} was read")
    path.write_bytes(whole)
    assert findings(home) == []


def test_the_end_of_the_ledger_that_was_cut_off_after_an_approval_is_named(home, released):
    whole = Path(home.ledger).read_bytes()
    assert run(["review", "reject", released.id, "--by", "A. Officer", "--reason", "no"]) == 0
    for path in home.folder.glob("ledger.db*"):
        path.unlink()
    Path(home.ledger).write_bytes(whole)
    assert any("its end was cut off" in finding for finding in findings(home))


def test_a_damaged_database_is_named_or_refused(home):
    for path in (home.folder / "mlflow" / "mlflow.db", Path(home.ledger)):
        content = bytearray(path.read_bytes())
        content[4096:8192] = bytes(4096)
        path.write_bytes(content)
        try:
            assert any(path.name in finding or "ledger" in finding for finding in findings(home))
        except CloisterError as error:
            assert "damaged" in str(error)


def another_model(folder: Path) -> None:
    """Replace the released model by another sound one, such as that of a rejected release."""
    record = json.loads((folder / "model.json").read_text())
    record["rows"] += 1
    del record["digest"]
    written = partial(json.dumps, separators=(",", ":"), ensure_ascii=False)
    record["digest"] = hashlib.sha256(written(record).encode()).hexdigest()
    (folder / "model.json").write_text(written(record))


@pytest.fixture
def drawing(home, released, tmp_path, capsys):
    """Approve the release, then draw from it: exit code and what was said."""
    assert run(["review", "approve", released.id, "--by", "A. Officer", "--reason", "read it"]) == 0

    def draw() -> tuple[int, str]:
        capsys.readouterr()
        code = run(["sample", released.id, "--rows", "10", "--out", str(tmp_path / "more.parquet")])
        return code, capsys.readouterr().err

    return draw


def test_another_model_is_not_drawn_from_and_verify_names_it(home, released, drawing, tmp_path):
    """Nor does another manifest vouch for it."""
    another_model(home.release(released.id) / "model")
    code, said = drawing()
    assert code == 1 and "another model" in said
    assert not (tmp_path / "more.parquet").exists()
    assert any("is not the model that was released" in finding for finding in findings(home))
    public = home.release(released.id) / "public" / "manifest.json"
    content = json.loads(public.read_text())
    model = json.loads((home.release(released.id) / "model" / "model.json").read_text())
    content["lineage"]["model"] = model["digest"]
    del content["digest"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["digest"] = hashlib.sha256(text.encode()).hexdigest()
    public.write_text(json.dumps(content, indent=2) + "\n")
    code, said = drawing()
    assert code == 1 and "manifest.json is not the one that the ledger recorded" in said


def test_a_release_of_an_older_version_is_drawn_from_with_a_warning(drawing, monkeypatch, tmp_path):
    bound = cloister.flows.sampling.released_manifest

    def unbound(home, release):
        manifest = bound(home, release)
        return replace(manifest, lineage=replace(manifest.lineage, model=""))

    monkeypatch.setattr(cloister.flows.sampling, "released_manifest", unbound)
    code, said = drawing()
    assert code == 0 and "warning" in said and "older" not in said
    assert len(pd.read_parquet(tmp_path / "more.parquet")) == 10


def moved(release: str, *states: str) -> None:
    for state in states:
        words = ["review", state, release, "--by", "A. Officer", "--reason", "read it"]
        assert run(words) == 0


@pytest.mark.slow
def test_mlflow_draws_from_the_registered_model_of_an_approved_release_alone(home, released):
    (model,) = home.artifacts.glob("clubs/models/*/artifacts")
    asked = pd.DataFrame({"rows": [5], "seed": [1]})
    with pytest.raises(VerificationError, match=f"review approve {released.id}"):
        mlflow.pyfunc.load_model(str(model))
    moved(released.id, "approve")
    assert findings(home) == []
    with pytest.warns(UserWarning, match="by .*A. Officer"):
        assert len(mlflow.pyfunc.load_model(str(model)).predict(asked)) == 5
    another_model(model / "artifacts" / "model")
    with pytest.raises(VerificationError, match="another model"):
        mlflow.pyfunc.load_model(str(model))


def test_a_statement_beside_a_model_that_nobody_signed_is_named_and_set_right(home, released):
    moved(released.id, "approve", "publish")
    (model,) = home.artifacts.glob("clubs/models/*/artifacts/artifacts")
    statements = sorted(model.glob("*.dsse.json"))
    names = [path.name.partition(".")[0] for path in statements]
    assert names == ["approved", "candidate", "published"]
    flip(statements[0])
    (finding,) = findings(home)
    assert finding.startswith(f"{statements[0]}: is not what was signed")
    assert run(["review", "countersign", released.id]) == 0
    assert findings(home) == []


def test_what_the_registry_did_not_take_is_mirrored_by_the_next_move(
    home, released, monkeypatch, capsys
):
    store = Path(home.folder / "mlflow" / "mlflow.db")
    away = store.rename(store.with_suffix(".away"))
    store.mkdir()
    words = ["--by", "A. Officer", "--reason", "no"]
    assert run(["review", "reject", released.id, *words]) == 1
    said = capsys.readouterr().err
    assert f"{released.id} is rejected in the ledger, but not in the registry" in said
    assert f"cloister review countersign {released.id}" in said
    store.rmdir()
    away.rename(store)
    assert run(["review", "countersign", released.id]) == 0
    assert ModelRegistry.of(home).find(released.id).tags["release.state"] == "rejected"
    assert findings(home) == []


def test_what_was_not_recorded_is_neither_approved_nor_reported(home, released, capsys):
    whole = shutil.copytree(home.release(released.id) / "model", home.folder.parent / "model")
    another_model(home.release(released.id) / "model")
    assert run(["review", "approve", released.id, "--reason", "blind"]) == 1
    assert "is not the model that was released" in capsys.readouterr().err
    shutil.copytree(whole, home.release(released.id) / "model", dirs_exist_ok=True)
    path = home.release(released.id) / "public" / "certificate.yaml"
    text = path.read_text(encoding="utf-8")
    path.chmod(0o600)
    path.write_text(text.replace(released.id, "r-other00000"), encoding="utf-8")
    assert run(["report", released.id]) != 0
    said = capsys.readouterr()
    assert f"cloister verify {released.id}" in said.err
    assert "r-other00000" not in said.out


@pytest.mark.slow
def test_beside_a_running_release_nothing_is_amiss(place, prefect_server, monkeypatch):
    seen = []

    def verify(_event):
        if existing_ledger(place.home):
            seen.extend(findings(place.home))

    def copy_whole(*given, copy=cloister.tasks.release.publish.copy_whole):
        verify(None)
        copy(*given)

    monkeypatch.setattr(cloister.flows.cli.console, "_write_text", verify)
    monkeypatch.setattr(cloister.tasks.release.publish, "copy_whole", copy_whole)
    assert run(quick_release(place, "--out", str(place.folder / "out"))) == 0
    assert seen == []


@pytest.mark.slow
def test_a_copied_home_works_where_it_lies(home, released):
    old = released.place.home.folder
    before = files_of_mlflow(old)
    assert run(quick_release(released.place)) == 0
    assert files_of_mlflow(old) == before
    assert findings(home) == [] == list(open_to_others(home.folder))
    assert len(list(home.artifacts.glob("clubs/models/*/artifacts/MLmodel"))) == 2
    with closing(sqlite3.connect(home.folder / "mlflow" / "mlflow.db")) as store:
        places = "\n".join(store.iterdump())
    assert home.artifacts.as_uri() in places and str(old) not in places


def files_of_mlflow(folder: Path) -> set[Path]:
    return {path for path in (folder / "mlflow" / "artifacts").rglob("*") if path.is_file()}
