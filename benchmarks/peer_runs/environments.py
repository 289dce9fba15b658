"""Environments of peers: each with its own requirements and nothing else, made once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cloister.errors import CloisterError, StorageError
from cloister.tasks.home.files import exclusive
from cloister.tasks.home.home import Home, private_folder

PATIENCE = 3600.0
"""Seconds that one call of venv or pip may take."""

KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE")
PIP = ("-m", "pip", "install", "--no-input", "--disable-pip-version-check")


def environment(requirements: Path, home: Home, python: str = sys.executable) -> Path:
    """The Python of the environment of a requirements file, made by venv and pip if there is none.

    Raises:
        StorageError: the file cannot be read.
        CloisterError: there is no such Python, a variable of the file is not set, or pip failed or
            took over an hour; names its log.
    """
    folder = (
        private_folder(home.folder / "environments")
        / f"{requirements.stem}-{digest(requirements)[:16]}"
    )
    made = folder / "made"
    with exclusive(folder.with_suffix(".lock")):
        if not made.is_file():
            _make(folder, requirements, python)
            made.touch()
    return folder / "bin" / "python"


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read ({error.strerror}); correct peers in the configuration"
        ) from None


def plain_environment() -> dict[str, str]:
    """The environment variables that a program needs, but none that change Python's imports."""
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def paragraphs(requirements: str) -> Iterator[list[str]]:
    """The requirements of a file, paragraph by paragraph, in the order of installation."""
    for paragraph in requirements.split("\n\n"):
        lines = [line.strip() for line in paragraph.splitlines()]
        wanted = [line for line in lines if line and not line.startswith("#")]
        if wanted:
            yield wanted


def _make(folder: Path, requirements: Path, interpreter: str) -> None:
    if shutil.which(interpreter) is None:
        raise CloisterError(f"{requirements} needs {interpreter}, which is not installed")
    wanted = [_without_variables(line, requirements) for line in paragraphs(_read(requirements))]
    shutil.rmtree(folder, ignore_errors=True)
    log = folder.with_suffix(".log")
    python = str(folder / "bin" / "python")
    commands = [[interpreter, "-m", "venv", str(folder)]]
    commands += [[python, *PIP, *lines] for lines in wanted]
    with log.open("wb") as out:
        for command in commands:
            _run_logged(command, out.fileno(), requirements, log)


def _read(requirements: Path) -> str:
    return requirements.read_text(encoding="utf-8")


def _without_variables(lines: list[str], requirements: Path) -> list[str]:
    """Lines with environment variables replaced: a checkout is named by one."""
    expanded = [os.path.expandvars(line) for line in lines]
    if missing := next((line for line in expanded if "$" in line), None):
        raise CloisterError(f"{requirements}: {missing} is not set; set it to the folder it names")
    return expanded


def _run_logged(command: list[str], out: int, requirements: Path, log: Path) -> None:
    try:
        done = subprocess.run(  # noqa: S603
            command, stdout=out, stderr=out, env=plain_environment(), timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise CloisterError(
            f"{requirements} was not installed in {PATIENCE:.0f} s; see {log}"
        ) from None
    if done.returncode:
        raise CloisterError(
            f"{requirements} cannot be installed (code {done.returncode}); see {log}"
        )
