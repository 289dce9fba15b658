"""The Prefect server of a run: it answers, or the run is refused soon.

A temporary one ends with the run, however.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from quick_release import quick_release

from cloister.errors import InputError, StorageError
from cloister.flows.cli.app import run
from cloister.tasks.home.home import Home


@pytest.fixture(scope="module", autouse=True)
def late_imports():
    global \
        PREFECT_API_URL, \
        PREFECT_CLIENT_MAX_RETRIES, \
        answering, \
        require_answer, \
        temporary_settings
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
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen(8)
        yield f"http://127.0.0.1:{held.getsockname()[1]}/api"


@pytest.fixture
def refusing() -> Iterator[str]:
    """The URL of a port that takes no connection."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/api"


@pytest.mark.parametrize(
    "kind", ["silent", "refusing", "http://", "no url", "http://nobody.invalid/api"]
)
def test_a_server_that_does_not_answer_is_an_error_soon(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloister.tasks.stores.prefect_server._BUSY", 0.5)
    url = request.getfixturevalue(kind) if kind in ("silent", "refusing") else kind
    before = time.monotonic()
    with pytest.raises(InputError, match="PREFECT_API_URL"):
        require_answer(url)
    assert time.monotonic() - before < 20


def test_the_error_shows_no_password(refusing: str) -> None:
    with pytest.raises(InputError) as caught:
        require_answer(refusing.replace("http://", "http://me:secret@"))
    assert "secret" not in str(caught.value)


@pytest.mark.slow
def test_a_release_against_nobody_is_refused_and_charged_nothing(place, silent: str) -> None:
    """In a process of its own, since the session's has a server."""
    words = ["release", str(place.spec), "--evaluate", "none"]
    done = subprocess.run(
        [sys.executable, "-c", f"from cloister.flows.cli.app import main; main({words!r})"],
        env=_environment(place.home) | {"PREFECT_API_URL": silent},
        capture_output=True,
        text=True,
        timeout=UP,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: no Prefect server answers at http://127.0.0.1")
    assert not (place.home.folder / "ledger.db").exists()


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
        servers = _running(home)
        assert len(servers) == 2, "the run and its server"
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


@pytest.fixture
def failing() -> Iterator[Callable[[int], str]]:
    """Starts a server that is in health, and answers all else with an error; its URL."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path.endswith("/health") else self.server.status)
            self.end_headers()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *words: object) -> None:
            """Nothing."""

    def start(status: int) -> str:
        server.status = status
        return f"http://127.0.0.1:{server.server_port}/api"

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield start
        server.shutdown()


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
