"""Checks of a request before the ledger is charged and any data is opened."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cloister.errors import StorageError
from cloister.schema.sources.databases import require_table
from cloister.schema.spec import Spec
from tasks.ledger.queries import pending_release
from tasks.release.load import require_database
from tasks.release.prior import find_prior
from tasks.requests.check import require_satisfiable
from tasks.requests.public_context import PublicContext
from tasks.requests.resolved import ResolvedRequest
from tasks.runtime.home import Home

# Bytes of memory and disk that a cell of the output takes, in all its copies.
_CELL_BYTES = 24
# Bytes that a release writes whatever its size: ledger, stores, certificate, plots.
_SPARE_BYTES = 32 << 20
# Bytes of a file's name on every usual file system.
_LONGEST_NAME = 255
# What no home may have in its path: ? and % mean something else in a database's URL, quotes end a
# quoted text.
_UNFIT = "?%\"'"
# The longest path that a home holds, the name of a dataset and the tools' own parts together.
_LONGEST_IN_HOME = "x" * 200


def require_usable(request: ResolvedRequest, context: PublicContext, home: Home) -> None:
    """Check everything about a request that needs no data.

    Raises:
        ConstraintError: the hard constraints contradict each other, or cannot hold for this
            number of rows.
        PlanError, InputError: the numbers of an earlier release cannot be used again.
        StorageError: the data cannot be read, an output cannot be written, or the disk has no room.
    """
    require_satisfiable(context)
    find_prior(request, context, home)
    for part in context.tables.values():
        require_readable(request, part.spec)
    require_home(home)
    if request.out:
        require_place(request.out, home)
        require_new(request.out, _pending(request, context, home))
    if request.database:
        require_database(request, request.database, context, _pending(request, context, home))
    tasks = [part.one for part in context.tables.values()]
    cells = sum(task.output_rows * len(task.domain.names) for task in tasks)
    for folder in _written(request, home):
        require_room(folder, cells * _CELL_BYTES + _SPARE_BYTES)


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
    place, held = out.resolve(), home.folder.resolve()
    if place == held or held in place.parents or place in held.parents:
        raise StorageError(
            f"{out} and the home {home.folder} hold one another; give another folder with --out"
        )
    if place == Path.cwd() or place in Path.cwd().parents:
        raise StorageError(f"{out} holds the working directory; give a new folder with --out")


def require_nameable(path: Path) -> None:
    """Check that the system takes a path, whether something lies there or not.

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
        StorageError: something else lies there.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    manifest = out / "manifest.json"
    if release and manifest.is_file() and release.encode() in manifest.read_bytes():
        return
    raise StorageError(
        f"{out} exists and is not empty; give another folder with --out, or move it away"
    )


def _pending(request: ResolvedRequest, context: PublicContext, home: Home) -> str | None:
    """The id of :func:`pending_release`, if there is one."""
    held = pending_release(request, context, home)
    return held.id if held else None


def require_readable(request: ResolvedRequest, spec: Spec) -> None:
    """Check that the data is a regular file that can be read, or a table that is there.

    Raises:
        StorageError: it is not.
    """
    named = request.data or (Path(spec.source.path) if spec.source.path else None)
    if named is None:
        require_table(str(spec.source.url), str(spec.source.table))
        return
    require_nameable(named)
    if not named.exists():
        raise StorageError(
            f"the data {named} does not exist; correct source.path in the spec or give --data"
        )
    if not _is_regular(named) or not os.access(named, os.R_OK):
        raise StorageError(
            f"the data {named} cannot be read; check that it is a regular file and its permissions"
        )


def _is_regular(path: Path) -> bool:
    """Whether a file lies on a disk: no pipe, no device, nothing that a kernel makes up.

    Files of ``/proc`` call themselves regular; neither they nor their file system have blocks.
    """
    found = path.stat()
    made_up = found.st_blocks == 0 and os.statvfs(path).f_blocks == 0
    return stat.S_ISREG(found.st_mode) and not made_up


def _written(request: ResolvedRequest, home: Home) -> Iterator[Path]:
    yield home.folder
    if "://" not in home.remote:
        yield home.versions / home.remote
    if request.out:
        yield request.out


def require_room(folder: Path, needed: int) -> None:
    """Check that ``needed`` bytes can be written in or below the nearest folder that exists.

    Raises:
        StorageError: they cannot.
    """
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
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
            f"{folder}: the disk has {free >> 20} MiB free and the release needs about "
            f"{needed >> 20}; make room"
        )
