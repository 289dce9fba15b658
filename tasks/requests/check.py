"""Whether a release would take a spec, from the spec alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cloister.constraints import require_consistent
from cloister.constraints.across import AcrossConstraint
from cloister.errors import PlanError
from cloister.figures import count_of
from cloister.models.task import DatabaseTask
from cloister.privacy.certificate.provenance import ignored_columns
from cloister.schema.columns import Serial
from cloister.schema.spec_files.loading import citations_of, uncited_declarations
from cloister.tasks.requests.plan import plan_of
from cloister.tasks.requests.plan_report.warnings import budget_warnings
from cloister.tasks.requests.public_context import PublicContext, public_context_of
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import resolve


def checked_spec(path: Path) -> dict[str, Any]:
    """What a spec declares, if a release would take it: it is resolved and planned as one.

    Raises:
        SpecError, ConstraintError, PlanError, InputError: a release would not.
    """
    request = resolve(ReleaseRequest(spec=path))
    context = public_context_of(request)
    require_satisfiable(context)
    plan_of(request)
    spec, tasks = context.spec, [part.one for part in context.tables.values()]
    ignored = ignored_columns(spec)
    return {
        "name": spec.name,
        "attributes": sum(len(task.domain.names) for task in tasks),
        **({"ignored columns": ", ".join(ignored)} if ignored else {}),
        "hard constraints": sum(len(task.hard) for task in tasks) + len(_across(context)),
        "soft constraints": sum(len(task.soft) for task in tasks),
        "privacy unit": context.unit,
        "relation": spec.privacy.relation,
        "declared rows": context.task.data_rows,
        "provenance": citations_of(spec),
        "without a source": uncited_declarations(spec),
        "warnings": list(budget_warnings(request, context)),
    }


def _across(context: PublicContext) -> tuple[AcrossConstraint, ...]:
    return context.task.across if isinstance(context.task, DatabaseTask) else ()


def require_satisfiable(context: PublicContext) -> None:
    """Check that so many rows can satisfy the hard constraints and have keys; public.

    Keys of persons have a number for each person, columns that refer to others those of the others.

    Raises:
        ConstraintError: the hard constraints contradict each other, or cannot hold for so many.
        PlanError: names the key whose pattern is too narrow.
    """
    for name, part in context.tables.items():
        task = part.one
        require_consistent(task.constraints, task.domain, max(task.output_rows, task.data_rows))
        for column in task.domain:
            if isinstance(column, Serial) and column.name not in _shared_keys(context, name):
                _require_numbers(column, task.output_rows)


def _shared_keys(context: PublicContext, table: str) -> set[str]:
    task = context.task
    if isinstance(task, DatabaseTask):
        return {key.column for key in task.schema.keys if key.table == table}
    return {task.persons.key} if task.persons else set()


def _require_numbers(column: Serial, rows: int) -> None:
    if column.values < rows:
        raise PlanError(
            f"column '{column.name}': its pattern has {count_of(column.values, 'key')} for "
            f"{count_of(rows, 'row')}; widen the pattern or request fewer rows"
        )
