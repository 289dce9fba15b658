"""What has several rows: persons, and values of a key that repeats; by any method.

A person is one row, with two of its rows. All of what is asked is asked of that table, and of the
number of persons where none is declared. Their budgets are found such that everything together,
priced by the accountants as one, costs no more than the whole; at delta 0 epsilons add up.

Of the many values that a left side of dependencies could have, such as a customer's number, few may
occur, each several times. Which ones cannot be learnt; how many there are, how large, and how alike
the rows of one are can. So rows are modelled without that key, at the sensitivity of a row, and two
more queries are asked of their groups. A group has the right sides of the key once, so that its
dependencies hold by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cloister.constraints import DenialConstraint, closure_of, functional_dependency
from cloister.errors import InputError, PlanError
from cloister.models.core.bins import MOST_VALUES, Histogram, coarse
from cloister.models.core.budget_split import (
    CountNoise,
    counts_stage,
    divide,
    label_stage,
    noise_of_counts,
)
from cloister.models.planning import choose_sampling
from cloister.models.protocol import AnySynthesizer, Arrays, DatabaseDoor, Facts, plans_json
from cloister.models.task import AnyPlan, Budget, Forecast, Parameters, Plan, Stage, Task
from cloister.models.transforms.differences import differences_of, models_differences
from cloister.models.transforms.transformation import Doors, Meta, Models, Transformation
from cloister.models.transforms.unit_tables import PERSONS, UnitTasks, persons_of, unit_tasks
from cloister.privacy.events import Sensitivity
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.query import Door, TableRows
from cloister.privacy.queries.shared_values import (
    AgreeingPairs,
    GroupSizes,
    SizesOfGroups,
    agreeing_pairs_sensitivity,
)
from cloister.privacy.queries.transformations import LabelledDoor
from cloister.schema.columns import Column, Grid, Listed
from cloister.schema.domain import Domain
from cloister.schema.partition import one_part, tree_of

if TYPE_CHECKING:
    from cloister.models.transforms.companions import Companions
    from cloister.models.transforms.group_model import GroupFacts, GroupsModel
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


ROWS, GROUPS = "rows", "groups"
"""The part that is fitted, and the label of what is asked of groups."""

SIZES, PAIRS = "sizes", "pairs"

_SIZES = Fraction(5, 100)
"""Part of the budget, as a share of rho, of the sizes of groups: a histogram with the noise of one
of rows, of which all else about groups follows."""

_PAIRS = Fraction(2, 100)
"""Part of it of pairs of rows of one group: two numbers of thousands for each attribute."""

_MOST = 64
"""Sizes that are counted one by one; of greater groups the rows beyond, by rank."""


_OF_ROW, _OF_VALUE, _ON_TRIAL = 5e-5, 6e-7, 24_576
"""Seconds for each row of groups, and for each value of its attributes; most rows that are drawn to
see how often they agree. By the mixture: 3 s on 20,000 rows of short lists, 35 s on Tax."""

_PARTS = 8
"""Parts of an ordered attribute in which two rows agree: finer ones agree too seldom to tell. Of an
attribute of more values, these are compared as well."""


@dataclass(frozen=True)
class GroupsParameters(Parameters):
    """The plan of the rows, and the noise of sizes and, if there are any, of pairs."""

    rows: AnyPlan
    sizes: CountNoise
    pairs: CountNoise | None

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        noises = {SIZES: self.sizes, PAIRS: self.pairs}
        levels = {
            name: [str(level) for level in astuple(noise)] if noise else None
            for name, noise in noises.items()
        }
        return levels | plans_json({ROWS: self.rows})


@dataclass(frozen=True)
class Groups(Transformation):
    """A task whose rows share values of a ``key``, on which they agree in the attributes ``given``.

    ``compared`` are those of the other attributes of which it is counted how alike rows of a group
    are. ``facts`` are what was told of groups; None before.
    """

    task: Task
    key: str
    given: tuple[str, ...]
    compared: tuple[str, ...]
    facts: GroupFacts | None = None

    @classmethod
    def of(cls, task: Task, method: Facts) -> Groups | None:
        """That of a task with such a key, for a method that draws rows under some attributes.

        Soft constraints are kept row by row, or by the shares of all rows together: not in groups.
        """
        key = None if task.soft or task.given else repeating_key(task)
        if key is None or not method.supports_conditionals or method.as_printed:
            return None
        return cls._with_key(task, key, models_differences(method))

    @classmethod
    def _with_key(cls, task: Task, key: str, differences: bool) -> Groups:
        given = shared_by_rows(task, key)
        plain = cls(task, key, given, ())
        made = {each.moved.name for each in differences_of(plain.inner)} if differences else set()
        apart = {*made, *plain.inner.given}
        compared = (name for name in plain.inner.domain.modelled if name not in apart)
        return replace(plain, compared=tuple(compared))

    @classmethod
    def saved(cls, task: Task, meta: Meta, arrays: Arrays) -> Groups | None:
        """That of a model, with its facts."""
        if GROUPS not in meta:
            return None
        from cloister.models.transforms.group_model import GroupFacts

        saved = meta[GROUPS]
        plain = cls._with_key(task, saved["key"], differences=False)
        return replace(plain, facts=GroupFacts.restored(plain.inner, saved, arrays))

    @cached_property
    def inner(self) -> Task:
        """The task of rows without the key, or with it where its numbers have an order."""
        ordered = isinstance(self.task.domain[self.key], Grid)
        columns = (c for c in self.task.domain if ordered or c.name != self.key)
        rules = (rule for rule in self.task.constraints if self.key not in rule.attributes)
        given = (*self.given, *([self.key] if ordered else []))
        targets = {n: above for n, above in self.task.targets.items() if n != self.key or ordered}
        return replace(
            self.task,
            domain=Domain(tuple(columns)),
            constraints=tuple(rules),
            given=given,
            targets=targets,
        )

    @property
    def parts(self) -> Mapping[str, Task]:
        """The rows."""
        return {ROWS: self.inner}

    def doors(self, private: Door[TableRows]) -> Doors:
        """The door to the rows, twice: of the key, groups alone are asked."""
        return {ROWS: private, GROUPS: LabelledDoor(private, GROUPS)}

    def sequence(self, method: AnySynthesizer) -> tuple[str, ...]:
        """The method's sequence, attributes of groups first."""
        names = super().sequence(method)
        return tuple(sorted(names, key=lambda name: name not in self.inner.given))

    @property
    def sizes(self) -> SizesOfGroups:
        """What is counted of sizes."""
        return SizesOfGroups.of(_MOST, self.task.data_rows)

    def search(
        self, method: AnySynthesizer, sequence: tuple[str, ...], budget: Budget
    ) -> Plan[GroupsParameters]:
        """The plan of a method for the rows, with that of their groups."""
        pairs = _PAIRS if self.compared else Fraction(0)
        shares = {ROWS: 1 - _SIZES - pairs, SIZES: _SIZES} | ({PAIRS: pairs} if pairs else {})
        parts = _GroupParts(method, self, sequence, budget)
        refusal = "rows and their groups was found; allow more"
        return divide(parts.plan, shares, budget, self.task.neighbours.relation, refusal)

    def plans(self, plan: AnyPlan) -> Mapping[str, AnyPlan]:
        """That of rows."""
        parameters: GroupsParameters = plan.parameters
        return {ROWS: parameters.rows}

    def after(self, doors: Doors, plan: AnyPlan, models: Models) -> Groups:
        """With what the data say of groups, in the bins of the model of rows.

        Privacy: `GroupSizes` and `AgreeingPairs`.
        """
        from cloister.models.transforms.group_model import CountedGroups, CountedPairs, GroupFacts

        parameters: GroupsParameters = plan.parameters
        door, model = doors[GROUPS], models[ROWS]
        sizes = door.answer(GroupSizes(self.key, self.sizes), parameters.sizes, SIZES)
        noisy = CountedGroups(
            self.sizes, sizes, parameters.sizes.deviation(door.neighbours.partition)
        )
        if parameters.pairs:
            bins = {name: model.histograms[name] for name in self.compared}
            parts = {n: coarse(b, _PARTS) if _ordered(b) else b for n, b in bins.items()}
            query = AgreeingPairs(self.key, tuple(parts.values()), self.whole)
            pairs = door.answer(query, parameters.pairs, PAIRS)
            deviation = parameters.pairs.deviation(query.sensitivity(door.neighbours))
            noisy = replace(noisy, pairs=CountedPairs(parts, self.whole, pairs, deviation))
        return replace(self, facts=GroupFacts.of(self, model, noisy))

    @property
    def whole(self) -> tuple[str, ...]:
        """Those of the compared attributes of which values are compared beside parts."""
        return tuple(name for name in self.compared if self.task.domain[name].size > _PARTS)

    @property
    def sensitivity_of_pairs(self) -> Sensitivity:
        """That of the pairs of rows that are compared."""
        looks = len(self.compared) + len(self.whole)
        return agreeing_pairs_sensitivity(looks, self.task.neighbours)

    def model(self, models: Models) -> GroupsModel:
        """Groups, then their rows."""
        from cloister.models.transforms.group_model import GroupsModel

        return GroupsModel(self, models)


def _ordered(bins: Histogram) -> bool:
    return bins.column.kind != "nominal"


def repeating_key(task: Task) -> str | None:
    """The left side of dependencies whose groups are modelled: the widest of those that can be."""
    options = [column for column in task.domain if _is_key(task, column)]
    return max(options, key=lambda column: column.values).name if options else None


def _is_key(task: Task, column: Column) -> bool:
    """Whether a column has a value or more for each row, without a tree, and decides others alone.

    Any other rule on it would have to hold between groups. Fewer values may be counted, and those
    of a tree by its nodes.
    """
    rules = [rule for rule in task.constraints if column.name in rule.attributes]
    countable = column.values < task.data_rows or tree_of(column)
    whole = isinstance(column, Listed) or (isinstance(column, Grid) and column.stride == 1)
    if countable or not whole or column.size > column.values or not rules:
        return False
    return all(_left_side(rule) == (column.name,) for rule in rules)


def _left_side(rule: DenialConstraint) -> tuple[str, ...] | None:
    dependency = functional_dependency(rule) if rule.hard else None
    return dependency[0] if dependency else None


def shared_by_rows(task: Task, key: str) -> tuple[str, ...]:
    """The other attributes on which rows with one value of a key agree."""
    dependencies = [known for rule in task.hard if (known := functional_dependency(rule))]
    determined = closure_of({key}, dependencies) - {key}
    return tuple(name for name in task.domain.modelled if name in determined)


@dataclass(frozen=True)
class _GroupParts:
    """What shares the budget: rows, the sizes of groups, and pairs of rows of one group."""

    base: AnySynthesizer
    groups: Groups
    sequence: tuple[str, ...]
    budget: Budget

    def plan(self, epsilons: Mapping[str, Fraction]) -> Plan[GroupsParameters]:
        """The plan whose parts have these epsilons, each at the delta of the whole."""
        rows = self._rows(epsilons[ROWS])
        noises = {
            name: noise_of_counts(epsilons[name], self.budget.delta)
            for name in (SIZES, PAIRS)
            if name in epsilons
        }
        stages = (*rows.stages, *(self._stage(name, noise) for name, noise in noises.items()))
        parameters = GroupsParameters(rows, noises[SIZES], noises.get(PAIRS))
        parts = {ROWS: (self.groups.inner, rows)}
        forecast = self._with_time_of_groups(rows.forecast)
        return replace(rows, stages=stages, parameters=parameters, parts=parts, forecast=forecast)

    def _with_time_of_groups(self, rows: Forecast) -> Forecast:
        """The forecast with the time in which rows of groups are drawn, and a few tables on trial.

        Privacy: public sizes of attributes.
        """
        task, names = self.groups.task, self.groups.compared
        values = sum(min(task.domain[name].size, MOST_VALUES) for name in names)
        rows_drawn = task.output_rows + min(3 * task.output_rows, _ON_TRIAL)
        seconds = (_OF_ROW + _OF_VALUE * values) * rows_drawn
        return replace(rows, seconds=round(rows.seconds + seconds, 1))

    def _stage(self, name: str, noise: CountNoise) -> Stage:
        key, neighbours = self.groups.key, self.groups.task.neighbours
        sensitivity, unit = neighbours.partition, "row"
        words = f"how many values of {key} have 1, 2, ... rows, and none of the values themselves"
        if name == PAIRS:
            sensitivity, unit = self.groups.sensitivity_of_pairs, "pair"
            words = f"pairs of rows that share {key}, and how many agree on each other attribute"
        return counts_stage(f"{GROUPS}: {name}", [(noise, 1)], sensitivity, words, unit)

    def _rows(self, epsilon: Fraction) -> AnyPlan:
        try:
            return self.base.search(
                self.groups.inner, self.sequence, Budget(epsilon, self.budget.delta)
            )
        except PlanError as refusal:
            if epsilon == self.budget.epsilon:
                raise
            raise PlanError(
                f"of epsilon {float(self.budget.epsilon):g}, rows and the groups of "
                f"{self.groups.key} have a part each, which is too little: {refusal}"
            ) from None
