"""Plans, outcomes and evaluations as tables or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from flows.cli.console import say, show_facts, show_json, show_table
from models.protocol import Budget
from tasks.requests.plan import plan_json, plan_of, stage_costs, total_cost
from tasks.requests.resolved import ResolvedRequest, public_context_of

if TYPE_CHECKING:
    from cloister.evaluation.report import Evaluation
    from flows.outcome import Finished, Outcome

_STAGE_HEADINGS = ("stage", "epsilon alone", "what for")
INTERNAL_NOTE = "internal: measured on the real rows without noise; do not share"


def show_plan(request: ResolvedRequest, as_json: bool) -> None:
    """A plan: stages, sequence, time and memory; no data is touched."""
    context = public_context_of(request)
    made = plan_of(request)
    stages = stage_costs(made, request.budget, context.task)
    total = total_cost(made, request.budget, context.task)
    if as_json:
        costs = [{"name": stage.name, "epsilon": stage.epsilon} for stage in stages]
        show_json(
            plan_json(made) | {"reason": request.reason, "costs": costs, "accounted_epsilon": total}
        )
        return
    _show_stages(
        [(stage.name, stage.epsilon, stage.explanation) for stage in stages], total, request.budget
    )
    show_facts(
        "Plan",
        {
            "dataset": context.spec.name,
            "method": f"{request.method}: {request.reason}",
            "rows to draw": request.rows,
            "sequence": ", ".join(made.sequence),
            "time": f"about {_duration(made.forecast.seconds)} on two cores",
            "memory": f"about {made.forecast.memory / 2**30:.1f} GiB",
        },
    )


def show_outcome(outcome: Outcome | Finished, as_json: bool) -> None:
    """What a release spent and gave, and where it lies."""
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
        Budget(Fraction(content["epsilon"]), Fraction(content["delta"])),
    )
    _show_violations(content)
    _show_figures(content["internal"])
    show_facts(
        f"Release {outcome.release} of {content['dataset']} {_ended(content)}",
        {
            "rows": content["rows"],
            "budget left": f"epsilon {content['budget_left']} of {content['budget_granted']} "
            f"in {content['budget_window']}",
            "public files": content["files"]["public"],
            "internal files": content["files"]["internal"],
            "next": f"cloister review approve {outcome.release} --reason TEXT",
        },
    )


def show_metrics(evaluation: Evaluation) -> None:
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
    metrics = evaluation["metrics"]
    if metrics:
        rows = [
            (name.replace("_", " ").replace(".", ", "), value) for name, value in metrics.items()
        ]
        show_table("Utility", ("measure", "value"), rows, INTERNAL_NOTE)
    if evaluation.get("learning") and evaluation.get("truth"):
        synthetic, real = (evaluation[name]["mean_accuracy"] for name in ("learning", "truth"))
        say(f"Mean accuracy {synthetic:.3f}; trained on real rows {real:.3f}")


def _show_stages(stages: Sequence[tuple[str, float, str]], total: float, budget: Budget) -> None:
    rows = [
        *stages,
        ("sampling", 0.0, "drawing rows is post-processing"),
        ("all together", total, _asked(budget)),
    ]
    show_table(
        f"Privacy spend at delta {float(budget.delta):g}",
        _STAGE_HEADINGS,
        rows,
        "what stages cost does not add up",
    )


def _asked(budget: Budget) -> str:
    return f"charged: epsilon {float(budget.epsilon):g}"


def _show_violations(content: dict[str, Any]) -> None:
    truth = {found["name"]: found["real_percent"] for found in content["internal"]["violations"]}
    rows = [
        (
            found["name"],
            "hard" if found["hard"] else "soft",
            found["violations"],
            _percent(found["percent"]),
            _truth(found["name"], truth),
        )
        for found in content["violations"]
    ]
    if rows:
        headings = ("constraint", "kind", "violations", "of all", "in the real rows (internal)")
        show_table("Constraints in the synthetic table", headings, rows)


def _truth(name: str, truth: dict[str, float]) -> str:
    return _percent(truth[name]) if name in truth else "-"


def _percent(share: float) -> str:
    return f"{share:.4g} %"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
