"""The step that evaluates a release against its real rows; the result is internal."""

from __future__ import annotations

from cloister.privacy.door.table import PrivateTable
from cloister.schema.domain import Table
from tasks.data.session import Spent
from tasks.evaluation.compare import (
    EvaluationOptions,
    EvaluationRecord,
    compare_tables,
    write_evaluation,
)
from tasks.requests.resolved import ResolvedRequest, public_context_of
from tasks.runtime.home import Home
from tasks.runtime.references import Reference
from tasks.runtime.step import step
from tasks.runtime.tables import read_synthetic


@step("evaluate", "evaluate {spent.release} ({request.evaluate})")
def evaluate_release(
    request: ResolvedRequest, spent: Spent[Table, PrivateTable], synthetic: Reference, home: Home
) -> EvaluationRecord:
    """Measure the synthetic table against the rows of this release.

    Privacy: the result is not private; it stays in the home and never enters a certificate.
    """
    context = public_context_of(request)
    table = read_synthetic(synthetic.open(), context.task)
    evaluation = compare_tables(
        spent.rows, table, context, EvaluationOptions(request.evaluate), home
    )
    return write_evaluation(evaluation, home.release(spent.release) / "internal")
