"""Which joint tables to measure for hard constraints, from public sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cloister.constraints import DenialConstraint, functional_dependency, key_attributes, order_rule
from cloister.models.discretization.bins import MOST_VALUES
from cloister.models.task import Task
from cloister.schema.columns import Grid
from cloister.schema.domain import declared_cells

_JOINT_CELLS = 1_000_000
"""Cells of a joint table at most."""

_ROWS_PER_LEFT = 5
"""Rows for each joint level of the left side (all attributes but the last) at least, on average."""


def valued_attributes(task: Task, by_value: Sequence[str]) -> tuple[str, ...]:
    """The numeric attributes whose single values matter, and are counted.

    Those in functional dependencies, in no other rule on pairs: there, bins hold.
    ``by_value`` are those whose single values are counted beside their cells.
    """
    pairs = [c for c in task.hard if c.arity == 2 and key_attributes(c) is None]
    dependent = [c for c in pairs if functional_dependency(c) is not None]
    binned = {name for c in pairs if c not in dependent for name in c.attributes}
    names = dict.fromkeys(name for c in dependent for name in c.attributes)
    return tuple(
        name
        for name in names
        if name not in binned
        and isinstance(column := task.domain[name], Grid)
        and (name in by_value or declared_cells(column).size == column.size)
    )


def sizes_by_value(task: Task, sizes: Mapping[str, int], valued: Sequence[str]) -> dict[str, int]:
    """The greatest number of bins of each attribute, where values of some have bins."""
    return {
        name: max(size, min(declared_cells(task.domain[name]).column.size, MOST_VALUES))
        if name in valued
        else size
        for name, size in sizes.items()
    }


def wanted_tables(task: Task, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """Attribute sets of hard constraints of small joint domains, left sides before right sides."""
    wanted = dict.fromkeys(names for c in task.hard if (names := _table_of(c)) is not None)
    known = [names for names in wanted if all(name in sizes for name in names)]
    return tuple(names for names in known if _affordable(names, sizes, task.data_rows))


def _table_of(constraint: DenialConstraint) -> tuple[str, ...] | None:
    dependency, order = functional_dependency(constraint), order_rule(constraint)
    if dependency is not None:
        return (*dependency[0], dependency[1])
    if order is not None:
        return (*order.equal, order.first, order.second)
    return (
        constraint.attributes if constraint.arity == 2 and len(constraint.attributes) > 1 else None
    )


def _affordable(names: Sequence[str], sizes: Mapping[str, int], rows: int) -> bool:
    lefts = math.prod(sizes[name] for name in names[:-1])
    return lefts * sizes[names[-1]] <= _JOINT_CELLS and lefts * _ROWS_PER_LEFT <= rows
