"""The command line as a subprocess, so that memory and CPU time are its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloister.errors import CloisterError

METER = Path(__file__).with_name("resources.py")
PROGRAM = Path(sys.executable).with_name("cloister")


@dataclass(frozen=True)
class Cost:
    """Costs of a command: wall and CPU seconds, peak memory in bytes, wall seconds by step."""

    seconds: float
    cpu_seconds: float
    memory: int
    steps: Mapping[str, float]


@dataclass(frozen=True)
class Answer:
    """What a command said on standard output, as JSON, and what it used."""

    content: Any
    cost: Cost


def run_cloister(words: Iterable[str], environment: Mapping[str, str]) -> Answer:
    """Run ``cloister WORDS --json`` in a process of its own.

    Raises:
        CloisterError: it failed; says what the command said.
    """
    with tempfile.TemporaryDirectory(prefix="cloister-") as folder:
        report, said = Path(folder) / "used.json", Path(folder) / "said.json"
        command = [
            sys.executable,
            "-S",
            "-E",
            str(METER),
            str(report),
            str(PROGRAM),
            "--log",
            "json",
            *words,
            "--json",
        ]
        with said.open("wb") as out:
            code, steps, errors = _watched(command, environment, out.fileno())
        if code:
            raise CloisterError(errors or f"the command ended with code {code} and said nothing")
        used = json.loads(report.read_text(encoding="utf-8"))
        return Answer(json.loads(said.read_text(encoding="utf-8")), Cost(**used, steps=steps))


def _watched(
    command: list[str], environment: Mapping[str, str], out: int
) -> tuple[int, dict[str, float], str]:
    """The exit code of a command, wall seconds by step, and its errors.

    Steps are timed as their lines come in.
    """
    started: dict[str, float] = {}
    steps: dict[str, float] = {}
    errors = []
    process = subprocess.Popen(  # noqa: S603
        command, env=dict(environment), stdout=out, stderr=subprocess.PIPE, text=True
    )
    with process as running:
        assert running.stderr is not None
        for line in running.stderr:
            now = time.perf_counter()
            event = _event(line)
            if event.get("state") == "started":
                started[event["step"]] = now
            elif event.get("state") == "finished":
                steps[event["step"]] = now - started.get(event["step"], now)
            elif line.startswith("error: "):
                errors.append(line.removeprefix("error: ").strip())
    return process.returncode, steps, "; ".join(errors)


def _event(line: str) -> dict[str, str]:
    if not line.startswith("{"):
        return {}
    try:
        event: dict[str, str] = json.loads(line)
    except ValueError:
        return {}
    return event
