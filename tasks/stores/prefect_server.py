"""The Prefect server of a run: the configured one, or a temporary one of this process.

The temporary server listens on the loopback interface alone, refuses requests without the password
of this process (:meth:`cloister.tasks.home.home.Home.configure`), and reads a pipe from this
process: however this process ends, the pipe closes and the server ends too.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import MappingProxyType

import httpx
from prefect.events.worker import EventsWorker
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    get_current_settings,
    temporary_settings,
)

from cloister.errors import InputError, StorageError
from cloister.schema.sources.files_and_urls import without_credentials
from cloister.tasks.home.files import exclusive
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import SELDOM

_PATIENCE = 5.0
"""Seconds that a server may take to accept a connection."""

_BUSY = 30.0
"""Seconds that one that accepted it may take to answer: on a busy machine five were too few."""

_STARTING = 180.0
"""Seconds that a temporary server may take to start; it first makes its database, which takes long
on a busy machine."""

_PAUSE = 0.1
"""Seconds between two checks of a server that starts."""

_ENDING = 5.0
"""Seconds that a temporary server may take to end before it is killed."""

_SENDING = 30.0
"""Seconds that a temporary server may take to receive the last events, on a busy machine."""

_REFUSED = (401, 403)
"""Status codes of a server that wants another password."""

_NOISY = ("prefect", "prefect._internal", "asyncio")
"""Loggers that write to the terminal what becomes of Prefect's background threads."""

_LOST = (
    "while the command ran; see to the server and run the same command again: what was charged is "
    "resumed"
)

_PROGRAM = f"""
import gc, os, runpy, threading
gc.set_threshold({SELDOM})
def follow():
    os.read(0, 1)
    os._exit(0)
threading.Thread(target=follow, daemon=True).start()
runpy.run_module("uvicorn", run_name="__main__", alter_sys=True)
"""
_FLAGS = MappingProxyType(
    {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
)


@contextmanager
def serving(home: Home) -> Iterator[None]:
    """Run flows inside against a server that answers.

    Raises:
        InputError: the configured server does not answer, or refuses the password.
        StorageError: no temporary server can be started in the home, or the server fails.
    """
    url = get_current_settings().api.url
    if url:
        require_answer(url)
        with answering(), quiet_logs():
            yield
        return
    home.prepare()
    with _temporary(home, _password()) as port:
        # nobody reads heartbeats here, and at its end a flow waits up to a second for their thread
        settings = {
            PREFECT_API_URL: f"http://127.0.0.1:{port}/api",
            PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
        }
        with temporary_settings(settings), answering(), _all_events_sent():
            yield


@contextmanager
def _all_events_sent() -> Iterator[None]:
    """Send all events before their server ends: Prefect would try each for seconds at exit.

    It would keep sending to the same address, so that the next server starts with a queue of its
    own. A thread waits, since a notebook has an event loop here.
    """
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)  # it warns that it sends
    try:
        yield
    finally:
        waiting = Thread(target=EventsWorker.drain_all, args=(_SENDING,), daemon=True)
        waiting.start()
        waiting.join()


@contextmanager
def answering() -> Iterator[None]:
    """Turn the loss of a server while flows run inside into a plain message.

    Raises:
        InputError: it refused the password.
        StorageError: it stopped answering, or answered that it cannot serve.
    """
    try:
        yield
    except (httpx.HTTPError, RuntimeError) as error:
        # what Prefect meets when it first asks for the version of a server is a RuntimeError
        cause = error.__cause__ if isinstance(error, RuntimeError) else error
        if isinstance(cause, httpx.HTTPStatusError):
            raise _failure(cause.response.status_code) from None
        if isinstance(cause, httpx.TransportError):
            raise StorageError(f"the Prefect server stopped answering {_LOST}") from None
        raise


def _failure(status: int) -> InputError:
    if status in _REFUSED:
        return InputError(
            "the Prefect server refuses this command; set PREFECT_API_AUTH_STRING to what the "
            "server was started with as PREFECT_SERVER_API_AUTH_STRING"
        )
    return StorageError(f"the Prefect server answered with error {status} {_LOST}")


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Keep Prefect's log of the runs inside off the terminal, where their command says it all.

    A server has it still. Prefect repeats each error of a run, with its traceback, and each event
    and line of a log that a server which died does not take.
    """
    logs = [logging.getLogger(name) for name in _NOISY]
    before = [(log.propagate, log.handlers) for log in logs]
    raising, logging.raiseExceptions = logging.raiseExceptions, False
    for log in logs:
        log.propagate, log.handlers = False, [logging.NullHandler()]
    try:
        yield
    finally:
        logging.raiseExceptions = raising
        for log, (propagate, handlers) in zip(logs, before, strict=True):
            log.propagate, log.handlers = propagate, handlers


def _password() -> str:
    """The password that :meth:`~cloister.tasks.home.home.Home.configure` made for this process.

    Raises:
        InputError: there is none, and without one a server would answer anyone.
    """
    password = get_current_settings().api.auth_string
    if not password:
        raise InputError(
            "a temporary Prefect server needs a password, and PREFECT_API_AUTH_STRING is empty; "
            "unset it"
        )
    return str(password.get_secret_value())


def require_answer(url: str) -> None:
    """Check that a Prefect server answers.

    Raises:
        InputError: it does not.
    """
    if not _answers(url):
        raise InputError(
            f"no Prefect server answers at {without_credentials(url)}; start it, correct "
            "PREFECT_API_URL, or unset it to have a temporary server"
        )


def _answers(url: str) -> bool:
    """Whether something at a URL reports that it is healthy, or wants a password first."""
    try:
        patience = httpx.Timeout(_PATIENCE, read=_BUSY)
        return httpx.get(f"{url}/health", timeout=patience).status_code in (200, *_REFUSED)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return False


@contextmanager
def _temporary(home: Home, secret: str) -> Iterator[int]:
    """A server of this process; the port it listens on."""
    folder = home.folder / "prefect"
    with _making(folder):
        port, server = _started(secret, folder)
    try:
        yield port
    finally:
        _end(server)


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    """Let one process at a time make the database.

    A database that another process left unfinished is replaced.
    """
    database, unfinished = folder / "prefect.db", folder / "unfinished"
    try:
        with exclusive(folder / "lock"):
            if unfinished.exists():
                for part in folder.glob("prefect.db*"):
                    part.unlink()
            if not database.exists():
                unfinished.touch(mode=0o600)
            yield
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(folder, os.strerror(error.errno or 0)) from None


def _started(secret: str, folder: Path) -> tuple[int, subprocess.Popen[bytes]]:
    port = _free_port()
    server = _launched(port, secret)
    deadline = time.monotonic() + _STARTING
    while time.monotonic() < deadline and server.poll() is None:
        if _listening(port) and _answers(f"http://127.0.0.1:{port}/api"):
            return port, server
        time.sleep(_PAUSE)
    _end(server)
    raise _unusable(folder, "it does not start")


def _listening(port: int) -> bool:
    """Whether a server takes connections: far cheaper to ask than for an answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), _PATIENCE):
            return True
    except OSError:
        return False


def _launched(port: int, secret: str) -> subprocess.Popen[bytes]:
    address = ("--host", "127.0.0.1", "--port", str(port))
    app = (
        "--factory",
        "prefect.server.api.server:create_app",
        "--log-level",
        "critical",
        "--lifespan",
        "on",
    )
    settings = get_current_settings().to_environment_variables(exclude_unset=True)
    environment = os.environ | settings | _FLAGS | {"PREFECT_SERVER_API_AUTH_STRING": secret}
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-c", _PROGRAM, *app, *address],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _end(server: subprocess.Popen[bytes]) -> None:
    """End a server, which closes its database first if it can."""
    server.terminate()
    try:
        server.wait(_ENDING)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if server.stdin:
        server.stdin.close()


def _unusable(folder: Path, reason: str) -> StorageError:
    return StorageError(
        f"no temporary Prefect server can be started in {folder} ({reason}); make room and check "
        "its permissions"
    )
