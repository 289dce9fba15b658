"""The step that evaluates a release against its real rows; the result is internal."""

from __future__ import annotations

from dataclasses import replace

from cloister.evaluation.report import AnyEvaluation, Evaluation
from cloister.models.task import Task
from cloister.schema.relations import Database
from cloister.tasks.data.session import AnySpent
from cloister.tasks.evaluation.compare import (
    EvaluationOptions,
    EvaluationRecord,
    compare_databases,
    compare_tables,
    write_evaluation,
)
from cloister.tasks.release.sample import DrawnRows
from cloister.tasks.requests.public_context import public_context_of
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.step import step
from cloister.tasks.runtime.tables import read_synthetic


@step("evaluate", "evaluate {spent.release} ({request.evaluate})")
def evaluate_release(
    request: ResolvedRequest, spent: AnySpent, drawn: DrawnRows, home: Home
) -> EvaluationRecord:
    """Measure the synthetic tables against the rows of this release.

    Privacy: the result is not private; it stays in the home and never enters a certificate.
    """
    evaluation = replace(_measured(request, spent, drawn, home), warnings=drawn.warnings)
    return write_evaluation(evaluation, home.release(spent.release) / "internal")


def _options(request: ResolvedRequest) -> EvaluationOptions:
    return EvaluationOptions(request.evaluate, device=request.computed_on)


def _measured(
    request: ResolvedRequest, spent: AnySpent, drawn: DrawnRows, home: Home
) -> AnyEvaluation:
    context, asked = public_context_of(request), _options(request)
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
