"""Which process runs a release, and whether it is known to have ended."""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

_ENDED = ("Z", "X")
"""States of a process in /proc that ended and was not waited for yet."""

_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat behind the program's name: state, start in clock ticks since boot."""


@dataclass(frozen=True)
class Owner:
    """A process and one run in it; ``token`` is random and identifies the run.

    ``boot`` and ``namespace`` say which processes its ``pid`` and ``started`` can be compared
    with; they are empty where the system has no /proc.
    """

    token: str
    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Self:
        """A new run in this process."""
        pid = os.getpid()
        started = "".join(_stat(pid)[_STARTED : _STARTED + 1])
        return cls(secrets.token_hex(16), socket.gethostname(), _boot(), _namespace(), pid, started)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The owner that :attr:`text` wrote."""
        return cls(**json.loads(text))

    @property
    def text(self) -> str:
        """The owner as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended: it ran here since the last boot, and is gone."""
        if not self.boot or (self.boot, self.namespace) != (_boot(), _namespace()):
            return False
        found = _stat(self.pid)
        return not found or found[_STATE] in _ENDED or found[_STARTED] != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _boot() -> str:
    return _text(Path("/proc/sys/kernel/random/boot_id")).strip()


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of a process behind its name, which may hold anything; none if it is gone."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
