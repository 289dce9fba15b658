"""Exports of the ledger: written as a whole or not at all.

An export replaces nothing but an earlier export of the same ledger.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cloister.errors import StorageError
from cloister.files import write_whole

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def write_export(path: Path, content: bytes) -> None:
    """Write an export, readable by its owner alone.

    Raises:
        StorageError: it cannot be written, or another file is there than an earlier export of this
            ledger.
    """
    try:
        earlier = _is_earlier(path, content)
        write_whole(path, lambda part: part.write_bytes(content), replace=earlier)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"{path} cannot be written ({reason}): make room or correct the path."
        ) from error


def _is_earlier(path: Path, content: bytes) -> bool:
    """Whether an earlier export is there, with which this one begins; False if nothing is.

    Raises:
        StorageError: something else is.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode) or not _begins(path, content):
        raise _taken(path)
    return True


def _begins(path: Path, content: bytes) -> bool:
    with os.fdopen(os.open(path, _READ), "rb") as file:
        held = file.read(len(content) + 1)
    return bool(held) and held.endswith(b"\n") and content.startswith(held)


def _taken(path: Path) -> StorageError:
    return StorageError(
        f"{path} is not an earlier export of this ledger, and is left as it is: give another file."
    )
