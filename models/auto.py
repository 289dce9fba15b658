"""The method that ``auto`` means: chosen by public facts alone, so the choice costs nothing."""

from __future__ import annotations

from dataclasses import dataclass

from cloister.errors import PlanError
from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.task import AnyTask, Budget

AUTO = "auto"
_PURE = ("dpview+", "dpview", "independent")
_USUAL = ("mixture", "independent")
"""With a delta: the first has smaller errors than the second even at epsilon 0.1 on 2,000 rows.

What the choice loses to the best method, by table, budget and measure: docs/benchmarks/auto.md.
"""


@dataclass(frozen=True)
class Choice:
    """A method, and why it is chosen, in words."""

    method: str
    reason: str


def choose_method(task: AnyTask, budget: Budget) -> Choice:
    """The first method, of those that suit the budget, with a plan for the task.

    Raises:
        PlanError: no method has one; says why the best has none.
    """
    suited = _PURE if budget.delta == 0 else _USUAL
    why = _of_budget(budget)
    refusals: list[str] = []
    for name in suited:
        try:
            make_plan(create(name), task, budget)
        except PlanError as refusal:
            refusals.append(str(refusal))
            why = f"methods that model attributes together have no plan here: {refusals[0]}"
        else:
            return Choice(name, why)
    raise PlanError(refusals[0])


def _of_budget(budget: Budget) -> str:
    if budget.delta == 0:
        return "delta is 0, which only a method of pure epsilon keeps"
    return "delta is above 0, which the method that measures best needs"
