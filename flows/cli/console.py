"""Output of commands: progress on standard error, tables or JSON on standard output."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from cloister.figures import figure

StepFields = Mapping[str, int | str]
"""A report on a step: its name and state, and its progress in numbers."""

_MOST_DRAWN = 500
"""Rows of a table that are drawn with lines around them: rich takes some 0.3 ms for each."""

_TENTHS = 10
"""Lines at most for the parts of one step, so that logs stay short."""


PULSE = 2.5
"""Seconds without output after which a line says that a step still runs; bars move anyway."""

_LOOK = 0.25
"""Seconds between two looks whether a line is due."""

_WORKING = "working"
"""What is shown while no step runs: checks before the first, the server's start and end."""


@dataclass
class Bars:
    """Progress on a terminal: a line for each step, with a bar that moves until the step ends."""

    progress: Progress
    shown: dict[str, TaskID] = field(default_factory=dict)

    def start(self, step: str) -> None:
        """Show a line with a spinner, in place of the one that is shown between steps."""
        self._remove(_WORKING)
        self.shown[step] = self.progress.add_task(step, total=None)

    def advance(self, step: str, done: int, total: int) -> None:
        """Move the bar; once all parts are done it pulses until the step ends."""
        if step in self.shown:
            rest = total if done < total else None
            self.progress.update(self.shown[step], completed=done, total=rest)

    def finish(self, step: str) -> None:
        """Fill the bar."""
        if step in self.shown:
            self.progress.update(self.shown.pop(step), completed=1, total=1)
            self.idle()

    def fail(self, step: str) -> None:
        """Stop the bar where it is."""
        if step in self.shown:
            self.progress.stop_task(self.shown.pop(step))

    def resume(self, release: str) -> None:
        """Print a line above the others."""
        self.progress.console.print(
            f"Resuming release {release}: nothing is charged again", highlight=False
        )

    def idle(self) -> None:
        """Show that there is work between steps."""
        self.shown[_WORKING] = self.progress.add_task(_WORKING, total=None)

    def end(self) -> None:
        """Leave the steps alone."""
        self._remove(_WORKING)

    def _remove(self, step: str) -> None:
        if step in self.shown:
            self.progress.remove_task(self.shown.pop(step))


@dataclass
class Lines:
    """Progress elsewhere: a line for each event, at most ten for the parts of a step."""

    write: Callable[[StepFields], None]
    tenth: dict[str, int] = field(default_factory=dict)
    step: str = _WORKING
    since: float = field(default_factory=time.monotonic)
    printed: float = field(default_factory=time.monotonic)

    def start(self, step: str) -> None:
        """Print a line."""
        self._say(step, {"state": "started"}, runs=True)

    def advance(self, step: str, done: int, total: int) -> None:
        """Print a line for each tenth."""
        tenth = _TENTHS * done // total
        if tenth > self.tenth.get(step, 0):
            self.tenth[step] = tenth
            self._say(step, {"state": "running", "done": done, "total": total})

    def finish(self, step: str) -> None:
        """Print a line."""
        self._say(step, {"state": "finished"}, runs=False)

    def fail(self, step: str) -> None:
        """Print a line."""
        self._say(step, {"state": "failed"}, runs=False)

    def resume(self, release: str) -> None:
        """Print a line."""
        self._say("reserve", {"state": "resumed", "release": release})

    def pulse(self) -> None:
        """Print for how many seconds the same has been going on, if nothing was printed lately."""
        if (now := time.monotonic()) - self.printed >= PULSE:
            self._say(self.step, {"state": "running", "seconds": round(now - self.since)})

    def _say(self, step: str, event: StepFields, *, runs: bool | None = None) -> None:
        """Print an event; ``runs`` says that the step begins or ends with it."""
        self.printed = time.monotonic()
        if runs is not None:
            self.step, self.since = step if runs else _WORKING, self.printed
        self.write({"step": step, **event})


def _write_text(event: StepFields) -> None:
    """A compact line: the time in UTC, the step, and what becomes of it."""
    words = str(event["state"])
    if words == "running":
        whole = "seconds" not in event
        words = f"{event['done']} of {event['total']}" if whole else f"{event['seconds']} s"
    if words == "resumed":
        words = f"resumes release {event['release']}: nothing is charged again"
    _log(f"{datetime.now(UTC):%H:%M:%S} {event['step']} {words}")


def _write_json(event: StepFields) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    _log(json.dumps({"time": now, **event}))


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # one write: a thread may write the next line
    sys.stderr.flush()


_as_json: ContextVar[bool] = ContextVar("progress as JSON", default=False)
"""Whether this command writes its progress as JSON."""


def log_as_json(enabled: bool) -> None:
    """Write the progress of this command as JSON lines, on terminals too, if ``enabled``."""
    _as_json.set(enabled)


@contextmanager
def progress(*, pulses: bool = True) -> Iterator[Bars | Lines]:
    """A watcher that suits standard error; off a terminal, lines say that work goes on."""
    console = Console(stderr=True)
    if _as_json.get() or not console.is_terminal:
        lines = Lines(_write_json if _as_json.get() else _write_text)
        with _pulsing(lines) if pulses else nullcontext():
            yield lines
        return
    columns = (
        SpinnerColumn(finished_text="[green]*[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as shown:
        bars = Bars(shown)
        bars.idle()
        try:
            yield bars
        finally:
            bars.end()


@contextmanager
def _pulsing(lines: Lines) -> Iterator[None]:
    """Let lines pulse while the block runs."""
    ended = threading.Event()

    def pulse() -> None:
        while not ended.wait(_LOOK):
            lines.pulse()

    thread = threading.Thread(target=pulse, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def show_json(content: object) -> None:
    """Print JSON."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=str))


def show_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[object]], note: str = ""
) -> None:
    """Print a table; numbers are aligned on the right, and long ones are plain columns."""
    if len(rows) > _MOST_DRAWN:
        _print_columns(title, headings, rows, note)
        return
    shown = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption=note or None,
        caption_justify="left",
    )
    for position, heading in enumerate(headings):
        right = bool(rows) and _are_numbers([row[position] for row in rows])
        shown.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(_text(cell)) for cell in row))
    _console().print(shown)


def _print_columns(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[object]], note: str
) -> None:
    lines = [tuple(map(_text, row)) for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligns = [">" if _are_numbers(column) else "<" for column in zip(*rows, strict=True)]
    print(title)
    for line in lines:
        cells = zip(line, aligns, widths, strict=True)
        print("  ".join(f"{cell:{align}{width}}" for cell, align, width in cells).rstrip())
    if note:
        print(note)


def _are_numbers(column: Sequence[object]) -> bool:
    return all(isinstance(cell, int | float) for cell in column)


def show_facts(title: str, content: Mapping[str, Any]) -> None:
    """Print names and values, a line each."""
    shown = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        show_header=False,
        box=None,
        padding=(0, 2),
    )
    for name, value in content.items():
        shown.add_row(name, Text(_text(value), overflow="fold"))
    _console().print(shown)


def say(text: str) -> None:
    """Print a line, wrapped between words on a terminal."""
    print(wrap(text, sys.stdout))


def note(text: str) -> None:
    """Print a line on standard error, where standard output is for a program to read."""
    print(wrap(text, sys.stderr), file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    note(f"warning: {text}")


def wrap(text: str, stream: TextIO) -> str:
    """A text as a stream shows it: with lines broken between words, if it is a terminal."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


def _console() -> Console:
    """Standard output; as wide as the text needs where there is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def _text(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return figure(cell, 4) if isinstance(cell, float) and math.isfinite(cell) else str(cell)
