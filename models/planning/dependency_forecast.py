"""Which functional dependencies a plan will learn, and which mappings will be arbitrary; public.

A dependency always holds in the rows that are drawn. Whether the right side of a left side is that
of the data, the noise decides: it is found where the left side has more rows than a few standard
deviations of the noise of their joint table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from cloister.constraints import DenialConstraint, functional_dependency
from cloister.models.plan import AnyPlan
from cloister.models.task import Budget, Task
from cloister.privacy.accounting.accountants import zcdp_rho

SURE = 5.0
"""Standard deviations of the noise in the rows of a left side whose right side is learnt.

Nineteen of twenty and more were right at 5 to 8, all above 8 (docs/benchmarks/shapes.md).
"""

EPSILONS = tuple(
    Fraction(digits, 10) * Fraction(10) ** power
    for power in range(-2, 3)
    for digits in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
)
"""Epsilons from 0.01 to 800 among which one is looked for."""


@dataclass(frozen=True)
class DependencyForecast:
    """What is to be expected of one functional dependency.

    ``left_sides`` is the declared number of left sides, ``rows`` how many rows each has on average
    if all occur; ``deviation`` that of the noise, in rows, None if no joint table is counted.
    """

    name: str
    left: tuple[str, ...]
    right: str
    left_sides: int
    rows: float
    deviation: float | None

    @property
    def least_rows(self) -> float | None:
        """Rows of a left side from which on its right side is learnt; None if none is."""
        return None if self.deviation is None else SURE * self.deviation

    @property
    def learnt(self) -> bool:
        """Whether a left side of average size is learnt."""
        return self.least_rows is not None and self.rows >= self.least_rows

    def epsilon(self, budget: Budget) -> Fraction | None:
        """From about which epsilon on it is learnt, given its noise under a budget; None if none.

        The variance of Gaussian noise falls with rho, that of Laplace noise with epsilon squared.
        """
        if self.least_rows is None:
            return None
        wanted = (self.least_rows / self.rows) ** 2 * _strength(budget.epsilon, budget.delta)
        enough = (e for e in EPSILONS if _strength(e, budget.delta) >= wanted)
        return next(enough, None)


def _strength(epsilon: Fraction, delta: Fraction) -> float:
    return float(zcdp_rho(epsilon, delta)) if delta else float(epsilon) ** 2


def forecast_dependencies(task: Task, plan: AnyPlan) -> tuple[DependencyForecast, ...]:
    """The forecast of every hard functional dependency of a task."""
    known = set(plan.sequence)
    found = ((rule, functional_dependency(rule)) for rule in task.hard)
    return tuple(
        _forecast(task, plan, rule, *own)
        for rule, own in found
        if own is not None and known.issuperset((*own[0], own[1]))
    )


def _forecast(
    task: Task, plan: AnyPlan, rule: DenialConstraint, left: tuple[str, ...], right: str
) -> DependencyForecast:
    sides = math.prod(task.domain[name].values for name in left)
    rows = task.data_rows / sides
    return DependencyForecast(rule.name, left, right, sides, rows, plan.mapped.get((*left, right)))
