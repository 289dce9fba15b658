"""The plan of families: a plan of one table for each, and how second rows are held.

A unit has one row of the lead's family, and of each below no more than its fan-out. With several
families everything composes, and their parts are scaled until the accountants price it within the
budget; at delta 0 epsilons add up to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from cloister.errors import PlanError
from cloister.models.core.budget_split import CountNoise, divide, label_stage, noise_of_counts
from cloister.models.core.costs import together
from cloister.models.planning import budget_of_rows, choose_sampling
from cloister.models.protocol import AnySynthesizer, json_texts, plans_json
from cloister.models.relational.families import Family, other_keys
from cloister.models.relational.link_plan import RelationalOptions, degrees_stage
from cloister.models.task import AnyPlan, Budget, DatabaseTask, Parameters, Plan
from cloister.models.transforms.units import (
    counts_pairs,
    forecast_of_rows,
    in_turn,
    rows_held,
    second_attributes,
)
from cloister.schema.relations import ForeignKey, joined_table

Families = Mapping[str, Family]

_FEW = 1_250
"""Units below which two rows of each leave a share of rows with a sampling error above .02, beside
the noise, which more rows of each unit would lessen."""

_MANY = 4
"""Rows over units from which on there are as many more rows as would halve that error."""

_DEGREES = Fraction(3, 100)
"""Part of the budget, as a share of rho, of each distribution of degrees: few counts in groups."""


@dataclass(frozen=True)
class FamilyParameters(Parameters):
    """The method, the plan of each family, and the attributes of second rows by child table.

    ``degrees`` are the mechanisms of numbers of rows that refer to the same one of a table without
    units, by the name of the joined table.
    """

    base: str
    plans: Mapping[str, AnyPlan]
    second: Mapping[str, Mapping[str, tuple[str, ...]]]
    degrees: Mapping[str, CountNoise]

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        second = {
            name: {child: list(names) for child, names in children.items()}
            for name, children in self.second.items()
        }
        degrees = {name: json_texts(asdict(noise)) for name, noise in self.degrees.items()}
        parameters = {"base": self.base, "plans": plans_json(self.plans)}
        return parameters | {"second": second, "degrees": degrees}

    def planned(self, families: Families) -> Families:
        """The families as they were planned."""
        return {name: family.holding(self.second[name]) for name, family in families.items()}


def suits_families(base: AnySynthesizer, families: Families, options: RelationalOptions) -> bool:
    """Whether a method models rows with their children.

    It draws some attributes given others, no option is of relationships that are measured, and two
    rows of each unit are enough of them.
    """
    few = (
        each.units.data_rows < _FEW
        and any(of.whole.data_rows > _MANY * each.units.data_rows for of in each.tasks)
        for each in families.values()
    )
    if any(few):
        return False
    measured = options.model_dump(exclude={"table_method"}, exclude_none=True)
    in_turn = (choose_sampling(each.units, base.samplings).sequential for each in families.values())
    return base.supports_conditionals and not measured and not any(in_turn)


def plan_families(
    name: str, base: AnySynthesizer, task: DatabaseTask, families: Families, budget: Budget
) -> Plan[FamilyParameters]:
    """The plan of all families, which together spend the budget; PlanError if there is none."""
    wanted = {table: budget_of_rows(family.units) for table, family in families.items()}
    links = [key for table in task.schema.tables for key in other_keys(task.schema, table)]
    rest = (1 - _DEGREES * len(links)) / sum(wanted.values())
    shares = {table: part * rest for table, part in wanted.items()}
    planned = {
        table: _held(base, family, Budget(budget.epsilon * shares[table], budget.delta))
        for table, family in families.items()
    }
    parts = _Parts(name, base, task, planned, links, budget)
    refusal = "tables was found; allow more"
    shares |= {joined_table(key): _DEGREES for key in links}
    return divide(parts.plan, shares, budget, task.neighbours.relation, refusal)


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
    links: Sequence[ForeignKey]
    budget: Budget

    def plan(self, epsilons: Mapping[str, Fraction]) -> Plan[FamilyParameters]:
        """The plan whose parts have these epsilons, each at the delta of the whole."""
        plans = {name: self._part(name, epsilons[name]) for name in self.families}
        degrees = {
            joined_table(key): noise_of_counts(epsilons[joined_table(key)], self.budget.delta, 1)
            for key in self.links
        }
        stages = [degrees_stage(self.task, key, degrees[joined_table(key)]) for key in self.links]
        stages += [
            label_stage(stage, self.families[name].door, f"rows of {name}, {words}: ")
            for name, plan in plans.items()
            for words in [_words(self.families[name])]
            for stage in plan.stages
        ]
        forecasts = [
            replace(plan, forecast=forecast_of_rows(plan.forecast, self.families[name].tasks))
            for name, plan in plans.items()
        ]
        second = {
            name: {child: tuple(of.tasks.second) for child, of in family.children.items()}
            for name, family in self.families.items()
        }
        return Plan(
            self.name,
            tuple(f"{name}.{column}" for name, plan in plans.items() for column in plan.sequence),
            tuple(stages),
            FamilyParameters(self.base.name, plans, second, degrees),
            together(forecasts),
            parts={name: (self.families[name].units, plan) for name, plan in plans.items()},
            units={
                child: (of.tasks, plan)
                for name, plan in plans.items()
                for child, of in self.families[name].children.items()
            },
        )

    def _part(self, name: str, epsilon: Fraction) -> AnyPlan:
        family = self.families[name]
        sequence = self.base.sequence(family.units)
        if family.children:
            sequence = in_turn(sequence, family.tasks)
        try:
            return self.base.search(family.units, sequence, Budget(epsilon, self.budget.delta))
        except PlanError as refusal:
            if len(self.families) == 1:
                raise
            raise PlanError(
                f"table '{name}' has a part of epsilon {float(self.budget.epsilon):g}, and a unit "
                f"up to {family.units.neighbours.max_rows:,} of its rows: {refusal}; or lower "
                "max_rows of its references, or leave out the tables that refer to it"
            ) from None


def _words(family: Family) -> str:
    """What a row of a family holds, in words."""
    words = (f"of {name} {rows_held(child.tasks)}" for name, child in family.children.items())
    return "; ".join(words) or "alone"
