"""Persons with several rows, by any method: one row a person, and the rows, under one budget.

A person changes one row of the first table and as many rows of the second as are counted there, by
lot: fewer than ``max_rows`` where noise says more than the rows that are left out would. What is
asked of both composes. With a delta the budgets of the parts are found such that everything
together, priced by the accountants as one, costs no more than the whole; at delta 0 epsilons add
up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.arrays import Floats
from cloister.errors import PlanError
from cloister.models.core.budget_split import (
    CountNoise,
    counts_stage,
    divide,
    label_stage,
    noise_of_counts,
)
from cloister.models.core.costs import together
from cloister.models.planning import budget_of_rows, choose_sampling, contribution
from cloister.models.protocol import AnySynthesizer, Arrays, DatabaseDoor, Facts, plans_json
from cloister.models.task import AnyPlan, Budget, Parameters, Plan, Stage, Task
from cloister.models.transforms.person_tables import PERSONS, ROWS, PersonTasks, split_task
from cloister.models.transforms.transformation import Doors, Meta, Models, Transformation
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.transformations import LabelledDoor
from cloister.schema.partition import declared_cells, one_part

if TYPE_CHECKING:
    from cloister.models.transforms.person_model import PersonsModel

NUMBER = "number"
"""The label of the noisy number of persons."""

_NUMBER = Fraction(3, 100)
"""Part of the budget, as a share of rho, of the number of persons where it is not declared."""

LIKENESS = "likeness"
"""The label of the noisy kinds of pairs of rows."""

_LIKENESS = Fraction(6, 100)
"""Part of the budget, as a share of rho, of kinds of pairs of rows of one person."""

_SEED = 20_261_122
"""Public seed of the persons by which the mean number of rows is computed."""

_POOL = 4_096
"""Persons drawn for that mean: its error is then a hundredth of the spread, below the noise."""


@dataclass(frozen=True)
class PersonsParameters(Parameters):
    """The plans of both tables, and the noise of what is asked of persons besides.

    ``contribution`` is how many rows of each person are counted, ``number`` the noise of the number
    of persons if it is measured, ``likeness`` that of the kinds of pairs of rows for each attribute
    of rows, if there are any.
    """

    number: CountNoise | None
    likeness: CountNoise | None
    persons: AnyPlan
    rows: AnyPlan
    contribution: int

    @property
    def plans(self) -> Mapping[str, AnyPlan]:
        """The plan of each table, by its name."""
        return {PERSONS: self.persons, ROWS: self.rows}

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        noises = {NUMBER: self.number, LIKENESS: self.likeness}
        levels = {
            name: [str(level) for level in astuple(noise)] if noise else None
            for name, noise in noises.items()
        }
        return {"contribution": self.contribution} | levels | plans_json(self.plans)


@dataclass(frozen=True)
class PersonSplit(Transformation):
    """A task of persons as one row a person, and the rows themselves, under ``tasks``.

    Synthetic persons are drawn from the model of the first, and the rows of each from that of the
    second, under the attributes of their person, and as like each other as the ``ratios`` (kinds,)
    of each attribute say: those of `released_ratios`, where they are not all 1. ``pairs`` are the
    noisy numbers (kinds,) of persons by how alike two of their rows are, with their ``deviation``.
    """

    tasks: PersonTasks
    ratios: Mapping[str, Floats] = field(default_factory=dict)
    pairs: Mapping[str, Floats] = field(default_factory=dict)
    deviation: float = 0.0

    @classmethod
    def of(cls, task: Task, method: Facts) -> PersonSplit | None:
        """That of a task of persons; PlanError if the method or the constraints do not suit it."""
        if task.persons is None:
            return None
        choice = choose_sampling(task, method.samplings)
        if choice.sequential:
            raise PlanError(
                f"rows are drawn one after the other ({choice.reason}), and here persons have "
                "several that are drawn together; use sampling: supports without known weights, "
                "or declare max_rows: 1"
            )
        if not method.supports_conditionals:
            raise PlanError(
                f"method {method.name} draws whole rows, and persons have several that share "
                "attributes; name another method, or declare max_rows: 1"
            )
        return cls(split_task(task))

    @classmethod
    def saved(cls, task: Task, meta: Meta, arrays: Arrays) -> PersonSplit | None:
        """That of a model, with its numbers of persons and rows; the earliest had none."""
        if task.persons is None or PERSONS not in meta:
            return None
        most = meta.get("contribution", task.neighbours.max_rows)
        tasks = split_task(task).contributing(most)
        tasks = tasks.estimated(meta[PERSONS]["rows"], meta[ROWS]["rows"])
        return cls(
            tasks, {name: arrays[f"ratios/{index}"] for index, name in enumerate(meta["ratios"])}
        )

    @property
    def parts(self) -> Mapping[str, Task]:
        """Persons, then rows."""
        return {PERSONS: self.tasks.persons, ROWS: self.tasks.rows}

    def doors(self, private: DatabaseDoor) -> Doors:
        """The doors to both tables."""
        rows = private.bounded(ROWS, self.tasks.rows.neighbours.max_rows)
        doors = {PERSONS: private.table(PERSONS), ROWS: rows}
        return {name: LabelledDoor(door, name) for name, door in doors.items()}

    def sequence(self, method: AnySynthesizer) -> tuple[str, ...]:
        """The method's sequence of the rows, attributes of persons first."""
        sequence = method.sequence(self.tasks.rows)
        return tuple(sorted(sequence, key=lambda name: name not in self.tasks.given))

    def search(
        self, method: AnySynthesizer, sequence: tuple[str, ...], budget: Budget
    ) -> Plan[PersonsParameters]:
        """The plan of a method for both tables, which together spend the budget."""
        parts = _Parts(method, self._contributing(budget), sequence, budget)
        refusal = "persons and rows was found; allow more, or declare max_rows: 1"
        relation = self.tasks.whole.neighbours.relation
        return divide(parts.plan, parts.shares, budget, relation, refusal)

    def _contributing(self, budget: Budget) -> PersonTasks:
        """The tasks where as many rows of each person are counted as noise suggests.

        It is that of tables of all attributes and as many pairs. Persons of an unknown number are
        taken to have as many rows as the root of their bound: between one and all.
        """
        task, most = self.tasks.rows, self.tasks.whole.neighbours.max_rows
        tables = 2 * len(task.domain.modelled)
        one = self.tasks.persons.neighbours.partition
        noise = noise_of_counts(budget.epsilon, budget.delta, tables).deviation(one)
        persons = self.tasks.number or round(task.data_rows / most**0.5)
        counted, rows = contribution(task.data_rows, persons, most, noise)
        tasks = self.tasks.contributing(counted)
        return tasks.estimated(tasks.persons.data_rows, rows)

    def planned(self, plan: AnyPlan) -> PersonSplit:
        """Those of the plan's contribution."""
        return replace(self, tasks=self.tasks.contributing(plan.parameters.contribution))

    def plans(self, plan: AnyPlan) -> Mapping[str, AnyPlan]:
        """Those of both tables."""
        parameters: PersonsParameters = plan.parameters
        return parameters.plans

    def before(self, part: str, doors: Doors, plan: AnyPlan, models: Models) -> PersonSplit:
        """The number of persons if it is measured; before rows, pairs of rows of persons.

        The number of rows is that of the persons times their released mean.

        Privacy: partitions of the persons, the first with one part.
        """
        tasks, parameters, door = self.tasks, plan.parameters, doors[PERSONS]
        if part == PERSONS:
            if parameters.number is None:
                return self
            everyone = PartitionCounts((one_part(tasks.persons.domain[tasks.counted]),))
            number = max(int(door.answer(everyone, parameters.number, NUMBER)[0]), 1)
            return replace(self, tasks=tasks.estimated(number, tasks.rows.data_rows))
        drawn = tasks.counts(models[PERSONS].sample(_POOL, SamplingSource(_SEED)))
        drawn = np.minimum(drawn, parameters.contribution)
        number = tasks.persons.data_rows
        tasks = tasks.estimated(number, max(round(number * float(drawn.mean())), 1))
        if parameters.likeness is None:
            return replace(self, tasks=tasks)
        noise = parameters.likeness
        pairs = {
            name: door.answer(
                PartitionCounts((declared_cells(column),)), noise, f"{LIKENESS} {name}"
            ).astype(np.float64)
            for name, column in tasks.compared.items()
        }
        deviation = noise.scale(door.neighbours.partition)
        return PersonSplit(tasks, pairs=pairs, deviation=deviation)

    def model(self, models: Models) -> PersonsModel:
        """Persons, then their rows, as like each other as the ratios say, or else the pairs."""
        from cloister.models.transforms.person_model import PersonsModel, ratios_of

        ratios = {**self.ratios, **ratios_of(self, models[ROWS])}
        return PersonsModel(replace(self, ratios=ratios), models)


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
        rest, tasks = 1 - number - likeness, (self.tasks.persons, self.tasks.rows)
        wanted = dict(zip((PERSONS, ROWS), map(budget_of_rows, tasks), strict=True))
        parts = {NUMBER: number, LIKENESS: likeness}
        parts |= {name: rest * one / sum(wanted.values()) for name, one in wanted.items()}
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
        queries = [
            counts_stage(
                f"{PERSONS}: {name}", [(noise, times[name])], partition, _ASKED[name], "person"
            )
            for name, noise in noises.items()
        ]
        of_persons = _labelled(PERSONS, _ONE_ROW_EACH, persons)
        stages = (*queries, *of_persons, *_labelled(ROWS, tasks.counted_rows, rows))
        parameters = PersonsParameters(
            noises.get(NUMBER),
            noises.get(LIKENESS),
            persons,
            rows,
            tasks.rows.neighbours.max_rows,
        )
        forecast = together([persons, rows])
        tables = {PERSONS: (tasks.persons, persons), ROWS: (tasks.rows, rows)}
        return Plan(rows.method, rows.sequence, stages, parameters, forecast, parts=tables)

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

_ONE_ROW_EACH = "of a table with one row a person"


def _labelled(table: str, words: str, plan: AnyPlan) -> tuple[Stage, ...]:
    return tuple(label_stage(stage, table, f"{words}: ") for stage in plan.stages)
