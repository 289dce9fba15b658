"""Files that appear whole or not at all: each is written beside its place, then moved there."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_OWNER_ALONE = 0o600
"""Mode of a new file; it holds from the first byte on, whatever the umask."""

_NAME_DIGITS = 16
"""Hexadecimal digits of the digest of a name in the name of its part: 64 bits. The digest stands
for the name, which may be as long as the system allows and leaves no room for more."""


def write_whole(path: Path, write: Callable[[Path], object], *, replace: bool = True) -> None:
    """Have ``write`` make a file beside ``path``, and move it there once it is on the disk.

    The file is readable by its owner alone. Parts that killed processes left of the same file are
    removed.

    Args:
        replace: whether a file that is there already gives way.

    Raises:
        FileExistsError: there is one, and it does not give way.
        OSError: the file cannot be written; nothing is left of it.
    """
    part = _part_beside(path)
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ALONE))
        write(part)
        sync(part)
        if replace:
            part.replace(path)
        else:
            os.link(part, path)
        sync(path.parent)
    except OSError as error:
        if str(error.filename) in (str(None), str(part)):
            error.filename = str(path)  # the file that is missing
        raise
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the list of names of a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_read_only(folder: Path) -> bool:
    """Whether a folder is there, and its mode, its owner or its disk allows no new file in it.

    So is the mode of a copy that was made to be read: root alone could write there.
    """
    if not folder.is_dir():
        return False
    return not (folder.stat().st_mode & stat.S_IWUSR and os.access(folder, os.W_OK))


def is_link(path: Path) -> bool:
    """Whether a path is a symbolic link, or a file with further names: hard links."""
    if path.is_symlink():
        return True
    return path.is_file() and path.stat().st_nlink > 1


LINKED = (
    "is a link, symbolic or hard, and what it leads to may be anybody's; put a copy of the file "
    "there, once you know that it is the right one"
)


def database_to_read(path: Path) -> str:
    """The URI by which SQLite reads a database; in a read-only folder, without files beside it.

    What other connections have not yet moved from its log into it is read too.
    """
    log = path.with_name(f"{path.name}-wal")
    alone = is_read_only(path.parent) and not (log.exists() and log.stat().st_size)
    return f"{path.absolute().as_uri()}?mode=ro" + ("&immutable=1" if alone else "")


def remove_abandoned(folder: Path) -> None:
    """Remove the parts that killed processes left in a folder and in those below it."""
    for part in _abandoned(folder.rglob(".*.*.*.part*")):
        part.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _part_beside(path: Path) -> Path:
    """Where this thread writes a file: ``.PROCESS.THREAD.DIGEST.part`` in the same folder."""
    digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:_NAME_DIGITS]
    for left in _abandoned(path.parent.glob(f".*.*.{digest}.part*")):
        left.unlink(missing_ok=True)
    return path.parent / f".{os.getpid()}.{threading.get_native_id()}.{digest}.part"


def _abandoned(parts: Iterable[Path]) -> Iterator[Path]:
    """The parts whose thread has ended, or is this one; journals of databases included."""
    leftover = list(parts)  # before the threads: a new one is not found
    threads = {thread.native_id for thread in threading.enumerate()} - {threading.get_native_id()}
    for part in leftover:
        process, thread = part.name.split(".")[1:3]
        if not (process.isdecimal() and thread.isdecimal()):
            continue
        is_ours = int(process) == os.getpid()
        if not (int(thread) in threads if is_ours else is_running(int(process))):
            yield part
