"""The plan for persons with several rows: a method's plans for both tables under one budget.

A person changes one row of the first table and up to ``max_rows`` of the second, so what is asked
of both composes. With a delta the budgets of the parts are found such that everything together,
priced by the accountants as one, costs no more than the whole; at delta 0 epsilons add up.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cloister.errors import PlanError
from cloister.figures import count_of, figure
from cloister.models.core.budget_split import DIGITS, label_stage, largest_within
from cloister.models.persons.parts import PERSONS, ROWS, PersonTasks, split_task
from cloister.models.protocol import AnySynthesizer
from cloister.models.task import AnyPlan, Budget, Forecast, Parameters, Plan, Stage, Task
from cloister.privacy.accounting.accountants import noise_multiplier, zcdp_rho
from cloister.privacy.events import repeat
from cloister.privacy.mechanisms.noise import DiscreteGaussian, DiscreteLaplace

NUMBER = "number"
"""The label of the noisy number of persons."""

_NUMBER = Fraction(3, 100)
"""Part of the budget, as a share of rho, of the number of persons where it is not declared."""

LIKENESS = "likeness"
"""The label of the noisy kinds of pairs of rows."""

_LIKENESS = Fraction(6, 100)
"""Part of the budget, as a share of rho, of kinds of pairs of rows of one person."""

_PERSONS = Fraction(2, 5)
"""Part of the rest of the table of persons; the rows have what is left."""


@dataclass(frozen=True)
class PersonsParameters(Parameters):
    """The plans of both tables, and the noise of what is asked of persons besides.

    ``number`` is that of their number if it is measured, ``likeness`` that of the kinds of pairs of
    rows for each attribute of rows, if there are any.
    """

    number: DiscreteGaussian | DiscreteLaplace | None
    likeness: DiscreteGaussian | DiscreteLaplace | None
    persons: AnyPlan
    rows: AnyPlan

    @property
    def plans(self) -> Mapping[str, AnyPlan]:
        """The plan of each table, by its name."""
        return {PERSONS: self.persons, ROWS: self.rows}

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        noises = {NUMBER: self.number, LIKENESS: self.likeness}
        levels = {
            name: [str(level) for level in dataclasses.astuple(noise)] if noise else None
            for name, noise in noises.items()
        }
        return levels | {
            name: {"sequence": list(plan.sequence), "parameters": plan.parameters.to_json()}
            for name, plan in self.plans.items()
        }


def plan_persons(
    base: AnySynthesizer, task: Task, sequence: tuple[str, ...], budget: Budget
) -> Plan[PersonsParameters]:
    """The plan of a method for both tables, which together spend the budget.

    ``sequence`` is that of the rows, attributes of persons first.

    Raises:
        PlanError: a part has no plan, or the constraints do not suit persons with several rows.
    """
    division = _Division(base, split_task(task), sequence, budget)
    if not budget.delta:
        return division.plan({name: share * budget.epsilon for name, share in division.shares})
    return division.largest()


@dataclass(frozen=True)
class _Division:
    """Ways to divide a budget between the parts."""

    base: AnySynthesizer
    tasks: PersonTasks
    sequence: tuple[str, ...]
    budget: Budget

    @property
    def shares(self) -> tuple[tuple[str, Fraction], ...]:
        """The share of each part in the budget."""
        number = Fraction(0) if self.tasks.number else _NUMBER
        likeness = _LIKENESS if self.tasks.compared else Fraction(0)
        rest = 1 - number - likeness
        parts = {NUMBER: number, LIKENESS: likeness}
        parts |= {PERSONS: rest * _PERSONS, ROWS: rest * (1 - _PERSONS)}
        return tuple((name, share) for name, share in parts.items() if share)

    def largest(self) -> Plan[PersonsParameters]:
        """The plan of the largest scale whose price the budget holds, nearly."""
        relation = self.tasks.whole.neighbours.relation
        if (found := largest_within(self._scaled, self.budget, relation)) is not None:
            return found
        raise PlanError(
            f"no division of epsilon {float(self.budget.epsilon):g} between persons and rows was "
            "found; allow more, or declare max_rows: 1"
        )

    def _scaled(self, scale: float) -> Plan[PersonsParameters]:
        """The plan at a scale.

        Parts of Gaussian noise compose by the sum of squares, so each has the root of its share.
        """
        epsilon = float(self.budget.epsilon)
        return self.plan(
            {
                name: Fraction(math.floor(scale * math.sqrt(share) * epsilon * DIGITS), DIGITS)
                for name, share in self.shares
            }
        )

    def plan(self, epsilons: Mapping[str, Fraction]) -> Plan[PersonsParameters]:
        """The plan whose parts have these epsilons, each at the delta of the whole."""
        number = self._noise(epsilons[NUMBER], 1) if NUMBER in epsilons else None
        pairs = len(self.tasks.compared)
        likeness = self._noise(epsilons[LIKENESS], pairs) if LIKENESS in epsilons else None
        tasks = self.tasks
        persons = self._part(tasks.persons, self.base.sequence(tasks.persons), epsilons[PERSONS])
        rows = self._part(tasks.rows, self.sequence, epsilons[ROWS])
        own = (
            *(self._stage(NUMBER, number, 1, "number of persons") if number else ()),
            *(self._stage(LIKENESS, likeness, pairs, _PAIRS) if likeness else ()),
        )
        stages = (*own, *_labelled(PERSONS, persons), *_labelled(ROWS, rows))
        parameters = PersonsParameters(number, likeness, persons, rows)
        forecast = Forecast(
            round(persons.forecast.seconds + rows.forecast.seconds, 1),
            max(persons.forecast.memory, rows.forecast.memory),
            max(persons.forecast.device_memory, rows.forecast.device_memory),
        )
        return Plan(rows.method, rows.sequence, stages, parameters, forecast, rows.mapped)

    def _part(self, task: Task, sequence: tuple[str, ...], epsilon: Fraction) -> AnyPlan:
        try:
            return self.base.search(task, sequence, Budget(epsilon, self.budget.delta))
        except PlanError as refusal:
            whole = f"{float(self.budget.epsilon):g}"
            raise PlanError(
                f"of epsilon {whole}, persons and rows have a part each, which is too little: "
                f"{refusal}"
            ) from None

    def _noise(self, epsilon: Fraction, times: int) -> DiscreteGaussian | DiscreteLaplace:
        """The noise of so many partitions that share an epsilon."""
        if not self.budget.delta:
            return DiscreteLaplace(epsilon / times)
        return DiscreteGaussian(noise_multiplier(zcdp_rho(epsilon, self.budget.delta) / times))

    def _stage(
        self, name: str, noise: DiscreteGaussian | DiscreteLaplace, times: int, words: str
    ) -> Iterator[Stage]:
        partition = self.tasks.persons.neighbours.partition
        scale = figure(noise.scale(partition))
        yield Stage(
            f"{PERSONS}: {name}",
            repeat(noise.event(partition), times),
            f"{words}; noise of {count_of(scale, 'person')} a count",
        )


_PAIRS = "how alike two rows of one person are, in each attribute of rows"

_OF_TABLE = {
    PERSONS: "of a table with one row a person",
    ROWS: "of the rows",
}


def _labelled(table: str, plan: AnyPlan) -> tuple[Stage, ...]:
    return tuple(label_stage(stage, table, f"{_OF_TABLE[table]}: ") for stage in plan.stages)
