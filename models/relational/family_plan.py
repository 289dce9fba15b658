"""The plan of families: a plan of one table for each, and how second rows are held.

A unit has one row of the lead's family, and of each below no more than its fan-out. With several
families everything composes, and their parts are scaled until the accountants price it within the
budget; at delta 0 epsilons add up to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from pydantic import Field

from cloister.errors import PlanError
from cloister.figures import count_of, figure
from cloister.models.core.budget_split import (
    CountNoise,
    counts_stage,
    divide,
    label_stage,
    noise_of_counts,
)
from cloister.models.core.costs import together
from cloister.models.planning import budget_of_rows, choose_sampling
from cloister.models.protocol import AnySynthesizer, json_texts, plans_json
from cloister.models.relational.families import Family, number_of, rows_without
from cloister.models.relational.references import keys_to_families, keys_with_degrees
from cloister.models.task import AnyPlan, Budget, DatabaseTask, Parameters, Plan, Stage
from cloister.models.transforms.units import (
    NUMBER,
    counts_pairs,
    forecast_of_rows,
    in_turn,
    rows_held,
    second_attributes,
)
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Declared
from cloister.schema.fan_outs import rows_changed
from cloister.schema.relations import ForeignKey, degree_table, joined_table

Families = Mapping[str, Family]

DEGREES = "degrees"
"""The label of a noisy distribution of degrees."""

_COUNTS = Fraction(5, 100)
"""Part of the budget, as a share of rho, of each distribution of degrees, which is few counts in
groups, and of each number of rows."""


@dataclass(frozen=True)
class FamilyParameters(Parameters):
    """The method, the plan of each family, and the attributes of second rows by child table.

    ``counts`` are the mechanisms of numbers of rows: of those that refer to the same one, by the
    name of the table of degrees, and of those without a reference to a family, by that of theirs.
    """

    base: str
    plans: Mapping[str, AnyPlan]
    second: Mapping[str, Mapping[str, tuple[str, ...]]]
    counts: Mapping[str, CountNoise]

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        second = {
            name: {child: list(names) for child, names in children.items()}
            for name, children in self.second.items()
        }
        counts = {name: json_texts(asdict(noise)) for name, noise in self.counts.items()}
        parameters = {"base": self.base, "plans": plans_json(self.plans)}
        return parameters | {"second": second, "counts": counts}

    def planned(self, families: Families) -> Families:
        """The families as they were planned."""
        return {name: family.holding(self.second[name]) for name, family in families.items()}


class RelationalOptions(Declared):
    """The options of methods of several tables."""

    table_method: str | None = Field(default=None, description="makes the rows of each table")


def plan_families(
    name: str, base: AnySynthesizer, task: DatabaseTask, families: Families, budget: Budget
) -> Plan[FamilyParameters]:
    """The plan of all families, which together spend the budget; PlanError if there is none."""
    _require_suited(base, families)
    wanted = {table: budget_of_rows(family.units) for table, family in families.items()}
    counted = [number_of(key) for key in keys_to_families(task)]
    counted += [degree_table(key) for key in keys_with_degrees(task)]
    rest = (1 - _COUNTS * len(counted)) / sum(wanted.values())
    shares = {table: part * rest for table, part in wanted.items()}
    scales = {
        table: Fraction(math.sqrt(share)) if budget.delta else share
        for table, share in shares.items()
    }
    planned = {
        table: _held(base, family, Budget(budget.epsilon * scales[table], budget.delta))
        for table, family in families.items()
    }
    parts = _Parts(name, base, task, planned, budget)
    refusal = "tables was found; allow more"
    shares |= dict.fromkeys(counted, _COUNTS)
    return divide(parts.plan, shares, budget, task.neighbours.relation, refusal)


def _require_suited(base: AnySynthesizer, families: Families) -> None:
    """Check that a method draws the rest of a row under some of its attributes; PlanError."""
    if base.of_database:
        raise PlanError(f"method {base.name} is of several tables; name one of one table")
    if not base.supports_conditionals:
        raise PlanError(
            f"method {base.name} draws whole rows, and those of several tables are drawn under "
            "rows that they refer to; use table_method: mixture"
        )
    for family in families.values():
        choice = choose_sampling(family.units, base.samplings)
        if choice.sequential:
            raise PlanError(
                f"rows of '{family.table}' are drawn one after the other ({choice.reason}), and "
                "here several that refer to one row are drawn together; use sampling: supports "
                "without known weights"
            )


def _held(base: AnySynthesizer, family: Family, budget: Budget) -> Family:
    """The family with as many attributes of second rows as noise allows."""
    if not family.children:
        return family
    second = second_attributes(family.tasks, budget)
    names = zip(family.children, second, strict=True)
    return family.holding({child: some if counts_pairs(base) else () for child, some in names})


@dataclass(frozen=True)
class _Parts:
    """What shares the budget: the table of units of each family."""

    name: str
    base: AnySynthesizer
    task: DatabaseTask
    families: Families
    budget: Budget

    def plan(self, epsilons: Mapping[str, Fraction]) -> Plan[FamilyParameters]:
        """The plan whose parts have these epsilons, each at the delta of the whole."""
        plans = {name: self._part(name, epsilons[name]) for name in self.families}
        counts = {
            name: noise_of_counts(epsilon, self.budget.delta, 1)
            for name, epsilon in epsilons.items()
            if name not in self.families
        }
        stages = [*self._counted(counts)]
        stages += [
            label_stage(stage, self.families[name].door, f"{_words(self.families[name])}: ")
            for name, plan in plans.items()
            for stage in plan.stages
        ]
        forecasts = [
            replace(plan, forecast=forecast_of_rows(plan.forecast, self.families[name].tasks))
            for name, plan in plans.items()
        ]
        counted = {name: family.counted for name, family in self.families.items()}
        second = {
            name: {child: tuple(of.tasks.second) for child, of in family.children.items()}
            for name, family in self.families.items()
        }
        return Plan(
            self.name,
            tuple(f"{name}.{column}" for name, plan in plans.items() for column in plan.sequence),
            tuple(stages),
            FamilyParameters(self.base.name, plans, second, counts),
            together(forecasts),
            parts={name: (counted[name].units, plan) for name, plan in plans.items()},
            units={
                child: (of.tasks, plan)
                for name, plan in plans.items()
                for child, of in counted[name].children.items()
            },
        )

    def _counted(self, counts: Mapping[str, CountNoise]) -> Iterator[Stage]:
        """The stages of numbers of rows."""
        for key in keys_with_degrees(self.task):
            yield self._degrees(key, counts[degree_table(key)])
        for key in keys_to_families(self.task):
            rows, noise = rows_without(key), counts[number_of(key)]
            sensitivity = self.families[rows].units.neighbours.partition
            words = f"number of rows of {key.table} without {key.column}"
            yield counts_stage(f"{rows}: {NUMBER}", [(noise, 1)], sensitivity, words)

    def _degrees(self, key: ForeignKey, noise: CountNoise) -> Stage:
        """The stage of the distribution of how many rows refer to the same one."""
        parents = rows_changed(self.task.schema)[degree_table(key)]
        sensitivity = Neighbours(self.task.neighbours.relation, parents).partition
        return Stage(
            f"{joined_table(key)}: {DEGREES}",
            noise.event(sensitivity),
            f"how many rows of {key.parent} have none to {key.max_rows} of {key.table}, in groups; "
            f"noise of {count_of(figure(noise.scale(sensitivity)), 'row')} a count",
        )

    def _part(self, name: str, epsilon: Fraction) -> AnyPlan:
        family = self.families[name].counted
        sequence = self.base.sequence(family.units)
        sequence = (
            in_turn(sequence, family.tasks)
            if family.children
            else tuple(sorted(sequence, key=lambda column: column not in family.units.given))
        )
        try:
            return self.base.search(family.units, sequence, Budget(epsilon, self.budget.delta))
        except PlanError as refusal:
            if len(self.families) == 1:
                raise
            most = self.families[name].units.neighbours.max_rows
            raise PlanError(
                f"table '{name}' has a part of epsilon {float(self.budget.epsilon):g}, and a unit "
                f"up to {most:,} of its rows: {refusal}; or lower max_rows of "
                "its references, or leave out the tables that refer to it"
            ) from None


def _words(family: Family) -> str:
    """What a row of a family holds, in words."""
    rows = f"rows of {family.name}"
    if family.children:
        two = (rows_held(child.tasks, f"its {name}") for name, child in family.children.items())
        often = f"{family.times} times " if family.times > 1 else ""
        return f"{rows}, each {often}with {' and '.join(two)}"
    apart = family.name != family.table and family.units.given
    return f"{rows}, each with what it refers to" if apart else f"{rows} alone"
