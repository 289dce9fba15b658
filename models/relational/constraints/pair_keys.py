"""Keys of a table that are pairs of references: no two rows link the same two rows."""

from __future__ import annotations

from collections.abc import Mapping

from cloister.constraints import DenialConstraint, functional_dependency
from cloister.constraints.declared import declaration_of
from cloister.errors import PlanError
from cloister.models.task import DatabaseTask
from cloister.schema.relations import ForeignKey


def distinct_pairs(task: DatabaseTask) -> Mapping[str, tuple[str, str]]:
    """The pair of references, by table, no two rows of which may be the same.

    Raises:
        PlanError: a table has two of them.
    """
    found: dict[str, tuple[str, str]] = {}
    for name, own in task.tables.items():
        for rule in own.hard:
            pair = _key_of(rule)
            if len(pair) != 2 or not set(pair) <= _required(task, name):
                continue
            if found.setdefault(name, pair) != pair:
                raise PlanError(
                    f"table '{name}' has two keys of two references; one is kept at most, so make "
                    f"'{rule.name}' soft, or drop it"
                )
    return found


def kept_by_links(task: DatabaseTask, name: str, rule: DenialConstraint) -> bool:
    """Whether the relationships of a table keep a hard constraint on its references.

    A key of one reference is that of a parent that has one row at most, a key of two is kept by
    exchanging parents, and so is a dependency of an attribute on one reference alone.
    """
    columns = _key_of(rule)
    dependency = functional_dependency(rule)
    if dependency is not None and len(dependency[0]) == 1:
        references = {key.column for key in task.schema.parents_of(name)}
        modelled = task.schema.tables[name].modelled
        return dependency[0][0] in references and dependency[1] in modelled
    if len(columns) == 1:
        keys = task.schema.parents_of(name)
        return any(
            (key.column, key.max_rows) == (columns[0], 1) and not key.optional for key in keys
        )
    return len(columns) == 2 and set(columns) <= _required(task, name)


def _key_of(rule: DenialConstraint) -> tuple[str, ...]:
    """The columns of a key; none of another constraint."""
    return tuple(declaration_of(rule).key or ())


def _required(task: DatabaseTask, name: str) -> set[str]:
    keys: tuple[ForeignKey, ...] = task.schema.parents_of(name)
    return {key.column for key in keys if not key.optional}
