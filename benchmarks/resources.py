"""Runs a command and writes what it used: ``python resources.py REPORT COMMAND...``.

A program of its own, of standard modules only: the peak memory of a process counts from the one
that it was forked from, so the meter has to be small.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

KIB = 1 if sys.platform == "darwin" else 1024


def run_metered(report: Path, command: list[str]) -> int:
    """Run a command to its end; its exit code.

    The report holds wall seconds, CPU seconds of the command and all that it waited for, and the
    peak memory in bytes of the largest of these processes.
    """
    start = time.perf_counter()
    process = os.posix_spawn(command[0], command, os.environ)
    _, status, used = os.wait4(process, 0)
    spent = {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss * KIB,
    }
    report.write_text(json.dumps(spent), encoding="utf-8")
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(run_metered(Path(sys.argv[1]), sys.argv[2:]))
