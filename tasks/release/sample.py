"""The step that draws rows from a fitted model: free, repeatable post-processing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import cast

from cloister.constraints.denial import ViolationReport
from cloister.models.collapse import find_collapses
from cloister.models.discretization.bins import Bins
from cloister.models.lost_references import find_lost_references
from cloister.models.protocol import AnyModel, DatabaseModel, Model
from cloister.models.storage import load_model
from cloister.models.task import Task
from cloister.schema.domain import Table
from cloister.schema.relations import Database, ForeignKey, row_tables
from cloister.tasks.release.charge import ReservedRelease
from cloister.tasks.release.kept_request import kept_seed
from cloister.tasks.requests.public_context import PublicContext, public_context_of
from cloister.tasks.requests.published import require_published_schema
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.references import Reference
from cloister.tasks.runtime.step import step
from cloister.tasks.runtime.tables import (
    count_all_violations,
    draw_tables,
    read_synthetic,
    require_hard_constraints,
    require_references,
    write_table,
)
from cloister.tasks.stores.prefect_run_page import note_warning


@dataclass(frozen=True)
class DrawnRows:
    """The synthetic file and ``rows`` of each table, and what a certificate says; all public.

    ``violations`` are those of every constraint, and ``dangling`` the rows that break each foreign
    key, counted on the files; ``post_processing`` and ``capacity`` are the model's. ``warnings``
    say what the rows have lost of the released histograms.
    """

    files: Mapping[str, Reference]
    rows: Mapping[str, int]
    violations: tuple[ViolationReport, ...]
    post_processing: tuple[str, ...]
    capacity: int | None
    dangling: tuple[tuple[ForeignKey, int], ...] = ()
    warnings: tuple[str, ...] = ()


@step("sample", "draw {request.rows} rows for {charge.release}")
def sample_rows(
    request: ResolvedRequest, charge: ReservedRelease, model: Reference, home: Home
) -> DrawnRows:
    """Draw exactly the requested rows, and count every constraint on the file that was written.

    Raises:
        SampleError: the rows cannot be drawn, or break a hard constraint or the published schema.
    """
    context, folder = public_context_of(request), home.release(charge.release)
    fitted = load_model(model.open())
    drawn = draw_tables(fitted, request.rows, kept_seed(folder), context.spec.name)
    files = {name: folder / f"{stem}.parquet" for name, stem in context.files.items()}
    for name, path in files.items():
        write_table(drawn.pop(name), path)
    tables = {name: read_synthetic(files[name], part.one) for name, part in context.tables.items()}
    dangling = require_references(context.task, tables)
    violations = count_all_violations(context.task, tables)
    require_hard_constraints(violations)
    require_published_schema(context, files)
    references = {name: Reference.of(path) for name, path in files.items()}
    return DrawnRows(
        references,
        {name: table.rows for name, table in tables.items()},
        violations,
        fitted.post_processing(),
        fitted.capacity,
        dangling,
        _warnings(context, fitted, tables),
    )


def _warnings(
    context: PublicContext, fitted: AnyModel, tables: Mapping[str, Table]
) -> tuple[str, ...]:
    if isinstance(context.task, Task):
        one = cast("Model", fitted)
        found = _collapsed("", one.histograms, tables[context.spec.name])
    else:
        found = _of_several(cast("DatabaseModel", fitted), Database(context.task.schema, tables))
    for sentence in found:
        note_warning("%s", sentence)
    return found


def _of_several(fitted: DatabaseModel, database: Database) -> tuple[str, ...]:
    histograms, rows = fitted.histograms, row_tables(database)
    collapsed = (
        _collapsed(f"table '{name}', ", histograms[name], rows[name]) for name in histograms
    )
    lost = map(str, find_lost_references(histograms, database))
    return (*chain.from_iterable(collapsed), *lost)


def _collapsed(place: str, histograms: Mapping[str, Bins], rows: Table) -> tuple[str, ...]:
    return tuple(f"{place}{found}" for found in find_collapses(histograms, rows))
