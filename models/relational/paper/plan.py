"""The plan of the paper: tables and relationships have budgets that add up (Theorems 1 and 7).

Source: arXiv 2405.18670, appendix B, algorithms 4 to 6, and the set-up of section 8. The part
``alpha`` of a round is for its selection, as the text of section 8 has it of the exponential
mechanism; exponent and noise follow from the sensitivities of the door's queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from cloister.errors import PlanError
from cloister.figures import count_of
from cloister.models.core.budget_split import counts_stage
from cloister.models.core.costs import together
from cloister.models.planning import require_delta
from cloister.models.protocol import AnySynthesizer, json_texts, plans_json
from cloister.models.relational.paper.joint_tables import candidates
from cloister.models.relational.paper.relationship import STEPS, Slicing
from cloister.models.relational.paper.rows import row_sequence, row_stages, tasks_of_rows
from cloister.models.task import (
    AnyPlan,
    Budget,
    DatabaseTask,
    Forecast,
    Parameters,
    Plan,
    Stage,
    Task,
    options_of,
)
from cloister.privacy.accounting.accountants import noise_multiplier
from cloister.privacy.events import repeat
from cloister.privacy.mechanisms.noise import DiscreteGaussian, Neighbours
from cloister.privacy.mechanisms.selection import Exponential
from cloister.schema.attributes import Declared
from cloister.schema.declarations import DeclaredEpsilon, Exact
from cloister.schema.fan_outs import rows_changed
from cloister.schema.relations import ForeignKey, joined_table

_ROUNDS, _WORKLOADS = 15, 3
"""T rounds of K joint tables each: section 8, as the four constants that follow."""

_FITTED = 8
"""Joint tables fitted at once, those of greatest error."""

_SLICE, _SLICES = 1_000, 8
"""Rows of a side of a slice, and slices a round."""

_WAYS = 3
"""Attributes of a joint table."""

_ALPHA = Fraction(1, 4)
"""Part of a round for its selection; the number is missing from our copy of the paper."""

_RELATED = Fraction(1, 3)
"""Default part of epsilon for relationships: as much as each of two tables."""

_FLOAT_ERROR = 1e-9
"""Relative margin by which rho is lowered: above the error of floating-point roots."""

_DIGITS = 10**15
"""Denominator of rho."""

_SECONDS_OF_PAIR = 5e-9
"""Seconds per pair of rows, joint table and step: two products with indicators, a gather, and an
eighth of the projection."""

_LONGEST = 3_600.0
"""Seconds above which a fit is refused: the method is for small tables."""

_BYTES_OF_PAIR = 48
"""Bytes per pair of rows: the matrix, its slices and their order in the sampling."""

_MOST_MEMORY = 4 << 30
"""Bytes above which a fit is refused."""


SELECT, MEASURE = "select", "measure"
"""Labels of the rounds of a relationship."""


class PrintedOptions(Declared):
    """The options of the algorithm as printed."""

    table_method: str | None = Field(default=None, description="makes the rows of each table")
    epsilon: DeclaredEpsilon | None = Field(
        default=None,
        description="of all relationships alone, at the delta of the release; tables have the rest",
    )
    rounds: int | None = Field(
        default=None, ge=1, description="T, in each of which joint tables are selected and measured"
    )
    workloads: int | None = Field(default=None, ge=1, description="K, the joint tables of a round")
    alpha: Annotated[Exact, Field(gt=0, lt=1)] | None = Field(
        default=None, description="the part of a round's budget for its selection"
    )
    ways: Literal[2, 3] | None = Field(default=None, description="attributes of a joint table")
    fitted: int | None = Field(
        default=None, ge=1, description="joint tables fitted at once, those of greatest error"
    )
    slice: int | None = Field(
        default=None, ge=2, description="rows on each side of a random part of the matrix"
    )
    slices: int | None = Field(default=None, ge=1, description="parts fitted in a round")


@dataclass(frozen=True)
class RelationalPaperParameters(Parameters):
    """The method and plans of rows, the mechanisms of rounds, and how the matrix is learned."""

    base: str
    plans: Mapping[str, AnyPlan]
    selection: Exponential
    tables: DiscreteGaussian
    rounds: int
    workloads: int
    ways: int
    slicing: Slicing

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        values = {name: value for name, value in vars(self).items() if name != "plans"}
        values |= {name: asdict(values[name]) for name in ("selection", "tables", "slicing")}
        return {**json_texts(values), "plans": plans_json(self.plans)}


def link_of(task: DatabaseTask) -> ForeignKey:
    """The key across which the paper relates two tables: a link's second, or the only one.

    Raises:
        PlanError: there is more than one relationship.
    """
    keys = task.schema.keys
    child = keys[0].table if keys else ""
    bare = not any(column.kind != "key" for column in task.schema.tables.get(child, ()))
    related = {child, *(key.parent for key in keys)}
    one = len(keys) == (2 if bare else 1) and all(key.table == child for key in keys)
    if not one or related != set(task.schema.tables) or any(key.optional for key in keys):
        raise PlanError(
            "method relational-paper relates two tables by one reference, or by a table of two "
            "references without attributes, none of them missing; use --method relational"
        )
    return task.schema.parents_of(child)[-1]


def plan_relational_paper(
    name: str, base: AnySynthesizer, task: DatabaseTask, budget: Budget
) -> Plan[RelationalPaperParameters]:
    """The plan of both tables and of the rounds.

    Raises:
        PlanError: there is none, or it would take too long or too much memory.
    """
    key, rows = link_of(task), tasks_of_rows(task)
    require_delta("relational-paper", budget)
    _require_kept(task, key)
    related = options_of(task, PrintedOptions).epsilon or _RELATED * budget.epsilon
    if related >= budget.epsilon:
        raise PlanError("relationships have all of epsilon; lower release.options.epsilon")
    part = Budget((budget.epsilon - related) / len(rows), budget.delta / (len(rows) + 1))
    plans = {
        table: base.search(table_task, base.sequence(table_task), part)
        for table, table_task in rows.items()
    }
    rho = printed_rho(related, part.delta)
    parameters, tables = _parameters(task, key, base.name, plans, rho)
    stages = [*row_stages(plans), *_stages(task, key, parameters, tables)]
    forecast = _forecast(task, key, parameters)
    rows, sequence = tasks_of_rows(task), row_sequence(plans)
    parts = {table: (rows[table], plan) for table, plan in plans.items()}
    return Plan(name, sequence, tuple(stages), parameters, forecast, parts=parts)


def _parameters(
    task: DatabaseTask, key: ForeignKey, base: str, plans: Mapping[str, AnyPlan], rho: Fraction
) -> tuple[RelationalPaperParameters, int]:
    """The mechanisms of all rounds, which share rho, and how many joint tables they measure."""
    options = options_of(task, PrintedOptions)
    rounds, workloads = options.rounds or _ROUNDS, options.workloads or _WORKLOADS
    ways, alpha = options.ways or _WAYS, options.alpha or _ALPHA
    tables = min(rounds * workloads, len(candidates(task.schema, key, ways)))
    each = rho / tables
    parameters = RelationalPaperParameters(
        base,
        plans,
        Exponential(exponent_of(alpha * each)),
        DiscreteGaussian(noise_multiplier((1 - alpha) * each)),
        -(-tables // workloads),
        workloads,
        ways,
        Slicing(options.fitted or _FITTED, options.slices or _SLICES, options.slice or _SLICE),
    )
    return parameters, tables


def exponent_of(rho: Fraction) -> Fraction:
    """The epsilon of a selection of bounded range that is rho-zCDP: rho = eps^2 / 8.

    Rounded down. Source: Cesar, Rogers (arXiv 2010.13981), lemma 3.4.
    """
    return Fraction(math.floor(math.sqrt(8 * rho) * (1 - _FLOAT_ERROR) * _DIGITS), _DIGITS)


def printed_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The rho that Lemma 4 converts to (epsilon, delta): rho + 2 sqrt(rho log(1 / delta)).

    Rounded down.
    """
    log = math.log(1 / delta)
    rho = (math.sqrt(log + float(epsilon)) - math.sqrt(log)) ** 2
    return Fraction(math.floor(rho * (1 - _FLOAT_ERROR) * _DIGITS), _DIGITS)


def _stages(
    task: DatabaseTask, key: ForeignKey, parameters: RelationalPaperParameters, tables: int
) -> list[Stage]:
    joined = Neighbours(
        task.neighbours.relation, rows_changed(task.schema)[joined_table(key)]
    ).partition
    link = joined_table(key)
    return [
        Stage(
            f"{link}: {SELECT}",
            repeat(parameters.selection.event(), tables),
            f"which {parameters.ways}-way joint tables across '{key.column}' fit worst, "
            f"{count_of(tables, 'choice')} in {count_of(parameters.rounds, 'round')}",
        ),
        counts_stage(
            f"{link}: {MEASURE}",
            [(parameters.tables, tables)],
            joined,
            f"joint tables across '{key.column}', {tables} in all",
        ),
    ]


def sides_of(task: DatabaseTask, key: ForeignKey) -> tuple[str, str]:
    """The table of rows that refer (of a link, its first parent) and the table of parents."""
    first = task.schema.parents_of(key.table)[0]
    return (key.table if first == key else first.parent), key.parent


def _require_kept(task: DatabaseTask, key: ForeignKey) -> None:
    """Check that no hard constraint is on a single reference, or across one.

    The paper does not bound degrees, and draws links without rules.

    Raises:
        PlanError: names the constraint.
    """
    columns = {reference.column for reference in task.schema.parents_of(key.table)}
    for rule in task.tables[key.table].hard:
        if len(columns.intersection(rule.attributes)) == 1:
            raise PlanError(
                f"constraint '{rule.name}' is on a reference, and method relational-paper does not "
                "bound how many rows refer to one; use --method relational, or drop it"
            )
    if task.across:
        raise PlanError(
            f"constraint '{task.across[0].name}' is across a reference, and method "
            "relational-paper draws links without it; use --method relational, or drop it"
        )


def _forecast(
    task: DatabaseTask, key: ForeignKey, parameters: RelationalPaperParameters
) -> Forecast:
    """Seconds and bytes of the matrix, beside those of the tables.

    Raises:
        PlanError: they are too many.
    """
    scale = task.output_rows / task.data_rows
    sides = [_rows(task.tables[name], scale) for name in sides_of(task, key)]
    slicing, pairs = parameters.slicing, math.prod(sides)
    of_round = pairs
    if max(sides) > slicing.rows and key == task.schema.parents_of(key.table)[-1]:
        of_round = min(pairs, slicing.slices * slicing.rows**2)
    steps = parameters.rounds * STEPS * slicing.fitted
    fits = 2 * _SECONDS_OF_PAIR * steps * of_round
    memory = _BYTES_OF_PAIR * pairs
    if fits > _LONGEST or memory > _MOST_MEMORY:
        raise PlanError(
            f"method relational-paper has a variable for each of {pairs:,} pairs of rows: "
            f"{fits / 60:.0f} minutes and {memory / 2**30:.1f} GiB; use --method relational, which "
            "has one for each pair of profiles"
        )
    rows = together(parameters.plans.values())
    return replace(rows, seconds=round(rows.seconds + fits, 1), memory=rows.memory + memory)


def _rows(task: Task, scale: float) -> int:
    return max(round(task.data_rows * scale), 1)
