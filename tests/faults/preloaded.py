"""A program that has imported everything and forks for each command: starting Python costs seconds.

A line in is JSON: ``commands`` (lists of words, run one after the other), ``environment``,
``folder``. It answers with the id of the fork, and with its exit status once it has ended. What
command n says is in n.out and n.err of the folder, its exit code in n.code. A fork leads a session
of its own.
"""

import atexit
import gc
import importlib
import json
import os
import sys
import tempfile
import threading
from types import SimpleNamespace

import dvc.cli  # noqa: F401 - before the first fork
from dvc_forks import forked
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

import cloister.tasks.stores.dvc_store
from cloister.flows.cli.app import main

USED = (
    "hypothesis.strategies",
    "matplotlib.pyplot",
    "pandera.backends.pandas",
    "pandera.strategies.pandas_strategies",
    "prefect.engine",
    "cloister.flows.cli.review",
    "cloister.flows.measure",
    "cloister.flows.release",
    "cloister.flows.cli.plans",
    "cloister.flows.cli.reports",
    "cloister.flows.review",
    "cloister.flows.sampling",
    "cloister.tasks.stores.mlflow_registry",
    "cloister.tasks.stores.mlflow_store",
    "cloister.tasks.release.verify",
)


def carried_out(folder: str, number: int, words: list[str]) -> int:
    """The exit code of a command."""
    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.open(f"{folder}/{number}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    try:
        main(words)
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    sys.stdout.flush()
    with open(f"{folder}/{number}.code", "w") as file:
        file.write(str(code))
    return code


def child(asked: dict) -> int:
    """Carry out what was asked, in this process."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(asked["environment"])
    tempfile.tempdir = None
    folder, commands = asked["folder"], asked["commands"]
    return [carried_out(folder, number, words) for number, words in enumerate(commands)][-1]


def leave(code: int) -> None:
    """End as Python does, but for the memory: to give that back takes longer than most commands."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve() -> int:
    """Fork for each line; 0 when there are no more."""
    answers = os.dup(1)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            leave(child(json.loads(line)))
        os.write(answers, f"{pid}\n".encode())
        os.write(answers, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    return 0


if __name__ == "__main__":
    for name in USED:
        importlib.import_module(name)
    cloister.tasks.stores.dvc_store.subprocess = SimpleNamespace(run=forked)
    gc.freeze()  # or a collection in a fork copies all pages that it looks at
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):  # as in the session
        sys.exit(serve())
