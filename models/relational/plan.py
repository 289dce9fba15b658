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
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from cloister.errors import PlanError
from cloister.figures import figure
from cloister.privacy.accounting.calibration import noise_multiplier, zcdp_rho
from cloister.privacy.events import repeat
from cloister.privacy.mechanisms.counts import DiscreteGaussian, DiscreteLaplace, Neighbours
from cloister.privacy.mechanisms.selection import Exponential, PermuteAndFlip
from cloister.schema.columns import Serial
from cloister.schema.database import ForeignKey
from cloister.schema.domain import Domain
from cloister.schema.fan_out import rows_changed
from cloister.schema.joins import degree_table, joined_domain, joined_table, rows_domain
from models.protocol import AnyPlan, AnySynthesizer, Forecast, Parameters, Plan, Stage
from models.relational.candidates import candidates
from models.relational.key_rules import rules_across
from models.relational.pairs import distinct_pairs, kept_by_links
from models.relational.parts import MOST_PARTS
from models.relational.profiles import MOST_UNKNOWNS
from models.several_tables import DIGITS, labelled, largest_within
from models.task import Budget, DatabaseTask, Task

DEGREES = "degrees"
"""The label of the noisy degree distribution of a relationship."""

SELECT, MEASURE = "select", "measure"
"""Labels of the rounds of a relationship."""

_RELATIONSHIPS = Fraction(1, 3)
"""Part of the budget of all relationships together; the rows of tables have the rest."""

_DEGREES = Fraction(1, 10)
"""Part of a relationship's budget for its degrees: few counts, at a smaller sensitivity."""

_SELECTING = Fraction(1, 4)
"""Part alpha of a round for its selection; a wrong choice costs less than a noisy table."""

_ROUNDS = ((3, 3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1), (1,))
"""Rounds, each with the joint tables K that it selects and measures, from most to fewest.

A round selects by what the rounds before left unexplained.
"""

_NOISY = 0.3
"""Share of rows that refer which noise may move in a table of two attributes of eight parts.

Fewer tables are measured where it would move more: they would then say less than none.
"""

_CELLS = MOST_PARTS**2
"""Cells of such a table."""

MEAN_NOISE = math.sqrt(2 / math.pi)
"""Mean of the absolute value of a normal of deviation 1: what noise alone makes a count differ."""

_SECONDS = 3.0
"""Seconds of a relationship's rounds: at most four fits of joint tables to drawn rows."""

_SECONDS_OF_ROW = 2e-5
"""Seconds a row that is matched where many rows are alike."""

_SECONDS_OF_SLICED = 2e-3
"""Seconds a row that is matched in slices, where few are: each slice is a problem of its own."""

_MEMORY = 100 << 20
"""Bytes of the fit of a relationship, and of the libraries."""

_BYTES_OF_ROW = 300
"""Bytes of a drawn row with its matching."""

Noise = DiscreteGaussian | DiscreteLaplace


@dataclass(frozen=True)
class LinkNoise:
    """The mechanisms of one relationship.

    Each of ``rounds`` selects and measures so many joint tables. Without ``selection`` all are
    measured; where none can be there are no ``tables``.
    """

    degrees: Noise
    selection: Exponential | PermuteAndFlip | None
    tables: Noise | None
    rounds: tuple[int, ...]


@dataclass(frozen=True)
class RelationalParameters(Parameters):
    """The method and the plan of each table's rows, and the mechanisms of each relationship.

    A relationship has the name of its joined table.
    """

    base: str
    plans: Mapping[str, AnyPlan]
    links: Mapping[str, LinkNoise]

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        plans = {
            name: {"sequence": list(plan.sequence), "parameters": plan.parameters.to_json()}
            for name, plan in self.plans.items()
        }
        links = {name: _texts(asdict(noise)) for name, noise in self.links.items()}
        return {"base": self.base, "plans": plans, "links": links}


def _texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _texts(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_texts(part) for part in value]
    return str(value) if isinstance(value, Fraction) else value


def tasks_of_rows(task: DatabaseTask) -> dict[str, Task]:
    """The task of each table's rows, without the columns that refer to others.

    Tables that only relate others have none.

    Raises:
        PlanError: a table has no attribute and no reference, a hard constraint is on a column that
            refers, or a key has too few numbers.
    """
    distinct_pairs(task)
    rules_across(task)
    found = {}
    for name, own in task.tables.items():
        alone = _alone(task, name, own)
        if alone.domain.modelled:
            found[name] = alone
        elif name == task.schema.lead or not _required(task, name):
            raise PlanError(
                f"table '{name}' has no attribute besides keys, and the rows of each are modelled; "
                "declare one, or leave the table out"
            )
    return found


def _alone(task: DatabaseTask, name: str, own: Task) -> Task:
    keys = task.schema.parents_of(name)
    references = {key.column for key in keys}
    for rule in own.hard:
        if references.intersection(rule.attributes) and not kept_by_links(task, name, rule):
            raise PlanError(
                f"constraint '{rule.name}' is on a column that refers to another table, whose "
                "rows are drawn before it is known; make it soft, or drop it (a key of one "
                "reference is kept with max_rows: 1, one of two references that are never missing "
                "is kept too)"
            )
    rules = tuple(c for c in own.constraints if not references.intersection(c.attributes))
    domain, wanted = rows_domain(task.schema, name), _wanted(task, own)
    for column in domain:
        if isinstance(column, Serial) and column.values < wanted:
            raise PlanError(
                f"table '{name}', column '{column.name}': its pattern has {column.values:,} keys "
                f"for up to {wanted:,} rows; widen the pattern or request fewer rows"
            )
    return replace(own, domain=domain, constraints=rules, wanted_rows=wanted)


def _required(task: DatabaseTask, name: str) -> list[ForeignKey]:
    return [key for key in task.schema.parents_of(name) if not key.optional]


def _wanted(task: DatabaseTask, own: Task) -> int:
    """The most rows of a table that are drawn: as many for each unit as were declared."""
    return -(-own.data_rows * task.output_rows // task.data_rows)


def plan_relational(
    name: str, base: AnySynthesizer, task: DatabaseTask, budget: Budget
) -> Plan[RelationalParameters]:
    """The plan of all tables and relationships, which together spend the budget.

    Raises:
        PlanError: a part has no plan, or a constraint cannot be kept.
    """
    if base.gives_deniability:
        raise PlanError(
            f"method {base.name} makes records from seeds of one table; "
            "use another method for the rows"
        )
    division = _Division(name, base, task, tasks_of_rows(task), budget)
    if not budget.delta:
        return division.plan({part: share * budget.epsilon for part, share in division.shares})
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
    def shares(self) -> tuple[tuple[tuple[str, str], Fraction], ...]:
        """The share of each table and each relationship, which add up to one."""
        keys = self.task.schema.keys
        weights = {
            joined_table(key): 1 if candidates(self.task.schema, key) else _DEGREES for key in keys
        }
        relationships = _RELATIONSHIPS if keys else Fraction(0)
        if not self.rows:
            relationships = Fraction(1)
        whole = sum(weights.values(), Fraction(0))
        return (
            *((("rows", name), (1 - relationships) / len(self.rows)) for name in self.rows),
            *((("link", name), relationships * own / whole) for name, own in weights.items()),
        )

    def scaled(self, scale: float) -> Plan[RelationalParameters]:
        """The plan at a scale.

        Parts of Gaussian noise compose by the sum of squares, so each has the root of its share.
        """
        epsilon = float(self.budget.epsilon)
        return self.plan(
            {
                part: Fraction(math.floor(scale * math.sqrt(share) * epsilon * DIGITS), DIGITS)
                for part, share in self.shares
            }
        )

    def plan(self, epsilons: Mapping[tuple[str, str], Fraction]) -> Plan[RelationalParameters]:
        """The plan whose parts have these epsilons, each at the delta of the whole."""
        plans = {name: self._part(name, epsilons["rows", name]) for name in self.rows}
        keys = {joined_table(key): key for key in self.task.schema.keys}
        links = {name: self._link(key, epsilons["link", name]) for name, key in keys.items()}
        stages = [
            labelled(stage, name, f"rows of {name}: ")
            for name, plan in plans.items()
            for stage in plan.stages
        ]
        for name, noise in links.items():
            stages += self._stages(keys[name], noise)
        sequence = tuple(
            f"{name}.{column}" for name, plan in plans.items() for column in plan.sequence
        )
        parameters = RelationalParameters(self.base.name, plans, links)
        return Plan(self.name, sequence, tuple(stages), parameters, self._forecast(plans, links))

    def _part(self, name: str, epsilon: Fraction) -> AnyPlan:
        task = self.rows[name]
        try:
            return self.base.search(
                task, self.base.sequence(task), Budget(epsilon, self.budget.delta)
            )
        except PlanError as refusal:
            raise PlanError(
                f"table '{name}' has a part of epsilon {float(self.budget.epsilon):g}: {refusal}"
            ) from None

    def _link(self, key: ForeignKey, epsilon: Fraction) -> LinkNoise:
        """The noise of as many joint tables as the declared rows can bear; of one at least."""
        tables = len(candidates(self.task.schema, key))
        rows = self.task.tables[key.table].data_rows
        partition = self._neighbours(joined_table(key)).partition
        for rounds in _ROUNDS:
            all_of_them = tables <= sum(rounds)
            found = self._noise(epsilon, (tables,) if all_of_them else rounds, all_of_them)
            if found.tables is None:
                break
            if MEAN_NOISE * _CELLS * found.tables.scale(partition) <= 2 * _NOISY * rows:
                break
        return found

    def _noise(self, epsilon: Fraction, rounds: tuple[int, ...], all_of_them: bool) -> LinkNoise:
        tables, alpha = sum(rounds), Fraction(0) if all_of_them else _SELECTING
        degrees = _DEGREES if tables else Fraction(1)
        parts = (degrees, *((1 - degrees) * part / max(tables, 1) for part in (alpha, 1 - alpha)))
        if not self.budget.delta:
            own, select, measure = (epsilon * part for part in parts)
            flip = None if all_of_them else PermuteAndFlip(select)
            each = DiscreteLaplace(measure) if tables else None
            return LinkNoise(DiscreteLaplace(own), flip, each, rounds)
        rho = zcdp_rho(epsilon, self.budget.delta)
        own, select, measure = (rho * part for part in parts)
        choice = None if all_of_them else Exponential(_exponent(select))
        gaussian = DiscreteGaussian(noise_multiplier(measure)) if tables else None
        return LinkNoise(DiscreteGaussian(noise_multiplier(own)), choice, gaussian, rounds)

    def _stages(self, key: ForeignKey, noise: LinkNoise) -> list[Stage]:
        parents = self._neighbours(degree_table(key)).partition
        joined = self._neighbours(joined_table(key)).partition
        link, tables = joined_table(key), sum(noise.rounds)
        scale = figure(noise.degrees.scale(parents))
        stages = [
            Stage(
                f"{link}: {DEGREES}",
                noise.degrees.event(parents),
                f"how many rows of {key.parent} have none, one, ... {key.max_rows} of {key.table}; "
                f"noise of {scale} rows a count",
            )
        ]
        if noise.selection:
            stages.append(
                Stage(
                    f"{link}: {SELECT}",
                    repeat(noise.selection.event(), tables),
                    f"which joint tables across '{key.column}' fit worst, in "
                    f"{len(noise.rounds)} rounds; chosen: {tables}",
                )
            )
        if noise.tables:
            stages.append(
                Stage(
                    f"{link}: {MEASURE}",
                    repeat(noise.tables.event(joined), tables),
                    f"joint tables of attributes across '{key.column}', {tables} in all; noise of "
                    f"{figure(noise.tables.scale(joined))} rows a count",
                )
            )
        return stages

    def _neighbours(self, name: str) -> Neighbours:
        """The rows of a table behind the door that one unit changes."""
        return Neighbours(self.task.neighbours.relation, rows_changed(self.task.schema)[name])

    def _forecast(self, plans: Mapping[str, AnyPlan], links: Mapping[str, LinkNoise]) -> Forecast:
        tables, schema = self.task.tables, self.task.schema
        drawn = {name: _wanted(self.task, own) for name, own in tables.items()}
        seconds = sum(plan.forecast.seconds for plan in plans.values())
        for key in schema.keys:
            sides = zip((key.table, key.parent), joined_domain(schema, key), strict=True)
            each = sum(links[joined_table(key)].rounds)
            profiles = [_most_profiles(domain, drawn[name], each) for name, domain in sides]
            sliced = math.prod(profiles) > MOST_UNKNOWNS
            of_row = _SECONDS_OF_SLICED if sliced else _SECONDS_OF_ROW
            seconds += _SECONDS + of_row * drawn[key.table]
        memory = max((plan.forecast.memory for plan in plans.values()), default=0)
        return Forecast(round(seconds, 1), memory + _MEMORY + _BYTES_OF_ROW * sum(drawn.values()))


def _most_profiles(domain: Domain, rows: int, tables: int) -> int:
    """The most profiles of rows by the attributes of so many joint tables, one in each."""
    sizes = sorted(min(domain[name].size, MOST_PARTS) for name in domain.names)
    return min(math.prod(sizes[max(len(sizes) - tables, 0) :]), rows)


def _exponent(rho: Fraction) -> Fraction:
    """The epsilon of a selection of bounded range that is rho zero-concentrated: rho = eps^2 / 8.

    Rounded down. Source: Cesar, Rogers (arXiv 2010.13981), lemma 3.4.
    """
    return Fraction(math.floor(math.sqrt(8 * rho) * (1 - 1e-9) * DIGITS), DIGITS)
