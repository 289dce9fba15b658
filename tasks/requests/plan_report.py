"""What a plan says beside its stages, for plans and certificates; all of it is public.

Time and memory of the whole release, the device it trains on, what it does about soft constraints,
and what it warns of before a charge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from cloister.constraints import DenialConstraint
from cloister.devices import CPU, Device
from cloister.figures import figure, figure_range
from cloister.models import planning, protocol, quality, registry
from cloister.models.task import AnyPlan, DatabaseTask, Forecast, Task
from cloister.models.transforms.differences import (
    differences_of,
    lacks_presence,
    models_differences,
    orders_of,
)
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.events import Composed, Event, GaussianCounts, LaplaceCounts
from cloister.schema.columns import Serial
from cloister.schema.declarations import quote
from cloister.schema.domain import Domain, code_type
from cloister.tasks.requests import resolved

_START = 14.0
"""Seconds of a release of next to nothing: loading libraries, a Prefect server for its time,
MLflow, DVC. Measured on 1,000 rows with ``--evaluate none``, without the fit."""

NEW_HOME = 8.0
"""Seconds more of the first release of a home, which makes the databases of Prefect and MLflow.
Measured on the same rows: 6 for Prefect's, 2 for MLflow's."""

_START_BYTES = 450 << 20
"""Bytes that the libraries of a release take."""

_CELL = 2.5e-7
"""Seconds for each cell of table and output: read, checked, coded, written, and read again."""

_READ_CELL, _READ_KEY, _READ_REPEATED_KEY = 2.4e-8, 1.1e-6, 4e-7
"""Seconds in which a worker reads, checks and codes a cell of Parquet, and hashes it twice: of a
value, of a key as text, and of one that some ten rows have, as of a person or of another table."""

BATCH_CELLS = 1 << 22
"""Cells that are read or written at a time at most."""

_BATCH_BYTES = 50
"""Bytes for each cell of them. Measured: 38 for yes and no, 56 for texts, numbers and dates."""

_QUICK = (3.0, 9e-7)
"""Seconds of quick measures, of loading what they need, and those for each cell of table and
output."""

_TARGET = (0.3, 7.5e-5)
"""Seconds for each target and attribute of training the models of a panel twice, and those for each
row that they learn from."""

_LEARNT_ROWS = 7_000
"""Rows from which on training takes no longer: models learn from a part."""

_MOST_TARGETS = 16
"""Targets of a spec that names none."""


def forecast_of(
    request: resolved.ResolvedRequest, context: resolved.PublicContext, plan: AnyPlan
) -> Forecast:
    """Seconds of processor time and bytes of memory of the whole command; public."""
    tasks = list(context.task.tables.values())
    cells = sum(max(task.data_rows, task.output_rows) * len(task.domain.names) for task in tasks)
    seconds = _START + _CELL * cells + plan.forecast.seconds
    if request.evaluate != "none":
        seconds += _QUICK[0] + _QUICK[1] * cells
    if request.evaluate == "full":
        seconds += sum(map(_training, context.tables.values()))
    memory = _START_BYTES + _memory(tasks, plan)
    return Forecast(round(seconds, 1), memory, plan.forecast.device_memory)


def _memory(tasks: list[Task], plan: AnyPlan) -> int:
    """Bytes of the codes of table and output, and of the step that needs most beside them."""
    real = sum(code_bytes(task.domain, task.data_rows) for task in tasks)
    drawn = sum(code_bytes(task.domain, task.output_rows) for task in tasks)
    cells = sum(max(task.data_rows, task.output_rows) * len(task.domain.names) for task in tasks)
    batch = _BATCH_BYTES * min(cells, BATCH_CELLS)
    return real + max(plan.forecast.memory, drawn + batch)


def code_bytes(domain: Domain, rows: int) -> int:
    """Bytes of the codes of so many rows in memory."""
    return rows * sum(code_type(column).itemsize for column in domain)


def seconds_to_read(database: DatabaseTask) -> float:
    """Processor seconds in which workers read all rows from Parquet, before they are bounded."""
    repeated = {(key.table, key.column) for key in database.schema.keys}
    seconds = 0.0
    for name, task in database.tables.items():
        for column in task.domain:
            of_cell = _READ_CELL
            if isinstance(column, Serial):
                shared = (name, column.name) in repeated or column.name in task.person_keys
                of_cell = _READ_REPEATED_KEY if shared else _READ_KEY
            seconds += task.data_rows * of_cell
    return seconds


def _training(table: resolved.TableContext) -> float:
    """Seconds of training models to predict the targets of one table."""
    rows = min(max(table.task.data_rows, table.task.output_rows), _LEARNT_ROWS)
    attributes = len(table.task.domain.modelled)
    targets = len(table.spec.evaluation.targets) or min(_MOST_TARGETS, attributes)
    return targets * attributes * (_TARGET[0] + _TARGET[1] * rows)


def training_device(request: resolved.ResolvedRequest, plan: AnyPlan) -> Device:
    """The device of the request, or the processor if nothing of the plan is trained elsewhere."""
    return request.computed_on if plan.forecast.device_memory else CPU


def device_words(request: resolved.ResolvedRequest, plan: AnyPlan) -> str:
    """The device, what of a release is computed there, and what that promises."""
    device = training_device(request, plan)
    if device == CPU != request.computed_on:
        return (
            f"cpu: method {request.method} trains nothing; {request.computed_on} for the evaluation"
        )
    if device == CPU:
        return f"cpu: {device.determinism}"
    needed = f"about {plan.forecast.device_memory / 2**30:.1f} GiB"
    return f"{device}, {needed}, with noise that the processor makes: {device.determinism}"


def device_json(request: resolved.ResolvedRequest, plan: AnyPlan) -> dict[str, Any]:
    """The same for programs."""
    device = training_device(request, plan)
    return {"device": str(device), "determinism": device.determinism}


def dependence_facts(request: resolved.ResolvedRequest) -> dict[str, str]:
    """What the method cannot learn of how columns go together, if there is a bound."""
    match _method(request).most_joint:
        case None:
            return {}
        case 1:
            return {"not learnt": "how columns go together"}
        case most:
            return {
                "not learnt": f"what only {most + 1} or more columns together show, as a parity"
            }


_UNWEIGHED = (
    "{names}: method {method} does not model soft constraints; how often its rows break them is "
    "not adjusted to the data"
)


def unweighed_soft(
    request: resolved.ResolvedRequest, context: resolved.PublicContext
) -> tuple[str, ...]:
    """A sentence for those soft constraints of each table that the method leaves alone."""
    if _weighs(request):
        return ()
    return tuple(
        _UNWEIGHED.format(names=_names(task.soft), method=request.method)
        for task in context.task.tables.values()
        if task.soft
    )


def soft_facts(
    request: resolved.ResolvedRequest, context: resolved.PublicContext, plan: AnyPlan
) -> dict[str, str]:
    """How rates of soft constraints are known, and how rows are drawn under them."""
    soft = [task for task in context.task.tables.values() if task.soft]
    if not soft:
        return {}
    if not _weighs(request):
        return {"soft rates": f"not kept by {request.method}"}
    rates = "; ".join(_sources([rule for task in soft for rule in task.soft], plan))
    return {"soft rates": rates, "sampling": str(_sampling(request, soft[0]))}


def soft_json(request: resolved.ResolvedRequest, context: resolved.PublicContext) -> dict[str, Any]:
    """The same for programs: the way of drawing and why, and what is known."""
    facts: dict[str, Any] = {}
    soft = [task for task in context.task.tables.values() if task.soft]
    if soft:
        choice = _sampling(request, soft[0])
        facts["sampling"] = {"way": choice.way, "reason": choice.reason}
    rules = [rule for task in soft for rule in task.soft]
    facts["soft_known"] = [rule.name for rule in rules if rule.known is not None]
    return facts


def _sampling(request: resolved.ResolvedRequest, task: Task) -> planning.SamplingChoice:
    """How rows of a table are drawn under soft constraints; those of all tables in one way."""
    return planning.choose_sampling(task, _method(request).samplings)


def _sources(rules: Sequence[DenialConstraint], plan: AnyPlan) -> Iterator[str]:
    measured = [rule for rule in rules if rule.known is None]
    if measured and plan.rate_deviation is not None:
        points = figure(100 * plan.rate_deviation)
        yield f"measured to about {points} percentage points"
    elif measured:
        yield f"{_names(measured)} from noisy answers"
    if known := [rule for rule in rules if rule.known is not None]:
        yield f"{_names(known)} as declared, for which nothing is asked of the data"


def _weighs(request: resolved.ResolvedRequest) -> bool:
    """Whether the method does anything about soft constraints: all that do need a delta."""
    return _method(request).weighs_soft and request.budget.delta > 0


def _method(request: resolved.ResolvedRequest) -> protocol.AnySynthesizer:
    return registry.create(request.method)


def _names(rules: Sequence[DenialConstraint]) -> str:
    return ", ".join(f"'{rule.name}'" for rule in rules)


_DROPPED = (
    "'{name}' is across {table}.{column}, of a table to itself: a drawn row that violates it loses "
    "its reference; the release says how many rows refer"
)
_DROWNED = (
    "{table}counts of the values of a column have a noise of {noise} rows beside {rows:,} rows: "
    "what fewer rows share is lost in it; a larger epsilon, fewer columns (ignore) or fewer rows "
    "of a person (max_rows) keep more"
)

_UNLEARNT = (
    "{table}'{name}' costs most of all rules: which '{right}' goes with which {left} is told where "
    "about {least} rows or more have the same {left}, and {rows} have on average; the others get "
    "one that noise chose. About {needed:,} rows{epsilon} would tell it of most"
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

_CLEAR = 0.05
"""The share of all rows that the least noise of a column's counts may be: at 0.07 a value of 77
rows of 4,000 came out in 433."""

_HISTOGRAMS = ("histograms", "attributes")
"""Names of stages of one-way counts, behind the name of a table."""

_OF_GROUP = (
    "Epsilon and delta of the plan are of one row. The account is charged for a person, all rows "
    "with the same {key}, {rows} at most: epsilon {epsilon}, delta {delta}, by group privacy."
)

_ROWS = "rows"
"""The table of all rows, where persons have several and another has one row a person."""


def plan_warnings(
    request: resolved.ResolvedRequest, context: resolved.PublicContext, plan: AnyPlan
) -> tuple[str, ...]:
    """Sentences on what the release will lose of the data, and one if it costs too much."""
    return (
        *budget_warnings(request, context),
        *_group_words(request, context),
        *unweighed_soft(request, context),
        *_dropped_references(context),
        *_drowned_counts(context, plan),
        *_drowned_lists(context, plan),
        *_unlearnt_dependency(request, context, plan),
        *_unmodelled_differences(context, plan),
        *_never_missing(context),
    )


def budget_warnings(
    request: resolved.ResolvedRequest, context: resolved.PublicContext
) -> Iterator[str]:
    """A sentence if one release costs more than the whole budget that the spec declares."""
    price, declared = context.price(request.budget), context.spec.privacy.budget
    if price.epsilon > declared.epsilon or price.delta > declared.delta:
        yield _OVER_BUDGET.format(
            epsilon=exact_text(price.epsilon),
            delta=exact_text(price.delta),
            most=exact_text(declared.epsilon),
            most_delta=exact_text(declared.delta),
            period=declared.per,
        )


def _group_words(
    request: resolved.ResolvedRequest, context: resolved.PublicContext
) -> Iterator[str]:
    """A sentence on what an account of persons is charged for a release planned per row."""
    if group := context.spec.privacy.group:
        price = context.price(request.budget)
        yield _OF_GROUP.format(
            key=group.key,
            rows=group.max_rows,
            epsilon=exact_text(price.epsilon),
            delta=exact_text(price.delta),
        )


def _never_missing(context: resolved.PublicContext) -> Iterator[str]:
    schema = context.task.schema
    references = {(key.table, key.column) for key in schema.keys}
    for table, domain in schema.tables.items():
        for name in _filled_keys(domain):
            if (table, name) not in references:
                yield _NEVER_MISSING.format(table=context.of_table(table), name=name)


def _filled_keys(domain: Domain) -> list[str]:
    """The keys that rows of the data may lack, and no synthetic row does."""
    return [column.name for column in domain if isinstance(column, Serial) and column.fills_gaps]


def _drowned_counts(context: resolved.PublicContext, plan: AnyPlan) -> Iterator[str]:
    for stage in plan.one_fit.stages:
        table, _, name = stage.name.rpartition(": ")
        rows = _rows_of(context.task, table)
        scales = list(_scales(stage.event)) if name in _HISTOGRAMS and rows else []
        if rows and scales and min(scales) > _CLEAR * rows:
            named = context.of_table(table)
            yield _DROWNED.format(table=named, noise=figure_range(scales), rows=rows)


def _drowned_lists(context: resolved.PublicContext, plan: AnyPlan) -> Iterator[str]:
    for table, (task, table_plan) in plan.tables(context.task).items():
        named = context.of_table(table) if table in context.task.schema.tables else ""
        yield from (named + each for each in quality.forecast_lists(task, table_plan.counted))


def _unlearnt_dependency(
    request: resolved.ResolvedRequest, context: resolved.PublicContext, plan: AnyPlan
) -> Iterator[str]:
    """A sentence on the functional dependency that noise hides most, if it hides one."""
    unlearnt = [
        (table, task, forecast, forecast.least_rows)
        for table, (task, table_plan) in plan.tables(context.task).items()
        for forecast in quality.forecast_dependencies(task, table_plan.sequence, table_plan.mapped)
        if forecast.least_rows is not None and not forecast.learnt
    ]
    if not unlearnt:
        return
    table, task, worst, least = max(unlearnt, key=lambda each: each[3] / each[2].rows)
    epsilon = worst.epsilon(request.budget)
    yield _UNLEARNT.format(
        table=context.of_table(table) if table in context.task.schema.tables else "",
        name=worst.name,
        right=worst.right,
        left=" and ".join(f"'{name}'" for name in worst.left),
        least=figure(least, 2),
        rows=figure(worst.rows, 2),
        needed=math.ceil(least / worst.rows * task.data_rows),
        epsilon="" if epsilon is None else f", or epsilon {exact_text(epsilon)},",
    )


def _unmodelled_differences(context: resolved.PublicContext, plan: AnyPlan) -> Iterator[str]:
    for task, table_plan in plan.tables(context.task).values():
        able = models_differences(registry.create(table_plan.method))
        rules = (rule for each in differences_of(task) for rule in each.rules) if able else ()
        modelled = {rule.name for rule in rules}
        unable = f"method '{table_plan.method}' models numbers as they are"
        for rule in orders_of(task):
            if rule.name not in modelled:
                first, second = rule.attributes
                reason = _why_unmodelled(rule, task) if able else unable
                yield _UNMODELLED.format(name=rule.name, first=first, second=second, reason=reason)


def _why_unmodelled(rule: DenialConstraint, task: Task) -> str:
    """Why a method that could does not model the difference of two numbers that a rule orders."""
    if lacks_presence(rule, task):
        first, second = map(quote, rule.attributes)
        return _ALONE.format(first=first, second=second)
    return _BOUND


def _rows_of(task: DatabaseTask, table: str) -> int | None:
    """The declared rows that a stage counts; None if they are not declared."""
    if task.several:
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


def _dropped_references(context: resolved.PublicContext) -> Iterator[str]:
    for rule in context.task.across:
        if rule.key.to_itself:
            yield _DROPPED.format(name=rule.name, table=rule.key.table, column=rule.key.column)
