"""Which code ran: the version of the package and a digest of its sources."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

from cloister.version import __version__

PACKAGE = Path(__file__).parents[2]
"""The folder of all sources: in a checkout, some folders in it are links."""

_NOT_DECIDING = ("flows", "benchmarks")
"""Folders whose sources decide no answer: they order steps, and show what came of them."""

_EVALUATING = ("constraints", "evaluation", "schema")


def code_version() -> str:
    """The package version and the start of the digest of its sources."""
    return f"{__version__}+{code_digest()[:16]}"


def code_digest() -> str:
    """SHA-256 over the sources that decide an answer, in hexadecimal."""
    return _digest("")


def evaluating_digest() -> str:
    """SHA-256 over the sources that decide what is measured on a given table, in hexadecimal."""
    return _digest(*_EVALUATING)


def sources(folder: Path = PACKAGE) -> list[Path]:
    """The sources in a folder of the package that decide an answer, in order."""
    found: list[Path] = []
    for where, folders, files in os.walk(folder, followlinks=True):
        if Path(where) == PACKAGE:
            folders[:] = [name for name in folders if name not in _NOT_DECIDING]
        found += [Path(where) / name for name in files if name.endswith(".py")]
    return sorted(found)


@cache
def _digest(*folders: str) -> str:
    digest = hashlib.sha256()
    for path in [path for folder in folders for path in sources(PACKAGE / folder)]:
        name = path.relative_to(PACKAGE).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
