"""Plans, outcomes, evaluations and certificates as tables or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloister.errors import InputError
from cloister.figures import count_of, figure, figure_above, percent
from cloister.flows.cli.console import say, show_facts, show_json, show_table, warn
from cloister.models.quality import DependencyForecast
from cloister.models.registry import create
from cloister.models.task import AnyPlan, Budget
from cloister.privacy.certificate.certificate import PAGE_NAME
from cloister.privacy.certificate.provenance import exact_text, ignored_columns
from cloister.schema.declarations import DIFFERENTIAL_PRIVACY
from cloister.tasks.home.home import Home
from cloister.tasks.requests import disk_room, error_forecast, plan, plan_report
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest, public_context_of

if TYPE_CHECKING:
    from cloister.evaluation.report import AnyEvaluation
    from cloister.flows.release import Finished, Outcome
    from cloister.privacy.certificate.certificate import Certificate, RecordGuarantees

_STAGE_HEADINGS = ("stage", "epsilon alone", "what for")
_PLACES = {"public": "public files", "internal": "internal files", "database": "database"}
_FIRST, _LAST = 12, 4
"""Entries of a long list that are shown: about a line each of an eighty-column terminal."""

NO_EPSILON = "not DP"
"""In place of the epsilon of what is not differentially private."""

INTERNAL_NOTE = "internal: measured on the real rows without noise; do not share"


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
    _show_stages(
        [
            (stage.name, stage.epsilon, shorten_list(stage.explanation, whole))
            for stage in plan.stage_costs(release_plan, request.budget, context.task)
        ],
        plan.total_cost(release_plan, request.budget, context.task),
        request.budget,
        context.price(request.budget),
    )
    show_records(release_plan, request, context)
    _show_dependencies(plan.dependencies_of(release_plan, context.task), request.budget)
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


def show_records(release_plan: AnyPlan, request: ResolvedRequest, context: PublicContext) -> None:
    """The guarantees of records made from seeds, each under its own name; nothing without them."""
    show_guarantees(_guarantees(release_plan, request, context))


def _guarantees(
    release_plan: AnyPlan, request: ResolvedRequest, context: PublicContext
) -> RecordGuarantees | None:
    method, relation = create(request.method), context.task.neighbours.relation
    return method.own_guarantees(release_plan.event, request.budget.delta, relation).records


def show_guarantees(records: RecordGuarantees | None) -> None:
    """Each guarantee of records made from seeds under its own name; nothing without them."""
    if records is None:
        return
    bounds = {
        "one released record, alone": records.one_record,
        f"all {records.candidates:,} candidates": records.all_candidates,
        "the network": records.network,
    }
    show_table(
        f"Records made from seeds, released under {records.guarantee}",
        ("of", "epsilon", "delta"),
        [
            (name, bound.epsilon, bound.delta) if bound else (name, "none", "none")
            for name, bound in bounds.items()
        ],
        "the epsilon charged is that of the network alone: NOT differential privacy of the table"
        if records.guarantee != DIFFERENTIAL_PRIVACY
        else "",
    )


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
    return facts | plan_report.soft_facts(request, context, release_plan)


def _show_dependencies(expected: Sequence[DependencyForecast], budget: Budget) -> None:
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


def _mapping(forecast: DependencyForecast) -> str:
    return f"{figure(forecast.rows)} ({count_of(forecast.left_sides, 'left side')})"


def _expectation(forecast: DependencyForecast, budget: Budget) -> str:
    if forecast.least_rows is None:
        return "its table is not counted: as other tables have it, or arbitrary"
    words = f"learnt from {count_of(figure(forecast.least_rows), 'row')} a left side on"
    if forecast.learnt:
        return words
    enough = forecast.epsilon(budget)
    later = f"from about epsilon {float(enough):g} on" if enough else "at no usual epsilon"
    return f"{words}, so mostly arbitrary; the average one {later}"


def _dependency(forecast: DependencyForecast, budget: Budget) -> dict[str, Any]:
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


def show_outcome(outcome: Outcome | Finished, as_json: bool) -> None:
    """What a release spent and produced, and where its files are."""
    content = outcome.to_json()
    if as_json:
        show_json(content)
        return
    stages = [
        (stage["name"], stage["epsilon"], stage["explanation"]) for stage in content["stages"]
    ]
    _show_stages(
        stages,
        content["accounted_epsilon"],
        *(_amounts(amounts) for amounts in (content, content.get("charged", content))),
    )
    _show_violations(content)
    _show_figures(content["internal"])
    for sentence in content.get("warnings", []):
        warn(sentence)
    show_facts(
        f"Release {outcome.release} of {content['dataset']} {_ended(content)}",
        {
            "rows": _rows(content),
            "budget left": f"epsilon {content['budget_left']} of {content['budget_granted']} "
            f"in {content['budget_window']}",
            **{_PLACES[kind]: location for kind, location in content["files"].items()},
            "certificate": str(Path(content["files"]["public"]) / PAGE_NAME),
            "in a browser": "cloister page",
            "next": f"cloister review approve {outcome.release} --reason TEXT",
        },
    )


def _rows(content: dict[str, Any]) -> str:
    """Rows of the synthetic table; of several, those of each."""
    tables: dict[str, int] = content.get("tables", {})
    if len(tables) < 2:
        return f"{content['rows']:,}"
    return ", ".join(f"{rows:,} of {name}" for name, rows in tables.items())


def show_metrics(evaluation: AnyEvaluation) -> None:
    """The figures of an evaluation."""
    _show_figures(evaluation.to_dict())


def _ended(content: dict[str, Any]) -> str:
    earlier = content.get("earlier")
    return (
        "was finished by an earlier run of this command: nothing was charged now"
        if earlier
        else "is a candidate"
    )


def _show_figures(evaluation: dict[str, Any]) -> None:
    metrics = evaluation.get("headline", evaluation["metrics"])
    if metrics:
        rows = [
            (name.replace("_", " ").replace(".", ", "), value) for name, value in metrics.items()
        ]
        show_table("Utility", ("measure", "value"), rows, INTERNAL_NOTE)
    if evaluation.get("learning") and evaluation.get("truth"):
        synthetic, real = (evaluation[name]["mean_accuracy"] for name in ("learning", "truth"))
        say(f"Mean accuracy {synthetic:.3f}; trained on real rows {real:.3f}")


def _show_stages(
    stages: Sequence[tuple[str, float | None, str]], total: float, budget: Budget, price: Budget
) -> None:
    """Stages at the delta of a plan, and what the account is charged."""
    rows = [
        *((name, NO_EPSILON if cost is None else cost, words) for name, cost, words in stages),
        ("sampling", 0.0, "drawing rows is post-processing"),
        ("all together", total, f"charged: epsilon {exact_text(price.epsilon)}"),
    ]
    accounted = "all stages are accounted for together: the total is not their sum"
    show_table(
        f"Privacy spend at delta {exact_text(budget.delta)}",
        _STAGE_HEADINGS,
        rows,
        accounted if budget.delta else "without a delta the epsilons of stages add up",
    )


def _amounts(content: dict[str, Any]) -> Budget:
    return Budget(Fraction(content["epsilon"]), Fraction(content["delta"]))


def _show_violations(content: dict[str, Any]) -> None:
    truth = {report["name"]: report["real_percent"] for report in content["internal"]["violations"]}
    rows = [
        (
            report["name"],
            "hard" if report["hard"] else "soft",
            report["violations"],
            percent(report["percent"]),
            percent(truth[report["name"]]) if report["name"] in truth else "-",
        )
        for report in content["violations"]
    ]
    if rows:
        headings = ("constraint", "kind", "violations", "of all", "in the real rows (internal)")
        show_table("Constraints in the synthetic table", headings, rows)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def show_certificate(home: Home, release: str, as_json: bool) -> None:
    """What a release promises and spent, its state, and the place of its page.

    Raises:
        InputError: there is no such release, or it has no certificate yet.
        VerificationError: the certificate was altered, or is another one than the ledger recorded.
    """
    from cloister.privacy.certificate.certificate import YAML_NAME
    from cloister.tasks.ledger.access import release_of
    from cloister.tasks.release.integrity import recorded_certificate
    from cloister.tasks.release.signing import decisions_on

    entry = release_of(home, release)
    state = entry.state.value
    folder = home.release(release) / "public"
    if not (folder / YAML_NAME).exists():
        raise InputError(
            f"release {release} is {entry.state.words} and has no certificate; run its command "
            "again to finish it"
        )
    certificate, decisions = recorded_certificate(folder, entry), decisions_on(entry, folder)
    if as_json:
        later = {"state": state, "decisions": decisions, "page": str(folder / PAGE_NAME)}
        show_json(certificate.model_dump(mode="json") | later)
        return
    _show_promise(certificate, entry.state.words)
    if decisions:
        show_table("Decisions", tuple(decisions[0]), [tuple(row.values()) for row in decisions])
    say(f"Page: {folder / PAGE_NAME}")


def _show_promise(certificate: Certificate, state: str) -> None:
    accounted = figure_above(certificate.guarantee.accounted.epsilon, 6)
    subject, guarantee, total = certificate.subject, certificate.guarantee, certificate.cumulative
    show_facts(
        f"Release {subject.id}",
        {
            "dataset": subject.dataset,
            "method": subject.method,
            "state": state,
            "rows": subject.rows,
            "private": guarantee.private,
            "epsilon": f"{guarantee.epsilon} (accounted {accounted})",
            "delta": guarantee.delta,
            "protects": f"{guarantee.unit}; {guarantee.relation_words}",
            "spent so far": f"{total.spent} of {total.cap} in {total.window}",
            **({"by the filter": total.filtered} if total.filtered else {}),
        },
    )
    for line in guarantee.meaning:
        say(f"  {line}")
    stages = [
        (stage.name, NO_EPSILON if stage.epsilon is None else stage.epsilon, stage.purpose)
        for stage in certificate.stages
    ]
    show_table("Stages", ("stage", "epsilon alone", "what for"), stages)
    rules = [
        (rule.name, "hard" if rule.hard else "soft", rule.violations, rule.rule)
        for rule in certificate.constraints
    ]
    if rules:
        headings = ("constraint", "kind", "violations", "rule")
        show_table("Constraints in the synthetic table", headings, rules)
