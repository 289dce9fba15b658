"""What a run of pytest makes once, whichever of its workers needs it first."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]
) -> tuple[Path, Any]:
    """A folder, and what ``make`` said (as JSON) when it filled it; tests only read them."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, said = shared / name, shared / f"{name}.json"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            folder.mkdir()
            said.write_text(json.dumps(make(folder)), encoding="utf-8")
    return folder, json.loads(said.read_text(encoding="utf-8"))


def copy_of(folder: Path, to: Path) -> Path:
    """A copy of a home that another worker may read: SQLite's files of readers may go meanwhile."""

    def copy(source: str, target: str) -> None:
        try:
            shutil.copy2(source, target)
        except FileNotFoundError:
            if not source.endswith(("-shm", "-wal")):
                raise

    shutil.copytree(folder, to, copy_function=copy)
    return to
