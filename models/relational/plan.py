"""The plan of several tables: a plan for the rows of each, and the queries of relationships.

A unit has rows in each table, so everything composes. With a delta, all parts are scaled until the
accountants price their composition within the budget; at delta 0 epsilons add up to it.

Source: arXiv 2405.18670, algorithm 1: rounds of selections by the exponential mechanism, each
    followed by measurements. Exponents and noise follow from the sensitivities of the door's
    queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from cloister.errors import PlanError
from cloister.models.core.budget_split import CountNoise, divide, noise_of_counts
from cloister.models.core.costs import together
from cloister.models.planning import budget_of_rows, contribution, wanted_budget
from cloister.models.protocol import AnySynthesizer, json_texts, plans_json
from cloister.models.relational import link_plan
from cloister.models.relational import rows as row_models
from cloister.models.relational.profiles import MOST_PARTS, MOST_UNKNOWNS
from cloister.models.task import (
    AnyPlan,
    Budget,
    DatabaseTask,
    Forecast,
    Parameters,
    Plan,
    Task,
    options_of,
)
from cloister.privacy.accounting.accountants import zcdp_rho
from cloister.schema.domain import Domain
from cloister.schema.relations import joined_domain, joined_table, of_one_unit

_COUNT = Fraction(1, 20)
"""Part of the budget of a table's rows for their number, if bounds may drop some.

A share of rho, or of epsilon at delta 0. At 1/20 its noise adds at most a third of the histograms'
noise to a share of values, with two attributes; the histograms' noise grows by 2.5 %.
"""

_SECONDS = 0.1
"""Seconds of a relationship's degrees and selections."""

_SECONDS_OF_PAIR = 4e-6
"""Seconds of a fit for each pair of profiles. Measured: 1.9e-6 to 5.8e-6 of 25,000 to 150,000 pairs
with 3 to 12 joint tables, whose number matters little."""

_SECONDS_OF_FACTORS = 1.0
"""Seconds of the fit of factors for rows in slices, used if there are many profiles. Measured: 0.3
to 0.9."""

_SECONDS_OF_ROW = 1e-5
"""Seconds per matched row, by profiles or in slices. Making 10,000 to 1,000,000 links distinct
took at most a tenth of that."""

_MEMORY = 100 << 20
"""Bytes of the fit of a relationship, and of the libraries."""

_BYTES_OF_ROW = 300
"""Bytes of a drawn row with its matching."""


@dataclass(frozen=True)
class RelationalParameters(Parameters):
    """The method and the plan of each table's rows, and the mechanisms of each relationship.

    A relationship has the name of its joined table. ``counts`` are those of the number of rows, of
    tables of which rows may be left out, and ``counted`` how many rows of each unit are counted in
    each table.
    """

    base: str
    plans: Mapping[str, AnyPlan]
    counts: Mapping[str, CountNoise]
    links: Mapping[str, link_plan.LinkNoise]
    counted: Mapping[str, int]

    def counting(self, task: DatabaseTask) -> DatabaseTask:
        """The task where as many rows of each unit are counted."""
        tables = {
            name: replace(table, neighbours=replace(table.neighbours, max_rows=self.counted[name]))
            for name, table in task.tables.items()
        }
        return replace(task, tables=tables)

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        links = {name: json_texts(asdict(noise)) for name, noise in self.links.items()}
        counts = {name: json_texts(asdict(noise)) for name, noise in self.counts.items()}
        plans = plans_json(self.plans)
        whole = {"base": self.base, "plans": plans, "counts": counts, "links": links}
        return whole | {"counted": dict(self.counted)}


def plan_relational(
    name: str, base: AnySynthesizer, task: DatabaseTask, budget: Budget
) -> Plan[RelationalParameters]:
    """The plan of all tables and relationships, which together spend the budget.

    Raises:
        PlanError: a part has no plan, or a constraint cannot be kept.
    """
    if len(base.guarantees) > 1:
        raise PlanError(
            f"method {base.name} makes records from seeds of one table; "
            "use another method for the rows"
        )
    if base.of_database:
        raise PlanError(f"method {base.name} is of several tables; name one of one table")
    counted = contributing(task, budget)
    parts = _Parts(name, base, task, counted, row_models.tasks_of_rows(task, counted), budget)
    refusal = "tables and relationships was found; allow more"
    return divide(parts.plan, parts.shares, budget, task.neighbours.relation, refusal)


def contributing(task: DatabaseTask, budget: Budget) -> DatabaseTask:
    """The task where as many rows of each unit are counted as noise suggests, by table.

    It is that of tables of all attributes that are joined, and as many pairs. Tables have about the
    number of rows that are counted.
    """
    schema, tables, one = task.schema, dict(task.tables), task.lead.neighbours.partition
    for name, table in task.tables.items():
        neighbours = table.neighbours
        if name == schema.lead or not of_one_unit(schema, name):
            continue
        sides = joined_domain(schema, schema.parents_of(name)[-1])
        counted_queries = 2 * sum(len(side.names) for side in sides)
        noise = noise_of_counts(budget.epsilon, budget.delta, counted_queries).deviation(one)
        counted, rows = contribution(table.data_rows, task.data_rows, neighbours.max_rows, noise)
        fewer = replace(neighbours, max_rows=counted)
        tables[name] = replace(table, data_rows=rows, neighbours=fewer)
    return replace(task, tables=tables)


_LINKS = "", "links"
"""The part of all relationships together."""


@dataclass(frozen=True)
class _Parts:
    """The parts that share the budget: rows of tables, their numbers, and relationships.

    ``counted`` is the task of as many rows as are counted.
    """

    name: str
    base: AnySynthesizer
    task: DatabaseTask
    counted: DatabaseTask
    rows: Mapping[str, Task]
    budget: Budget

    @property
    def options(self) -> link_plan.RelationalOptions:
        """The options of relationships in the spec."""
        return options_of(self.task, link_plan.RelationalOptions)

    @property
    def shares(self) -> dict[tuple[str, str], Fraction]:
        """The share of each part: rows, their number if it is counted, relationships.

        With a delta, a declared epsilon of relationships is theirs alone, and the rest is scaled.

        Raises:
            PlanError: the declared epsilon leaves nothing for the rest.
        """
        related, counted = self._related, row_models.tables_to_count(self.task)
        scaled = self.budget.delta and self.options.epsilon is not None
        rest = 1 - (Fraction(0) if scaled else related)
        wanted = {name: budget_of_rows(table) for name, table in self.rows.items()}
        each = {name: rest * one / sum(wanted.values()) for name, one in wanted.items()}
        shares = {("rows", name): each[name] * (1 - _COUNT * (name in counted)) for name in each}
        shares |= {("count", name): each[name] * _COUNT for name in counted}
        return shares | {_LINKS: related}

    @property
    def _related(self) -> Fraction:
        """The share of all relationships."""
        if not self.task.schema.keys:
            return Fraction(0)
        declared, whole = self.options.epsilon, self.budget.epsilon
        if declared is not None and declared >= whole:
            raise PlanError(
                f"relationships are to have epsilon {float(declared):g} of "
                f"{float(whole):g}, and tables none; lower release.options.epsilon"
            )
        if declared is not None:
            return declared / whole
        links = sum(self._wanted.values(), Fraction(0))
        return links / (links + sum(map(budget_of_rows, self.rows.values())))

    @cached_property
    def _wanted(self) -> dict[str, Fraction]:
        """What part of rho each relationship gets, in proportion to others and to tables.

        Those that only count degrees get a smaller part.
        """
        wanted = {}
        for key in self.task.schema.keys:
            table = self.counted.tables[key.table]
            tables = link_plan.candidates(self.task.schema, key, 2)
            moved = table.neighbours.max_rows / table.data_rows
            measured = min(len(tables), link_plan.MOST_TABLES) or 1
            whole = wanted_budget(
                moved, measured, link_plan.mean_cells(self.task, key, tables, MOST_PARTS)
            )
            wanted[joined_table(key)] = (Fraction(1) if tables else link_plan.DEGREES_ONLY) * whole
        return wanted

    def plan(self, epsilons: Mapping[tuple[str, str], Fraction]) -> Plan[RelationalParameters]:
        """The plan whose parts have these epsilons, each at the delta of the whole.

        Relationships split what composes by addition: epsilon at delta 0, else rho of zCDP.
        """
        plans = {name: self._part(name, epsilons["rows", name]) for name in self.rows}
        counts = {
            name: noise_of_counts(epsilons["count", name], self.budget.delta)
            for name in plans
            if ("count", name) in epsilons
        }
        links = self._links(self.options.epsilon or epsilons[_LINKS])
        stages = [*row_models.count_stages(self.counted, counts), *row_models.row_stages(plans)]
        for key in self.task.schema.keys:
            stages += link_plan.link_stages(self.counted, key, links[joined_table(key)])
        most = {name: table.neighbours.max_rows for name, table in self.counted.tables.items()}
        parameters = RelationalParameters(self.base.name, plans, counts, links, most)
        forecast = self._forecast(plans, links)
        tables = {name: (self.rows[name], plan) for name, plan in plans.items()}
        return Plan(
            self.name,
            row_models.row_sequence(plans),
            tuple(stages),
            parameters,
            forecast,
            parts=tables,
        )

    def _links(self, epsilon: Fraction) -> dict[str, link_plan.LinkNoise]:
        """The noise of relationships."""
        keys, delta, wanted = self.task.schema.keys, self.budget.delta, self._wanted
        whole = zcdp_rho(epsilon, delta) if delta and keys else epsilon
        parts = {name: whole * part / sum(wanted.values()) for name, part in wanted.items()}
        return {
            joined_table(key): link_plan.link_noise(
                self.counted, key, parts[joined_table(key)], not delta
            )
            for key in keys
        }

    def _part(self, name: str, epsilon: Fraction) -> AnyPlan:
        task = self.rows[name]
        try:
            return self.base.search(
                task, self.base.sequence(task), Budget(epsilon, self.budget.delta)
            )
        except PlanError as refusal:
            raise PlanError(
                f"table '{name}' has a part of epsilon {float(self.budget.epsilon):g}, and a unit "
                f"up to {task.neighbours.max_rows:,} of its rows: {refusal}; or lower max_rows of "
                "its references, or leave the table out: what refers to it is then a number or a "
                "public list of values"
            ) from None

    def _forecast(
        self, plans: Mapping[str, AnyPlan], links: Mapping[str, link_plan.LinkNoise]
    ) -> Forecast:
        tables, schema, rows = self.task.tables, self.task.schema, together(plans.values())
        drawn = {name: row_models.most_drawn(self.task, table) for name, table in tables.items()}
        seconds = rows.seconds
        for key in schema.keys:
            sides = zip((key.table, key.parent), joined_domain(schema, key), strict=True)
            rounds = links[joined_table(key)].rounds
            profiles = [_profiles(domain, drawn[name], sum(rounds)) for name, domain in sides]
            seconds += _SECONDS + _seconds_of_fits(math.prod(profiles), rounds)
            seconds += _SECONDS_OF_ROW * drawn[key.table]
            if links[joined_table(key)].likeness:
                seconds += 2 * _SECONDS_OF_FACTORS + _SECONDS_OF_ROW * drawn[key.table]
        memory = rows.memory + _MEMORY + _BYTES_OF_ROW * sum(drawn.values())
        return replace(rows, seconds=round(seconds, 1), memory=memory)


def _profiles(domain: Domain, rows: int, tables: int) -> float:
    """The expected profiles of rows if each of these joint tables has a random attribute."""
    logs = [math.log(min(column.size, MOST_PARTS)) for column in domain]
    left = (1 - 1 / len(logs)) ** tables if logs else 1.0
    return min(math.exp((1 - left) * sum(logs)), rows)


def _seconds_of_fits(pairs: float, rounds: tuple[int, ...]) -> float:
    """Seconds of a fit before each further round, and of two to all tables: for pool and draw."""
    in_rounds = _SECONDS_OF_PAIR * min(pairs, MOST_UNKNOWNS) * len(rounds[1:])
    if pairs > MOST_UNKNOWNS:
        return in_rounds + 2 * _SECONDS_OF_FACTORS
    return in_rounds + 2 * _SECONDS_OF_PAIR * pairs * bool(rounds)
