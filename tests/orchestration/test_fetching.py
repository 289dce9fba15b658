"""The public files of a release come back from the remote as the ledger recorded them, or not."""

import json
import os
import shutil
import signal
from dataclasses import replace

import pytest
from clubs import Place

from cloister.errors import InputError
from cloister.flows.cli.app import run
from cloister.privacy.certificate.certificate import read_certificate
from cloister.tasks.home.home import Home
from cloister.tasks.release.verify import verify_records
from cloister.tasks.stores.dvc_store import Versions, sent_files


def late_imports():
    global send_release
    from cloister.tasks.release.publish import send_release


FILES = (
    "synthetic.parquet",
    "synthetic.csv",
    "certificate.yaml",
    "certificate.html",
    "report.html",
    "schema.py",
    "schema.yaml",
)


@pytest.fixture(scope="module")
def copied(approved, tmp_path_factory):
    """The approved release, in a home of these tests."""
    place = Place(tmp_path_factory.mktemp("copied"))
    shutil.copytree(approved.place.home.folder, place.home.folder)
    return replace(approved, place=place)


@pytest.fixture
def own(copied, tmp_path, monkeypatch):
    """That release; what a test changes in its public folder and remote is put back."""
    home, public = copied.place.home, copied.folder / "public"
    monkeypatch.setenv("CLOISTER_HOME", str(home.folder))
    for name, folder in (("public", public), ("remote", home.folder / "dvc-remote")):
        shutil.copytree(folder, tmp_path / name)
    yield copied
    for name, folder in (("public", public), ("remote", home.folder / "dvc-remote")):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / name, folder)


@pytest.fixture
def home(released, tmp_path, monkeypatch) -> Home:
    """A copy of a home with one candidate, which a test may change."""
    shutil.copytree(released.place.home.folder, tmp_path / "home")
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    return Home.current()


def test_nothing_of_a_candidate_is_sent_or_fetched(home, released, tmp_path, capsys):
    assert not [path for path in (home.folder / "dvc-remote").rglob("*") if path.is_file()]
    assert verify_records(home, None)[1] == []
    with pytest.raises(InputError, match="sent once it is approved"):
        send_release(home, released.id)
    assert run(["fetch", released.id, "--out", str(tmp_path / "again")]) == 2
    assert "only approved ones are sent to the remote" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


@pytest.mark.slow
def test_a_candidate_that_an_earlier_version_sent_is_sound_and_fetched(home, released, tmp_path):
    public = home.release(released.id) / "public"
    artefacts = read_certificate(public).artefacts
    versions = Versions(home.versions, home.remote)
    versions.send(released.id, sent_files(["certificate.yaml", *artefacts], public))
    assert verify_records(home, None)[1] == []
    assert run(["fetch", released.id, "--out", str(tmp_path / "again")]) == 0


def test_an_approval_that_was_killed_before_it_sent_ends_when_repeated(home, released, tmp_path):
    approve = ["review", "approve", released.id, "--reason", "read"]
    pid = os.fork()
    if pid == 0:
        Versions.send = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        run(approve)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    (finding,) = verify_records(home, None)[1]
    assert f"cloister review approve {released.id} sends it again" in finding
    assert run(approve) == 0
    assert verify_records(home, None)[1] == []
    assert run(["fetch", released.id, "--out", str(tmp_path / "again")]) == 0


def test_what_dvc_checks_out_is_no_finding_unless_it_is_altered(approved, tmp_path, monkeypatch):
    """Commands of DVC that a person runs in the home stop no decision."""
    shutil.copytree(approved.place.home.folder, tmp_path / "home")
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    home = Home.current()
    pointers = home.versions / "releases" / approved.id
    before = {path.name for path in pointers.iterdir()}
    for command in ("pull", "checkout", "push", "commit"):
        Versions(home.versions, home.remote)._dvc((command,))
    pulled = {path.name for path in pointers.iterdir()} - before
    assert pulled >= {"synthetic.parquet", "certificate.yaml"}
    assert run(["verify", approved.id]) == 0
    assert run(["review", "publish", approved.id, "--reason", "read"]) == 0
    table = pointers / "synthetic.parquet"
    table.unlink()
    table.write_bytes(b"another table")
    finding = f"{table}: is not part of the release"
    assert verify_records(home, approved.id)[1] == [finding]
    table.unlink()
    table.symlink_to(approved.folder / "public" / "synthetic.parquet")
    assert verify_records(home, approved.id)[1] == [finding]


def test_lost_and_altered_files_are_restored_as_they_were(own, tmp_path):
    assert run(["fetch", "r-unknown"]) == 2
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
        "approved.dsse.json",
    }


@pytest.mark.slow
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


@pytest.mark.parametrize("content", [pytest.param(None, marks=pytest.mark.slow), b"another"])
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
