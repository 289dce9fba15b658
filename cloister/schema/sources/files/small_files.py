"""Small public files, read whole if they are regular and not too long.

So no pipe or device stops a command.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_small_file(path: Path, most: int) -> bytes:
    """The bytes of a regular file.

    Args:
        path: the file; links are followed.
        most: bytes that it may hold.

    Raises:
        OSError: it cannot be read, is no regular file, or is longer; ``strerror`` says which.
    """
    try:
        found = path.stat()
    except ValueError:  # a name with a null byte
        raise OSError(errno.ENOENT, "no file has such a name", str(path)) from None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if found.st_size > most:
        raise OSError(errno.EFBIG, f"it is longer than {most:,} bytes", str(path))
    with path.open("rb") as file:
        return file.read(most)


def reason_of(error: OSError) -> str:
    """What was wrong with a file, in the words of the system or of :func:`read_small_file`."""
    return error.strerror or os.strerror(error.errno or 0)
