"""The public files of a release come back from the remote as the ledger recorded them, or not."""

import json
import os
import shutil
import signal

import pytest

from cloister.flows.cli.app import run
from cloister.tasks.release.verify import verify_records
from cloister.tasks.stores.dvc_store import Versions

FILES = (
    "synthetic.parquet",
    "synthetic.csv",
    "certificate.yaml",
    "certificate.html",
    "schema.py",
    "schema.yaml",
)


@pytest.fixture
def own(released, tmp_path, monkeypatch):
    """The home of the release; what a test changes in its public folder and remote is put back."""
    home, public = released.place.home, released.folder / "public"
    monkeypatch.setenv("CLOISTER_HOME", str(home.folder))
    for name, folder in (("public", public), ("remote", home.folder / "dvc-remote")):
        shutil.copytree(folder, tmp_path / name)
    yield released
    for name, folder in (("public", public), ("remote", home.folder / "dvc-remote")):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / name, folder)


def test_lost_and_altered_files_are_restored_as_they_were(own, tmp_path):
    public = own.folder / "public"
    for name in FILES[:2]:
        (public / name).unlink()
    for name in FILES[2:]:
        (public / name).write_text("altered")
    assert verify_records(own.place.home, own.id)[1]
    assert run(["fetch", own.id]) == 0
    for name in FILES:
        assert (public / name).read_bytes() == (tmp_path / "public" / name).read_bytes()
    assert verify_records(own.place.home, None)[1] == []


def test_a_new_folder_is_one_that_verifies(own, tmp_path, capsys):
    again = tmp_path / "again"
    assert run(["fetch", own.id, "--out", str(again), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["public"] == str(again)
    assert verify_records(own.place.home, str(again))[1] == []
    assert {path.name for path in again.iterdir()} == {
        *FILES,
        "manifest.json",
        "candidate.dsse.json",
    }


def test_what_a_killed_fetch_left_goes(own, tmp_path):
    home = own.place.home.folder
    before = {path.name for path in home.iterdir()}
    pid = os.fork()
    if pid == 0:
        Versions.fetch = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        run(["fetch", own.id, "--out", str(tmp_path / "again")])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert run(["fetch", own.id, "--out", str(tmp_path / "again")]) == 0
    assert {path.name for path in home.iterdir()} == before
    assert list((home / "tmp").iterdir()) == []


@pytest.mark.parametrize("content", [None, b"another"])
def test_a_remote_that_lost_or_altered_the_files_restores_nothing(own, capsys, content):
    public = own.folder / "public"
    (public / "synthetic.parquet").unlink()
    objects = [path for path in (own.place.home.folder / "dvc-remote").rglob("*") if path.is_file()]
    for path in objects:
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    (public / "certificate.yaml").write_text("altered")
    assert run(["fetch", own.id]) != 0
    assert ("DVC cannot get" if content is None else "certificate.yaml") in capsys.readouterr().err
    assert not (public / "synthetic.parquet").exists()
    assert (public / "certificate.yaml").read_text() == "altered"


def test_an_unknown_release_is_refused(own, capsys):
    assert run(["fetch", "r-unknown"]) == 2
    assert "r-unknown" in capsys.readouterr().err
