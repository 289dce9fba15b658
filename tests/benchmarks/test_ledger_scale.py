"""CPU time of the ledger's commands with 10,000 releases, imports of the command included.

Run by .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_ledger_scale.py
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from large_ledger import write_releases
from ledger_requests import ask

from cloister.privacy.ledger import Ledger, State
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger

pytestmark = pytest.mark.benchmark

RELEASES = 10_000
# Runs of which the median counts.
REPEATS = 5
# CPU seconds above those of the same command on an empty ledger: imports differ by machine.
MOST = 1.0

COMMANDS = (
    ("budget", "show"),
    ("budget", "show", "account-0"),
    ("budget", "history"),
    ("dataset", "list"),
    ("ledger", "list"),
    ("ledger", "list", "--unfinished"),
    ("ledger", "show", "r-0000000007"),
    ("review", "list"),
)


def home_in(folder: Path) -> Home:
    return Home.current({"CLOISTER_HOME": str(folder)})


def command_seconds(folder: Path, words: tuple[str, ...]) -> float:
    """CPU seconds, of user and system, of a command in its own process."""
    program = "from cloister.flows.cli.app import main; main()"
    environment = os.environ | {"CLOISTER_HOME": str(folder)}
    seconds = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", program, *words],
            env=environment,
            capture_output=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds)


def seconds_of(work: Callable[[], object], times: int = REPEATS) -> float:
    """CPU seconds of work in this process."""
    seconds = []
    for _ in range(times):
        begun = time.process_time()
        work()
        seconds.append(time.process_time() - begun)
    return statistics.median(seconds)


def charge(ledger: Ledger) -> None:
    """What a release asks of the ledger, in a window that has room for it."""
    release = ledger.reserve(ask("account-0", "1/10"), "engineer").release.id
    ledger.spend(release, "engineer", "journal", "data")
    ledger.advance(release, State.CANDIDATE, "engineer", "the run ended")
    ledger.advance(release, State.APPROVED, "officer", "fine")


def test_commands_of_a_large_ledger(record: Callable[..., None], tmp_path: Path) -> None:
    empty, large = tmp_path / "empty", tmp_path / "large"
    open_ledger(home_in(empty))
    ledger = open_ledger(home_in(large))
    write_releases(ledger, RELEASES)
    lines, slower = [], []
    for words in COMMANDS:
        floor, whole = command_seconds(empty, words), command_seconds(large, words)
        lines.append((f"`cloister {' '.join(words)}`", f"{floor:.2f}", f"{whole:.2f}"))
        slower.append(whole - floor)
    one = seconds_of(lambda: charge(ledger))
    all_read = seconds_of(lambda: charge(replace(ledger, checkpoints=None)), 1)
    verified = seconds_of(lambda: None if ledger.verify() == [] else pytest.fail("unsound"), 1)
    lines += [
        ("reserve, spend, candidate, approve", "", f"{one:.2f}"),
        ("the same without a checkpoint", "", f"{all_read:.2f}"),
        ("`Ledger.verify`", "", f"{verified:.2f}"),
    ]
    record(
        "ledger",
        f"CPU seconds of commands on a ledger of {RELEASES:,} releases, and on an empty one",
        ("command", "empty", f"{RELEASES:,} releases"),
        lines,
    )
    assert max(*slower, one) < MOST
