"""A release in a database: its tables, with their keys, made and filled in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cloister.constraints import key_attributes
from cloister.errors import InputError
from cloister.models.task import AnyTask, DatabaseTask, Task
from cloister.schema.relations import ForeignKey
from cloister.schema.sinks import LoadTarget, SyntheticTable, load_tables, require_loadable
from cloister.schema.sources.files_and_urls import HIDE_IT, holds_password
from cloister.tasks.requests.public_context import PublicContext, public_context_of
from cloister.tasks.requests.resolved import ResolvedRequest


def require_database(
    request: ResolvedRequest, url: str, context: PublicContext, release: str | None
) -> None:
    """Check that the tables of a release can be made in a database, before anything is charged.

    Those of ``release``, an unfinished one of the same request, may be there.

    Raises:
        InputError: a password stands in the URL.
        StorageError: they cannot be made.
    """
    require_no_password(url)
    unwritten = dict.fromkeys(context.tables, Path())
    require_loadable(
        LoadTarget(url, release or "", context.spec.name, request.replace),
        synthetic_tables(context.task, unwritten),
    )


def require_no_password(url: str) -> None:
    """Check that no password stands in the URL of a database.

    Raises:
        InputError: one does.
    """
    if holds_password(url):
        raise InputError(f"--out: the URL {HIDE_IT}")


def load_release(request: ResolvedRequest, url: str, release: str, folder: Path) -> None:
    """Load the synthetic tables in a folder into a database; done once for each release.

    Raises:
        StorageError: they cannot be written; none is.
    """
    context = public_context_of(request)
    files = {name: folder / f"{stem}.parquet" for name, stem in context.files.items()}
    target = LoadTarget(url, release, context.spec.name, request.replace)
    load_tables(target, synthetic_tables(context.task, files))


def synthetic_tables(task: AnyTask, files: Mapping[str, Path]) -> list[SyntheticTable]:
    """The synthetic tables of a task as they are to be in a database, parents first.

    ``files`` are their Parquet files by name.
    """
    if isinstance(task, Task):
        ((name, file),) = files.items()
        return [_synthetic(name, task, file, (), None)]
    keys = {key.parent: key.key for key in task.schema.keys}
    return [
        _synthetic(name, own, files[name], _references(task, name), keys.get(name))
        for name, own in task.tables.items()
    ]


def _references(task: DatabaseTask, name: str) -> tuple[ForeignKey, ...]:
    return task.schema.parents_of(name)


def _synthetic(
    name: str, task: Task, file: Path, references: tuple[ForeignKey, ...], key: str | None
) -> SyntheticTable:
    primary = key or _only_key(task, {reference.column for reference in references})
    unique = [
        names for rule in task.hard if (names := key_attributes(rule)) and names != (primary,)
    ]
    return SyntheticTable(name, task.domain, file, primary, references, unique)


def _only_key(task: Task, references: set[str]) -> str | None:
    """The only column that numbers rows afresh; None if there are several, or none."""
    of_persons = {task.persons.key} if task.persons else set()
    found = [
        column.name
        for column in task.domain
        if column.kind == "key"
        and column.null_code is None
        and column.name not in references | of_persons
    ]
    return found[0] if len(found) == 1 else None
