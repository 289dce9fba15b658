"""What methods of several tables share: one budget for all, and labels that name the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

from cloister.models.protocol import Arrays
from cloister.models.task import AnyPlan, Budget, Stage
from cloister.privacy.accounting.accountants import spend
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.queries.query import (
    AnswerT,
    Divider,
    Door,
    Mechanism,
    Query,
    SensitivityT,
    TableRows,
)

_ENOUGH = 0.995
"""Share of epsilon from which on a division counts as spending it."""

_DIVISIONS = 6
"""Divisions that are tried to spend the budget; the price is nearly linear in their scale."""

_RETREAT = 0.97
"""Factor on the scale of a division that still costs too much after all of them."""

_RETREATS = 40
"""Times that it is lowered at most: to less than parts that simply add up."""

DIGITS = 10**9
"""Denominator of the epsilons of a division."""

PlanT = TypeVar("PlanT", bound=AnyPlan)


def largest_within(
    plan_at: Callable[[float], PlanT], budget: Budget, relation: Relation
) -> PlanT | None:
    """The plan of the largest scale whose price the budget holds, nearly; None if there is none."""

    def price(plan: PlanT) -> float:
        return spend(plan.event, budget.delta, relation).epsilon / float(budget.epsilon)

    best, scale = None, 1.0
    for _ in range(_DIVISIONS):
        plan = plan_at(scale)
        cost = price(plan)
        if cost <= 1 and (best is None or cost > best[1]):
            best = plan, cost
        if _ENOUGH <= cost <= 1:
            break
        scale *= (1 + _ENOUGH) / 2 / cost
    for _ in range(_RETREATS):
        if best is not None:
            return best[0]
        scale *= _RETREAT
        plan = plan_at(scale)
        cost = price(plan)
        best = (plan, cost) if cost <= 1 else None
    return None


def label_stage(stage: Stage, table: str, words: str) -> Stage:
    """A stage of one table's plan, as one of the plan of all tables."""
    return replace(stage, name=f"{table}: {stage.name}", explanation=f"{words}{stage.explanation}")


def json_texts(value: Any) -> Any:
    """JSON values, fractions as text."""
    if isinstance(value, dict):
        return {name: json_texts(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [json_texts(part) for part in value]
    return str(value) if isinstance(value, Fraction) else value


def part_of_arrays(arrays: Arrays, name: str) -> Arrays:
    """The arrays under ``name/``, named without it."""
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)
    }


@dataclass(frozen=True)
class LabelledDoor:
    """The door to one table, whose answers are labelled with its name."""

    door: Door[TableRows]
    table: str

    @property
    def neighbours(self) -> Neighbours:
        """See :class:`Door`."""
        return self.door.neighbours

    @property
    def secure(self) -> bool:
        """See :class:`Door`."""
        return self.door.secure

    def answer(
        self,
        query: Query[TableRows, SensitivityT, AnswerT],
        mechanism: Mechanism[SensitivityT],
        label: str,
    ) -> AnswerT:
        """See :class:`Door`."""
        return self.door.answer(query, mechanism, f"{self.table}: {label}")

    def divide(self, split: Divider[TableRows], label: str) -> Sequence[Door[TableRows]]:
        """See :class:`Door`."""
        return self.door.divide(split, f"{self.table}: {label}")
