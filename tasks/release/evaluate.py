"""The step that evaluates a release against its real rows; the result is internal."""

from __future__ import annotations

from dataclasses import replace

from cloister.schema.domain import Table
from tasks.data.session import AnySpent
from tasks.evaluation.compare import (
    EvaluationOptions,
    EvaluationRecord,
    compare_tables,
    write_evaluation,
)
from tasks.release.sample import Drawn
from tasks.requests.resolved import ResolvedRequest, public_context_of
from tasks.runtime.home import Home
from tasks.runtime.step import step
from tasks.runtime.tables import read_synthetic


@step("evaluate", "evaluate {spent.release} ({request.evaluate})")
def evaluate_release(
    request: ResolvedRequest, spent: AnySpent, drawn: Drawn, home: Home
) -> EvaluationRecord:
    """Measure the synthetic table against the rows of this release; of several tables, the first.

    Privacy: the result is not private; it stays in the home and never enters a certificate.
    """
    name, context = next(iter(public_context_of(request).tables.items()))
    synthetic = read_synthetic(drawn.files[name].open(), context.one)
    real = spent.rows if isinstance(spent.rows, Table) else spent.rows.tables[name]
    evaluation = compare_tables(real, synthetic, context, EvaluationOptions(request.evaluate), home)
    evaluation = replace(evaluation, warnings=drawn.warnings)
    return write_evaluation(evaluation, home.release(spent.release) / "internal")
