"""How a plan divides its budget: stages of counts, enough signal, the largest scale; public."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from cloister.errors import PlanError
from cloister.figures import count_of, figure, figure_range
from cloister.models.task import AnyPlan, Budget, Stage, Task
from cloister.privacy.accounting.accountants import spend, zcdp_rho
from cloister.privacy.events import Composed, Relation
from cloister.privacy.mechanisms.noise import DiscreteGaussian

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

_NOISIEST = 4
"""The scale of the noise of a count, in rows, times this may not exceed the rows."""

_STEPS_TO_DOUBLE = 16
"""Epsilons that are tried between one and its double: a message needs no more."""

_MOST_DOUBLINGS = 60
"""How often an epsilon that is too small is doubled at most."""


def counts_stage(
    task: Task, name: str, multiplier: Fraction, times: int, explanation: str
) -> Stage:
    """The stage of ``times`` tables of counts with discrete Gaussian noise."""
    return uneven_counts_stage(task, name, [(multiplier, times)], explanation)


def uneven_counts_stage(
    task: Task, name: str, noises: Sequence[tuple[Fraction, int]], explanation: str
) -> Stage:
    """The stage of tables of counts, so many with each multiplier of discrete Gaussian noise."""
    partition = task.neighbours.partition
    mechanisms = [(DiscreteGaussian(multiplier), times) for multiplier, times in noises]
    events = [(mechanism.event(partition), times) for mechanism, times in mechanisms]
    scales = figure_range([mechanism.scale(partition) for mechanism, _ in mechanisms])
    words = f"{explanation}; noise of {count_of(scales, 'row')} a count"
    return Stage(name, Composed(tuple(events)), words)


def require_signal(scale: float, rows: int, budget: Budget) -> None:
    """Check that Gaussian noise of a ``scale`` in rows leaves something of one-way counts.

    Without a delta it is taken for Laplace noise.

    Raises:
        PlanError: says what epsilon would do.
    """
    if not budget.delta:
        require_laplace_signal(scale, rows, budget)
    if scale * _NOISIEST > rows:
        raise _drowned(rows, budget, _epsilon_for(budget, scale * _NOISIEST / rows))


def require_laplace_signal(scale: float, rows: int, budget: Budget) -> None:
    """The same of Laplace noise, whose scale falls in proportion to epsilon.

    Raises:
        PlanError: says what epsilon would do.
    """
    if scale * _NOISIEST > rows:
        raise _drowned(rows, budget, float(budget.epsilon) * scale * _NOISIEST / rows)


def _epsilon_for(budget: Budget, times: float) -> float:
    """The epsilon whose Gaussian noise is so many times less, at the same delta.

    The smaller epsilon is beside delta, the less the noise depends on it.
    """
    wanted = float(zcdp_rho(budget.epsilon, budget.delta)) * times**2
    steps = range(_MOST_DOUBLINGS * _STEPS_TO_DOUBLE)
    found = bisect.bisect_left(
        steps,
        wanted,
        key=lambda step: float(zcdp_rho(_raised(budget.epsilon, step), budget.delta)),
    )
    return float(_raised(budget.epsilon, found))


def _raised(epsilon: Fraction, step: int) -> Fraction:
    doublings, part = divmod(step, _STEPS_TO_DOUBLE)
    return epsilon * 2**doublings * (_STEPS_TO_DOUBLE + part) / _STEPS_TO_DOUBLE


def _drowned(rows: int, budget: Budget, least: float) -> PlanError:
    return PlanError(
        f"epsilon {figure(float(budget.epsilon), 6)} is too small for {count_of(rows, 'row')}: "
        "the noise would drown the counts; "
        f"use at least about {figure(least, 2)}, or more rows"
    )


def require_delta(method: str, budget: Budget) -> None:
    """Check that there is a delta for Gaussian noise.

    Raises:
        PlanError: there is none.
    """
    if budget.delta <= 0:
        raise PlanError(
            f"method {method} adds Gaussian noise and needs a delta above 0; allow one, such as "
            "1e-6"
        )


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
