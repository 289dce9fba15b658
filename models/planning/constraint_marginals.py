"""Which joint tables to measure for hard constraints, from public sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cloister.constraints import DenialConstraint, functional_dependency, order_rule
from models.protocol import Task

_JOINT_CELLS = 300_000
"""Cells of a joint table at most."""

_ROWS_PER_LEFT = 5
"""Rows for each joint level of the left side (all attributes but the last) at least, on average."""


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
