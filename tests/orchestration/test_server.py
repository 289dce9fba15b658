"""The Prefect server of a run: it answers, or the run is refused soon.

A temporary one ends with the run, however.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from listeners import silent_listener
from quick_release import quick_release

from cloister.errors import InputError, StorageError
from cloister.flows.cli.app import run
from cloister.tasks.home.home import Home


def late_imports():
    global PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, answering, require_answer
    global temporary_settings
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    from cloister.tasks.stores.prefect_server import answering, require_answer


ROOT = Path(__file__).parents[2]
# Seconds in which a server that was abandoned must be gone, on a machine that is busy.
GONE = 30
# Seconds in which a server must be up, its database made first, on a machine that is busy.
UP = 240

SERVE = """
import sys, time
from pathlib import Path
from cloister.tasks.home.home import Home
home = Home.current()
home.configure()
from cloister.tasks.stores.prefect_server import serving
with serving(home):
    print("up", flush=True)
    time.sleep(600)
"""

TWO_RELEASES = """
import asyncio, sys, cloister
def release(rows):
    fast = {"method": "independent", "delta": 0, "evaluate": "none"}
    print(cloister.release(sys.argv[1], rows=rows, **fast).id)
async def in_a_notebook():
    release(201)
release(200)
asyncio.run(in_a_notebook())
"""


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a socket that takes connections and never says a word."""
    with silent_listener() as port:
        yield f"http://127.0.0.1:{port}/api"


@pytest.fixture
def refusing() -> Iterator[str]:
    """The URL of a port that takes no connection."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/api"


@pytest.mark.parametrize(
    "kind", ["silent", "refusing", "http://", "no url", "http://nobody.invalid/api"]
)
def test_a_server_that_does_not_answer_is_an_error_without_its_password(kind, request, monkeypatch):
    monkeypatch.setattr("cloister.tasks.stores.prefect_server._BUSY", 0.5)
    url = request.getfixturevalue(kind) if kind in ("silent", "refusing") else kind
    with pytest.raises(InputError, match="PREFECT_API_URL") as caught:
        require_answer(url.replace("http://127", "http://me:secret@127"))
    assert "secret" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_no_server(tmp_path: Path, way: signal.Signals) -> None:
    home = Home.current({"CLOISTER_HOME": str(tmp_path / "home")})
    if (
        way is not signal.SIGKILL
    ):  # a start that was interrupted: what it left of a database is no hindrance
        (home.folder / "prefect").mkdir(parents=True)
        (home.folder / "prefect" / "prefect.db").write_bytes(b"half")
        (home.folder / "prefect" / "unfinished").touch()
    started = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        env=_environment(home),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert started.stdout and started.stdout.readline() == b"up\n"
        assert len(_running(home)) == 2, "the run and its server"
        started.send_signal(way)
        started.wait(timeout=GONE)
        deadline = time.monotonic() + GONE
        while _running(home) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert _running(home) == []
    finally:
        for left in _running(home):
            os.kill(left, signal.SIGKILL)
        started.wait()


@pytest.mark.parametrize(
    ("status", "told"),
    [(503, "answered with error 503"), (500, "same command again"), (401, "AUTH_STRING")],
)
def test_a_server_that_answers_with_an_error_is_named(place, failing, capsys, status, told):
    nowhere = {PREFECT_API_URL: failing(status), PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(nowhere):
        assert run(quick_release(place)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the Prefect server") and told in line


@pytest.mark.slow
def test_a_process_may_make_a_second_release(place) -> None:
    """Each starts a server of its own, and each server gets all events before it ends."""
    done = subprocess.run(
        [sys.executable, "-c", TWO_RELEASES, str(place.spec)],
        env=_environment(place.home),
        capture_output=True,
        text=True,
        timeout=UP * 2,
    )
    assert done.returncode == 0 and len(set(done.stdout.split())) == 2, done.stderr
    progress = re.compile(r"\d\d:\d\d:\d\d \w+ (started|finished|\d+ of \d+|\d+ s)")
    assert [line for line in done.stderr.splitlines() if not progress.fullmatch(line)] == []


def _environment(home: Home) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT", "CLOISTER"))
    }
    return kept | {"PYTHONPATH": str(ROOT), "CLOISTER_HOME": str(home.folder)}


def _running(home: Home) -> list[int]:
    """The processes that were started with this home."""
    sign = f"CLOISTER_HOME={home.folder}".encode()
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and sign in _settings(entry)
    ]


def _settings(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def test_a_server_that_is_lost_while_a_flow_runs_is_named():
    with pytest.raises(StorageError, match="same command again"), answering():
        httpx.get("http://127.0.0.1:9/api")
