"""The rows of each table: task, plan and model of a method of one table, without references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.errors import PlanError
from cloister.models.core.budget_split import label_stage
from cloister.models.protocol import AnySynthesizer, Arrays, DatabaseDoor, Model, part_of_arrays
from cloister.models.relational.references import most_drawn, require_enough_keys, require_kept
from cloister.models.task import AnyPlan, DatabaseTask, Stage, Task
from cloister.privacy.queries.transformations import LabelledDoor
from cloister.schema import relations


def tasks_of_rows(task: DatabaseTask) -> dict[str, Task]:
    """The task of each table's rows, without its references. Tables that only link have none.

    Raises:
        PlanError: a table has no attribute and no reference, a hard constraint is on a column that
            refers, a key has too few numbers, or rows that refer to one other have an order.
    """
    for key in task.schema.keys:
        if key.order:
            raise PlanError(
                f"table '{key.table}', column '{key.column}': the paper's rows have no order; use "
                "--method relational, or leave order out"
            )
    require_kept(task)
    tasks = {}
    for name, table in task.tables.items():
        alone = _task_alone(task, name, table)
        if alone.domain.modelled:
            tasks[name] = alone
        elif name == task.schema.lead or not task.schema.required_of(name):
            raise PlanError(
                f"table '{name}' has no attribute besides keys, and the rows of each are modelled; "
                "declare one, or leave the table out"
            )
    return tasks


def _task_alone(task: DatabaseTask, name: str, table: Task) -> Task:
    references = {key.column for key in task.schema.parents_of(name)}
    rules = tuple(c for c in table.constraints if not references.intersection(c.attributes))
    domain, wanted = relations.rows_domain(task.schema, name), most_drawn(task, table)
    require_enough_keys(name, domain, wanted)
    return replace(table, domain=domain, constraints=rules, wanted_rows=wanted)


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
        name: base.train(LabelledDoor(private.table(name), name), rows[name], plan)
        for name, plan in plans.items()
    }


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
