"""The steps from a charge to public files: fit, sample, evaluate, certify.

Training and weighing are the only steps that query the data, and only through the door. Drawing
rows is free, repeatable post-processing. The evaluation against the real rows is internal. Public
files are the synthetic tables, their schema and the certificate.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import cast

from cloister.constraints.denial import ViolationReport
from cloister.evaluation.report import AnyEvaluation, Evaluation
from cloister.models.collapse import find_collapses
from cloister.models.discretization.bins import Bins
from cloister.models.lost_references import find_lost_references
from cloister.models.plan import AnyPlan
from cloister.models.protocol import AnyModel, DatabaseModel, Model
from cloister.models.registry import create
from cloister.models.storage import load_model, model_digest, save_model
from cloister.models.task import AnyTask, Task
from cloister.privacy.certificate.certificate import PAGE_NAME, YAML_NAME, Facts, certify
from cloister.privacy.certificate.page import page
from cloister.privacy.certificate.provenance import software
from cloister.privacy.door.journal import Journal
from cloister.privacy.ledger import Anchor, BudgetStatus
from cloister.schema.domain import Table
from cloister.schema.relations import Database, ForeignKey, row_tables
from cloister.tasks.data.session import AnySpent
from cloister.tasks.data.tables import (
    count_all_violations,
    draw_tables,
    published_schema,
    read_synthetic,
    require_hard_constraints,
    require_published_schema,
    require_references,
    write_csv,
    write_table,
)
from cloister.tasks.home.files import Reference, digest_of
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_digest, code_version, reporter
from cloister.tasks.ledger import COMPOSITION, deniable_releases, open_ledger, seal
from cloister.tasks.release.charge import ReservedRelease, kept_prior, kept_seed
from cloister.tasks.release.comparison import (
    EvaluationOptions,
    EvaluationRecord,
    compare_databases,
    compare_tables,
    write_evaluation,
)
from cloister.tasks.release.preflight import reused_releases, reusing
from cloister.tasks.requests.plan_report import training_device, unweighed_soft
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest, public_context_of
from cloister.tasks.stores.prefect_runs import note_warning, step


@step("train", "train {request.method} for {spent.release}")
def train_model(request: ResolvedRequest, spent: AnySpent, plan: AnyPlan, home: Home) -> Reference:
    """The model of rows, on disk.

    Raises:
        UnplannedQuery: the method made a query that the plan does not hold.
    """
    context = public_context_of(request)
    synthesizer = create(request.method, partial(_advanced, "train"))
    if prior := kept_prior(home.release(spent.release)):
        synthesizer = reusing(synthesizer, prior, home)
    model = synthesizer.train(spent.private, context.task, plan)
    return _saved(home.release(spent.release) / "trained", request, context, model)


@step("weights", "weigh soft constraints for {spent.release}")
def weigh_constraints(
    request: ResolvedRequest,
    spent: AnySpent,
    plan: AnyPlan,
    trained: Reference,
    home: Home,
) -> Reference:
    """The model with its soft constraints weighed, on disk.

    The journal is sealed: no more queries.
    """
    context = public_context_of(request)
    model = load_model(trained.open())
    weighed = create(request.method).weigh(spent.private, context.task, plan, model)
    seal(spent.release, request, spent.journal, home)
    return _saved(home.release(spent.release) / "model", request, context, weighed)


def _saved(
    folder: Path, request: ResolvedRequest, context: PublicContext, model: Model
) -> Reference:
    return Reference.of(save_model(folder, request.method, model, context.task, context.spec))


def _advanced(step_name: str, done: int, total: int) -> None:
    reporter().advance(step_name, done, total)


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


@step("evaluate", "evaluate {spent.release} ({request.evaluate})")
def evaluate_release(
    request: ResolvedRequest, spent: AnySpent, drawn: DrawnRows, home: Home
) -> EvaluationRecord:
    """Measure the synthetic tables against the rows of this release.

    Privacy: the result is not private; it stays in the home and never enters a certificate.
    """
    evaluation = replace(_measured(request, spent, drawn, home), warnings=drawn.warnings)
    return write_evaluation(evaluation, home.release(spent.release) / "internal")


def _evaluation_options(request: ResolvedRequest) -> EvaluationOptions:
    return EvaluationOptions(request.evaluate, device=request.computed_on)


def _measured(
    request: ResolvedRequest, spent: AnySpent, drawn: DrawnRows, home: Home
) -> AnyEvaluation:
    context, asked = public_context_of(request), _evaluation_options(request)
    if request.evaluate == "none" and isinstance(context.task, Task):
        return Evaluation("none", spent.rows.rows, request.rows)
    tables = {
        name: read_synthetic(drawn.files[name].open(), part.one)
        for name, part in context.tables.items()
    }
    if isinstance(context.task, Task):
        (synthetic,) = tables.values()
        return compare_tables(spent.rows, synthetic, context, asked, home)
    synthetic_database = Database(context.task.schema, tables)
    return compare_databases(spent.rows, synthetic_database, context, asked, home)


TABLE_NAME, CSV_NAME = "synthetic.parquet", "synthetic.csv"


@dataclass(frozen=True)
class Certified:
    """What a certificate covers: the charge, the plan, the model and the drawn rows."""

    charge: ReservedRelease
    spent: AnySpent
    plan: AnyPlan
    model: Reference
    drawn: DrawnRows

    @property
    def anchor(self) -> Anchor:
        """The ledger's entry that made the charge final."""
        return self.spent.anchor


@step("certify", "certify {done.charge.release}")
def write_certificate(request: ResolvedRequest, done: Certified, home: Home) -> Reference:
    """The folder of public files, without the manifest.

    Raises:
        PrivacyError: the events cost more than was charged, or a hard constraint is violated.
    """
    context = public_context_of(request)
    folder = fresh(home.release(done.charge.release) / "public")
    artefacts = _place_tables(done.drawn, request, context, folder)
    artefacts |= {file.name: digest_of(file) for file in published_schema(context).write(folder)}
    status = open_ledger(home).budget(context.spec.name, context.unit)
    certificate = certify(_facts(request, done, artefacts, status, home))
    (folder / YAML_NAME).write_text(certificate.to_yaml(), encoding="utf-8")
    (folder / PAGE_NAME).write_text(page(certificate), encoding="utf-8")
    return Reference.of(folder)


def fresh(folder: Path) -> Path:
    """The folder, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    return folder


def _place_tables(
    drawn: DrawnRows, request: ResolvedRequest, context: PublicContext, folder: Path
) -> dict[str, str]:
    """The synthetic tables, as Parquet and CSV if that was asked; SHA-256 by file name."""
    digests = {}
    for name, part in context.tables.items():
        table, text = (f"{context.files[name]}.{ending}" for ending in ("parquet", "csv"))
        os.link(drawn.files[name].open(), folder / table)
        digests[table] = drawn.files[name].digest
        if request.csv:
            write_csv(folder / table, folder / text, part.spec)
            digests[text] = digest_of(folder / text)
    return digests


def _facts(
    request: ResolvedRequest,
    done: Certified,
    artefacts: dict[str, str],
    status: BudgetStatus,
    home: Home,
) -> Facts:
    context = public_context_of(request)
    prior = kept_prior(home.release(done.charge.release))
    return Facts(
        spec=context.spec,
        constraints=context.task.constraints,
        across=() if isinstance(context.task, Task) else context.task.across,
        release=done.charge.release,
        method=request.method,
        method_summary=create(request.method).summary,
        rows=request.rows,
        epsilon=request.budget.epsilon,
        delta=request.budget.delta,
        stages=done.plan.stages,
        violations=done.drawn.violations,
        post_processing=done.drawn.post_processing,
        capacity=done.drawn.capacity,
        budget=status,
        composition=COMPOSITION,
        anchor=done.anchor,
        software=software(code_digest()).model_copy(
            update={
                "device": str(training_device(request, done.plan)),
                "earlier": _drawn_by_others(done.spent.journal),
            }
        ),
        artefacts=artefacts,
        written=datetime.now(UTC).date(),
        secure=done.spent.private.secure,
        input_digest=done.spent.digest,
        model=model_digest(done.model.open()),
        dangling=done.drawn.dangling,
        warnings=(*done.drawn.warnings, *unweighed_soft(request, context)),
        of_persons=_of_persons(context.task),
        deniable_releases=deniable_releases(home, context.spec.name),
        reused=reused_releases(prior, status, home) if prior else (),
    )


def _drawn_by_others(journal: Journal) -> dict[str, int]:
    """How many answers of a journal each other version of the code drew."""
    return {code: drawn for code, drawn in journal.drawn_by.items() if code != code_version()}


def _of_persons(task: AnyTask) -> tuple[str, ...]:
    """The key of persons with several rows and their attributes; empty if there are none."""
    persons = task.persons if isinstance(task, Task) else None
    return (persons.key, *persons.attributes) if persons else ()
