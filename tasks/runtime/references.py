"""What tasks pass to each other instead of tables: a path, and the digest of what lies there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cloister.errors import StorageError, VerificationError

_BLOCK = 1 << 20
"""Bytes that are read at once: a large file must not be held in memory."""


@dataclass(frozen=True)
class Reference:
    """A file or folder and the SHA-256 of its content, in hexadecimal."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """The reference to the present content of a path.

        Raises:
            StorageError: it cannot be read.
        """
        return cls(path, digest_of(path))

    def open(self) -> Path:
        """The path, if it still holds what was referred to.

        Raises:
            StorageError: it cannot be read.
            VerificationError: it was altered.
        """
        if digest_of(self.path) != self.digest:
            raise VerificationError(
                f"{self.path} was altered while the release ran; run the same command again"
            )
        return self.path


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of the names and digests of all files of a folder.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return _folder_digest(path) if path.is_dir() else _file_digest(path)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"{path} cannot be read ({reason}); check its path and permissions"
        ) from None


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def _folder_digest(folder: Path) -> str:
    lines = [
        f"{_file_digest(path)} {path.relative_to(folder).as_posix()}" for path in _files(folder)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
