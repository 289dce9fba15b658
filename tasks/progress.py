"""Who watches a release: told of steps and of how far they are, never of values, counts or durations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Reporter(Protocol):
    """Something that shows progress."""

    def started(self, step: str) -> None:
        """A step begins."""
        ...

    def advanced(self, step: str, done: int, total: int) -> None:
        """A step has done so many of its parts."""
        ...

    def finished(self, step: str) -> None:
        """A step is done."""
        ...

    def failed(self, step: str) -> None:
        """A step raised an error."""
        ...


class Silent:
    """Shows nothing."""

    def started(self, step: str) -> None:
        """Nothing."""

    def advanced(self, step: str, done: int, total: int) -> None:
        """Nothing."""

    def finished(self, step: str) -> None:
        """Nothing."""

    def failed(self, step: str) -> None:
        """Nothing."""


_watching: list[Reporter] = [Silent()]


def reporter() -> Reporter:
    """Who watches now."""
    return _watching[-1]


@contextmanager
def watched_by(watcher: Reporter) -> Iterator[None]:
    """Have someone watch all steps of this process."""
    _watching.append(watcher)
    try:
        yield
    finally:
        _watching.remove(watcher)
