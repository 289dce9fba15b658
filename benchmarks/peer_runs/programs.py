"""A peer's program: run in its environment under a limit, and what it wrote checked."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from cloister.benchmarks.commands import METER, Cost
from cloister.benchmarks.peer_runs.coding import Coded, Matrix
from cloister.benchmarks.peer_runs.environments import plain_environment
from cloister.errors import CloisterError

DRIVER = Path(__file__).with_name("run_peer.py")
FROM_OUTSIDE = tuple(256 - number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
"""Exit codes of a program that somebody else ended; such a run says nothing about the peer."""

OUT_OF_TIME = 256 - signal.SIGXCPU
"""Exit code of a program that used up its CPU seconds."""

WAITING = 4
"""Wall seconds allowed for each CPU second of the limit: a run may have to share its core."""

ONE_CORE = MappingProxyType(
    {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NPROC": "1"}
)


@dataclass(frozen=True)
class Outcome:
    """How a peer's program ended: what it used, or why there is no table.

    ``seconds`` of CPU time it was allowed.
    """

    seconds: float
    error: str = ""
    timed_out: bool = False
    cost: Cost | None = None


def run_program(python: Path, program: Path, table: Coded, folder: Path, seconds: float) -> Outcome:
    """Have a program synthesize a table, in a folder that holds its job.

    Raises:
        CloisterError: it was killed from outside.
    """
    codes = folder / "codes.npy"
    np.save(codes, table.codes)
    try:
        code, cost = _metered(
            [str(python), "-I", str(DRIVER), str(program.absolute()), str(folder)], folder, seconds
        )
    finally:
        codes.unlink()
    if code is None:
        return Outcome(seconds, f"not done in {WAITING * seconds:g} s", timed_out=True)
    if code == OUT_OF_TIME:
        return Outcome(seconds, f"not done in {seconds:g} CPU s", timed_out=True)
    if code in FROM_OUTSIDE or cost is None:
        raise CloisterError(f"{program} was killed from outside; run the same command again")
    return Outcome(seconds, _complaint(folder, table, code), cost=cost)


def read_cells(path: Path, rows: int, sizes: Sequence[int]) -> Matrix:
    """The cells (rows, k) that a peer wrote.

    Raises:
        CloisterError: they are not a table of ``rows`` rows of public cells.
    """
    try:
        cells = np.load(path, allow_pickle=False)
    except (OSError, ValueError):
        raise CloisterError("it wrote no table of numbers") from None
    if cells.shape != (rows, len(sizes)):
        raise CloisterError(
            f"it wrote a table of shape {cells.shape}; {(rows, len(sizes))} is wanted"
        )
    if cells.dtype.kind not in "iuf" or not np.isfinite(cells).all():
        raise CloisterError("it left values missing")
    codes = cells.astype(np.int64)
    if (codes != cells).any() or (codes < 0).any() or (codes >= np.asarray(sizes)).any():
        raise CloisterError("it wrote codes outside the public domains")
    return codes


def _metered(command: list[str], folder: Path, seconds: float) -> tuple[int | None, Cost | None]:
    """The exit code of a command, as of :func:`_watched`, and what it used."""
    with tempfile.TemporaryDirectory(prefix="cloister-") as scratch:
        report = Path(scratch) / "used.json"
        meter = [sys.executable, "-S", "-E", str(METER), str(report)]
        code = _watched([*meter, *command, str(math.ceil(seconds))], folder, WAITING * seconds)
        return code, Cost(**json.loads(report.read_bytes()), steps={}) if report.is_file() else None


def _watched(command: list[str], folder: Path, patience: float) -> int | None:
    """The exit code of a command.

    None if it took too long and was ended, with all that it started.
    """
    environment = plain_environment() | ONE_CORE
    with (
        (folder / "log.txt").open("wb") as log,
        subprocess.Popen(  # noqa: S603
            command, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True
        ) as process,
    ):
        try:
            return process.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _complaint(folder: Path, table: Coded, code: int) -> str:
    """What is wrong with a run; empty if nothing is.

    Of the program's own words, only the type of its error.
    """
    if code:
        words = (
            (folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        )
        named = re.match(r"(?:\w+\.)*(\w+)(?::|$)", words[-1]) if words else None
        return f"ended with code {code}" + (f": {named.group(1)}" if named else "")
    try:
        read_cells(folder / "synthetic.npy", table.rows, table.sizes)
    except CloisterError as error:
        return str(error)
    return ""
