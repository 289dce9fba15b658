"""The steps from a charge to synthetic rows: fit, sample, evaluate.

Fitting, which trains and weighs, is the only step that queries the data, and only through the door.
Drawing rows is free, repeatable post-processing. The evaluation against the real rows is internal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cloister.constraints.denial import ViolationReport
from cloister.evaluation.report import AnyEvaluation, Evaluation
from cloister.figures import figure
from cloister.models.acceptance import TriedPlan, run_tries
from cloister.models.protocol import DatabaseModel, DatabaseSynthesizer
from cloister.models.quality import find_collapses, find_lost_references
from cloister.models.registry import create, over_databases
from cloister.models.sampling.drawing import Mapper, in_threads
from cloister.models.storage import SavedModel, load_saved, save_model
from cloister.models.task import AnyPlan
from cloister.privacy.certificate.certificate import Acceptance
from cloister.schema.domain import Table
from cloister.schema.relations import Database, ForeignKey, row_tables
from cloister.tasks.data import parts, tables
from cloister.tasks.data.session import AnySpent
from cloister.tasks.data.workers import Workers
from cloister.tasks.home.files import Reference, write_json
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import reporter
from cloister.tasks.ledger.access import seal
from cloister.tasks.release import comparison
from cloister.tasks.release.kept_request import kept_previous, kept_seed
from cloister.tasks.release.preflight import reusing
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest, public_context_of
from cloister.tasks.stores.prefect_runs import note_warning, step

_ACCEPTANCE = "acceptance.json"
"""The noisy errors of the try that is delivered, in the folder of a release."""

_MISSED = (
    "acceptance criterion not met: the {name} has an error of {error}, measured with noise, above "
    "{largest}"
)


@dataclass(frozen=True)
class Fitted:
    """The model of a release, on disk; the plan that was followed, and the charge that paid it."""

    spent: AnySpent
    plan: AnyPlan
    model: Reference

    @property
    def release(self) -> str:
        """The id of the release."""
        return self.spent.release


@step("fit", "fit {request.method} for {spent.release}", "spent")
def fit_model(request: ResolvedRequest, plan: AnyPlan, spent: AnySpent, home: Home) -> Fitted:
    """The model of rows with its soft constraints weighed.

    The journal is sealed: no more queries.

    Raises:
        UnplannedQuery: the method made a query that the plan does not hold.
    """
    context, folder = public_context_of(request), home.release(spent.release)
    method = create(request.method, partial(reporter().advance, "fit"))
    if previous := kept_previous(home, spent.release):
        method = reusing(method, previous, home)
    synthesizer = over_databases(method)
    if isinstance(plan, TriedPlan):  # whose fits weigh theirs
        weighed = _accepted_model(synthesizer, spent, plan, request, home)
    else:
        model = synthesizer.train(spent.private, context.task, plan)
        trained = load_saved(_saved(folder / "trained", request, context, model).open()).model
        weighing = over_databases(create(request.method))
        weighed = weighing.weigh(spent.private, context.task, plan, trained)
    seal(spent.release, request, spent.journal, home)
    return Fitted(spent, plan, _saved(folder / "model", request, context, weighed))


def _accepted_model(
    synthesizer: DatabaseSynthesizer[Any, Any],
    spent: AnySpent,
    plan: TriedPlan[Any],
    request: ResolvedRequest,
    home: Home,
) -> DatabaseModel:
    """The model of the try that is delivered; its errors are written beside it."""
    context, folder = public_context_of(request), home.release(spent.release)
    task, name, seed = context.task, context.spec.name, kept_seed(home, spent.release)

    def fit(one: AnyPlan) -> DatabaseModel:
        model = synthesizer.train(spent.private, task, one)
        fitted: DatabaseModel = synthesizer.weigh(spent.private, task, one, model)
        return fitted

    def draw(model: DatabaseModel) -> Table:
        return tables.draw_tables(model, request.rows, seed).tables[name]

    door = spent.private.table(name)
    counted = door.secret_number(plan.tries, "tries that count")
    tried = run_tries(door, task.lead, plan, counted, fit, draw)
    met = bool(tried.errors) and all(error.met for error in tried.errors)
    acceptance = Acceptance(tries=plan.tries, criteria=tried.errors, met=met)
    write_json(folder / _ACCEPTANCE, acceptance.model_dump(mode="json"))
    return tried.model


def _saved(
    folder: Path, request: ResolvedRequest, context: PublicContext, model: DatabaseModel
) -> Reference:
    return Reference.of(save_model(folder, request.method, model, context.task, context.spec))


@dataclass(frozen=True)
class DrawnRows:
    """The synthetic file and ``rows`` of each table, and facts for the certificate; all public.

    ``violations`` are those of every constraint, and ``dangling`` the rows that break each foreign
    key, counted on the files; ``post_processing`` and ``capacity`` are the model's. ``warnings``
    say what the rows have lost of the released histograms, and which acceptance criteria they miss.
    """

    files: Mapping[str, Reference]
    rows: Mapping[str, int]
    violations: tuple[ViolationReport, ...]
    post_processing: tuple[str, ...]
    capacity: int | None
    dangling: tuple[tuple[ForeignKey, int], ...] = ()
    warnings: tuple[str, ...] = ()
    acceptance: Acceptance | None = None


@step("sample", "draw {request.rows} rows for {fitted.release}", "fitted")
def sample_rows(
    request: ResolvedRequest, fitted: Fitted, home: Home, workers: Workers | None = None
) -> DrawnRows:
    """Draw exactly the requested rows, and count every constraint on the file that was written.

    Chunks are drawn by workers, if there are any.

    Raises:
        SampleError: the rows cannot be drawn, or break a hard constraint or the published schema.
    """
    context, folder = public_context_of(request), home.release(fitted.release)
    saved = load_saved(fitted.model.open())
    model = saved.model
    files = {name: folder / f"{stem}.parquet" for name, stem in context.files.items()}
    mapper = workers.map if workers else in_threads
    _draw_files(saved, request.rows, kept_seed(home, fitted.release), files, mapper)
    reporter().advance("sample", 1, 3)
    database = _read_tables(files, context, in_blocks=model.samplers)
    dangling = tables.require_references(database)
    violations = tables.count_all_violations(context.task, database)
    acceptance = _acceptance_of(folder)
    tables.require_hard_constraints(violations)
    reporter().advance("sample", 2, 3)
    tables.require_published_schema(context, files)
    references = {name: Reference.of(path) for name, path in files.items()}
    return DrawnRows(
        references,
        database.rows,
        violations,
        model.post_processing(),
        model.capacity,
        dangling,
        (*_missed(acceptance), *_warnings(context, model, database)),
        acceptance,
    )


def _draw_files(
    saved: SavedModel, rows: int, seed: int, files: Mapping[str, Path], mapper: Mapper
) -> None:
    """Draw tables to files: chunk by chunk those that are drawn without others, the rest whole."""
    for name, sampler in saved.model.samplers.items():
        request = parts.SampleRequest(saved.digest, rows, seed)
        parts.sample_to(sampler, request, files[name], mapper)
    if remaining := files.keys() - saved.model.samplers.keys():
        drawn = dict(tables.draw_tables(saved.model, rows, seed).tables)
        for name in remaining:
            tables.write_table(drawn.pop(name), files[name])


def _acceptance_of(folder: Path) -> Acceptance | None:
    """The acceptance criteria of a release after its tries; None if it has none."""
    path = folder / _ACCEPTANCE
    if not path.exists():
        return None
    return Acceptance.model_validate_json(path.read_text(encoding="utf-8"))


def _missed(acceptance: Acceptance | None) -> Iterator[str]:
    for criterion in acceptance.criteria if acceptance else ():
        if not criterion.met:
            sentence = _MISSED.format(
                name=criterion.name,
                error=figure(criterion.error),
                largest=figure(criterion.largest),
            )
            note_warning("%s", sentence)
            yield sentence


def _read_tables(
    files: Mapping[str, Path], context: PublicContext, in_blocks: Collection[str] = ()
) -> Database:
    drawn = {}
    for name, task in context.task.tables.items():
        read = tables.read_in_blocks if name in in_blocks else tables.read_synthetic
        drawn[name] = read(files[name], task)
    return Database(context.task.schema, drawn)


def _warnings(context: PublicContext, fitted: DatabaseModel, database: Database) -> tuple[str, ...]:
    histograms, rows = fitted.histograms, row_tables(database)
    sentences = (
        *(
            f"{context.of_table(name)}{collapse}"
            for name in histograms
            for collapse in find_collapses(histograms[name], rows[name])
        ),
        *map(str, find_lost_references(histograms, database)),
    )
    for sentence in sentences:
        note_warning("%s", sentence)
    return sentences


@step("evaluate", "evaluate {spent.release} ({request.evaluate})", "drawn")
def evaluate_release(
    request: ResolvedRequest, spent: AnySpent, drawn: DrawnRows, home: Home
) -> comparison.EvaluationRecord:
    """Measure the synthetic tables against the rows of this release.

    Privacy: the result is not private; it stays in the home and never enters a certificate.
    """
    evaluation = replace(_measured(request, spent, drawn, home), warnings=drawn.warnings)
    return comparison.write_evaluation(evaluation, home.release(spent.release) / "internal")


def _evaluation_options(request: ResolvedRequest) -> comparison.EvaluationOptions:
    return comparison.EvaluationOptions(request.evaluate, device=request.computed_on)


def _measured(
    request: ResolvedRequest, spent: AnySpent, drawn: DrawnRows, home: Home
) -> AnyEvaluation:
    context, options = public_context_of(request), _evaluation_options(request)
    if request.evaluate == "none" and not context.task.several:
        return Evaluation("none", sum(spent.rows.rows.values()), request.rows)
    files = {name: file.open() for name, file in drawn.files.items()}
    in_blocks = [name for name, table in spent.rows.tables.items() if not table.in_memory]
    drawn_rows = _read_tables(files, context, in_blocks)
    return comparison.compare(spent.rows, drawn_rows, context, options, home)
