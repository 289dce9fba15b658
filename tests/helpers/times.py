"""Plugin of pytest that measures where a run of the suite spends its time (``make test-times``).

Wall and processor seconds of each test and each fixture. Processor time is that of the worker and
of the child processes that it has waited for; wall time beyond it is idle. The tables follow the
summary; the seconds of each file are recorded for the balance of the workers (balanced.py).
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from balanced import RECORD

SHOWN = 50
"""Tests and fixtures in a table."""

Seconds = tuple[float, float]
"""Wall and processor time."""


def now() -> Seconds:
    return time.monotonic(), sum(os.times()[:4])


class Worker:
    """Times of one process that runs tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.began = config, now()
        self.collected = self.began
        self.tests: dict[str, Seconds] = {}
        self.fixtures: dict[str, Seconds] = defaultdict(lambda: (0.0, 0.0))
        self.nested: list[Seconds] = [(0.0, 0.0)]

    @contextmanager
    def exclusive(self) -> Iterator[list[float]]:
        """Seconds spent inside, without those of fixtures that are made there."""
        begun, spent = now(), [0.0, 0.0]
        self.nested.append((0.0, 0.0))
        try:
            yield spent
        finally:
            whole = _minus(now(), begun)
            spent[:] = _minus(whole, self.nested.pop())
            self.nested[-1] = _plus(self.nested[-1], whole)

    def pytest_collection_finish(self) -> None:
        self.collected = now()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        with self.exclusive() as spent:
            result = yield
        name = f"{fixturedef.baseid}::{fixturedef.argname} ({fixturedef.scope})"
        self.fixtures[name] = _plus(self.fixtures[name], spent)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with self.exclusive() as spent:
            result = yield
        self.tests[item.nodeid] = (spent[0], spent[1])
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        measured = {
            "name": os.environ.get("PYTEST_XDIST_WORKER", "alone"),
            "collection": _minus(self.collected, self.began),
            "run": _minus(now(), self.collected),
            "ended": time.time(),
            "tests": self.tests,
            "fixtures": dict(self.fixtures),
        }
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["times"] = json.dumps(measured)
        else:
            self.config.stash[MEASURED].append(measured)


def files(workers: list[dict[str, Any]]) -> dict[str, float]:
    """Wall seconds of each file, without what fixtures of wider scope took."""
    spent: dict[str, float] = defaultdict(float)
    for worker in workers:
        for test, (wall, _) in worker["tests"].items():
            spent[test.partition("::")[0]] += wall
        for fixture, (wall, _) in worker["fixtures"].items():
            if fixture.partition("::")[0] in spent:
                spent[fixture.partition("::")[0]] += wall
    return {name: round(seconds, 1) for name, seconds in sorted(spent.items())}


MEASURED = pytest.StashKey[list[dict[str, Any]]]()


class Report:
    """Tables of what the workers measured."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.began = config, time.time()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if "times" in getattr(node, "workeroutput", {}):
            self.config.stash[MEASURED].append(json.loads(node.workeroutput["times"]))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        workers = self.config.stash[MEASURED]
        lines = [f"{'':10}{'collection':>22}{'tests':>24}  ended after"]
        lines.append(f"{'worker':10}{'wall':>11}{'CPU':>11}{'wall':>12}{'CPU':>12}")
        for worker in workers:
            (wall, cpu), (run, used) = worker["collection"], worker["run"]
            after = worker["ended"] - self.began
            lines.append(
                f"{worker['name']:10}{wall:11.1f}{cpu:11.1f}{run:12.1f}{used:12.1f}{after:10.1f} s"
            )
        for kind in ("tests", "fixtures"):
            spent: dict[str, Seconds] = defaultdict(lambda: (0.0, 0.0))
            for worker in workers:
                for name, seconds in worker[kind].items():
                    spent[name] = _plus(spent[name], seconds)
            lines += ["", f"{'wall':>8}{'CPU':>8}{'idle':>8}  {kind}"]
            costly = sorted(spent.items(), key=lambda each: -max(each[1]))
            for name, (wall, cpu) in costly[:SHOWN]:
                lines.append(f"{wall:8.2f}{cpu:8.2f}{max(wall - cpu, 0):8.2f}  {name}")
        if path := os.environ.get("TEST_TIMES"):
            Path(path).write_text(json.dumps(workers), encoding="utf-8")
        terminalreporter.section("times")
        terminalreporter.write_line("\n".join(lines))
        if self.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            RECORD.write_text(json.dumps(files(workers), indent=1) + "\n", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MEASURED] = []
    if not config.getoption("numprocesses", None):
        config.pluginmanager.register(Worker(config))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(config))


def _plus(one: Any, other: Any) -> Seconds:
    return one[0] + other[0], one[1] + other[1]


def _minus(one: Seconds, other: Seconds) -> Seconds:
    return one[0] - other[0], one[1] - other[1]
