"""Temporary files lie in the home and go with the work, or with the next if it was killed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cloister.tasks.home.home import Home, temporary_files
from cloister.tasks.release.preflight import require_usable
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.current({"CLOISTER_HOME": str(tmp_path / "home")})


def test_files_of_libraries_and_children_go_with_the_work(home):
    before = tempfile.gettempdir()
    with temporary_files(home):
        folder = Path(tempfile.mkdtemp())
        command = [sys.executable, "-c", "import tempfile; print(tempfile.mkdtemp())"]
        child = Path(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        )
        assert (home.folder / "tmp") in folder.parents
        assert (home.folder / "tmp") in child.parents
        assert folder.parent.stat().st_mode & 0o077 == 0
    assert list((home.folder / "tmp").iterdir()) == []
    assert tempfile.gettempdir() == before


def test_what_a_killed_process_left_is_removed_and_what_a_running_one_keeps_stays(home):
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    left, running = (
        home.folder / "tmp" / f"{pid}.ab" for pid in (ended.stdout.strip(), os.getppid())
    )
    for folder in (left, running):
        (folder / "inside").mkdir(parents=True)
    with temporary_files(home):
        assert not left.exists()
    assert (running / "inside").is_dir()


def test_the_checks_before_the_charge_make_none(place, monkeypatch):
    """What a kill leaves in the system's folder, the next command does not remove."""
    request = resolve(ReleaseRequest(spec=place.spec))
    context = public_context_of(request)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *_, **__: pytest.fail("a folder was made"))
    require_usable(request, context, place.home)
