"""Plans, outcomes and evaluations as tables or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloister.privacy.ledger.exact import decimal
from flows.console import facts, say, show_json, table
from tasks.orders import Order, world_of
from tasks.plans import StageCost, plan_json, planned, stage_costs, total_cost

if TYPE_CHECKING:
    from cloister.evaluation.report import Evaluation
    from flows.outcome import Outcome

STAGE_HEADINGS = ("stage", "epsilon alone", "what for")
INTERNAL = "internal: measured on the real rows without noise, must not leave the house"


def show_plan(order: Order, as_json: bool) -> None:
    """A plan: stages, sequence, time and memory; no data is touched."""
    world = world_of(order)
    made = planned(order)
    stages = stage_costs(made, order.budget, world.task)
    total = total_cost(made, order.budget, world.task)
    if as_json:
        costs = [{"name": stage.name, "epsilon": stage.epsilon} for stage in stages]
        show_json(plan_json(made) | {"reason": order.reason, "costs": costs, "accounted_epsilon": total})
        return
    _show_stages(stages, total, order)
    facts(
        "Plan",
        {
            "dataset": world.spec.name,
            "method": f"{order.method}: {order.reason}",
            "rows to draw": order.rows,
            "sequence": ", ".join(made.sequence),
            "time": f"about {_duration(made.forecast.seconds)} on two cores",
            "memory": f"about {made.forecast.memory / 2**30:.1f} GiB",
        },
    )


def show_outcome(outcome: Outcome, as_json: bool) -> None:
    """What a release spent and gave, and where it lies."""
    if as_json:
        show_json(outcome.to_json())
        return
    _show_stages(outcome.stages, outcome.spent, outcome.order)
    _show_violations(outcome)
    show_metrics(outcome.evaluation)
    facts(
        f"Release {outcome.release} of {outcome.dataset} is a candidate",
        {
            "rows": outcome.order.rows,
            "budget left": f"epsilon {decimal(outcome.budget.left)} of {decimal(outcome.budget.budget.epsilon)} "
            f"in {outcome.budget.window}",
            "files to hand on": outcome.public,
            "internal files": outcome.internal,
            "next": f"cloister review approve {outcome.release} --reason TEXT",
        },
    )


def show_metrics(evaluation: Evaluation) -> None:
    """The figures of an evaluation."""
    metrics = evaluation.metrics()
    if metrics:
        rows = [(name.replace("_", " ").replace(".", ", "), value) for name, value in metrics.items()]
        table("Utility", ("measure", "value"), rows, INTERNAL)
    if evaluation.learning and evaluation.truth:
        say(f"Mean accuracy {evaluation.learning.accuracy:.3f}; trained on real rows {evaluation.truth.accuracy:.3f}")


def _show_stages(stages: Sequence[StageCost], total: float, order: Order) -> None:
    rows = [(stage.name, stage.epsilon, stage.explanation) for stage in stages]
    rows += [("sampling", 0.0, "drawing rows is post-processing"), ("all together", total, _asked(order))]
    table(
        f"Privacy spend at delta {float(order.budget.delta):g}",
        STAGE_HEADINGS,
        rows,
        "what stages cost does not add up",
    )


def _asked(order: Order) -> str:
    return f"charged: epsilon {float(order.budget.epsilon):g}"


def _show_violations(outcome: Outcome) -> None:
    truth = {found.name: found.real_percent for found in outcome.evaluation.violations}
    rows = [
        (
            found.name,
            "hard" if found.hard else "soft",
            found.violations,
            _percent(found.percent),
            _truth(found.name, truth),
        )
        for found in outcome.violations
    ]
    if rows:
        headings = ("constraint", "kind", "violations", "of all", "in the real rows (internal)")
        table("Constraints in the synthetic table", headings, rows)


def _truth(name: str, truth: dict[str, float]) -> str:
    return _percent(truth[name]) if name in truth else "-"


def _percent(share: float) -> str:
    return f"{share:.4g} %"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
