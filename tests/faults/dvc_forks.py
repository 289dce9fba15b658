"""DVC's commands in forks of a process that has loaded DVC, which takes longer than they do.

Started as a program it is that process: it reads one JSON line for each run and answers with one.
"""

import gc
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import yaml

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

    The settings of all homes are one text, which DVC is asked once whether it can read. The first
    pointers, the first objects in a folder and the first copies of them are DVC's own; if they are
    as expected, later ones are written here, in a hundredth of the time, unless ``by_dvc``.
    """

    def __init__(self) -> None:
        self.by_dvc, self._agreed = False, set[str]()
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
        kind, expected = ("", {}) if self.by_dvc else expected_of(Path(cwd), json.loads(input))
        if kind in self._agreed and _written(kind, expected):
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
        if expected and not code:
            assert all(_content(path) == _content(text) for path, text in expected.items())
            self._agreed.add(kind)
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


Files = dict[Path, bytes]


def expected_of(folder: Path, commands: list[list[str]]) -> tuple[str, Files]:
    """The files that commands of DVC write, and of what kind; none of other commands."""
    kinds: set[str] = set()
    expected: Files = {}
    try:
        for _, _, word, option, _, *names in commands:
            kind, files = KINDS[word, option](folder, names)
            kinds.add(kind)
            expected |= files
    except (OSError, ValueError, KeyError):  # which DVC words itself, and other commands
        return "", {}
    return (kinds.pop(), expected) if len(kinds) == 1 else ("", {})


def _committed(folder: Path, names: list[str]) -> tuple[str, Files]:
    paths = [folder / name for name in names]
    return "pointers", {path: _dumped("deps", _deps(path)) for path in paths}


def _added(folder: Path, names: list[str]) -> tuple[str, Files]:
    paths = [folder / name for name in names]
    pointers = {path: path.with_name(f"{path.name}.dvc") for path in paths}
    outs = {path: [_digest(path) | {"path": path.name}] for path in paths}
    return "pointers", {pointers[path]: _dumped("outs", out) for path, out in outs.items()}


def _pushed(folder: Path, names: list[str]) -> tuple[str, Files]:
    outs = [yaml.safe_load((folder / name).read_text())["outs"][0] for name in names[1:]]
    remote, cache = _remote(folder), folder / ".dvc" / "cache"
    places = [_place(str(out["md5"])) for out in outs]
    return "objects", {remote / each: (cache / each).read_bytes() for each in places}


def _got(folder: Path, names: list[str]) -> tuple[str, Files]:
    out, *_, name = names
    pointers = (folder / name).parent.glob("*.dvc")
    held = (each for path in pointers for each in yaml.safe_load(path.read_text()).get("outs", ()))
    digest = next((str(each["md5"]) for each in held if each["path"] == Path(name).name), "")
    content = (_remote(folder) / _place(digest)).read_bytes()
    if hashlib.md5(content).hexdigest() != digest:
        raise ValueError(name)
    return "copies", {Path(out): content}


KINDS = {
    ("commit", "--force"): _committed,
    ("add", "--no-commit"): _added,
    ("push", "--remote"): _pushed,
    ("get", "--force"): _got,
}


def _place(digest: str) -> Path:
    return Path("files", "md5", digest[:2], digest[2:])


def _remote(folder: Path) -> Path:
    """The remote, which is a folder; ``ValueError`` for another."""
    settings = ConfigParser(interpolation=None, strict=False)
    settings.read(folder / ".dvc" / "config", encoding="utf-8")
    url = settings["'remote \"storage\"'"]["url"].strip("\"'")
    if "://" in url or (folder / ".dvc" / "config.local").exists():
        raise ValueError(url)
    return (folder / ".dvc" / url).resolve()


def _deps(pointer: Path) -> list[dict[str, Any]]:
    deps = yaml.safe_load(pointer.read_text())["deps"]
    return [{"path": dep["path"]} | _digest(Path(dep["path"])) for dep in deps]


def _digest(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"md5": hashlib.md5(content).hexdigest(), "size": len(content), "hash": "md5"}


def _dumped(key: str, listed: list[dict[str, Any]]) -> bytes:
    return yaml.safe_dump({key: listed}, sort_keys=False, allow_unicode=True).encode()


def _content(written: Path | bytes) -> object:
    """What a file holds: a pointer as it is parsed, whatever its lines are."""
    content = written if isinstance(written, bytes) else written.read_bytes()
    return yaml.safe_load(content) if content.startswith((b"deps:", b"outs:")) else content


def _written(kind: str, expected: Files) -> bool:
    """Write files, but objects that are there; whether that could be done."""
    try:
        for path, content in expected.items():
            if kind != "objects" or not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f".{path.name}.tmp")
                part.write_bytes(content)
                part.chmod(0o400 if kind == "objects" else 0o600)
                part.replace(path)
    except OSError:
        return False
    return True


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
