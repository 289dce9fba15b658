"""Persons with several rows, by any method: each is one row, with two of its rows.

All of what is asked is asked of that table, and of the number of persons where none is declared.
Their budgets are found such that everything together, priced by the accountants as one, costs no
more than the whole; at delta 0 epsilons add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloister.errors import InputError, PlanError
from cloister.models.core.budget_split import (
    CountNoise,
    counts_stage,
    divide,
    label_stage,
    noise_of_counts,
)
from cloister.models.planning import choose_sampling
from cloister.models.protocol import AnySynthesizer, Arrays, DatabaseDoor, Facts, plans_json
from cloister.models.task import AnyPlan, Budget, Forecast, Parameters, Plan, Task
from cloister.models.transforms.transformation import Doors, Meta, Models, Transformation
from cloister.models.transforms.unit_tables import PERSONS, UnitTasks, persons_of, unit_tasks
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.transformations import LabelledDoor
from cloister.schema.partition import one_part

if TYPE_CHECKING:
    from cloister.models.transforms.companions import Companions
    from cloister.models.transforms.unit_model import UnitsModel

NUMBER = "number"
"""The label of the noisy number of persons."""

_NUMBER = Fraction(3, 100)
"""Part of the budget, as a share of rho, of the number of persons where it is not declared."""


_NOISE_OF_TWO = 0.02
"""Greatest deviation of noise in a count, as a share of the persons with two rows, at which second
rows have an attribute. Of 44 columns of 3,500 persons it is .07 at epsilon 1: all pairs of columns
drowned in twice as many candidates."""


_SECONDS = 4.0
"""Seconds in which it is found which further rows go with others; measured: 2 to 5."""

_SECONDS_OF_ROW = 6e-5
"""Seconds for each further row, with its candidates; measured on households, by the mixture."""


@dataclass(frozen=True)
class UnitsParameters(Parameters):
    """The plan of the table of persons, and the noise of their ``number`` if it is measured.

    Second rows have the attributes ``second`` of rows.
    """

    number: CountNoise | None
    second: tuple[str, ...]
    persons: AnyPlan

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        number = [str(level) for level in astuple(self.number)] if self.number else None
        parameters = {NUMBER: number, "second": list(self.second)}
        return parameters | plans_json({PERSONS: self.persons})


@dataclass(frozen=True)
class UnitRows(Transformation):
    """A task of persons as one of a table in which each is a row, under ``tasks``.

    ``companions`` say which further rows go with those before; None before they are found.
    """

    tasks: UnitTasks
    companions: Companions | None = None

    @classmethod
    def of(cls, task: Task, method: Facts) -> UnitRows | None:
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
        return cls(unit_tasks(task))

    @classmethod
    def saved(cls, task: Task, meta: Meta, arrays: Arrays) -> UnitRows | None:
        """That of a model, with its number of persons.

        InputError if an earlier version fitted it, which counted persons and rows apart.
        """
        from cloister.models.transforms.companions import Companions

        if task.persons is None or PERSONS not in meta:
            return None
        if "companions" not in meta:
            raise InputError(
                "the model counts persons and their rows apart, as an earlier version did; draw "
                "rows with that version, or release the data anew (nothing was charged)"
            )
        tasks = unit_tasks(task).holding(meta["second"]).estimated(meta[PERSONS]["rows"])
        return cls(tasks, Companions.restored(tasks, meta["companions"], arrays))

    @property
    def parts(self) -> Mapping[str, Task]:
        """Persons."""
        return {PERSONS: self.tasks.units}

    def doors(self, private: DatabaseDoor) -> Doors:
        """The door to persons."""
        return {PERSONS: LabelledDoor(private.table(PERSONS), PERSONS)}

    def sequence(self, method: AnySynthesizer) -> tuple[str, ...]:
        """The method's sequence: attributes of persons, of first rows, then of second ones."""
        return in_turn(super().sequence(method), [self.tasks])

    def search(
        self, method: AnySynthesizer, sequence: tuple[str, ...], budget: Budget
    ) -> Plan[UnitsParameters]:
        """The plan of a method for persons, with that of their number, if none is declared."""
        number = Fraction(0) if persons_of(self.tasks.whole).number else _NUMBER
        (second,) = second_attributes([self.tasks], budget)
        tasks = self.tasks.holding(second if counts_pairs(method) else ())
        if len(tasks.second) < len(self.tasks.second):  # with fewer rules, other differences
            sequence = in_turn(method.sequence(tasks.units), [tasks])
        parts = _Parts(method, tasks, sequence, budget)
        shares = {name: share for name, share in ((NUMBER, number), (PERSONS, 1 - number)) if share}
        refusal = "persons and their number was found; allow more, or declare max_rows: 1"
        return divide(parts.plan, shares, budget, self.tasks.units.neighbours.relation, refusal)

    def planned(self, plan: AnyPlan) -> UnitRows:
        """Those of the plan's second rows."""
        return replace(self, tasks=self.tasks.holding(plan.parameters.second))

    def plans(self, plan: AnyPlan) -> Mapping[str, AnyPlan]:
        """That of persons."""
        parameters: UnitsParameters = plan.parameters
        return {PERSONS: parameters.persons}

    def before(self, part: str, doors: Doors, plan: AnyPlan, models: Models) -> UnitRows:  # noqa: ARG002
        """With the number of persons, if it is measured.

        Privacy: a partition of persons with one part.
        """
        parameters: UnitsParameters = plan.parameters
        if parameters.number is None:
            return self
        everyone = PartitionCounts((one_part(self.tasks.units.domain[self.tasks.counted]),))
        number = int(doors[PERSONS].answer(everyone, parameters.number, NUMBER)[0])
        return replace(self, tasks=self.tasks.estimated(max(number, 1)))

    def model(self, models: Models) -> UnitsModel:
        """Persons, and further rows of those that have more than two."""
        from cloister.models.transforms.companions import companions_of
        from cloister.models.transforms.unit_model import UnitsModel

        companions = self.companions or companions_of(self.tasks, models[PERSONS])
        return UnitsModel(replace(self, companions=companions), models)


def in_turn(sequence: Sequence[str], tasks: Sequence[UnitTasks]) -> tuple[str, ...]:
    """The attributes of units in turn: their own, those of first rows, then of second ones."""
    later: dict[str, int] = {}
    for each in tasks:
        later |= dict.fromkeys(each.of_rows, 1) | dict.fromkeys(each.second.values(), 2)
    return tuple(sorted(sequence, key=lambda name: later.get(tasks[0].origin(name), 0)))


def counts_pairs(method: Facts) -> bool:
    """Whether a method counts more than single attributes, so that second rows say something."""
    return method.most_joint is None or method.most_joint > 1


def second_attributes(tasks: Sequence[UnitTasks], budget: Budget) -> list[tuple[str, ...]]:
    """The attributes that second rows of units have, for each task of theirs: as noise allows.

    Those of most values go first, and that of the order last. As many units have two rows as is
    likeliest for the mean: numbers of rows are then geometric.
    """
    units = tasks[0].units
    domain, partition = units.domain, units.neighbours.partition
    several = [_units_of_two(each) for each in tasks]
    second = [(index, name) for index, each in enumerate(tasks) for name in each.second]
    second.sort(key=lambda one: _least_of_all(tasks[one[0]], one[1]))
    alone = len(domain.names) - len(second)
    while second:
        noise = noise_of_counts(budget.epsilon, budget.delta, alone + len(second))
        least = noise.deviation(partition) / _NOISE_OF_TWO
        drowned = [one for one in second if several[one[0]] < least]
        if not drowned:
            break
        second.remove(drowned[-1])
    return [tuple(name for of, name in second if of == index) for index in range(len(tasks))]


def _least_of_all(tasks: UnitTasks, name: str) -> tuple[bool, int]:
    """What attributes of second rows are sorted by: the first ones stay longest."""
    return name != tasks.order, tasks.whole.domain[name].size


def _units_of_two(tasks: UnitTasks) -> float:
    """How many units have two rows."""
    units, rows = tasks.units.data_rows, tasks.whole.data_rows
    if tasks.least:
        return units * max(1 - units / rows, 0.0)
    return units * (rows / (units + rows)) ** 2


@dataclass(frozen=True)
class _Parts:
    """What shares the budget: the table of persons, and their number."""

    base: AnySynthesizer
    tasks: UnitTasks
    sequence: tuple[str, ...]
    budget: Budget

    def plan(self, epsilons: Mapping[str, Fraction]) -> Plan[UnitsParameters]:
        """The plan whose parts have these epsilons, each at the delta of the whole."""
        task, number, queries = self.tasks.units, None, []
        if NUMBER in epsilons:
            number = noise_of_counts(epsilons[NUMBER], self.budget.delta, 1)
            name, words = f"{PERSONS}: {NUMBER}", "number of persons"
            counted = counts_stage(name, [(number, 1)], task.neighbours.partition, words, "person")
            queries.append(counted)
        persons = self._persons(epsilons[PERSONS])
        words = f"of a table with one row a person, each with {rows_held(self.tasks, 'its rows')}: "
        stages = (label_stage(stage, PERSONS, words) for stage in persons.stages)
        return Plan(
            persons.method,
            persons.sequence,
            (*queries, *stages),
            UnitsParameters(number, tuple(self.tasks.second), persons),
            forecast_of_rows(persons.forecast, [self.tasks]),
            parts={PERSONS: (task, persons)},
            units={PERSONS: (self.tasks, persons)},
        )

    def _persons(self, epsilon: Fraction) -> AnyPlan:
        try:
            return self.base.search(
                self.tasks.units, self.sequence, Budget(epsilon, self.budget.delta)
            )
        except PlanError as refusal:
            if epsilon == self.budget.epsilon:
                raise
            raise PlanError(
                f"of epsilon {float(self.budget.epsilon):g}, persons and their number have a part "
                f"each, which is too little: {refusal}"
            ) from None


def forecast_of_rows(units: Forecast, tasks: Sequence[UnitTasks]) -> Forecast:
    """The forecast of units, with the time of their further rows."""
    seconds = units.seconds
    for each in tasks:
        further = each.whole.output_rows - 2 * each.units.data_rows
        if further > 0 and each.second:
            seconds += _SECONDS + _SECONDS_OF_ROW * further
    return replace(units, seconds=round(seconds, 1))


def rows_held(tasks: UnitTasks, rows: str) -> str:
    """What a unit's row holds of its rows, which are called ``rows``."""
    second, attributes = len(tasks.second), len(tasks.of_rows)
    if not second:
        return f"one of {rows}"
    if second == attributes:
        return f"two of {rows}{' that follow each other' if tasks.order else ''}"
    another = "the next one" if tasks.order else "another"
    return f"one of {rows} and {second} of the {attributes} attributes of {another}"
