"""Which code ran: the version of the package and a digest of its sources."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from cloister import __version__

PROJECT = Path(__file__).parents[2]
_ROOMS = ("cloister", "models", "tasks")
_EVALUATING = ("cloister/constraints", "cloister/evaluation", "cloister/schema")


def code_version() -> str:
    """The package version and the start of the digest of its sources."""
    return f"{__version__}+{code_digest()[:16]}"


def code_digest() -> str:
    """SHA-256 over the sources that decide an answer, in hexadecimal."""
    return _digest(_ROOMS)


def evaluating_digest() -> str:
    """SHA-256 over the sources that decide what is measured on a given table, in hexadecimal."""
    return _digest(_EVALUATING)


@cache
def _digest(folders: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (PROJECT / folder).rglob("*.py")):
        digest.update(
            path.relative_to(PROJECT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
        )
    return digest.hexdigest()
