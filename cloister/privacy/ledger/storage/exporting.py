"""Exports of the ledger: written as a whole or not at all.

An export replaces nothing but an earlier export of the same ledger.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from cloister.errors import StorageError

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def write_export(path: Path, content: bytes) -> None:
    """Write an export, readable by its owner alone.

    Raises:
        StorageError: it cannot be written, or another file is there than an earlier export of this
            ledger.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        earlier = _is_earlier(path, content)
        _write(part, content)
        if earlier:
            part.replace(path)
        else:
            os.link(part, path)
        _sync(path.parent)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"{path} cannot be written ({reason}): make room or correct the path."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()


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


def _write(part: Path, content: bytes) -> None:
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _taken(path: Path) -> StorageError:
    return StorageError(
        f"{path} is not an earlier export of this ledger, and is left as it is: give another file."
    )
