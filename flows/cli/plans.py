"""Plans as tables or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cloister.figures import count_of, figure
from cloister.flows.cli.console import show_facts, show_json, show_table, warn
from cloister.flows.cli.reports import show_guarantees, show_stages
from cloister.models import quality, registry
from cloister.models.task import AnyPlan, Budget
from cloister.privacy.certificate.provenance import exact_text, ignored_columns
from cloister.tasks.home.home import Home
from cloister.tasks.requests import disk_room, error_forecast, plan, plan_report, spec_changes
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest, public_context_of

if TYPE_CHECKING:
    from cloister.privacy.certificate.certificate import RecordGuarantees

_FIRST, _LAST = 12, 4
"""Entries of a long list that are shown: about a line each of an eighty-column terminal."""


def show_plan(request: ResolvedRequest, as_json: bool, whole: bool = False) -> None:
    """A plan: stages, sequence, time and memory; no data is touched.

    Of long lists the first and last entries are shown, all if ``whole``.
    """
    context = public_context_of(request)
    plan.require_satisfiable(context)
    release_plan = plan.plan_of(request)
    if as_json:
        show_json(_plan_as_json(request, context, release_plan))
        return
    show_stages(
        [
            (stage.name, stage.epsilon, shorten_list(stage.explanation, whole))
            for stage in plan.stage_costs(release_plan, request.budget, context.task)
        ],
        plan.total_cost(release_plan, request.budget, context.task),
        request.budget,
        context.price(request.budget),
    )
    _show_records(release_plan, request, context)
    _show_dependencies(plan.dependencies_of(release_plan, context.task), request.budget)
    _show_changes(
        spec_changes.changes_that_gain(context.task.lead, release_plan, request.budget), whole
    )
    for sentence in _warnings(request, context, release_plan):
        warn(sentence)
    show_facts("Plan", _plan_facts(request, context, release_plan, whole))


def _plan_as_json(
    request: ResolvedRequest, context: PublicContext, release_plan: AnyPlan
) -> dict[str, Any]:
    stages = plan.stage_costs(release_plan, request.budget, context.task)
    expected = plan.dependencies_of(release_plan, context.task)
    return plan.plan_json(release_plan) | {
        "forecast": asdict(plan_report.forecast_of(request, context, release_plan)),
        "reason": request.reason,
        "epsilon": str(request.budget.epsilon),
        "costs": [{"name": stage.name, "epsilon": stage.epsilon} for stage in stages],
        "accounted_epsilon": plan.total_cost(release_plan, request.budget, context.task),
        **_records(release_plan, request, context),
        "dependencies": [_dependency(forecast, request.budget) for forecast in expected],
        **error_forecast.errors_json(error_forecast.errors_by_table(context, release_plan)),
        "expected_unit_errors": {
            name: asdict(errors) if errors else None
            for name, errors in error_forecast.errors_by_unit(release_plan).items()
        },
        "changes": [
            *map(
                asdict,
                spec_changes.changes_that_gain(context.task.lead, release_plan, request.budget),
            )
        ],
        "soft_rate_deviation": release_plan.rate_deviation,
        **plan_report.soft_json(request, context),
        "warnings": _warnings(request, context, release_plan),
        **plan_report.device_json(request, release_plan),
        "ignored": list(ignored_columns(context.spec)),
    }


def _warnings(request: ResolvedRequest, context: PublicContext, release_plan: AnyPlan) -> list[str]:
    return [*plan_report.plan_warnings(request, context, release_plan), *budget_notes(request)]


def budget_notes(request: ResolvedRequest) -> list[str]:
    """A sentence if a spec declares another budget than its account was granted."""
    home = Home.current()
    if not home.may_hold_ledger:
        return []
    from cloister.tasks.ledger.budgets import budget_note

    return list(filter(None, [budget_note(request, home)]))


def _plan_facts(
    request: ResolvedRequest, context: PublicContext, release_plan: AnyPlan, whole: bool
) -> dict[str, Any]:
    needed = plan_report.forecast_of(request, context, release_plan)
    evaluation = "no" if request.evaluate == "none" else request.evaluate
    home = Home.current()
    room = disk_room.room_needed(request, context, home)[home.folder]
    return {
        "dataset": context.spec.name,
        "epsilon": exact_text(request.budget.epsilon),
        "method": f"{request.method}: {request.reason}",
        **_expected_errors(request, context, release_plan),
        **plan_report.dependence_facts(request),
        "rows to draw": request.rows,
        "sequence": shorten_list(", ".join(release_plan.sequence), whole),
        "columns left out": shorten_list(", ".join(ignored_columns(context.spec)) or "none", whole),
        "time": f"about {_duration(needed.seconds)} of processor time, with {evaluation} "
        f"evaluation; {_duration(plan_report.NEW_HOME)} more in a new home",
        "memory": plan.memory_words(request, release_plan),
        "disk": f"up to {room >> 20:,} MiB in the home",
        "device": plan_report.device_words(request, release_plan),
        **plan.worker_facts(request, release_plan),
    }


def _records(
    release_plan: AnyPlan, request: ResolvedRequest, context: PublicContext
) -> dict[str, dict[str, Any]]:
    records = _guarantees(release_plan, request, context)
    return {"records": records.model_dump(mode="json")} if records else {}


def _show_records(release_plan: AnyPlan, request: ResolvedRequest, context: PublicContext) -> None:
    """The guarantees of records made from seeds, each under its own name; nothing without them."""
    show_guarantees(_guarantees(release_plan, request, context))


def _guarantees(
    release_plan: AnyPlan, request: ResolvedRequest, context: PublicContext
) -> RecordGuarantees | None:
    method, relation = registry.create(request.method), context.task.neighbours.relation
    return method.own_guarantees(release_plan.event, request.budget.delta, relation).records


def _expected_errors(
    request: ResolvedRequest, context: PublicContext, release_plan: AnyPlan
) -> dict[str, str]:
    """What errors to expect, from public facts."""
    facts: dict[str, str] = {}
    tables = release_plan.tables(context.task)
    for table, errors in error_forecast.errors_by_table(context, release_plan).items():
        where = f" in {table}" if release_plan.parts else ""
        facts |= error_forecast.error_facts(where, errors)
        facts |= error_forecast.pair_facts(where, request, *tables[table])
    for name, units in error_forecast.errors_by_unit(release_plan).items():
        where = f" in {name}" if name in context.task.schema.tables else ""
        facts |= error_forecast.unit_facts(where, units)
    return facts | plan_report.soft_facts(request, context, release_plan)


def _show_dependencies(expected: Sequence[quality.DependencyForecast], budget: Budget) -> None:
    if expected:
        rows = [
            (forecast.name, _mapping(forecast), _expectation(forecast, budget))
            for forecast in expected
        ]
        show_table(
            "Functional dependencies: all hold; which are those of the data",
            ("constraint", "rows a left side, on average", "to expect"),
            rows,
            "from declared sizes: left sides that do not occur leave more rows for the others",
        )


def _show_changes(changes: Sequence[spec_changes.SpecChange], whole: bool) -> None:
    if changes:
        rows = [
            (
                change.write,
                shorten_list(", ".join(change.columns), whole),
                change.marginals,
                f"{figure(change.before)} -> {figure(change.after)}",
                f"{change.pairs_before:,} -> {change.pairs_after:,}",
            )
            for change in changes
        ]
        show_table(
            "Changes of the spec that would gain, each alone",
            ("declare", "for", "error of", "forecast", "pairs learnt"),
            rows,
            "what a coarser column has inside its bins is lost, and all of one that is left out",
        )


def _mapping(forecast: quality.DependencyForecast) -> str:
    return f"{figure(forecast.rows)} ({count_of(forecast.left_sides, 'left side')})"


def _expectation(forecast: quality.DependencyForecast, budget: Budget) -> str:
    if forecast.least_rows is None:
        return "its table is not counted: as other tables have it, or arbitrary"
    words = f"learnt from {count_of(figure(forecast.least_rows), 'row')} a left side on"
    if forecast.learnt:
        return words
    enough = forecast.epsilon(budget)
    later = f"from about epsilon {float(enough):g} on" if enough else "at no usual epsilon"
    return f"{words}, so mostly arbitrary; the average one {later}"


def _dependency(forecast: quality.DependencyForecast, budget: Budget) -> dict[str, Any]:
    enough = forecast.epsilon(budget)
    return asdict(forecast) | {
        "learnt": forecast.learnt,
        "learnt_from_epsilon": float(enough) if enough else None,
    }


def shorten_list(text: str, whole: bool) -> str:
    """A text whose list, set off by commas, is cut in the middle if it is long."""
    entries = text.split(", ")
    left_out = len(entries) - _FIRST - _LAST
    if whole or left_out <= 1:
        return text
    return ", ".join([*entries[:_FIRST], f"... ({left_out} more; --all) ...", *entries[-_LAST:]])


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
