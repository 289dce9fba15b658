"""Reporters of progress: they get names of steps and parts done, never values of the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


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
