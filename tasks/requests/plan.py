"""The plan of a request, from public inputs alone, and what its stages cost."""

from __future__ import annotations

import bisect
import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from cloister.errors import PlanError, PrivacyError
from cloister.models.plan import AnyPlan, Stage
from cloister.models.planning.dependency_forecast import (
    EPSILONS,
    DependencyForecast,
    forecast_dependencies,
)
from cloister.models.planning.error_forecast import forecast_error
from cloister.models.protocol import search_plan
from cloister.models.registry import create
from cloister.models.task import AnyTask, Budget, Task
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.accounting.composition import accountable, deniable_event, event_of_stages
from cloister.privacy.exact import float_above
from cloister.schema.declarations import PLAUSIBLE_DENIABILITY
from cloister.tasks.requests.public_context import public_context_of
from cloister.tasks.requests.resolved import ResolvedRequest


@dataclass(frozen=True)
class StageCost:
    """A stage of a plan and the epsilon of that stage alone, at the delta of the whole.

    These do not add up. None for what is released under plausible deniability alone.
    """

    name: str
    explanation: str
    epsilon: float | None

    def to_json(self) -> dict[str, Any]:
        """The stage as JSON values."""
        return {"name": self.name, "epsilon": self.epsilon, "explanation": self.explanation}


@lru_cache(maxsize=4)
def sequence_of(request: ResolvedRequest) -> tuple[str, ...]:
    """The order in which attributes are modelled."""
    return create(request.method).sequence(public_context_of(request).task)


@lru_cache(maxsize=4)
def plan_along(request: ResolvedRequest, sequence: tuple[str, ...]) -> AnyPlan:
    """The plan of a request that models the attributes in a sequence.

    Raises:
        PlanError: no parameters fit the budget.
    """
    task = public_context_of(request).task
    return search_plan(create(request.method), task, sequence, request.budget)


def plan_of(request: ResolvedRequest) -> AnyPlan:
    """The whole plan of a request.

    Raises:
        PlanError: no parameters fit the budget.
    """
    return plan_along(request, sequence_of(request))


def stage_costs(plan: AnyPlan, budget: Budget, task: AnyTask) -> tuple[StageCost, ...]:
    """What each stage would cost alone."""
    return tuple(
        StageCost(stage.name, stage.explanation, _epsilon_alone(stage, budget, task))
        for stage in plan.stages
    )


def _epsilon_alone(stage: Stage, budget: Budget, task: AnyTask) -> float | None:
    if not accountable([stage]):
        return None
    return epsilon(stage.event, budget.delta, task.neighbours.relation)


def total_cost(plan: AnyPlan, budget: Budget, task: AnyTask) -> float:
    """The epsilon of all stages together, as accounted.

    What is released under plausible deniability alone is not in it.
    """
    event = event_of_stages(accountable(plan.stages))
    return epsilon(event, budget.delta, task.neighbours.relation)


def require_within_budget(plan: AnyPlan, budget: Budget, task: AnyTask) -> None:
    """Check that a plan stays within the epsilon that is charged for it.

    Raises:
        PrivacyError: it costs more, or holds what no epsilon bounds and the task does not declare.
    """
    if deniable_event(plan.stages) and getattr(task, "guarantee", "") != PLAUSIBLE_DENIABILITY:
        raise PrivacyError(
            f"the plan of method {plan.method} is under plausible deniability alone, which the "
            "spec does not declare; nothing was charged"
        )
    if total_cost(plan, budget, task) > float_above(budget.epsilon):
        raise PrivacyError(
            f"the plan of method {plan.method} costs more than its epsilon; nothing was charged"
        )


def until_learnt(plan: AnyPlan, task: AnyTask) -> bool:
    """Whether a plan will learn every functional dependency of one table."""
    return all(own.learnt for own in dependencies_of(plan, task))


def until_possible(plan: AnyPlan, task: AnyTask) -> bool:  # noqa: ARG001 - one of two kinds
    """True: there is a plan."""
    return True


UNTIL = MappingProxyType({"learnt": until_learnt, "possible": until_possible})
"""What a budget may be raised for."""


def dependencies_of(plan: AnyPlan, task: AnyTask) -> tuple[DependencyForecast, ...]:
    """What is to be expected of the functional dependencies of one table; public."""
    return forecast_dependencies(task, plan) if isinstance(task, Task) else ()


def expected_error(request: ResolvedRequest) -> float | None:
    """The expected two-way error of a release of one table; None if it cannot be told; public."""
    task = public_context_of(request).task
    return forecast_error(task, request.method, request.budget) if isinstance(task, Task) else None


def raise_budget(request: ResolvedRequest, wanted: str) -> ResolvedRequest:
    """The request at the least epsilon, of two digits, at which what is ``wanted`` holds; public.

    Raises:
        PlanError: it does not at the greatest epsilon that may be charged.
    """
    found = bisect.bisect_left(
        EPSILONS, True, key=lambda epsilon: _holds(_with_epsilon(request, epsilon), wanted)
    )
    if found == len(EPSILONS):
        raise PlanError(
            f"no epsilon up to {float(EPSILONS[-1]):g} is enough for '{wanted}'; declare fewer "
            "values or bins, release more rows, or make constraints soft"
        )
    return _with_epsilon(request, EPSILONS[found])


def _with_epsilon(request: ResolvedRequest, epsilon: Fraction) -> ResolvedRequest:
    return request.filled(epsilon=str(epsilon))


def _holds(request: ResolvedRequest, wanted: str) -> bool:
    try:
        made = plan_of(request)
    except PlanError:
        return False
    return UNTIL[wanted](made, public_context_of(request).task)


def plan_json(plan: AnyPlan) -> dict[str, Any]:
    """The plan as JSON values."""
    return {
        "method": plan.method,
        "sequence": list(plan.sequence),
        "stages": [
            {"name": stage.name, "event": stage.event.to_json(), "explanation": stage.explanation}
            for stage in plan.stages
        ],
        "parameters": plan.parameters.to_json(),
        "forecast": {"seconds": plan.forecast.seconds, "memory": plan.forecast.memory},
    }


def plan_digest(plan: AnyPlan) -> str:
    """SHA-256 of what decides the answers of a fit: everything but the forecast."""
    decisive = plan_json(plan) | {"forecast": None}
    return hashlib.sha256(
        json.dumps(decisive, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()
