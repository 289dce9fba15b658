"""A scheduled release, from a real server's scheduler to the ledger: nothing here makes a run.

It takes about two minutes, since a schedule is at most each minute. The libraries of the server
decide whether it schedules: run this file alone against new ones.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from cloister.tasks.ledger.access import existing_ledger, releases

ROOT = Path(__file__).parents[2]
# Seconds in which a server must be up, its database made first, on a machine that is busy.
UP = 240
# Seconds in which a run must have come and ended: a minute until it is due, and a release on a
# machine that is busy.
RELEASED = 300
PASSWORD = "cloister:password of a test"


@pytest.fixture
def servers(place) -> Iterator[dict[str, str]]:
    """The settings of a Prefect server of its own, started as operators start it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = _environment() | {
        "CLOISTER_HOME": str(place.home.folder),
        "PREFECT_HOME": str(place.folder / "server"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_API_AUTH_STRING": PASSWORD,
        "PREFECT_SERVER_API_AUTH_STRING": PASSWORD,
    }
    command = ["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with _running(command, settings, place.folder / "server.log"):
        _wait(lambda: _answers(settings), UP, "the server does not start", place.folder)
        yield settings


@pytest.mark.slow
def test_what_the_scheduler_makes_is_released(place, servers):
    schedule = ["--cron", "* * * * *", "--method", "independent", "--delta", "0"]
    deploy = ["deploy", str(place.spec), *schedule, "--evaluate", "none"]
    subprocess.run([sys.executable, "-c", _command(deploy)], env=servers, check=True)
    with _running(["-c", _command(["serve"])], servers, place.folder / "serve.log"):
        _wait(lambda: _completed(servers), RELEASED, "no run was completed", place.folder)
    run = _completed(servers)[0]
    assert run["auto_scheduled"] and run["created_by"]["type"] == "SCHEDULE"
    assert run["id"] in _released_by(place)
    assert existing_ledger(place.home).budget("clubs", "row").spent >= 1


def _released_by(place) -> set[str]:
    """The runs that made the releases of the ledger, as their manifests name them."""
    public = [place.home.release(held.id) / "public" for held in releases(place.home, "clubs")]
    manifests = [folder / "manifest.json" for folder in public]
    return {
        json.loads(path.read_text())["lineage"]["prefect_run"]
        for path in manifests
        if path.exists()
    }


def _completed(settings: dict[str, str]) -> list[dict]:
    """The runs that ended well, as the server tells of them."""
    found = httpx.post(
        f"{settings['PREFECT_API_URL']}/flow_runs/filter",
        json={"flow_runs": {"state": {"type": {"any_": ["COMPLETED"]}}}},
        auth=tuple(PASSWORD.split(":")),
        timeout=60,
    )
    return found.raise_for_status().json()


def _answers(settings: dict[str, str]) -> bool:
    try:
        return httpx.get(f"{settings['PREFECT_API_URL']}/health", timeout=60).is_success
    except httpx.TransportError:
        return False


def _wait(done, seconds: int, failure: str, folder: Path) -> None:
    """Until something is so; else what the processes said."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            said = [f"{path.name}:\n{path.read_text()[-4000:]}" for path in folder.glob("*.log")]
            pytest.fail("\n".join((failure, *said)))
        time.sleep(1)


@contextmanager
def _running(command: list[str], settings: dict[str, str], log: Path) -> Iterator[None]:
    """A process of Python, ended with all that it started."""
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, *command], env=settings, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def _command(words: list[str]) -> str:
    return f"from cloister.flows.cli.app import main; main({words!r})"


def _environment() -> dict[str, str]:
    """That of the tests without their settings of Prefect, of which one is that nothing is due."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT", "CLOISTER"))
    }
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return kept | {"PYTHONPATH": path, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
