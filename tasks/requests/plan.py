"""The plan of a request, from public inputs alone, and what its stages cost."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cloister.errors import PrivacyError
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.mechanisms.counts import up
from models.protocol import AnyPlan, AnyTask, Budget
from models.registry import create
from tasks.requests.resolved import ResolvedRequest, public_context_of


@dataclass(frozen=True)
class StageCost:
    """A stage of a plan and the epsilon of that stage alone, at the delta of the whole.

    These do not add up.
    """

    name: str
    explanation: str
    epsilon: float


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
    return create(request.method).search(public_context_of(request).task, sequence, request.budget)


def plan_of(request: ResolvedRequest) -> AnyPlan:
    """The whole plan of a request.

    Raises:
        PlanError: no parameters fit the budget.
    """
    return plan_along(request, sequence_of(request))


def stage_costs(plan: AnyPlan, budget: Budget, task: AnyTask) -> tuple[StageCost, ...]:
    """What each stage would cost alone."""
    relation = task.neighbours.relation
    return tuple(
        StageCost(stage.name, stage.explanation, epsilon(stage.event, budget.delta, relation))
        for stage in plan.stages
    )


def total_cost(plan: AnyPlan, budget: Budget, task: AnyTask) -> float:
    """The epsilon of all stages together, as accounted."""
    return epsilon(plan.event, budget.delta, task.neighbours.relation)


def require_within_budget(plan: AnyPlan, budget: Budget, task: AnyTask) -> None:
    """Check that a plan stays within the epsilon that is charged for it.

    Raises:
        PrivacyError: it costs more.
    """
    if total_cost(plan, budget, task) > up(budget.epsilon):
        raise PrivacyError(
            f"the plan of method {plan.method} costs more than its epsilon; nothing was charged"
        )


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
