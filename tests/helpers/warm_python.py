"""Programs as children of a process that has loaded the libraries: starting Python costs seconds.

Cloister itself is loaded by each child, from its own ``PYTHONPATH``. Started as a program it is
that process: it reads one JSON line for each program and answers with its exit status.
"""

import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

# What a release and a measurement load of others.
USED = (
    "google.protobuf",
    "matplotlib",
    "mlflow.pyfunc",
    "mlflow.tracking",
    "numba",
    "opendp.prelude",
    "pandas",
    "pandera.pandas",
    "prefect.engine",
    "psycopg",
    "pyarrow.parquet",
    "scipy.optimize",
    "scipy.stats",
    "torch",
)


class WarmPython:
    """The process that has loaded the libraries, and the way to ask it."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-W", "ignore", __file__]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
        self._process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe)

    def run(
        self, program: str, *arguments: object, folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a text as ``python -c`` does, in a folder, with an environment of its own."""
        with tempfile.TemporaryDirectory() as said:
            request = {
                "program": program,
                "arguments": [str(each) for each in arguments],
                "folder": str(folder),
                "environment": dict(environment),
                "said": said,
            }
            assert self._process.stdin and self._process.stdout
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            code = json.loads(self._process.stdout.readline())
            out, err = (Path(said, name).read_text(encoding="utf-8") for name in ("out", "err"))
        return subprocess.CompletedProcess([program, *request["arguments"]], code, out, err)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=60)


def serve() -> None:
    """Fork for each line until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(carried_out(**json.loads(line)))
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        answers.flush()


def carried_out(
    program: str, arguments: list[str], folder: str, environment: dict[str, str], said: str
) -> int:
    """Be the program; its exit code."""
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{said}/{name}", os.O_WRONLY | os.O_CREAT, 0o600), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.path[:1] = ["", *environment.get("PYTHONPATH", "").split(os.pathsep)]
    sys.argv[:] = ["-c", *arguments]
    code = 0
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    for each in USED:
        importlib.import_module(each)
    assert "cloister" not in sys.modules
    gc.freeze()  # or a collection in a child copies all pages that it looks at
    serve()
