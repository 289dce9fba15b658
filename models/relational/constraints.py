"""What must hold of references, beside which parents fit which rows.

Constraints of two tables across a foreign key, and values that rows share; keys of a table that are
pairs of references: no two rows link the same two rows; links of which no two are between the same
rows, with the degrees of all rows as they are; and references of a table to itself in which no row
is above itself.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.constraints import DenialConstraint, functional_dependency, holds_for_equal_rows
from cloister.constraints.across import AcrossConstraint
from cloister.constraints.declared import declaration_of
from cloister.errors import PlanError
from cloister.models.relational.placement import Compatibility, Placement
from cloister.models.task import DatabaseTask
from cloister.schema.domain import Table
from cloister.schema.relations import ForeignKey, Schema, joined_table

_LINK_EXCHANGES = 30
"""Times that doubled links exchange an end with random others; sparse ones need two or three."""

_PARENT_EXCHANGES = 20
"""Times that a row of each circle exchanges its parent with a random one; few circles are left."""


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


def without_duplicates(
    left: Integers,
    right: Integers,
    rows: tuple[int, int],
    most: int,
    rng: np.random.Generator,
) -> Integers:
    """The right ends (m,) of links such that no two have both ends in common.

    ``rows`` are those of both sides; no right row has more than ``most`` links. Doubled links
    exchange their right ends with others, so that degrees stay; where that fails, links are moved
    along an augmenting path. There must be room: as many links as rows times bounds hold.
    """
    right = right.copy()
    for _ in range(_LINK_EXCHANGES):
        doubled = _doubled(left, right, rows[1])
        if not len(doubled):
            return right
        partners = rng.choice(len(left), len(doubled))
        alone = np.unique(partners, return_index=True)[1]
        doubled, partners = doubled[alone], partners[alone]
        apart = ~np.isin(partners, doubled)
        doubled, partners = doubled[apart], partners[apart]
        right[doubled], right[partners] = right[partners], right[doubled]
    return _augmented(left, right, rows[1], most)


def _doubled(left: Integers, right: Integers, width: int) -> Integers:
    """The links (k,) that repeat an earlier one."""
    pairs = left * width + right
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(np.diff(pairs[order]) == 0) + 1
    return order[again]


def _augmented(left: Integers, right: Integers, width: int, most: int) -> Integers:
    """The right ends with each doubled link placed along a shortest augmenting path."""
    found, doubled = right.copy(), _doubled(left, right, width)
    links: dict[int, dict[int, int]] = defaultdict(dict)
    holders: dict[int, set[int]] = defaultdict(set)
    for link in np.setdiff1d(np.arange(len(left)), doubled).tolist():
        links[int(left[link])][int(right[link])] = link
        holders[int(right[link])].add(int(left[link]))
    for link in doubled.tolist():
        row = int(left[link])
        steps, first = _path(row, links, holders, width, most)
        for other, given_up, taken in steps:
            moved = links[other].pop(given_up)
            links[other][taken], found[moved] = moved, taken
            holders[given_up].remove(other)
            holders[taken].add(other)
        links[row][first], found[link] = link, first
        holders[first].add(row)
    return found


def _path(
    row: int,
    links: dict[int, dict[int, int]],
    holders: dict[int, set[int]],
    width: int,
    most: int,
) -> tuple[list[tuple[int, int, int]], int]:
    """Moves of links, last first, after which a right row is free for a left row; and that row.

    A move is a left row, the right row that it gives up, and the one that it takes.
    """
    unseen = set(range(width)) - links[row].keys()
    came: dict[int, tuple[int, int] | None] = dict.fromkeys(unseen)
    waiting, unseen = deque(sorted(unseen)), set(links[row])
    while len(holders[waiting[0]]) >= most:
        full = waiting.popleft()
        for other in holders[full]:
            new = unseen - links[other].keys()
            came |= dict.fromkeys(new, (other, full))
            waiting.extend(new)
            unseen -= new
    steps, at = [], waiting[0]
    while (before := came[at]) is not None:
        steps.append((before[0], before[1], at))
        at = before[1]
    return steps, at


def without_cycles(owners: Integers, rng: np.random.Generator) -> Integers:
    """Owners (n,) of rows among the same rows, -1 for none, without circles.

    A row of each circle exchanges its parent with another row's, which keeps all degrees; of
    circles that are left after a few exchanges a row loses its parent.
    """
    owners = owners.copy()
    for _ in range(_PARENT_EXCHANGES):
        one = _one_of_each(owners)
        if not len(one):
            return owners
        partners = rng.choice(np.flatnonzero(owners >= 0), len(one))
        for row, other in zip(one.tolist(), partners.tolist(), strict=True):
            owners[[row, other]] = owners[[other, row]]
    owners[_one_of_each(owners)] = -1
    return owners


def on_cycles(owners: Integers) -> Booleans:
    """Which rows (n,) are above themselves: those left when rows below nobody's head are peeled."""
    inside = owners >= 0
    below = np.bincount(owners[inside], minlength=len(owners))
    leaves = np.flatnonzero(inside & (below == 0)).tolist()
    while leaves:
        row = leaves.pop()
        inside[row] = False
        parent = int(owners[row])
        below[parent] -= 1
        if below[parent] == 0 and inside[parent]:
            leaves.append(parent)
    return inside & (below > 0)


def _one_of_each(owners: Integers) -> Integers:
    """The least row number of each circle."""
    circles, found = on_cycles(owners), []
    for row in np.flatnonzero(circles).tolist():
        if circles[row]:
            found.append(row)
        at = row
        while circles[at]:
            circles[at] = False
            at = int(owners[at])
    return np.array(found, dtype=np.int64)
