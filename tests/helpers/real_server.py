"""A real Prefect server with its own scheduler, started as operators start it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
# Seconds in which a server must be up, its database made first, on a machine that is busy.
UP = 240
PASSWORD = "cloister:password of a test"


@contextmanager
def real_server(folder: Path, more: dict[str, str]) -> Iterator[dict[str, str]]:
    """The settings of a server of its own, and those of its commands; its files are in a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = environment() | {
        "PREFECT_HOME": str(folder / "server"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_API_AUTH_STRING": PASSWORD,
        "PREFECT_SERVER_API_AUTH_STRING": PASSWORD,
    }
    settings |= more
    words = ["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with running(words, settings, folder / "server.log"):
        wait(lambda: answers(settings), UP, "the server does not start", folder)
        yield settings


def listed(settings: dict[str, str], what: str, filters: dict) -> list[dict]:
    """What the server has of one kind."""
    answer = httpx.post(
        f"{settings['PREFECT_API_URL']}/{what}/filter",
        json=filters,
        auth=tuple(PASSWORD.split(":")),
        timeout=60,
    )
    return answer.raise_for_status().json()


def answers(settings: dict[str, str]) -> bool:
    """Whether the server is up."""
    try:
        return httpx.get(f"{settings['PREFECT_API_URL']}/health", timeout=60).is_success
    except httpx.TransportError:
        return False


def wait(done: Callable[[], object], seconds: int, failure: str, folder: Path) -> None:
    """Until something is so; else what the processes said."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            said = [f"{path.name}:\n{path.read_text()[-4000:]}" for path in folder.glob("*.log")]
            pytest.fail("\n".join((failure, *said)))
        time.sleep(1)


@contextmanager
def running(
    command: list[str], settings: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Python, ended with all that it started."""
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, *command], env=settings, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)


def command(words: list[str]) -> str:
    """The program that runs a command of Cloister."""
    return f"from cloister.flows.cli.app import main; main({words!r})"


def environment() -> dict[str, str]:
    """That of the tests without their settings of Prefect, of which one is that nothing is due."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT", "CLOISTER"))
    }
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return variables | {"PYTHONPATH": path, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
