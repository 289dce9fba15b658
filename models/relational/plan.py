"""The plan of several tables: a plan for the rows of each, and what is asked of relationships.

A unit has rows in each table, so everything composes. With a delta the parts are scaled such that
all together, priced by the accountants as one, cost no more than the budget; at delta 0 epsilons
add up to it.

Source: arXiv 2405.18670, algorithm 1: rounds of selections by the exponential mechanism, each
    followed by measurements. Exponents and noise follow from the sensitivities of the door's
    queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

from cloister.errors import PlanError
from cloister.models.core.budget_split import DIGITS, largest_within
from cloister.models.protocol import AnySynthesizer
from cloister.models.relational.options import RelationalOptions
from cloister.models.relational.profiles import MOST_PARTS, MOST_UNKNOWNS, candidates
from cloister.models.relational.rows import (
    DEGREES_ONLY,
    LinkNoise,
    Noise,
    count_stages,
    counted_tables,
    link_noise,
    link_stages,
    most_drawn,
    plans_json,
    row_sequence,
    row_stages,
    tasks_of_rows,
)
from cloister.models.several_tables import json_texts
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
from cloister.privacy.accounting.accountants import noise_multiplier, zcdp_rho
from cloister.privacy.mechanisms.noise import DiscreteGaussian, DiscreteLaplace
from cloister.schema.domain import Domain
from cloister.schema.relations import joined_domain, joined_table

_RELATIONSHIPS = Fraction(1, 3)
"""Part of the budget of all relationships together; the rows of tables have the rest."""

_COUNT = Fraction(1, 20)
"""Part of the budget of a table's rows for how many there are, if bounds may leave some out.

As a share of rho, or of epsilon at delta 0. At 1/20 what its noise adds to a share of values is a
third of the histograms' noise at most, where there are two attributes; that grows by 2.5 %.
"""

_SECONDS = 0.1
"""Seconds of a relationship's degrees and selections."""

_SECONDS_OF_PAIR = 5.4e-7
"""Seconds of a fit for each pair of profiles and joint table. Measured: 5.3e-7 to 5.6e-7."""

_SECONDS_OF_FACTORS = 3.0
"""Seconds in which factors for rows in slices are fitted, where there are many profiles."""

_SECONDS_OF_ROW = 1e-5
"""Seconds a row that is matched, by profiles or in slices. To make pairs of 10,000 to 1,000,000
links distinct took a tenth of that at most."""

_MEMORY = 100 << 20
"""Bytes of the fit of a relationship, and of the libraries."""

_BYTES_OF_ROW = 300
"""Bytes of a drawn row with its matching."""


@dataclass(frozen=True)
class RelationalParameters(Parameters):
    """The method and the plan of each table's rows, and the mechanisms of each relationship.

    A relationship has the name of its joined table. ``counts`` are those of the number of rows, of
    tables of which rows may be left out.
    """

    base: str
    plans: Mapping[str, AnyPlan]
    counts: Mapping[str, Noise]
    links: Mapping[str, LinkNoise]

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        links = {name: json_texts(asdict(noise)) for name, noise in self.links.items()}
        counts = {name: json_texts(asdict(noise)) for name, noise in self.counts.items()}
        plans = plans_json(self.plans)
        return {"base": self.base, "plans": plans, "counts": counts, "links": links}


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
    division = _Division(name, base, task, tasks_of_rows(task), budget)
    whole = division.whole()
    if not budget.delta:
        return division.plan(whole)
    found = largest_within(division.scaled, budget, task.neighbours.relation)
    if found is None:
        raise PlanError(
            f"no division of epsilon {float(budget.epsilon):g} between tables and relationships "
            "was found; allow more"
        )
    return found


@dataclass(frozen=True)
class _Division:
    """Ways to divide a budget between tables and relationships."""

    name: str
    base: AnySynthesizer
    task: DatabaseTask
    rows: Mapping[str, Task]
    budget: Budget

    @property
    def options(self) -> RelationalOptions:
        """What the spec says of relationships."""
        return options_of(self.task, RelationalOptions)

    @cached_property
    def weights(self) -> dict[str, Fraction]:
        """The share of each relationship in what all have: those that only count degrees less."""
        keys, ways = self.task.schema.keys, self.options.ways
        found = {
            joined_table(key): Fraction(1)
            if candidates(self.task.schema, key, ways)
            else DEGREES_ONLY
            for key in keys
        }
        whole = sum(found.values(), Fraction(0))
        return {name: own / whole for name, own in found.items()}

    def whole(self) -> dict[tuple[str, str], Fraction]:
        """Epsilons that add up to the budget.

        Raises:
            PlanError: relationships are to have all of it, or more.
        """
        related = self._related
        each = (self.budget.epsilon - related) / len(self.rows)
        tables = {own: each * share for own, share in self._shares.items()}
        return tables | {("link", name): related * own for name, own in self.weights.items()}

    def scaled(self, scale: float) -> Plan[RelationalParameters]:
        """The plan at a scale, which is of the tables alone if relationships have an epsilon.

        Parts of Gaussian noise compose by the sum of squares, so each table has the root of its
        share, and relationships share what is added up, the rho of zero-concentrated privacy.
        """
        whole, declared = float(self.budget.epsilon), self.options.epsilon
        left = whole - float(self._related) if declared is None else whole
        related = declared or _rounded(scale * math.sqrt(float(self._related) * whole))
        rho = zcdp_rho(related, self.budget.delta) if self.weights else Fraction(0)
        each = whole * left / len(self.rows)
        return self.plan(
            {own: _rounded(scale * math.sqrt(each * share)) for own, share in self._shares.items()}
            | {("link", name): rho * own for name, own in self.weights.items()}
        )

    @property
    def _shares(self) -> dict[tuple[str, str], Fraction]:
        """The parts of the budget of a table: of its rows, and of their number if it is counted."""
        counted = counted_tables(self.task)
        found = {("rows", name): 1 - _COUNT * (name in counted) for name in self.rows}
        return found | {("count", name): _COUNT for name in counted}

    @property
    def _related(self) -> Fraction:
        """The epsilon of all relationships."""
        if not self.task.schema.keys:
            return Fraction(0)
        declared = self.options.epsilon
        if declared is None:
            return _RELATIONSHIPS * self.budget.epsilon
        if declared >= self.budget.epsilon:
            raise PlanError(
                f"relationships are to have epsilon {float(declared):g} of "
                f"{float(self.budget.epsilon):g}, and tables none; lower release.options.epsilon"
            )
        return declared

    def plan(self, amounts: Mapping[tuple[str, str], Fraction]) -> Plan[RelationalParameters]:
        """The plan whose tables have these epsilons, each at the delta of the whole.

        Relationships have so much epsilon at delta 0, else so much rho.
        """
        plans = {name: self._part(name, amounts["rows", name]) for name in self.rows}
        keys = {joined_table(key): key for key in self.task.schema.keys}
        links = {
            name: link_noise(self.task, key, amounts["link", name], not self.budget.delta)
            for name, key in keys.items()
        }
        counts = {
            name: self._count(amounts["count", name])
            for name in plans
            if ("count", name) in amounts
        }
        stages = [*count_stages(self.task, counts), *row_stages(plans)]
        for name, noise in links.items():
            stages += link_stages(self.task, keys[name], noise)
        parameters = RelationalParameters(self.base.name, plans, counts, links)
        forecast = self._forecast(plans, links)
        return Plan(self.name, row_sequence(plans), tuple(stages), parameters, forecast)

    def _count(self, epsilon: Fraction) -> Noise:
        if not self.budget.delta:
            return DiscreteLaplace(epsilon)
        return DiscreteGaussian(noise_multiplier(zcdp_rho(epsilon, self.budget.delta)))

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

    def _forecast(self, plans: Mapping[str, AnyPlan], links: Mapping[str, LinkNoise]) -> Forecast:
        tables, schema = self.task.tables, self.task.schema
        drawn = {name: most_drawn(self.task, own) for name, own in tables.items()}
        seconds = sum(plan.forecast.seconds for plan in plans.values())
        for key in schema.keys:
            sides = zip((key.table, key.parent), joined_domain(schema, key), strict=True)
            rounds = links[joined_table(key)].rounds
            profiles = [_profiles(domain, drawn[name], sum(rounds)) for name, domain in sides]
            seconds += _SECONDS + _seconds_of_fits(math.prod(profiles), rounds)
            seconds += _SECONDS_OF_ROW * drawn[key.table]
        memory = max((plan.forecast.memory for plan in plans.values()), default=0)
        memory += _MEMORY + _BYTES_OF_ROW * sum(drawn.values())
        on_device = max((plan.forecast.device_memory for plan in plans.values()), default=0)
        return Forecast(round(seconds, 1), memory, on_device)


def _profiles(domain: Domain, rows: int, tables: int) -> float:
    """The profiles of rows by the attributes of so many joint tables, a random one in each."""
    logs = [math.log(min(column.size, MOST_PARTS)) for column in domain]
    left = (1 - 1 / len(logs)) ** tables if logs else 1.0
    return min(math.exp((1 - left) * sum(logs)), rows)


def _seconds_of_fits(pairs: float, rounds: tuple[int, ...]) -> float:
    """Seconds of the fits before each round, and of two of all tables: to a pool and to a draw."""
    if pairs > MOST_UNKNOWNS:
        return _SECONDS_OF_FACTORS
    fitted = sum(accumulate(rounds[:-1])) + 2 * sum(rounds)
    return _SECONDS_OF_PAIR * pairs * fitted


def _rounded(epsilon: float) -> Fraction:
    """An epsilon of a division, rounded down."""
    return Fraction(math.floor(epsilon * DIGITS), DIGITS)
