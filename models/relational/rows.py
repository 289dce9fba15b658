"""The rows of each table, without who refers to whom: their tasks, plans and models.

Each table is one of a method of one table, behind its own door.
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
from cloister.models.protocol import AnySynthesizer, Arrays, DatabaseDoor, Model
from cloister.models.relational.constraints.key_rules import rules_across
from cloister.models.relational.constraints.pair_keys import distinct_pairs, kept_by_links
from cloister.models.relational.schedule import Noise
from cloister.models.several_tables import LabelledDoor, label_stage, part_of_arrays
from cloister.models.task import AnyPlan, DatabaseTask, Stage, Task
from cloister.privacy.queries.counts import PartitionCounts
from cloister.schema.columns import Serial
from cloister.schema.domain import Cells, Domain
from cloister.schema.relations import rows_domain

COUNT = "number"
"""The label of the noisy number of rows of a table."""


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
        alone = _task_alone(task, name, own)
        relates = any(not key.optional for key in task.schema.parents_of(name))
        if alone.domain.modelled:
            found[name] = alone
        elif name == task.schema.lead or not relates:
            raise PlanError(
                f"table '{name}' has no attribute besides keys, and the rows of each are modelled; "
                "declare one, or leave the table out"
            )
    return found


def most_drawn(task: DatabaseTask, own: Task) -> int:
    """The most rows of a table that are drawn: as many for each unit as were declared."""
    return -(-own.data_rows * task.output_rows // task.data_rows)


def _task_alone(task: DatabaseTask, name: str, own: Task) -> Task:
    references = {key.column for key in task.schema.parents_of(name)}
    for rule in own.hard:
        if references.intersection(rule.attributes):
            _require_kept_by_links(task, name, rule)
    rules = tuple(c for c in own.constraints if not references.intersection(c.attributes))
    domain, wanted = rows_domain(task.schema, name), most_drawn(task, own)
    _require_enough_keys(name, domain, wanted)
    return replace(own, domain=domain, constraints=rules, wanted_rows=wanted)


def _require_kept_by_links(task: DatabaseTask, name: str, rule: DenialConstraint) -> None:
    if not kept_by_links(task, name, rule):
        raise PlanError(
            f"constraint '{rule.name}' is on a column that refers to another table, whose "
            "rows are drawn before it is known; make it soft, or drop it (a key of one "
            "reference is kept with max_rows: 1, one of two references that are never missing "
            "is kept too)"
        )


def _require_enough_keys(name: str, domain: Domain, wanted: int) -> None:
    for column in domain:
        if isinstance(column, Serial) and column.values < wanted:
            raise PlanError(
                f"table '{name}', column '{column.name}': its pattern has "
                f"{count_of(column.values, 'key')} for up to {count_of(wanted, 'row')}; widen the "
                f"pattern or request fewer rows"
            )


def counted_tables(task: DatabaseTask) -> tuple[str, ...]:
    """The tables with attributes of which bounds may leave rows out: all that must refer to others.

    Where fewer rows are left than declared, noisy counts made shares of the declared number would
    have the rest spread evenly over all values. Where any row is a unit none is left out.
    """
    schema = task.schema
    return tuple(
        name
        for name in schema.tables
        if rows_domain(schema, name).modelled
        and not schema.any_row
        and any(not key.optional for key in schema.parents_of(name))
    )


def count_stages(task: DatabaseTask, counts: Mapping[str, Noise]) -> Iterator[Stage]:
    """The stage of the number of rows of each counted table."""
    for name, noise in counts.items():
        partition = task.tables[name].neighbours.partition
        yield Stage(
            f"{name}: {COUNT}",
            noise.event(partition),
            f"how many rows of {name} the bounds of its references leave; noise of "
            f"{count_of(figure(noise.scale(partition)), 'row')}",
        )


def with_counted_rows(
    private: DatabaseDoor, rows: Mapping[str, Task], counts: Mapping[str, Noise]
) -> dict[str, Task]:
    """The tasks of tables, of as many rows as are counted.

    Privacy: of each counted table a partition with one part.
    """
    found = dict(rows)
    for name, noise in counts.items():
        task, door = rows[name], LabelledDoor(private.table(name), name)
        column = task.domain[task.domain.modelled[0]]
        whole = PartitionCounts((Cells(column, np.zeros(1, dtype=np.int64)),))
        counted = float(door.answer(whole, noise, COUNT)[0])
        number = estimate_rows(task.data_rows, counted, noise.scale(door.neighbours.partition))
        found[name] = replace(task, data_rows=number)
    return found


def estimate_rows(declared: int, counted: float, scale: float) -> int:
    """The declared number of rows, moved to the counted one as far as noise explains no difference.

    ``scale`` is that of the noise, in rows. Source: James, Stein, "Estimation with quadratic loss"
    (1961), for how far.
    """
    error = counted - declared
    believed = 1.0 - min(scale**2 / max(error**2, 1.0), 1.0)
    return max(round(declared + believed * error), 1)


def plans_json(plans: Mapping[str, AnyPlan]) -> dict[str, Any]:
    """The plans of rows as JSON values."""
    return {
        name: {"sequence": list(plan.sequence), "parameters": plan.parameters.to_json()}
        for name, plan in plans.items()
    }


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
    """What each model does to its noisy answers, in sentences that begin with its table."""
    for name, model in models.items():
        yield from (f"{name}: {sentence}" for sentence in model.post_processing())


def rows_state(
    models: Mapping[str, Model],
) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
    """The models of rows as JSON and arrays; :func:`restore_rows` reads them."""
    meta: dict[str, Any] = {}
    arrays: dict[str, NDArray[np.generic]] = {}
    for name, model in models.items():
        meta[name], own = model.state()
        arrays |= {f"models.{name}/{key}": array for key, array in own.items()}
    return meta, arrays


def restore_rows(
    base: AnySynthesizer, rows: Mapping[str, Task], meta: Mapping[str, Any], arrays: Arrays
) -> dict[str, Model]:
    """The models whose :func:`rows_state` is given."""
    return {
        name: base.restore(rows[name], own, part_of_arrays(arrays, f"models.{name}"))
        for name, own in meta.items()
    }
