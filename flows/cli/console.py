"""Output of commands: progress on standard error, tables or JSON on standard output."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from cloister.figures import figure

Event = Mapping[str, int | str]
"""What is said of a step: its name and state, and in numbers how far it is."""

_MOST_DRAWN = 500
"""Rows of a table that are drawn with lines around them: rich takes some 0.3 ms for each."""

_TENTHS = 10
"""Lines at most for the parts of one step, so that logs stay short."""


@dataclass
class Bars:
    """Progress on a terminal: a line for each step, and a bar for a step that counts its parts."""

    progress: Progress
    shown: dict[str, TaskID] = field(default_factory=dict)

    def start(self, step: str) -> None:
        """Show a line with a spinner."""
        self.shown[step] = self.progress.add_task(step, total=None)

    def advance(self, step: str, done: int, total: int) -> None:
        """Move the bar."""
        if step in self.shown:
            self.progress.update(self.shown[step], completed=done, total=total)

    def finish(self, step: str) -> None:
        """Fill the bar."""
        if step in self.shown:
            self.progress.update(self.shown.pop(step), completed=1, total=1)

    def fail(self, step: str) -> None:
        """Stop the bar where it is."""
        if step in self.shown:
            self.progress.stop_task(self.shown.pop(step))

    def resume(self, release: str) -> None:
        """Print a line above the others."""
        self.progress.console.print(
            f"Resuming release {release}: nothing is charged again", highlight=False
        )


@dataclass
class Lines:
    """Progress elsewhere: a line for each event, at most ten for the parts of a step."""

    write: Callable[[Event], None]
    tenth: dict[str, int] = field(default_factory=dict)

    def start(self, step: str) -> None:
        """Print a line."""
        self.write({"step": step, "state": "started"})

    def advance(self, step: str, done: int, total: int) -> None:
        """Print a line for each tenth."""
        tenth = _TENTHS * done // total
        if tenth > self.tenth.get(step, 0):
            self.tenth[step] = tenth
            self.write({"step": step, "state": "running", "done": done, "total": total})

    def finish(self, step: str) -> None:
        """Print a line."""
        self.write({"step": step, "state": "finished"})

    def fail(self, step: str) -> None:
        """Print a line."""
        self.write({"step": step, "state": "failed"})

    def resume(self, release: str) -> None:
        """Print a line."""
        self.write({"step": "reserve", "state": "resumed", "release": release})


def _write_text(event: Event) -> None:
    """A compact line: the time in UTC, the step, and what becomes of it."""
    said = str(event["state"])
    if said == "running":
        said = f"{event['done']} of {event['total']}"
    if said == "resumed":
        said = f"resumes release {event['release']}: nothing is charged again"
    _log(f"{datetime.now(UTC):%H:%M:%S} {event['step']} {said}")


def _write_json(event: Event) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    _log(json.dumps({"time": now, **event}))


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_as_json: ContextVar[bool] = ContextVar("progress as JSON", default=False)
"""Whether this command writes its progress as JSON."""


def log_as_json(asked: bool) -> None:
    """Have the progress of this command written as JSON lines, on terminals too, if ``asked``."""
    _as_json.set(asked)


@contextmanager
def progress() -> Iterator[Bars | Lines]:
    """A watcher that suits standard error."""
    console = Console(stderr=True)
    if _as_json.get() or not console.is_terminal:
        yield Lines(_write_json if _as_json.get() else _write_text)
        return
    columns = (
        SpinnerColumn(finished_text="[green]*[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as shown:
        yield Bars(shown)


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
    for place, heading in enumerate(headings):
        right = bool(rows) and _are_numbers([row[place] for row in rows])
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


def warn(text: str) -> None:
    """Print a warning on standard error."""
    print(wrap(f"warning: {text}", sys.stderr), file=sys.stderr, flush=True)


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
