"""The nightly suite: a program that runs its parts, and the plugin of pytest that records them.

    python tests/helpers/nightly.py [--only PART] [--most N]

A part stops at its cap of minutes. Run again on the same commit, it goes on after the tests that
ended, and a part that ended is not run again; remove ``.nightly`` to begin anew. SIGINT and SIGTERM
stop all parts, with all that they started, as a cap does. The results go to docs/nightly.md, what
the tests said to ``.nightly/COMMIT/PART.log``. ``--most`` tries each part in small, with the first
N of its cases, and leaves the result beside the logs.
"""

import argparse
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULT = "docs/nightly.md"
KILLED = 60  # commands of a night, each killed up to three times, of COMMANDS that tests number
COMMANDS = 400
FLIPPED = 6  # batches of 25 changes, of BATCHES that tests number
BATCHES = 60
ROUNDS = 2  # of all examples of the default suite
AT_ONCE = 2  # parts, each of which mostly keeps one core busy
GRACE = 120.0  # seconds in which tests that are stopped may put away what they started
RAN = (0, 1, 5)  # exit codes of pytest: all passed, some failed, none left
STOP = threading.Event()  # set by a signal that ends the program

KILLS = "tests/faults/test_random_kills.py"
FLIPS = "tests/faults/test_flips.py"
MUTANTS = Path(__file__).with_name("mutants.py")
STORES = ("tracking", "tracking_processes", "versioning", "server", "deployments")

HEAD = """\
# Nightly suite

The last result of each part of `make nightly`, which writes this page.
"""


@dataclass(frozen=True)
class Part:
    """Commands that run one after the other, by name, until a cap of minutes."""

    name: str
    minutes: int
    commands: dict[str, list[str]]


def parts(commit: str, folder: Path, most: int | None) -> list[Part]:
    """The parts, of numbered cases the first so many."""
    slow = under_pytest("-m", "slow", f"--ignore={KILLS}", f"--ignore={FLIPS}", "tests")
    first = int(commit[:8], 16)  # each commit tries other cases
    rounds = range(first, first + min(most or ROUNDS, ROUNDS))
    few = ("--most", str(most)) if most else ()
    drawn = ("-m", "hypothesis and not slow and not benchmark", "--hypothesis-profile=nightly")
    killed = f"{KILLS}::test_a_killed_command_is_ended_by_the_same_command"
    flipped = f"{FLIPS}::test_every_change_is_found_or_refused_or_read_by_nothing"
    return [
        Part("slow", 360, {"slow": slow}),
        Part("mutants", 90, {"mutants": [sys.executable, str(MUTANTS), "--seconds", "150", *few]}),
        Part("kills", 90, {"kills": numbered(killed, first, most or KILLED, COMMANDS)}),
        Part("files", 60, {"files": numbered(flipped, first, most or FLIPPED, BATCHES)}),
        Part("newest", 90, dict(newest(folder / "newest"))),
        Part("audit", 70, {"twins": under_pytest("-m", "audit", "tests/audit"), "gate": attacks()}),
        Part(
            "examples",
            180,
            {
                f"seed {seed}": under_pytest(*drawn, f"--hypothesis-seed={seed}", "tests")
                for seed in rounds
            },
        ),
    ]


def under_pytest(*words: str, python: str = sys.executable) -> list[str]:
    return [python, "-m", "pytest", "-p", "nightly", *words]


def numbered(test: str, first: int, cases: int, of: int) -> list[str]:
    """Some cases of a test that has ``of``, from a first one on."""
    drawn = ((first + case) % of for case in range(cases))
    return under_pytest("-m", "slow or not slow", *(f"{test}[{case}]" for case in drawn))


def attacks() -> list[str]:
    return [str(Path(sys.executable).with_name("cloister")), "audit", "--minutes", "45"]


def newest(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The newest versions that pyproject.toml allows in a fresh environment, and what uses them."""
    python = str(folder / "bin/python")
    install = [python, "-m", "pip", "install", "--quiet"]
    yield "environment", [sys.executable, "-m", "venv", "--clear", str(folder)]
    yield "torch", [*install, "torch==2.13.0"]
    yield "install", [*install, "--editable", f"{ROOT}[dev]"]
    yield "versions", [python, "-m", "pip", "freeze"]
    every = ("-m", "slow or not slow")
    scheduler = "tests/orchestration/test_scheduler.py"
    yield "scheduler", under_pytest(*every, scheduler, python=python)
    stores = [f"tests/orchestration/test_{name}.py" for name in STORES]
    ledger = "tests/faults/test_ledger_databases.py"
    yield "stores", under_pytest(*every, *stores, ledger, python=python)
    yield "demo", [str(folder / "bin/cloister"), "demo"]


class Record:
    """What is known of a part: a line of JSON for each test, command and run that ended."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, kind: str, name: str, **known: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "name": name, **known}) + "\n")

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """The last line of each name."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        lines = map(json.loads, text.splitlines())
        return {line["name"]: line for line in lines if line["kind"] == kind}

    @property
    def ended(self) -> bool:
        """Whether nothing of the part is left to run."""
        return any(run["ended"] for run in self.of("run").values())

    @property
    def failures(self) -> list[str]:
        """The tests that failed, and the commands that could not run."""
        tests = [name for name, test in self.of("test").items() if test["outcome"] == "failed"]
        return tests + [name for name, command in self.of("command").items() if command["failed"]]


class Plugin:
    """Leaves out the tests that ended before, and records those that end."""

    def __init__(self, record: Record, command: str) -> None:
        self.record, self.command = record, command
        self.outcomes: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.record.add("collected", self.command, tests=len(items))
        before = self.record.of("test")
        items[:] = [item for item in items if self.name(item.nodeid) not in before]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = self.name(report.nodeid)
        if not report.passed:
            self.outcomes.setdefault(name, report.outcome)
        if report.when == "teardown":
            outcome = self.outcomes.get(name, "passed")
            self.record.add("test", name, outcome=outcome, figures=report.user_properties)

    def name(self, test: str) -> str:
        return f"{self.command}: {test}"


def pytest_configure(config: pytest.Config) -> None:
    """Record what the program runs."""
    record = Record(Path(os.environ["NIGHTLY_RECORD"]))
    config.pluginmanager.register(Plugin(record, os.environ["NIGHTLY_COMMAND"]))


def run(part: Part, record: Record) -> None:
    """Run what is left of a part; a command that fails, tests apart, ends it."""
    if STOP.is_set():
        return
    started, code = time.monotonic(), 0
    for name, command in part.commands.items():
        if name in record.of("command"):
            continue
        left = part.minutes * 60 - (time.monotonic() - started)
        code = ended(command, name, left, record) if left > 0 else None
        if code is None:
            break
        record.add(
            "command", name, code=code, failed=code not in (RAN if "-p" in command else (0,))
        )
        if record.of("command")[name]["failed"]:
            break
    minutes = (time.monotonic() - started) / 60
    record.add("run", str(dt.datetime.now(dt.UTC)), minutes=minutes, ended=code is not None)


def ended(command: Sequence[str], name: str, seconds: float, record: Record) -> int | None:
    """The exit code of a command; None if it was stopped, after so many seconds or by a signal."""
    with tempfile.TemporaryDirectory() as home, record.path.with_suffix(".log").open("ab") as log:
        variables = {
            "CI": "true",  # what is not there is a failure, not a skip
            "CLOISTER_HOME": f"{home}/home",
            "NIGHTLY_COMMAND": name,
            "NIGHTLY_RECORD": str(record.path),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}",
        }
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | variables,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        until = time.monotonic() + seconds
        while process.poll() is None:
            if STOP.wait(0.2) or time.monotonic() > until:
                stop(process)
                return None
        return process.returncode


def stop(leader: subprocess.Popen[bytes]) -> None:
    """Interrupt a process group, and kill what is left of it when its leader ended or the grace."""
    os.killpg(leader.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        leader.wait(GRACE)
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()


def result(before: str, commit: str, records: dict[str, Record]) -> str:
    """The page: a part that did not run at this commit stands as it stood before."""
    stood = dict(section.split("\n", 1) for section in before.split("\n## ")[1:])
    sections = {
        name: section(commit, record) if record.path.exists() else stood.get(name, "\nNot run.\n")
        for name, record in records.items()
    }
    return HEAD + "".join(f"\n## {name}\n{text.rstrip()}\n" for name, text in sections.items())


def section(commit: str, record: Record) -> str:
    """What came of a part."""
    outcomes = Counter(test["outcome"] for test in record.of("test").values())
    collected = sum(command["tests"] for command in record.of("collected").values())
    minutes = sum(each["minutes"] for each in record.of("run").values())
    state = "ended" if record.ended else "stopped"
    counts = ", ".join(f"{outcomes[each]} {each}" for each in ("passed", "failed", "skipped"))
    return (
        f"\n{dt.datetime.now(dt.UTC).date()}, commit `{commit}`: {state} after {minutes:.0f} "
        f"minutes; of {collected} tests {counts}.\n" + "".join(remarks(record))
    )


def remarks(record: Record) -> Iterator[str]:
    """What the tests of a part counted, and those that failed."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for test in record.of("test").values():
        for what, of in test["figures"]:
            counted[what][of] += 1
    yield from (f"\nFailed: `{name}`\n" for name in record.failures)
    for what, row in counted.items():
        listed = ", ".join(f"{count} {of}" for of, count in row.most_common())
        yield f"\n{row.total()} {what}: {listed}.\n"


def main() -> int:
    """Run the parts that have not ended; 0 if all ended and nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", help="a part; all of them without it")
    parser.add_argument("--most", type=int, help="cases of each part, to try it")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: STOP.set())
    git = ["git", "-C", str(ROOT)]
    if subprocess.check_output([*git, "status", "--porcelain", "--", ".", f":!{RESULT}"]):
        parser.error("there are changes that no commit has: a result is that of a commit")
    commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()[:12]
    folder = ROOT / ".nightly" / (commit + (f"-{options.most}" if options.most else ""))
    folder.mkdir(parents=True, exist_ok=True)
    chosen = parts(commit, folder, options.most)
    records = {part.name: Record(folder / f"{part.name}.jsonl") for part in chosen}
    page = folder / "nightly.md" if options.most else ROOT / RESULT
    left = [
        part
        for part in chosen
        if not records[part.name].ended and part.name in (options.only or records)
    ]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for done in as_completed([threads.submit(run, part, records[part.name]) for part in left]):
            done.result()
            before = page.read_text(encoding="utf-8") if page.exists() else ""
            page.write_text(result(before, commit, records), encoding="utf-8")
    print(page.read_text(encoding="utf-8"))
    return 0 if all(each.ended and not each.failures for each in records.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
