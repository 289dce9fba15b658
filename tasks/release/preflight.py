"""Checks of a request before the ledger is charged and any data is opened.

The previous release whose noisy numbers a release reuses is found and checked here too.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from cloister.errors import CloisterError, DataError, InputError, PlanError, StorageError
from cloister.models.protocol import AnySynthesizer, ReusesNumbers
from cloister.models.registry import create, methods_with
from cloister.models.storage import SavedModel, load_saved, model_digest
from cloister.models.task import Task
from cloister.privacy.certificate.certificate import ReusedRelease
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.events import Relation
from cloister.privacy.ledger import BudgetStatus, Release, State
from cloister.privacy.mechanisms.randomness import noise_source
from cloister.schema.columns import Column
from cloister.schema.declarations import LATEST
from cloister.schema.domain import Domain
from cloister.schema.sources import databases, reading, stored_files
from cloister.schema.spec import Spec
from cloister.tasks.data.session import CHARGED_NOTHING
from cloister.tasks.data.tables import published_schema, require_database
from cloister.tasks.home import files
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import pending_release, release_of, releases
from cloister.tasks.release.integrity import recorded_certificate, released_manifest
from cloister.tasks.requests.disk_room import room_needed
from cloister.tasks.requests.plan import require_satisfiable
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest


def require_usable(request: ResolvedRequest, context: PublicContext, home: Home) -> None:
    """Check everything about a request that needs no data.

    Raises:
        ConstraintError: the hard constraints contradict each other, or cannot hold for this
            number of rows.
        PlanError, InputError: the numbers of a previous release cannot be reused.
        StorageError: the data cannot be read, an output cannot be written, or the disk has no room.
    """
    require_satisfiable(context)
    find_previous(request, context, home)
    for part in context.tables.values():
        require_readable(request, part.spec)
    files.require_home(home)
    if request.out_path:
        files.require_place(request.out_path, home)
        files.require_new(request.out_path, _pending(request, context, home))
    if request.database:
        require_database(request, request.database, context, _pending(request, context, home))
    _require_room(request, context, home)
    published_schema(context).contents()  # what cannot be written fails before the charge


def _pending(request: ResolvedRequest, context: PublicContext, home: Home) -> str | None:
    """The id of :func:`pending_release`, if there is one."""
    release = pending_release(request, context, home)
    return release.id if release else None


def require_readable(request: ResolvedRequest, spec: Spec) -> None:
    """Check that the data are regular files, or a table, with the declared columns; reads no row.

    Raises:
        StorageError: it is not there, or cannot be read.
        DataError: it has other columns.
    """
    named = request.data or spec.source.path
    with charging_nothing():
        if named is not None and not stored_files.is_remote(named):
            files.require_nameable(Path(named))
            with stored_files.guarded_reading(named):
                for file in stored_files.files_of(named):
                    _require_file(Path(file))
        reading.require_declared_columns(spec, request.data)
        if request.workers and named is None:
            databases.require_pages(spec)


@contextmanager
def charging_nothing() -> Iterator[None]:
    """Where data or stores are refused before any charge.

    Raises:
        DataError, StorageError: says that nothing was charged.
    """
    try:
        yield
    except (DataError, StorageError) as error:
        raise type(error)(f"{error}; {CHARGED_NOTHING}") from None


def _require_file(path: Path) -> None:
    if not path.exists():
        raise StorageError(
            f"the data {path} does not exist; correct source.path in the spec or give --data"
        )
    if not _is_regular(path) or not os.access(path, os.R_OK):
        raise StorageError(
            f"the data {path} cannot be read; check that it is a regular file and its permissions"
        )


def _is_regular(path: Path) -> bool:
    """Whether a file lies on a disk, rather than being a pipe, a device or a kernel's invention.

    Files of ``/proc`` call themselves regular; neither they nor their file system have blocks.
    """
    status = path.stat()
    made_up = status.st_blocks == 0 and os.statvfs(path).f_blocks == 0
    return stat.S_ISREG(status.st_mode) and not made_up


def _require_room(request: ResolvedRequest, context: PublicContext, home: Home) -> None:
    """Check that each disk has room for all that is written to it.

    What an unfinished release of the same request has written needs no room again.
    """
    on_disk = Counter[int]()
    for folder, needed in room_needed(request, context, home).items():
        on_disk[files.disk_of(folder)] += needed
    if pending := _pending(request, context, home):
        on_disk[files.disk_of(home.folder)] -= files.size_of(home.release(pending))
    for folder in room_needed(request, context, home):
        files.require_room(folder, on_disk[files.disk_of(folder)])


_DELIVERED = (State.CANDIDATE, State.APPROVED, State.PUBLISHED)

_NOT_COMPARED = frozenset({"provenance", "values"})
"""What may differ between declarations of one column; values are compared as they are listed."""


def find_previous(request: ResolvedRequest, context: PublicContext, home: Home) -> Release | None:
    """The previous release whose numbers a request reuses.

    None if it names none, or asks for the latest usable one and there is none.

    Raises:
        PlanError: the method cannot reuse numbers.
        InputError: there is no such release, or its numbers cannot be used; says why.
    """
    if request.prior is None:
        return None
    task = _require_reuse(request, context)
    wanted = _identity(request, context)
    if request.prior == LATEST:
        delivered = reversed(releases(home, context.dataset))
        return next(
            (release for release in delivered if not _hindrance(release, wanted, task, home)), None
        )
    release = release_of(home, request.prior)
    if hindrance := _hindrance(release, wanted, task, home):
        raise InputError(
            f"the numbers of release {release.id} cannot be reused: {hindrance}; name another "
            "with --prior, or leave it out"
        )
    return release


def previous_digest(release: str, home: Home) -> str:
    """The digest of the model that holds the numbers of a release.

    Raises:
        StorageError, VerificationError: it cannot be read, or is not what was saved.
    """
    return model_digest(home.release(release) / "model")


def reusing(synthesizer: AnySynthesizer, release: str, home: Home) -> AnySynthesizer:
    """The method, whose fits reuse the numbers of a previous release.

    Raises:
        StorageError, VerificationError: they cannot be read, or are not those released.
    """
    _, model = saved_model(release_of(home, release), home).one
    return cast("ReusesNumbers", synthesizer).following(model)


def reused_releases(release: str, status: BudgetStatus, home: Home) -> tuple[ReusedRelease, ...]:
    """A release and those whose numbers it reused itself, newest first.

    Raises:
        StorageError, VerificationError: a certificate cannot be read, or is not that recorded.
    """
    return tuple(
        ReusedRelease(
            release=reused.id,
            epsilon=exact_text(reused.request.epsilon),
            delta=exact_text(reused.request.delta),
            in_period=status.budget.period.window(reused.reserved_at) == status.window
            and (not status.block or status.block in reused.request.blocks),
        )
        for reused in _with_its_own(release, home)
    )


def _with_its_own(release: str, home: Home) -> Iterator[Release]:
    latest = release_of(home, release)
    yield latest
    certificate = recorded_certificate(home.release(release) / "public", latest)
    yield from (release_of(home, reused.release) for reused in certificate.reused)


def _require_reuse(request: ResolvedRequest, context: PublicContext) -> Task:
    """The task of a request whose method can reuse numbers."""
    task = context.task.lead
    if not context.task.several and task.persons is None:
        if create(request.method).reuses_numbers:
            return task
        raise PlanError(
            f"method '{request.method}' does not use a previous release; leave prior out, or "
            f"use --method {' or '.join(methods_with('reuses_numbers'))}"
        )
    raise PlanError(
        "a previous release can be used only for one table whose privacy unit is one row; leave "
        "prior out"
    )


def _identity(request: ResolvedRequest, context: PublicContext) -> dict[str, str]:
    """What a release must have in common with the one whose numbers it reuses, by name."""
    return {
        "dataset": context.dataset,
        "privacy unit": context.unit,
        "relation": Relation(context.spec.privacy.relation).value,
        "method": request.method,
    }


def _hindrance(release: Release, wanted: dict[str, str], task: Task, home: Home) -> str | None:
    """Why the numbers of a release cannot be reused; None if they can."""
    request = release.request
    if release.state not in _DELIVERED:
        return f"it is {release.state.words}"
    identity = (request.dataset, request.unit, request.relation, request.method)
    for (name, value), actual in zip(wanted.items(), identity, strict=True):
        if actual != value:
            return f"its {name} is '{actual}', not '{value}'"
    if request.stain and noise_source().secure:
        return "its noise was seeded"
    try:
        earlier, model = saved_model(release, home).one
        cast("ReusesNumbers", create(request.method)).following(model)
    except CloisterError as error:
        return str(error)
    return None if _same_columns(earlier.domain, task.domain) else "its columns are not the same"


def saved_model(release: Release, home: Home) -> SavedModel:
    """The model that a release is bound to.

    Raises:
        StorageError, VerificationError: it cannot be read, or is not that released.
    """
    return load_saved(
        home.release(release.id) / "model", released_manifest(home, release).lineage.model
    )


def _same_columns(earlier: Domain, now: Domain) -> bool:
    return earlier.names == now.names and all(map(_same_column, earlier, now))


def _same_column(earlier: Column, now: Column) -> bool:
    declared = [column.attribute.model_dump(exclude={*_NOT_COMPARED}) for column in (earlier, now)]
    return declared[0] == declared[1] and replace(earlier, attribute=now.attribute) == now
