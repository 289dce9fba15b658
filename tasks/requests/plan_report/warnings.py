"""What a plan warns of before a charge, from public facts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cloister.constraints import DenialConstraint
from cloister.figures import figure_range
from cloister.models.differences.pairs import differences_of, lacks_presence, orders_of
from cloister.models.persons.parts import split_task
from cloister.models.plan import AnyPlan
from cloister.models.task import AnyTask, DatabaseTask, Task
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.events import Composed, Event, GaussianCounts, LaplaceCounts
from cloister.schema.columns import Serial
from cloister.schema.declarations import quote
from cloister.schema.domain import Domain
from cloister.tasks.requests.plan_report.soft_constraints import unweighed_soft
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.resolved import ResolvedRequest

_DROPPED = (
    "'{name}' is across {table}.{column}, of a table to itself: a drawn row that violates it loses "
    "its reference; the release says how many rows refer"
)
_DROWNED = (
    "{table}counts of the values of a column have a noise of {noise} rows beside {rows:,} rows: "
    "what fewer rows share is lost in it; a larger epsilon, fewer columns (ignore) or fewer rows "
    "of a person (max_rows) keep more"
)

_UNMODELLED = (
    "'{name}' orders {first} and {second}, whose difference is not modelled: {reason}; it may come "
    "out much wider than in the data"
)
_BOUND = "other constraints hold for the number that would be made from it"
_ALONE = (
    'each may be missing where the other is not; if not so, declare it, as {{check: "t.{second} is '
    'missing if t.{first} is missing"}}'
)
_NEVER_MISSING = (
    "{table}'{name}' may be missing, and is a text key, which no method models: all rows will have "
    "one; declare missing_share, how many have none, or have it measured: cloister spec measure"
)
_OVER_BUDGET = (
    "epsilon {epsilon} at delta {delta} is above the declared budget, epsilon {most} at delta "
    "{most_delta} per {period}: a release will be refused; ask for less, or have more granted with "
    "cloister budget grant"
)
_OTHER_METHOD = "only method mixture does that"

_CLEAR = 0.05
"""The share of all rows that the least noise of a column's counts may be: at 0.07 a value of 77
rows of 4,000 came out in 433."""

_HISTOGRAMS = ("histograms", "attributes")
"""Names of stages of one-way counts, behind the name of a table."""

_ROWS = "rows"
"""The table of all rows, where persons have several and another has one row a person."""


def plan_warnings(
    request: ResolvedRequest, context: PublicContext, plan: AnyPlan
) -> tuple[str, ...]:
    """A sentence for what the release will not keep of the data, and one if it costs too much."""
    return (
        *budget_warnings(request, context),
        *unweighed_soft(request, context),
        *_dropped_references(context),
        *_drowned_counts(context.task, plan),
        *_unmodelled_differences(request, context.task),
        *_never_missing(context.task),
    )


def budget_warnings(request: ResolvedRequest, context: PublicContext) -> Iterator[str]:
    """A sentence if one release costs more than the whole budget that the spec declares."""
    price, declared = request.budget, context.spec.privacy.budget
    if price.epsilon > declared.epsilon or price.delta > declared.delta:
        yield _OVER_BUDGET.format(
            epsilon=exact_text(price.epsilon),
            delta=exact_text(price.delta),
            most=exact_text(declared.epsilon),
            most_delta=exact_text(declared.delta),
            period=declared.per,
        )


def _never_missing(task: AnyTask) -> Iterator[str]:
    if not isinstance(task, DatabaseTask):
        for name in _filled_keys(task.domain):
            yield _NEVER_MISSING.format(table="", name=name)
        return
    references = {(key.table, key.column) for key in task.schema.keys}
    for table, domain in task.schema.tables.items():
        for name in _filled_keys(domain):
            if (table, name) not in references:
                yield _NEVER_MISSING.format(table=f"table '{table}': ", name=name)


def _filled_keys(domain: Domain) -> list[str]:
    """The keys that rows of the data may lack, and no synthetic row does."""
    return [column.name for column in domain if isinstance(column, Serial) and column.fills_gaps]


def _drowned_counts(task: AnyTask, plan: AnyPlan) -> Iterator[str]:
    for stage in plan.stages:
        table, _, name = stage.name.rpartition(": ")
        rows = _rows_of(task, table)
        scales = list(_scales(stage.event)) if name in _HISTOGRAMS and rows else []
        if rows and scales and min(scales) > _CLEAR * rows:
            named = f"table '{table}': " if isinstance(task, DatabaseTask) else ""
            yield _DROWNED.format(table=named, noise=figure_range(scales), rows=rows)


def _unmodelled_differences(request: ResolvedRequest, task: AnyTask) -> Iterator[str]:
    if isinstance(task, DatabaseTask):
        return
    by_mixture = request.method == "mixture"
    parts = [split_task(task).persons, split_task(task).rows] if task.persons else [task]
    differences = [own for part in parts for own in differences_of(part)]
    modelled = {own.rule.name for own in differences} if by_mixture else set()
    for rule in orders_of(task):
        if rule.name in modelled:
            continue
        first, second = rule.attributes
        reason = _why_unmodelled(rule, task) if by_mixture else _OTHER_METHOD
        yield _UNMODELLED.format(name=rule.name, first=first, second=second, reason=reason)


def _why_unmodelled(rule: DenialConstraint, task: Task) -> str:
    """Why method mixture does not model the difference of two numbers that a rule orders."""
    if lacks_presence(rule, task):
        first, second = map(quote, rule.attributes)
        return _ALONE.format(first=first, second=second)
    return _BOUND


def _rows_of(task: AnyTask, table: str) -> int | None:
    """The declared rows that a stage counts; None if they are not declared."""
    if isinstance(task, DatabaseTask):
        return task.tables[table].data_rows if table in task.tables else None
    return task.data_rows if table in ("", _ROWS) else None


def _scales(event: Event) -> Iterator[float]:
    """The scales of the noise of counts, in rows."""
    match event:
        case Composed():
            for part, _ in event.parts:
                yield from _scales(part)
        case GaussianCounts():
            yield float(event.noise_multiplier) * math.sqrt(event.sensitivity.l2_squared)
        case LaplaceCounts():
            yield float(event.sensitivity.l1 / event.epsilon)


def _dropped_references(context: PublicContext) -> Iterator[str]:
    if not isinstance(context.task, DatabaseTask):
        return
    for rule in context.task.across:
        if rule.key.to_itself:
            yield _DROPPED.format(name=rule.name, table=rule.key.table, column=rule.key.column)
