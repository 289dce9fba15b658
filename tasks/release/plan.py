"""The public steps: they make the plan of a release and cost nothing."""

from __future__ import annotations

from models.protocol import AnyPlan
from tasks.requests.plan import planned_along, planned_sequence
from tasks.requests.resolved import Order
from tasks.runtime.step import step


@step("sequence", "sequence attributes of {order.spec.stem}")
def sequence(order: Order) -> tuple[str, ...]:
    """The order in which attributes are modelled."""
    return planned_sequence(order)


@step("search", "search parameters for epsilon {order.budget.epsilon}")
def search(order: Order, attributes: tuple[str, ...]) -> AnyPlan:
    """The parameters that fit the budget, for attributes in the order in which they are modelled.

    Raises:
        PlanError: none do.
    """
    return planned_along(order, attributes)
