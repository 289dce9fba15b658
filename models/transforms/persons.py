"""The plan for persons with several rows: a method's plans for both tables under one budget.

A person changes one row of the first table and up to ``max_rows`` of the second, so what is asked
of both composes. With a delta the budgets of the parts are found such that everything together,
priced by the accountants as one, costs no more than the whole; at delta 0 epsilons add up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cloister.errors import PlanError
from cloister.models.core.budget_split import (
    CountNoise,
    counts_stage,
    divide,
    label_stage,
    noise_of_counts,
)
from cloister.models.core.costs import together
from cloister.models.protocol import AnySynthesizer
from cloister.models.several_tables import plans_json
from cloister.models.task import AnyPlan, Budget, Parameters, Plan, Stage, Task
from cloister.models.transforms.person_tables import PERSONS, ROWS, PersonTasks, split_task

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

    number: CountNoise | None
    likeness: CountNoise | None
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
        return levels | plans_json(self.plans)


def plan_persons(
    base: AnySynthesizer, task: Task, sequence: tuple[str, ...], budget: Budget
) -> Plan[PersonsParameters]:
    """The plan of a method for both tables, which together spend the budget.

    ``sequence`` is that of the rows, attributes of persons first.

    Raises:
        PlanError: a part has no plan, or the constraints do not suit persons with several rows.
    """
    parts = _Parts(base, split_task(task), sequence, budget)
    refusal = "persons and rows was found; allow more, or declare max_rows: 1"
    return divide(parts.plan, parts.shares, budget, task.neighbours.relation, refusal)


@dataclass(frozen=True)
class _Parts:
    """What shares the budget: both tables, and what is asked of persons besides."""

    base: AnySynthesizer
    tasks: PersonTasks
    sequence: tuple[str, ...]
    budget: Budget

    @property
    def shares(self) -> dict[str, Fraction]:
        """The share of each part in the budget."""
        number = Fraction(0) if self.tasks.number else _NUMBER
        likeness = _LIKENESS if self.tasks.compared else Fraction(0)
        rest = 1 - number - likeness
        parts = {NUMBER: number, LIKENESS: likeness}
        parts |= {PERSONS: rest * _PERSONS, ROWS: rest * (1 - _PERSONS)}
        return {name: share for name, share in parts.items() if share}

    def plan(self, epsilons: Mapping[str, Fraction]) -> Plan[PersonsParameters]:
        """The plan whose parts have these epsilons, each at the delta of the whole."""
        pairs, tasks = len(self.tasks.compared), self.tasks
        times = {NUMBER: 1, LIKENESS: pairs}
        noises = {
            name: noise_of_counts(epsilons[name], self.budget.delta, number)
            for name, number in times.items()
            if name in epsilons
        }
        sequence = self.base.sequence(tasks.persons)
        persons = self._part(tasks.persons, sequence, epsilons[PERSONS])
        rows = self._part(tasks.rows, self.sequence, epsilons[ROWS])
        partition = tasks.persons.neighbours.partition
        own = [
            counts_stage(
                f"{PERSONS}: {name}", [(noise, times[name])], partition, _ASKED[name], "person"
            )
            for name, noise in noises.items()
        ]
        stages = (*own, *_labelled(PERSONS, persons), *_labelled(ROWS, rows))
        parameters = PersonsParameters(noises.get(NUMBER), noises.get(LIKENESS), persons, rows)
        forecast = together([persons, rows])
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


_ASKED = {
    NUMBER: "number of persons",
    LIKENESS: "how alike two rows of one person are, in each attribute of rows",
}

_OF_TABLE = {
    PERSONS: "of a table with one row a person",
    ROWS: "of the rows",
}


def _labelled(table: str, plan: AnyPlan) -> tuple[Stage, ...]:
    return tuple(label_stage(stage, table, f"{_OF_TABLE[table]}: ") for stage in plan.stages)
