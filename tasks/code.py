"""Which code ran: the version of the package and a digest of its sources."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from cloister import __version__

ROOT = Path(__file__).parents[1]
ROOMS = ("cloister", "models", "tasks")


def code_version() -> str:
    """The package version and the start of the digest of its sources."""
    return f"{__version__}+{code_digest()[:16]}"


@cache
def code_digest() -> str:
    """SHA-256 over the sources that decide an answer, in hexadecimal."""
    digest = hashlib.sha256()
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
