"""A ledger on each database, and child processes that can be killed."""

import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from nursery import Nursery
from postgres_schemas import schema

TINY_ROWS = 300
TINY = """
name: NAME
source: {path: DATA}
privacy: {unit: row, relation: add_remove, rows: {public: 300},
  budget: {epsilon: 4, delta: 1e-4, per: ever}}
attributes:
  region: {type: categorical, values: [north, south, east], provenance: map}
  capital: {type: categorical, values: [N, S, E], provenance: map}
  age: {type: integer, min: 18, max: 80, bins: 8, provenance: PROVENANCE}
  member: {type: boolean, provenance: form}
constraints:
  - {name: region-capital, fd: "region -> capital"}
  - {name: young, deny: "t.age < 25 and t.member = true", soft: true}
release: {method: independent, epsilon: 1, delta: 1e-6}
"""


@pytest.fixture
def postgres_schemas() -> Callable[[], AbstractContextManager[str]]:
    """Makes empty schemas on the test server."""
    return schema


@pytest.fixture
def postgres_place() -> Iterator[str]:
    """The URL of an empty schema on the test server."""
    with schema() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger can be, on either database: see two_databases.py."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state/ledger.db"
    return str(request.getfixturevalue("postgres_place"))


@pytest.fixture
def child() -> Iterator[Callable[[Callable[[], int]], int]]:
    """Starts a function in a forked process that ends with what it returns.

    Leftovers are killed.
    """
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


@pytest.fixture(scope="session")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Runs commands in children of one process that has imported everything.

    Its home is `home` in its folder.
    """
    started = Nursery(tmp_path_factory.mktemp("nursery"))
    yield started
    started.close()


def end_with(run: Callable[[], int]) -> None:
    """Run and end the process, without the test runner's clean-up.

    Garbage of the process that was forked is left alone: some belongs to its threads, which a fork
    does not copy.
    """
    gc.freeze()
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


@dataclass
class Preloaded:
    """Commands in forks of a process that has imported everything, one fork at a time.

    See preloaded.py.
    """

    process: subprocess.Popen[bytes]

    def start(
        self, commands: Sequence[Sequence[object]], environment: Mapping[str, str], folder: Path
    ) -> int:
        """Start commands; the process that runs them, which leads a session of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        asked = [[str(word) for word in words] for words in commands]
        line = json.dumps(
            {"commands": asked, "environment": dict(environment), "folder": str(folder)}
        )
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(line.encode() + b"\n")
        return int(self.process.stdout.readline())

    def ended(self, seconds: float) -> int | None:
        """How the fork ended, as soon as it has; None if it runs on after so long."""
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        return int(self.process.stdout.readline())


@pytest.fixture(scope="session")
def preloaded(prefect_server, tmp_path_factory) -> Iterator[Preloaded]:
    """Runs commands at the cost of what they do; their flows use the server of the session."""
    from prefect.settings import PREFECT_API_URL

    folder = tmp_path_factory.mktemp("preloaded")
    (folder / "prefect").mkdir()
    own = {
        "CLOISTER_HOME": str(folder),
        "PREFECT_HOME": str(folder / "prefect"),
        "OMP_NUM_THREADS": "1",
    }
    environment = os.environ | own | {"PREFECT_API_URL": str(PREFECT_API_URL.value())}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("preloaded.py"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, bufsize=0, env=environment, stdin=pipe, stdout=pipe) as process:
        yield Preloaded(process)


@pytest.fixture(scope="session")
def write_world() -> Callable[..., Path]:
    """Writes a tiny table and its spec, with a bound to measure or none."""

    def write(folder: Path, name: str, measured: bool = False) -> Path:
        rng = np.random.default_rng(len(name))
        region = rng.integers(0, 3, TINY_ROWS)
        columns = {
            "region": np.array(["north", "south", "east"])[region],
            "capital": np.array(["N", "S", "E"])[region],
            "age": rng.integers(18, 80, TINY_ROWS),
            "member": rng.random(TINY_ROWS) < 0.4,
        }
        pd.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)
        provenance = "data-derived" if measured else "form"
        text = TINY.replace("NAME", name).replace("DATA", str(folder / f"{name}.csv"))
        (folder / f"{name}.yaml").write_text(
            text.replace("PROVENANCE", provenance), encoding="utf-8"
        )
        return folder / f"{name}.yaml"

    return write
