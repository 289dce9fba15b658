"""What must hold across each foreign key: constraints of two tables, and values that rows share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cloister.arrays import Integers
from cloister.constraints import DenialConstraint, functional_dependency, holds_for_equal_rows
from cloister.constraints.across import AcrossConstraint
from cloister.errors import PlanError
from cloister.models.relational.constraints.compatibility import Compatibility
from cloister.models.relational.constraints.pair_keys import distinct_pairs
from cloister.models.relational.constraints.placement import Placement
from cloister.models.task import DatabaseTask
from cloister.schema.domain import Table
from cloister.schema.relations import ForeignKey, Schema, joined_table


@dataclass(frozen=True)
class KeyRules:
    """What holds across one key: ``rules`` of a row and its parent, ``shared`` columns of rows.

    Rows of one parent agree on what they share. Rows may take others' attributes if ``copied``.
    """

    rules: tuple[AcrossConstraint, ...]
    shared: tuple[str, ...]
    copied: bool


def rules_across(task: DatabaseTask) -> Mapping[str, KeyRules]:
    """The rules across each foreign key that has some, by the name of its joined table.

    Raises:
        PlanError: a rule is on a key whose rows cannot be placed by it.
    """
    found: dict[str, KeyRules] = {}
    for key in task.schema.keys:
        rules = tuple(rule for rule in task.across if rule.key == key)
        own = task.tables[key.table]
        shared = tuple(name for rule in own.hard if (name := shared_by_rows(task, key, rule)))
        if rules or shared:
            _require_placeable(
                task, key, [rule.name for rule in rules] or [f"{key.column} -> {shared[0]}"]
            )
            found[joined_table(key)] = KeyRules(rules, shared, copied=False)
    return {name: replace(own, copied=_may_copy(task, name, found)) for name, own in found.items()}


def shared_by_rows(task: DatabaseTask, key: ForeignKey, rule: DenialConstraint) -> str | None:
    """The column on which rows of one parent agree, if a rule is a dependency on that key alone."""
    dependency = functional_dependency(rule)
    if dependency is None or tuple(dependency[0]) != (key.column,):
        return None
    return dependency[1] if dependency[1] in task.schema.tables[key.table].modelled else None


def keep_rules(
    own: KeyRules,
    schema: Schema,
    key: ForeignKey,
    sides: tuple[Table, Table],
    owners: Integers,
    most: int,
    rng: np.random.Generator,
) -> tuple[Table, Integers]:
    """Rows and the parents (rows,) that they have so that the rules hold; -1 for those without.

    ``sides`` are the rows and the parents. A row keeps its place, but may have other attributes.
    """
    rows, parents = sides
    linked = np.flatnonzero(owners >= 0)
    compatible = Compatibility(schema, rows.take(linked), parents, own.rules, own.shared)
    owners = owners.copy()
    if key.to_itself:
        owners[linked[~compatible.fits(np.arange(len(linked)), owners[linked])]] = -1
        return rows, owners
    settled = Placement(compatible, most, own.copied, rng).settle(owners[linked])
    owners[linked] = settled.owners
    source = np.arange(rows.rows)
    source[linked] = linked[np.maximum(settled.source, 0)]
    names = rows.domain.modelled
    codes = {name: codes[source] if name in names else codes for name, codes in rows.codes.items()}
    return Table(rows.domain, codes), owners


def _require_placeable(task: DatabaseTask, key: ForeignKey, names: list[str]) -> None:
    if key.table == task.schema.lead and not key.optional:
        raise PlanError(
            f"constraint '{names[0]}' is across a reference of '{key.table}', whose number of rows "
            "is that of the privacy unit: a row that fits no other could not be left out; drop the "
            "constraint"
        )
    pair = distinct_pairs(task).get(key.table, ())
    if key.column in pair:
        raise PlanError(
            f"constraint '{names[0]}' is across '{key.table}.{key.column}', which is part of the "
            f"key ({', '.join(pair)}) of '{key.table}', and rows cannot be placed by both: drop "
            f"'{names[0]}', or drop the key if rows may repeat it"
        )


def _may_copy(task: DatabaseTask, name: str, all_rules: Mapping[str, KeyRules]) -> bool:
    """Whether a row may have the attributes of another: no rule on pairs forbids equal rows.

    Nor does another key of the table have rules, which its attributes are to fit.
    """
    (key,) = (own for own in task.schema.keys if joined_table(own) == name)
    others = [joined_table(own) for own in task.schema.parents_of(key.table) if own != key]
    domain = task.schema.tables[key.table]
    modelled = [
        rule for rule in task.tables[key.table].hard if set(rule.attributes) <= set(domain.modelled)
    ]
    return not any(other in all_rules for other in others) and all(
        holds_for_equal_rows(rule, domain) for rule in modelled
    )
