"""DVC's commands in forks of a process that has loaded DVC, which takes longer than they do.

Started as a program it is that process: it reads one JSON line for each run and answers with one.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held_back() -> Iterator[None]:
    """Let signals wait: what Prefect's handler raises in what Python runs after a fork is ignored.

    There `logging` gives back the lock of all loggers, without which other threads wait for ever.
    ``subprocess.run`` runs nothing of the kind. Masks do not hold a signal back: another thread of
    the process takes it, and the main thread handles it.
    """
    arrived: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: arrived.append(number)) for number in ENDING
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in arrived:
            signal.raise_signal(number)


def forked(
    command: list[str],
    cwd: Path | str,
    env: Mapping[str, str],
    input: str,  # noqa: A002 - its name in subprocess
    umask: int | None = None,
    **_: object,
) -> subprocess.CompletedProcess[str]:
    """``subprocess.run`` of DVC's commands, without another start of Python.

    ``umask`` is that of the process that asks, where another one forks.
    """
    import dvc.cli

    with tempfile.TemporaryFile() as said:
        with held_back():
            pid = os.fork()
        if pid == 0:
            for number in ENDING:
                signal.signal(number, signal.SIG_DFL)
            if umask is not None:
                os.umask(umask)
            os.dup2(said.fileno(), 2)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(env)
            for number, words in enumerate(json.loads(input), 1):
                if dvc.cli.main(words):
                    os._exit(number)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        return subprocess.CompletedProcess(command, code, "", said.read().decode())


class Forks:
    """The process that has loaded DVC, and the way to ask it.

    The settings of all homes are one text, which DVC is asked once whether it can read.
    """

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe)
        self._lock = Lock()
        self._read: set[str] = set()

    def run(
        self,
        command: list[str],
        *,
        cwd: Path | str,
        env: Mapping[str, str],
        input: str,  # noqa: A002 - its name in subprocess
        **_: object,
    ) -> subprocess.CompletedProcess[str]:
        """In place of ``subprocess.run``."""
        settings = _settings(Path(cwd), input)
        if settings in self._read:
            return subprocess.CompletedProcess(command, 0, "", "")
        umask = os.umask(0o077)
        os.umask(umask)
        asked = {"command": command, "cwd": str(cwd), "env": dict(env), "input": input}
        asked["umask"] = umask
        assert self._process.stdin and self._process.stdout
        with self._lock:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
            code, said = json.loads(self._process.stdout.readline())
        if settings and not code:
            self._read.add(settings)
        return subprocess.CompletedProcess(command, code, "", said)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=60)


def _settings(folder: Path, commands: str) -> str | None:
    """The settings of a repository that has nothing but them, if they are only to be read."""
    if folder.name != ".new" or json.loads(commands)[0][-2:] != ["remote", "list"]:
        return None
    return (folder / ".dvc" / "config").read_text(encoding="utf-8")


def serve() -> None:
    """Answer until there are no more lines."""
    gc.freeze()  # or a collection in a fork copies all pages that it looks at
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        done = forked(**json.loads(line))
        answers.write(json.dumps([done.returncode, done.stderr]) + "\n")
        answers.flush()


if __name__ == "__main__":
    import dvc.cli  # noqa: F401 - before the first fork

    serve()
