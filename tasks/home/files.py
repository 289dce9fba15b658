"""Files and folders: written whole or not at all, checked to be unchanged and in usable places.

Steps pass to each other a path and the digest of its content, instead of tables.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from cloister.errors import InputError, PlaceTaken, StorageError, VerificationError
from cloister.files import is_link, sync, write_whole
from cloister.tasks.home.home import Home, private_folder

_LONGEST_NAME = 255
"""Bytes of a file's name on every usual file system."""

_UNFIT = "?%\"'"
"""What no home may have in its path: ? and % mean something else in a database's URL, quotes end a
quoted text."""

_SEAL = "seal"
"""The key of a file's keyed digest, beside those that it is of."""

_FULL = (errno.ENOSPC, errno.EDQUOT)

_LEAST_ROOM = 1 << 16
"""Bytes below which a disk is full: a database grows by pages of 4,096, and by several at once."""

_PUBLIC_MODE = 0o644
"""Mode of the public files at ``--out``: everybody may read them."""

_LONGEST_IN_HOME = "x" * 200
"""The longest path that a home holds, the name of a dataset and the tools' own parts together."""


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Have ``write`` make a file beside ``path``, and move it there once it is on the disk.

    Folders that are missing are made. The file is readable by its owner alone.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, write)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"{path} cannot be written ({reason}); make room or correct its rights"
        ) from None


def write_json(path: Path, content: dict[str, Any]) -> Path:
    """Write JSON values to a file, whole or not at all; its path.

    Raises:
        StorageError: it cannot be written.
    """
    replace_file(path, lambda part: part.write_bytes(json_bytes(content)))
    return path


def json_bytes(content: dict[str, Any]) -> bytes:
    """JSON values as files hold them."""
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return text.encode()


SEALED = MappingProxyType({"notify": "cloister notify add", "recurring": "cloister deploy"})
"""Folders of a home whose files are sealed, each with the command that writes them anew."""

NO_SEAL = "has no seal, since an earlier version or somebody else wrote it; look at it"
"""What is said of a file that should be sealed; the command that writes it anew follows."""


def write_sealed(path: Path, content: dict[str, Any], home: Home) -> Path:
    """Write JSON values with a keyed digest of them and of the place, so that a change is found.

    Returns the file.

    Raises:
        StorageError: it cannot be written.
    """
    return write_json(path, content | {_SEAL: _seal(path, content, home)})


def read_sealed(path: Path, home: Home, remedy: str = "") -> tuple[dict[str, Any], bool]:
    """Return what ``write_sealed`` wrote, and whether it has a seal: earlier versions wrote none.

    Raises:
        VerificationError: it was altered, cannot be read, or is a link; says the ``remedy``.
    """
    try:
        content = {} if is_link(path) else json.loads(path.read_bytes())
        seal = content.pop(_SEAL, None)
    except (OSError, ValueError, AttributeError, RecursionError):
        content, seal = {}, None
    if not content or (seal is not None and seal != _seal(path, content, home)):
        remedy = remedy or f"remove it and run {SEALED[path.parent.name]} again"
        raise VerificationError(f"{path} was altered; {remedy}")
    return content, seal is not None


def sealed_findings(home: Home) -> Iterator[str]:
    """The sealed files of a home that were altered, or have no seal."""
    for path in sorted(path for name in SEALED for path in (home.folder / name).glob("*.json")):
        try:
            if not read_sealed(path, home)[1]:
                yield f"{path}: {NO_SEAL}, and run {SEALED[path.parent.name]} again"
        except VerificationError as error:
            yield str(error)


def _seal(path: Path, content: dict[str, Any], home: Home) -> str:
    name = path.relative_to(home.folder).as_posix()
    text = b"sealed " + name.encode() + b"\0" + json_bytes(content)
    return hmac.new(home.key(), text, hashlib.sha256).hexdigest()


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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _folder_digest(folder: Path) -> str:
    lines = [
        f"{_file_digest(path)} {path.relative_to(folder).as_posix()}" for path in _files_in(folder)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _files_in(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def require_home(home: Home) -> None:
    """Check that a home's path suits MLflow, Prefect and DVC: they write it into URLs and settings.

    Raises:
        StorageError: the path holds a letter that one of them cannot take, or is too long.
    """
    text = str(home.folder)
    if not text.isprintable() or set(text) & set(_UNFIT):
        raise StorageError(
            f"the home {text!a} has a path with control characters or one of {_UNFIT}; name it "
            "otherwise with CLOISTER_HOME"
        )
    require_nameable(home.folder / _LONGEST_IN_HOME)


def require_place(out: Path, home: Home) -> None:
    """Check that a folder can appear at ``out`` by a rename, outside the home.

    Raises:
        StorageError: it cannot.
    """
    require_nameable(out)
    if out.is_symlink() or out.is_mount():
        kind = "a link" if out.is_symlink() else "a mount point"
        raise StorageError(
            f"{out} is {kind}, which no folder can replace; give a new folder inside it with --out"
        )
    target, home_folder = out.resolve(), home.folder.resolve()
    if target == home_folder or home_folder in target.parents or target in home_folder.parents:
        raise StorageError(
            f"{out} and the home {home.folder} hold one another; give another folder with --out"
        )
    if target == Path.cwd() or target in Path.cwd().parents:
        raise StorageError(f"{out} holds the working directory; give a new folder with --out")


def require_nameable(path: Path) -> None:
    """Check that the system accepts a path, whether it exists or not.

    Raises:
        StorageError: it is no UTF-8 text, too long in whole or in part, or leads through a file.
    """
    try:
        os.fsencode(path).decode()
        path.lstat()
    except FileNotFoundError:
        pass
    except UnicodeDecodeError:
        raise StorageError(f"{str(path)!a} is not UTF-8 text; name it otherwise") from None
    except (OSError, ValueError) as error:
        reason = (
            os.strerror(error.errno or 0)
            if isinstance(error, OSError)
            else "no file has such a name"
        )
        raise StorageError(f"{path} cannot be used ({reason}); give another path") from None
    if any(len(os.fsencode(name)) > _LONGEST_NAME for name in path.parts):
        raise StorageError(
            f"{path} has a name of more than {_LONGEST_NAME} bytes; give a shorter one"
        )


def require_new(out: Path, release: str | None = None) -> None:
    """Check that ``out`` is free, or holds an unfinished copy of the same release.

    Raises:
        PlaceTaken: something else lies there.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    manifest = out / "manifest.json"
    if release and manifest.is_file() and release.encode() in manifest.read_bytes():
        return
    raise PlaceTaken(
        f"{out} exists and is not empty; give another folder with --out, or move it away"
    )


def require_room(folder: Path, needed: int) -> None:
    """Check that ``needed`` bytes can be written in or below the nearest folder that exists.

    Raises:
        StorageError: they cannot.
    """
    existing = _existing(folder)
    try:
        free = shutil.disk_usage(existing).free
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"{folder} cannot be written ({reason}); give another folder or correct its rights"
        ) from None
    if free < needed:
        raise StorageError(
            f"{folder}: the disk has {free >> 20:,} MiB free and up to {needed >> 20:,} are "
            "needed there; make room, give a folder on another disk, or request fewer rows; "
            "nothing was charged now"
        )


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised for, also where it hides them."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_of_full_disk(error: BaseException) -> bool:
    """Whether an error says that a disk or a quota is full, by its number or in the words of it.

    SQLite and tools that report for others have words alone.
    """
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    said = str(error.args)  # copies of folders have a list of errors there
    return any(words in said for words in ("disk is full", *map(os.strerror, _FULL)))


def has_no_room(folder: Path) -> bool:
    """Whether a disk takes no file any more, as where DVC does not say why it failed."""
    return shutil.disk_usage(folder).free < _LEAST_ROOM


def disk_of(folder: Path) -> int:
    """The number of the disk of a folder, or of the nearest above it that exists."""
    return _existing(folder).stat().st_dev


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder and in those below it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def emptied(folder: Path) -> Path:
    """The folder, deleted and made again, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    return folder


def copy_whole(folder: Path, out: Path, release: str) -> None:
    """Copy a folder so that ``out`` is never incomplete.

    Raises:
        PlaceTaken: something else lies at ``out``.
        StorageError: it cannot be written.
    """
    try:
        require_new(out, release)
    except PlaceTaken as error:
        raise PlaceTaken(
            f"{error}. Release {release} is charged and kept: the same command with another --out "
            "delivers it there, at no further charge"
        ) from None
    part = out.with_name(f".{release}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, part, copy_function=_copied)
        part.chmod(0o755)
        shutil.rmtree(out, ignore_errors=True)
        part.rename(out)
        sync(out.parent)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        error.filename = str(out)  # rather than the part, which is gone
        reason = os.strerror(errno.ENOSPC if is_of_full_disk(error) else error.errno or errno.EIO)
        raise StorageError(
            f"{out} cannot be written ({reason}); make room and run the same command again"
        ) from None


def _copied(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    Path(target).chmod(_PUBLIC_MODE)
    sync(Path(target))


@contextmanager
def frame_folder(home: Home) -> Iterator[Path]:
    """The folder of the frames that programs passed, while this process uses one of them."""
    folder = private_folder(home.folder / "frames")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield folder
    finally:
        os.close(descriptor)


@contextmanager
def abandoned_frames(home: Home) -> Iterator[list[Path]]:
    """The frames that killed processes left; none while any process uses one."""
    folder = home.folder / "frames"
    if not folder.is_dir():
        yield []
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield sorted(folder.iterdir())
    except BlockingIOError:
        yield []
    finally:
        os.close(descriptor)


@contextmanager
def exclusive(path: Path, otherwise: str = "") -> Iterator[None]:
    """Hold a lock file, as one process can at a time.

    It is released when the process ends, however it ends.

    Raises:
        InputError: another process holds it, and ``otherwise`` says what to do in place of waiting.
        StorageError: the file cannot be made or opened, as on a disk that is full or read-only.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be opened ({os.strerror(error.errno or 0)}); make room, or make the "
            "folder writable, and try again"
        ) from None
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
