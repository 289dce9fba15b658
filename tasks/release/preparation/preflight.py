"""Checks of a request before the ledger is charged and any data is opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloister.errors import DataError, StorageError
from cloister.schema.sources.reading import require_declared_columns
from cloister.schema.spec import Spec
from cloister.tasks.data.refusals import CHARGED_NOTHING
from cloister.tasks.ledger.queries import pending_release
from cloister.tasks.release.load import require_database
from cloister.tasks.release.prior import find_prior
from cloister.tasks.requests.check import require_satisfiable
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.published import published_schema
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.places import (
    require_home,
    require_nameable,
    require_new,
    require_place,
    require_room,
)

_CELL_BYTES = 24
"""Bytes of memory and disk that a cell of the output takes, in all its copies."""

_SPARE_BYTES = 32 << 20
"""Bytes that a release writes whatever its size: ledger, stores, certificate, plots."""


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
    if request.out_path:
        require_place(request.out_path, home)
        require_new(request.out_path, _pending(request, context, home))
    if request.database:
        require_database(request, request.database, context, _pending(request, context, home))
    tasks = [part.one for part in context.tables.values()]
    cells = sum(task.output_rows * len(task.domain.names) for task in tasks)
    for folder in _written(request, home):
        require_room(folder, cells * _CELL_BYTES + _SPARE_BYTES)
    published_schema(context).contents()  # what cannot be written fails before the charge


def _pending(request: ResolvedRequest, context: PublicContext, home: Home) -> str | None:
    """The id of :func:`pending_release`, if there is one."""
    held = pending_release(request, context, home)
    return held.id if held else None


def require_readable(request: ResolvedRequest, spec: Spec) -> None:
    """Check that the data is a regular file, or a table, with the declared columns; reads no row.

    Raises:
        StorageError: it is not there, or cannot be read.
        DataError: it has other columns.
    """
    named = request.data or (Path(spec.source.path) if spec.source.path else None)
    with _charging_nothing():
        if named is not None:
            _require_file(named)
        require_declared_columns(spec, request.data)


@contextmanager
def _charging_nothing() -> Iterator[None]:
    """Where data is refused before any charge.

    Raises:
        DataError, StorageError: says that nothing was charged.
    """
    try:
        yield
    except (DataError, StorageError) as error:
        raise type(error)(f"{error}; {CHARGED_NOTHING}") from None


def _require_file(path: Path) -> None:
    require_nameable(path)
    if not path.exists():
        raise StorageError(
            f"the data {path} does not exist; correct source.path in the spec or give --data"
        )
    if not _is_regular(path) or not os.access(path, os.R_OK):
        raise StorageError(
            f"the data {path} cannot be read; check that it is a regular file and its permissions"
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
    if request.out_path:
        yield request.out_path
