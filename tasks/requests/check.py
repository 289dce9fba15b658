"""Whether a release would take a spec, from the spec alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cloister.constraints import require_consistent
from cloister.constraints.across import AcrossConstraint
from cloister.errors import PlanError
from cloister.privacy.certificate.provenance import ignored_columns
from cloister.schema.columns import Serial
from cloister.schema.spec_files.citations import citations_of, uncited_declarations
from cloister.schema.spec_files.loading import load_spec
from models.task import Budget, DatabaseTask
from tasks.requests.constraint_lines import constraints_in
from tasks.requests.options import public_rows, require_small_delta
from tasks.requests.public_context import PublicContext, declared_context
from tasks.requests.resolved import require_public


def checked_spec(path: Path) -> dict[str, Any]:
    """What a spec declares, if a release would take it.

    Raises:
        SpecError, ConstraintError, PlanError: a release would not.
    """
    spec = load_spec(path)
    require_public(path, spec)
    with constraints_in(path):
        context = declared_context(spec, public_rows(spec))
    tasks = [part.one for part in context.tables.values()]
    require_satisfiable(context)
    require_small_delta(Budget(spec.release.epsilon, spec.release.delta), spec)
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
            f"column '{column.name}': its pattern has {column.values:,} keys for {rows:,} rows; "
            "widen the pattern or request fewer rows"
        )
