"""A new tracking store, made by several processes at once, or by one that is killed."""

import inspect
import multiprocessing
import os
import signal
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Engine, event


def late_imports():
    global Tracker, mlflow_database
    from cloister.tasks.stores import mlflow_database
    from cloister.tasks.stores.mlflow_store import Tracker


def opened(home: Path):
    return Tracker.open(f"sqlite:///{home / 'mlflow' / 'mlflow.db'}", home / "mlflow" / "artifacts")


@pytest.mark.slow
def test_processes_at_once_share_a_new_store(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_release, args=(tmp_path, f"r-{n}")) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    with sqlite3.connect(tmp_path / "mlflow" / "mlflow.db") as store:
        finished = store.execute("select count(*) from runs where status = 'FINISHED'")
        assert finished.fetchone() == (4,)


def _release(home: Path, release: str) -> None:
    late_imports()  # a process of its own has none
    tracker = opened(home)
    run = tracker.begin(release, "small", "kamino")
    with tracker.stage(run, "train"):
        pass
    tracker.finish(run, succeeded=True)


@pytest.mark.parametrize("statement", [40])
def test_a_store_whose_making_was_killed_is_made_by_the_next(tmp_path, monkeypatch, statement: int):
    monkeypatch.setattr(mlflow_database, "_make", inspect.unwrap(mlflow_database._make))
    path = tmp_path / "mlflow.db"
    pid = os.fork()
    if pid == 0:
        _kill_at(statement)
        Tracker.open(f"sqlite:///{path}", tmp_path / "artifacts")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert not path.exists()
    tracker = Tracker.open(f"sqlite:///{path}", tmp_path / "artifacts")
    assert tracker.begin("r-1", "people", "kamino")
    left = {each.name for each in tmp_path.iterdir() if each.is_file()}
    assert left == {"mlflow.db", "mlflow.db.lock"}


def _kill_at(statement: int) -> None:
    """Kill this process at a statement of any database."""
    left = iter(range(statement))
    event.listen(
        Engine,
        "before_cursor_execute",
        lambda *_: next(left, None) is None and os.kill(os.getpid(), signal.SIGKILL),
    )
