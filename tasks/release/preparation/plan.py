"""The public steps: they make the plan of a release and cost nothing."""

from __future__ import annotations

from cloister.models.plan import AnyPlan
from cloister.tasks.requests.plan import plan_along, sequence_of
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.step import step


@step("sequence", "sequence attributes of {request.spec.stem}")
def sequence_attributes(request: ResolvedRequest) -> tuple[str, ...]:
    """The order in which attributes are modelled."""
    return sequence_of(request)


@step("search", "search parameters for epsilon {request.budget.epsilon}")
def search_parameters(request: ResolvedRequest, attributes: tuple[str, ...]) -> AnyPlan:
    """The parameters that fit the budget, for attributes in the order in which they are modelled.

    Raises:
        PlanError: none do.
    """
    return plan_along(request, attributes)
