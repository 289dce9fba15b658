"""This process: the code it runs, the progress it reports, and how it is interrupted.

Reporters of progress get names of steps and parts done, never values of the data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Protocol

from cloister.version import __version__

PACKAGE = Path(__file__).parents[2]
"""The folder of all sources: in a checkout, some folders in it are links."""

_NOT_DECIDING = ("flows", "benchmarks", "audit")
"""Folders whose sources decide no answer: they order steps, and show or examine their results."""

_EVALUATING = ("constraints", "evaluation", "schema")


def code_version() -> str:
    """The package version and the start of the digest of its sources."""
    return f"{__version__}+{code_digest()[:16]}"


def flow_version() -> str:
    """As `code_version`, of the flows' sources too: they order the steps."""
    return f"{__version__}+{_digest('', 'flows')[:16]}"


def audit_version() -> str:
    """As `code_version`, of the audit's sources too: they make tables and read answers."""
    return f"{__version__}+{_digest('', 'audit')[:16]}"


def code_digest() -> str:
    """SHA-256 over the sources that decide an answer, in hexadecimal."""
    return _digest("")


def evaluating_digest() -> str:
    """SHA-256 over the sources that decide what is measured on a given table, in hexadecimal."""
    return _digest(*_EVALUATING)


def sources(folder: Path = PACKAGE) -> list[Path]:
    """The sources in a folder of the package that decide an answer, in order."""
    paths: list[Path] = []
    for where, folders, files in os.walk(folder, followlinks=True):
        if Path(where) == PACKAGE:
            folders[:] = [name for name in folders if name not in _NOT_DECIDING]
        paths += [Path(where) / name for name in files if name.endswith(".py")]
    return sorted(paths)


@cache
def _digest(*folders: str) -> str:
    digest = hashlib.sha256()
    for path in [path for folder in folders for path in sources(PACKAGE / folder)]:
        name = path.relative_to(PACKAGE).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


class Reporter(Protocol):
    """Something that shows progress."""

    def start(self, step: str) -> None:
        """A step begins."""
        ...

    def advance(self, step: str, done: int, total: int) -> None:
        """A step has done ``done`` of its ``total`` parts."""
        ...

    def finish(self, step: str) -> None:
        """A step is done."""
        ...

    def fail(self, step: str) -> None:
        """A step raised an error."""
        ...

    def resume(self, release: str) -> None:
        """The ledger holds a release that an earlier run of the same request began."""
        ...


class Silent:
    """Shows nothing."""

    def start(self, step: str) -> None:
        """Nothing."""

    def advance(self, step: str, done: int, total: int) -> None:
        """Nothing."""

    def finish(self, step: str) -> None:
        """Nothing."""

    def fail(self, step: str) -> None:
        """Nothing."""

    def resume(self, release: str) -> None:
        """Nothing."""


_watching: ContextVar[Reporter] = ContextVar("watching")
"""The reporter of this context; none by default."""


def reporter() -> Reporter:
    """The current reporter."""
    return _watching.get(Silent())


@contextmanager
def reporting_to(watcher: Reporter) -> Iterator[None]:
    """Report all steps inside to a reporter."""
    token = _watching.set(watcher)
    try:
        yield
    finally:
        _watching.reset(token)


INTERRUPTED = "interrupted; run the same command again to resume"


def is_interruption(error: BaseException | None) -> bool:
    """Whether an error was caused by interrupting the process.

    Libraries fail in their own ways when a signal interrupts them.
    """
    while error is not None:
        # by its name, since a command line starts faster without Prefect
        if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "TerminationSignal":
            return True
        error = error.__cause__ or error.__context__
    return False


SELDOM = 200_000
"""New objects after which the garbage collector runs.

Loading the libraries of a release makes millions that stay: at Python's default of 700, a third of
the loading time is spent on collections.
"""
