"""The rows of each table: task, plan and model of a method of one table, without references.

Each has a door of its own; rows that bounds may drop are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.constraints import DenialConstraint
from cloister.errors import PlanError
from cloister.figures import count_of, figure
from cloister.models.core.budget_split import CountNoise, label_stage
from cloister.models.protocol import AnySynthesizer, Arrays, DatabaseDoor, Model, part_of_arrays
from cloister.models.relational.constraints import distinct_pairs, kept_by_links, rules_across
from cloister.models.task import AnyPlan, DatabaseTask, Stage, Task
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.transformations import LabelledDoor
from cloister.schema import relations
from cloister.schema.columns import Serial
from cloister.schema.domain import Domain
from cloister.schema.partition import one_part

COUNT = "number"
"""The label of the noisy number of rows of a table."""


def tasks_of_rows(task: DatabaseTask, counted: DatabaseTask | None = None) -> dict[str, Task]:
    """The task of each table's rows, without its references.

    Of as many rows as are ``counted``, if that is given. Tables that only link others have none.

    Raises:
        PlanError: a table has no attribute and no reference, a hard constraint is on a column that
            refers, a key has too few numbers, or rows that refer to one other have an order.
    """
    for key in task.schema.keys:
        if key.order:
            raise PlanError(
                f"table '{key.table}', column '{key.column}': rows have an order only where each "
                "row refers to one other, and relationships are not measured; leave order out"
            )
    distinct_pairs(task)
    rules_across(task)
    tasks = {}
    for name, table in task.tables.items():
        alone = _task_alone(task, name, table)
        if alone.domain.modelled:
            rows = (counted or task).tables[name]
            tasks[name] = replace(alone, data_rows=rows.data_rows, neighbours=rows.neighbours)
        elif name == task.schema.lead or not task.schema.required_of(name):
            raise PlanError(
                f"table '{name}' has no attribute besides keys, and the rows of each are modelled; "
                "declare one, or leave the table out"
            )
    return tasks


def most_drawn(task: DatabaseTask, table: Task) -> int:
    """The most rows drawn for a table: as many per unit as were declared."""
    return -(-table.data_rows * task.output_rows // task.data_rows)


def _task_alone(task: DatabaseTask, name: str, table: Task) -> Task:
    references = {key.column for key in task.schema.parents_of(name)}
    for rule in table.hard:
        if references.intersection(rule.attributes):
            _require_kept_by_links(task, name, rule)
    rules = tuple(c for c in table.constraints if not references.intersection(c.attributes))
    domain, wanted = relations.rows_domain(task.schema, name), most_drawn(task, table)
    require_enough_keys(name, domain, wanted)
    return replace(table, domain=domain, constraints=rules, wanted_rows=wanted)


def _require_kept_by_links(task: DatabaseTask, name: str, rule: DenialConstraint) -> None:
    if not kept_by_links(task, name, rule):
        raise PlanError(
            f"constraint '{rule.name}' is on a column that refers to another table, whose "
            "rows are drawn before it is known; make it soft, or drop it (a key of one "
            "reference is kept with max_rows: 1, one of two references that are never missing "
            "is kept too)"
        )


def require_enough_keys(name: str, domain: Domain, wanted: int) -> None:
    """Check that the patterns of a table have as many keys as rows are wanted; PlanError."""
    for column in domain:
        if isinstance(column, Serial) and column.values < wanted:
            raise PlanError(
                f"table '{name}', column '{column.name}': its pattern has "
                f"{count_of(column.values, 'key')} for up to {count_of(wanted, 'row')}; widen the "
                f"pattern or request fewer rows"
            )


def tables_to_count(task: DatabaseTask) -> tuple[str, ...]:
    """The tables with attributes whose bounds may drop rows: all that must refer to others.

    Where fewer rows remain than declared, noisy counts divided by the declared number would spread
    the rest evenly over all values. Where every row is a unit, none is dropped.
    """
    schema = task.schema
    return tuple(
        name
        for name in schema.tables
        if relations.rows_domain(schema, name).modelled
        and not schema.any_row
        and schema.required_of(name)
    )


def count_stages(task: DatabaseTask, counts: Mapping[str, CountNoise]) -> Iterator[Stage]:
    """The stage of the number of rows of each counted table."""
    for name, noise in counts.items():
        neighbours = task.tables[name].neighbours
        yield Stage(
            f"{name}: {COUNT}",
            noise.event(neighbours.partition),
            f"how many rows of {name} there are, up to {neighbours.max_rows:,} a unit; noise of "
            f"{count_of(figure(noise.scale(neighbours.partition)), 'row')}",
        )


def with_counted_rows(
    private: DatabaseDoor, rows: Mapping[str, Task], counts: Mapping[str, CountNoise]
) -> dict[str, Task]:
    """The tasks of tables, with their noisy numbers of rows.

    Privacy: of each counted table a partition with one part.
    """
    tasks = dict(rows)
    for name, noise in counts.items():
        task, door = rows[name], door_of_rows(private, name, rows[name])
        column = task.domain[task.domain.modelled[0]]
        whole = PartitionCounts((one_part(column),))
        counted = float(door.answer(whole, noise, COUNT)[0])
        number = estimate_rows(task.data_rows, counted, noise.scale(door.neighbours.partition))
        tasks[name] = replace(task, data_rows=number)
    return tasks


def estimate_rows(declared: int, counted: float, scale: float) -> int:
    """The noisy number of rows, shrunk towards the declared one as far as noise explains the gap.

    ``scale`` is that of the noise, in rows. Source: James, Stein, "Estimation with quadratic loss"
    (1961).
    """
    error = counted - declared
    believed = 1.0 - min(scale**2 / max(error**2, 1.0), 1.0)
    return max(round(declared + believed * error), 1)


def row_stages(plans: Mapping[str, AnyPlan]) -> list[Stage]:
    """The stages of all plans of rows, labelled with their tables."""
    return [
        label_stage(stage, name, f"rows of {name}: ")
        for name, plan in plans.items()
        for stage in plan.stages
    ]


def row_sequence(plans: Mapping[str, AnyPlan]) -> tuple[str, ...]:
    """The attributes of all tables, in the order in which they are modelled."""
    return tuple(f"{name}.{column}" for name, plan in plans.items() for column in plan.sequence)


def train_rows(
    base: AnySynthesizer,
    private: DatabaseDoor,
    rows: Mapping[str, Task],
    plans: Mapping[str, AnyPlan],
) -> dict[str, Model]:
    """The models of the rows of all tables."""
    return {
        name: base.train(door_of_rows(private, name, rows[name]), rows[name], plan)
        for name, plan in plans.items()
    }


def door_of_rows(private: DatabaseDoor, name: str, task: Task) -> LabelledDoor:
    """The door to as many rows of each unit as the task of a table has."""
    return LabelledDoor(private.bounded(name, task.neighbours.max_rows), name)


def post_processing_of_rows(models: Mapping[str, Model]) -> Iterator[str]:
    """The post-processing of each model, in sentences that begin with its table."""
    for name, model in models.items():
        yield from (f"{name}: {sentence}" for sentence in model.post_processing())


def rows_state(
    models: Mapping[str, Model],
) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
    """The models of rows as JSON and arrays; :func:`restore_rows` reads them."""
    meta: dict[str, Any] = {}
    arrays: dict[str, NDArray[np.generic]] = {}
    for name, model in models.items():
        meta[name], stored = model.state()
        arrays |= {f"models.{name}/{key}": array for key, array in stored.items()}
    return meta, arrays


def restore_rows(
    base: AnySynthesizer, rows: Mapping[str, Task], meta: Mapping[str, Any], arrays: Arrays
) -> dict[str, Model]:
    """The models whose :func:`rows_state` is given."""
    return {
        name: base.restore(rows[name], stored, part_of_arrays(arrays, f"models.{name}"))
        for name, stored in meta.items()
    }
