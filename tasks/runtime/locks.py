"""Waiting for other processes, where a tool would fail instead."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloister.errors import InputError


@contextmanager
def exclusive(path: Path, otherwise: str = "") -> Iterator[None]:
    """Hold a lock file that one process holds at a time.

    It is released when the process ends, however it ends.

    Raises:
        InputError: another process holds it, and ``otherwise`` says what to do in place of waiting.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor, otherwise)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, otherwise: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if otherwise else 0))
    except BlockingIOError:
        raise InputError(otherwise) from None
