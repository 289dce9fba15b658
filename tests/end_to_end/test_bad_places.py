"""Places that cannot be written, and disks that fill up: one clear error, nothing half written."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from quick_release import quick_release
from small_disks import small_disk

from cloister.flows.cli.app import run
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger


def late_imports():
    global Tracker
    from cloister.tasks.stores.mlflow_store import Tracker


def refused_place(place, out: Path, capsys) -> str:
    """What a release says that must be refused because of its --out.

    Nothing lies there afterwards.
    """
    assert run(["release", str(place.spec), "--out", str(out)]) == 2
    assert not place.home.folder.exists()
    return capsys.readouterr().err


@pytest.mark.parametrize("target", ["folder", "nowhere"])
def test_output_folder_that_is_a_link(place, out, capsys, target):
    (place.folder / "folder").mkdir()
    out.symlink_to(place.folder / target)
    assert "is a link" in refused_place(place, out, capsys)
    assert out.is_symlink()


def test_output_folder_that_is_a_mount_point(place, tiny_disk, capsys):
    assert "is a mount point" in refused_place(place, tiny_disk, capsys)


@pytest.mark.parametrize(
    "name", ["home", "home/releases/mine", "x" * 256, "clubs.csv/out", "x/" * 3000]
)
def test_output_folder_that_cannot_be(place, capsys, name):
    assert "give" in refused_place(place, place.folder / name, capsys)


def test_output_folder_that_is_the_working_directory_or_taken(place, out, capsys, monkeypatch):
    out.mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(out)
        assert "working directory" in refused_place(place, out, capsys)
    (out / "thesis.txt").write_text("mine")
    assert "is not empty" in refused_place(place, out, capsys)
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["what?", "100%", "it's", "a\nb", os.fsdecode(b"\xff")])
def test_home_that_no_store_can_lie_in(place, monkeypatch, capsys, name):
    monkeypatch.setenv("CLOISTER_HOME", str(place.folder / name))
    assert run(["release", str(place.spec)]) == 2
    assert "CLOISTER_HOME" in capsys.readouterr().err
    assert not (place.folder / name).exists()


def test_remote_that_cannot_be_written(place, untouched, tiny_disk, monkeypatch, capsys):
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    monkeypatch.setenv("CLOISTER_REMOTE", str(tiny_disk / "remote"))
    assert run(["release", str(place.spec)]) == 2
    assert str(tiny_disk / "remote") in capsys.readouterr().err


def test_store_that_cannot_be_used(place, prefect_server, monkeypatch, capsys):
    """Found before the charge, though only a running release would write to it."""
    (place.folder / "mlflow.db").write_bytes(b"no database" * 1000)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place.folder / 'mlflow.db'}")
    assert run(["release", str(place.spec)]) == 2
    assert "MLFLOW_TRACKING_URI" in capsys.readouterr().err
    assert existing_ledger(place.home) is None


@pytest.fixture
def tiny_disk(tmp_path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", kilobytes=1024) as disk:
        yield disk


def test_full_disk_for_the_output_or_the_home(place, tiny_disk, monkeypatch, capsys):
    assert "make room" in refused_place(place, tiny_disk / "out", capsys)
    monkeypatch.setenv("CLOISTER_HOME", str(tiny_disk / "home"))
    assert run(["release", str(place.spec)]) == 2
    assert "make room" in capsys.readouterr().err
    assert list(tiny_disk.iterdir()) == []


@pytest.mark.slow
def test_disk_that_fills_up_while_the_release_runs(
    place, prefect_server, tiny_disk, monkeypatch, capsys
):
    """Nothing half is handed on; the same command, once there is room, is charged nothing more."""
    monkeypatch.setattr("cloister.tasks.home.files.require_room", lambda *_: None)
    (tiny_disk / "filler").write_bytes(b"0" * (1 << 20))
    out = tiny_disk / "out"
    assert run(["release", str(place.spec), "--out", str(out), "--evaluate", "none"]) == 2
    assert f"error: {out} cannot be written: the disk is full. Re" in capsys.readouterr().err
    assert [path.name for path in tiny_disk.iterdir()] == ["filler"]
    (tiny_disk / "filler").unlink()
    assert run(["release", str(place.spec), "--out", str(out), "--evaluate", "none"]) == 0
    ledger = existing_ledger(place.home)
    assert len(ledger.releases()) == 1
    assert ledger.budget("clubs", "row").spent == 1


def test_disk_of_the_home_that_is_full_when_a_release_is_registered(
    place, prefect_server, tiny_disk, monkeypatch, capsys
):
    resized(tiny_disk, 200)
    monkeypatch.setenv("CLOISTER_HOME", str(tiny_disk / "home"))
    filler = tiny_disk / "filler"

    def fill(*given, log_input=Tracker.log_input):
        filler.write_bytes(bytes(shutil.disk_usage(tiny_disk).free))
        log_input(*given)

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "log_input", fill)
        assert run(quick_release(place)) == 2
    (held,) = existing_ledger(Home.current()).releases()
    said = capsys.readouterr().err.partition("record failed\n")[2]  # and not tried again
    assert said == (
        f"error: {tiny_disk / 'home' / 'mlflow'} cannot be written: the disk is full. Release "
        f"{held.id} was charged (epsilon 1, delta 0); make room and run the same command, which "
        "finishes it at no further charge\n"
    )
    filler.unlink()
    assert run(quick_release(place)) == 0
    assert existing_ledger(Home.current()).budget("clubs", "row").spent == 1


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [1, 2, 3, 4, 6, 8, 12])
def test_disk_of_the_home_that_fills_up_at_any_stage(
    place, prefect_server, tiny_disk, monkeypatch, capsys, megabytes
):
    """The command fails in words; once there is room, it ends with one charge in all."""
    monkeypatch.setattr("cloister.tasks.home.files.require_room", lambda *_: None)
    monkeypatch.setenv("CLOISTER_HOME", str(tiny_disk / "home"))
    home = Home.current()
    resized(tiny_disk, megabytes)
    code = run(["release", str(place.spec), "--evaluate", "none"])
    assert code in (0, 1, 2)
    assert "unforeseen" not in capsys.readouterr().err
    resized(tiny_disk, 200)
    if code:
        assert run(["release", str(place.spec), "--evaluate", "none"]) == 0
    assert [release.state for release in existing_ledger(home).releases()][-1] == "candidate"
    assert existing_ledger(home).budget("clubs", "row").spent == 1


def resized(disk: Path, megabytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={megabytes}m", str(disk)], check=True)
