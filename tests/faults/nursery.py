"""Runs many commands as children of one preloaded process, each under its own limits.

Started as a program it is that process: it reads one JSON line a command and answers with one. A
child that takes more CPU time or memory than it may is killed, and told apart by its signal or its
words.
"""

import gc
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# What commands import when they run.
USED = (
    "cloister.flows.cli.app",
    "cloister.flows.cli.review",
    "cloister.flows.cli.console",
    "cloister.flows.cli.plans",
    "cloister.flows.cli.reports",
    "cloister.flows.measure",
    "cloister.flows.release",
    "cloister.flows.sampling",
    "cloister.schema.drafts.reflection",
    "cloister.tasks.release.comparison",
    "cloister.tasks.ledger.access",
    "cloister.tasks.release.verify",
    "cloister.tasks.release.preflight",
    "cloister.tasks.requests.plan",
    "cloister.tasks.stores.prefect_deployment",
)
# Seconds of CPU time and bytes of memory that a refusal may take, beyond the start of the program.
SECONDS = 5
MEMORY = 500 << 20
# Bytes of a file that a refusal may write, so that no test fills a disk.
LONGEST_FILE = 100 << 20


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code (minus the signal that killed it), output, CPU seconds."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def faults(self) -> list[str]:
        """What no command may do, whatever it is given."""
        said = self.out + self.err
        signs = ("Traceback", "unforeseen", "failed inside", "ran out of memory", "MemoryError")
        found = [sign for sign in signs if sign in said]
        found += [] if self.code in (0, 1, 2) else [f"ended by {self.code}"]
        found += [f"took {self.seconds:.1f} s"] if self.seconds > SECONDS else []
        found += [] if self.code == 0 or self.err.strip() or self.out.strip() else ["no word"]
        return found


class Nursery:
    """The process that has imported everything, and the way to ask it."""

    def __init__(self, folder: Path) -> None:
        root = str(Path(__file__).parents[2])
        environment = os.environ | {
            "PYTHONPATH": root,
            "CLOISTER_HOME": str(folder / "home"),
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=folder,
        )

    def run(self, *words: str | bytes, folder: Path | None = None, **environment: str) -> Ended:
        """Run a command, in a folder; words of bytes need not be UTF-8."""
        place = str(folder) if folder else None
        asked = {
            "words": [os.fsdecode(word) for word in words],
            "environment": environment,
            "folder": place,
        }
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=60)


def serve() -> None:
    """Answer commands until there are no more."""
    for module in USED:
        importlib.import_module(module)
    gc.freeze()  # or a collection in a child copies all pages that it looks at

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        answers.write(json.dumps(_ended(**json.loads(line))) + "\n")
        answers.flush()


def _ended(
    words: Sequence[str], environment: dict[str, str], folder: str | None
) -> dict[str, object]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        pid = os.fork()
        if pid == 0:
            os.chdir(folder or os.curdir)
            _run(words, environment, out.fileno(), err.fileno())
        status = os.waitpid(pid, 0)[1]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        code = os.waitstatus_to_exitcode(status)
        said = [
            (stream.seek(0), stream.read().decode("utf-8", "replace"))[1] for stream in (out, err)
        ]
        return {"code": code, "out": said[0], "err": said[1], "seconds": spent}


def _run(words: Sequence[str], environment: dict[str, str], out: int, err: int) -> None:
    code = 99
    try:
        os.environ.update(environment)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LONGEST_FILE, LONGEST_FILE))
        for number, stream in ((1, out), (2, err)):
            os.dup2(stream, number)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        from prefect.settings import PREFECT_API_URL, temporary_settings

        from cloister.flows.cli.app import main

        url = environment.get("PREFECT_API_URL")
        with temporary_settings(
            {PREFECT_API_URL: url} if url else {}
        ):  # Prefect read its settings before the fork
            main(words)
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 99
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
