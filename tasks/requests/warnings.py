"""What a plan warns of before a charge, from public facts."""

from __future__ import annotations

from collections.abc import Iterator

from models.task import DatabaseTask
from tasks.requests.resolved import PublicContext, ResolvedRequest
from tasks.requests.soft_constraints import unweighed_soft

_DROPPED = (
    "'{name}' is across {table}.{column}, of a table to itself: a drawn row that violates it loses "
    "its reference; the release says how many rows refer"
)


def plan_warnings(request: ResolvedRequest, context: PublicContext) -> tuple[str, ...]:
    """A sentence for what the release will not keep of the data."""
    return (*unweighed_soft(request, context), *_dropped_references(context))


def _dropped_references(context: PublicContext) -> Iterator[str]:
    if not isinstance(context.task, DatabaseTask):
        return
    for rule in context.task.across:
        if rule.key.to_itself:
            yield _DROPPED.format(name=rule.name, table=rule.key.table, column=rule.key.column)
