"""A ledger on each database, and child processes that can be killed."""

import os
import signal
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from cloister.privacy.ledger import Request

POSTGRES = os.environ.get("CLOISTER_TEST_POSTGRES", "postgresql+psycopg://postgres@127.0.0.1:5432/test")


def connect_to_postgres() -> psycopg.Connection:
    """A connection to the test server; without one the test is skipped, in CI it fails."""
    url = make_url(POSTGRES).set(drivername="postgresql")
    try:
        return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True, connect_timeout=5)
    except psycopg.OperationalError:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("no PostgreSQL server: set CLOISTER_TEST_POSTGRES")


@contextmanager
def schema() -> Iterator[str]:
    """The URL of an empty schema on the test server, removed afterwards."""
    name = f"cloister_{uuid.uuid4().hex}"
    with connect_to_postgres() as server:
        server.execute(f"CREATE SCHEMA {name}")
    try:
        url = make_url(POSTGRES).update_query_dict({"options": f"-csearch_path={name}"})
        yield url.render_as_string(hide_password=False)
    finally:
        with connect_to_postgres() as server:
            server.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def postgres_schemas() -> Callable[[], AbstractContextManager[str]]:
    """Makes empty schemas on the test server."""
    return schema


@pytest.fixture
def postgres_place() -> Iterator[str]:
    """The URL of an empty schema on the test server."""
    with schema() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger can be, on either database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state/ledger.db"
    return str(request.getfixturevalue("postgres_place"))


@pytest.fixture
def ask() -> Callable[..., Request]:
    """Makes requests: epsilon 1 on one dataset, each its own run unless it says otherwise."""
    ids = count()

    def make(**other: object) -> Request:
        values: dict[str, object] = {
            "dataset": "adult",
            "unit": "row",
            "relation": "add_remove",
            "epsilon": 1,
            "delta": 0,
            "events": {"type": "laplace"},
            "method": "kamino",
            "spec_digest": "ab" * 32,
            "code_version": "0.1.0",
            "spend_id": f"run-{os.getpid()}-{next(ids)}",
        }
        return Request(**(values | other))  # type: ignore[arg-type]

    return make


@pytest.fixture
def child() -> Iterator[Callable[[Callable[[], int]], int]]:
    """Starts a function in a forked process that ends with what it returns; leftovers are killed."""
    started: list[int] = []

    def start(run: Callable[[], int]) -> int:
        pid = os.fork()
        if pid == 0:
            end_with(run)
        started.append(pid)
        return pid

    yield start
    for pid in started:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.fixture
def ending() -> Callable[[int], int]:
    """Waits for a child: its exit code, or minus the signal that killed it."""

    def wait(pid: int) -> int:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        raise AssertionError("a process did not end within 120 seconds: a deadlock")

    return wait


def end_with(run: Callable[[], int]) -> None:
    """Run and end the process, without the test runner's clean-up."""
    code = 99
    try:
        code = run()
    finally:
        if code == 99:
            traceback.print_exc()
        os._exit(code)


def is_running(pid: int) -> bool:
    """Whether the child was not waited for yet."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False
