"""What tests of the command line share: commands, and a home that a test may change."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from once import copy_of

from cloister.flows.cli.app import run
from cloister.tasks.home.home import Home


@pytest.fixture
def cloister(capsys):
    """Run a command; its JSON."""

    def command(*words: object):
        capsys.readouterr()
        code = run([*map(str, words), "--json"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    return command


@pytest.fixture
def own(released, tmp_path, monkeypatch):
    """A copy of the release that a test may change."""
    home = copy_of(released.place.home.folder, tmp_path / "home")
    monkeypatch.setenv("CLOISTER_HOME", str(home))
    shutil.copytree(released.out, tmp_path / "out")
    return tmp_path


@pytest.fixture
def home(released, tmp_path, monkeypatch) -> Home:
    """A copy of a home with one candidate, which a test may change."""
    copy_of(released.place.home.folder, tmp_path / "home")
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    return Home.current()


@pytest.fixture
def approved_home(approved, tmp_path, monkeypatch) -> Home:
    """A copy of a home with one approved release, which a test may change."""
    copy_of(approved.place.home.folder, tmp_path / "home")
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    return Home.current()


@pytest.fixture
def other_data(released, tmp_path, monkeypatch) -> None:
    """The data was replaced since the release read it."""
    from cloister.tasks.data.sources import TablesSource

    path, read = tmp_path / "other.csv", TablesSource.read_again
    path.write_text("".join(released.place.data.read_text().splitlines(keepends=True)[:-1]))
    monkeypatch.setattr(
        TablesSource,
        "read_again",
        lambda source, release, request, home: read(
            source, release, request.filled(data=str(path)), home
        ),
    )


@pytest.fixture
def out(place) -> Path:
    return place.folder / "out"


@pytest.fixture
def untouched(place) -> Iterator[None]:
    """Refused from public inputs alone: no home exists, so nothing was opened, written or spent."""
    yield
    assert not place.home.folder.exists()
