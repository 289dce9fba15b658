"""Constraints on references: across a foreign key, on pairs of references, and on hierarchies.

Across a foreign key: predicates on a row and its parent, and values that rows of one parent share.
On pairs: a key of two references, so that no two rows link the same two rows; degrees are kept.
On a table that refers to itself: no row is its own ancestor.
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

_LINK_EXCHANGES = 100
"""Rounds in which doubled links exchange an end with random ones; two or three if sparse.

In the first half, with links whose right ends are alike: all joint tables stay as they were. Films
of which a third of the users have one each take about forty.
"""

_PARENT_EXCHANGES = 20
"""Rounds in which a row of each cycle exchanges its parent with a random one; few cycles stay."""


def distinct_pairs(task: DatabaseTask) -> Mapping[str, tuple[str, str]]:
    """The pair of references that is a key, by table.

    Raises:
        PlanError: a table has two of them.
    """
    pairs: dict[str, tuple[str, str]] = {}
    for name, table in task.tables.items():
        for rule in table.hard:
            pair = _key_of(rule)
            if len(pair) != 2 or not set(pair) <= _required(task, name):
                continue
            if pairs.setdefault(name, pair) != pair:
                raise PlanError(
                    f"table '{name}' has two keys of two references; one is kept at most, so make "
                    f"'{rule.name}' soft, or drop it"
                )
    return pairs


def kept_by_links(task: DatabaseTask, name: str, rule: DenialConstraint) -> bool:
    """Whether the relationships of a table enforce a hard constraint on its references.

    A key of one reference bounds degrees by one; a key of two, and a dependency of an attribute on
    one reference, are enforced by exchanging parents.
    """
    columns = _key_of(rule)
    dependency = functional_dependency(rule)
    if dependency is not None and len(dependency[0]) == 1:
        references = {key.column for key in task.schema.parents_of(name)}
        modelled = task.schema.tables[name].modelled
        return dependency[0][0] in references and dependency[1] in modelled
    if len(columns) == 1:
        keys = task.schema.required_of(name)
        return any((key.column, key.max_rows) == (columns[0], 1) for key in keys)
    return len(columns) == 2 and set(columns) <= _required(task, name)


def _key_of(rule: DenialConstraint) -> tuple[str, ...]:
    """The columns of a key; none of another constraint."""
    return tuple(declaration_of(rule).key or ())


def _required(task: DatabaseTask, name: str) -> set[str]:
    return {key.column for key in task.schema.required_of(name)}


@dataclass(frozen=True)
class KeyRules:
    """Constraints across one key: ``rules`` on a row and its parent, ``shared`` columns of rows.

    Rows of one parent agree on shared columns. Rows may take others' attributes if ``copied``.
    """

    rules: tuple[AcrossConstraint, ...]
    shared: tuple[str, ...]
    copied: bool


def rules_across(task: DatabaseTask) -> Mapping[str, KeyRules]:
    """The rules across foreign keys, by the name of the joined table.

    Raises:
        PlanError: a rule is on a key whose rows cannot be placed by it.
    """
    by_key: dict[str, KeyRules] = {}
    for key in task.schema.keys:
        rules = tuple(rule for rule in task.across if rule.key == key)
        table = task.tables[key.table]
        shared = tuple(name for rule in table.hard if (name := shared_by_rows(task, key, rule)))
        if rules or shared:
            _require_placeable(
                task, key, [rule.name for rule in rules] or [f"{key.column} -> {shared[0]}"]
            )
            by_key[joined_table(key)] = KeyRules(rules, shared, copied=False)
    return {
        name: replace(key_rules, copied=_may_copy(task, name, by_key))
        for name, key_rules in by_key.items()
    }


def shared_by_rows(task: DatabaseTask, key: ForeignKey, rule: DenialConstraint) -> str | None:
    """The column on which rows of one parent agree, if a rule is a dependency on that key alone."""
    dependency = functional_dependency(rule)
    if dependency is None or tuple(dependency[0]) != (key.column,):
        return None
    return dependency[1] if dependency[1] in task.schema.tables[key.table].modelled else None


def keep_rules(
    key_rules: KeyRules,
    schema: Schema,
    key: ForeignKey,
    sides: tuple[Table, Table],
    owners: Integers,
    most: int,
    rng: np.random.Generator,
) -> tuple[Table, Integers]:
    """Rows, and parents (rows,) with which the rules hold; -1 for none.

    ``sides`` are the rows and the parents. Rows stay in order, but may get other attributes.
    """
    rows, parents = sides
    linked = np.flatnonzero(owners >= 0)
    compatible = Compatibility(
        schema, rows.take(linked), parents, key_rules.rules, key_rules.shared
    )
    owners = owners.copy()
    if key.to_itself:
        owners[linked[~compatible.fits(np.arange(len(linked)), owners[linked])]] = -1
        return rows, owners
    settled = Placement(compatible, most, key_rules.copied, rng).settle(owners[linked])
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
    """Whether a row may take the attributes of another.

    Not where a rule on pairs forbids equal rows, or another key of the table has rules.
    """
    (key,) = (reference for reference in task.schema.keys if joined_table(reference) == name)
    siblings = [
        joined_table(reference)
        for reference in task.schema.parents_of(key.table)
        if reference != key
    ]
    domain = task.schema.tables[key.table]
    modelled = [
        rule for rule in task.tables[key.table].hard if set(rule.attributes) <= set(domain.modelled)
    ]
    return not any(sibling in all_rules for sibling in siblings) and all(
        holds_for_equal_rows(rule, domain) for rule in modelled
    )


def without_duplicates(
    left: Integers,
    right: Integers,
    rows: tuple[int, int],
    alike: Integers,
    most: int,
    rng: np.random.Generator,
) -> Integers:
    """The right ends (m,) of links, changed so that no two links have both ends in common.

    ``rows`` are the numbers of rows of both sides; no right row gets more than ``most`` links.
    Doubled links exchange right ends with random ones, which keeps degrees, first with those of the
    same kind: ``alike`` (right rows,) numbers kinds. Where that fails, links are moved along an
    augmenting path. There must be room for all links within the bounds.
    """
    right, kinds = right.copy(), alike[right]
    order = np.argsort(kinds, kind="stable")
    first, last = (np.searchsorted(kinds[order], kinds, side) for side in ("left", "right"))
    for turn in range(_LINK_EXCHANGES):
        pairs = left * rows[1] + right
        doubled, ordered = _doubled(pairs)
        if not len(doubled):
            return right
        if 2 * turn < _LINK_EXCHANGES:
            partners = order[rng.integers(first[doubled], last[doubled])]
        else:
            partners = rng.choice(len(left), len(doubled))
        links = np.concatenate([doubled, partners])
        ends = np.concatenate([right[partners], right[doubled]])
        new = left[links] * rows[1] + ends
        nearest = ordered[np.minimum(np.searchsorted(ordered, new), len(ordered) - 1)]
        apart = (nearest != new) & _first(new) & _first(links)
        both = np.tile(apart.reshape(2, -1).all(0), 2)
        right[links[both]] = ends[both]
    return _augmented(left, right, rows[1], most)


def _first(numbers: Integers) -> Booleans:
    """Which numbers (k,) are the first of their value."""
    first = np.zeros(len(numbers), dtype=bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    return first


def _doubled(pairs: Integers) -> tuple[Integers, Integers]:
    """The links (k,) that repeat an earlier one, and the numbers of pairs (m,) in order."""
    order = np.argsort(pairs, kind="stable")
    ordered = pairs[order]
    return order[np.flatnonzero(np.diff(ordered) == 0) + 1], ordered


def _augmented(left: Integers, right: Integers, width: int, most: int) -> Integers:
    """The right ends with each doubled link placed along a shortest augmenting path."""
    ends, (doubled, _) = right.copy(), _doubled(left * width + right)
    links: dict[int, dict[int, int]] = defaultdict(dict)
    holders: dict[int, set[int]] = defaultdict(set)
    for link in np.setdiff1d(np.arange(len(left)), doubled).tolist():
        links[int(left[link])][int(right[link])] = link
        holders[int(right[link])].add(int(left[link]))
    for link in doubled.tolist():
        row = int(left[link])
        steps, first = _path(row, links, holders, width, most)
        for left_row, given_up, taken in steps:
            moved = links[left_row].pop(given_up)
            links[left_row][taken], ends[moved] = moved, taken
            holders[given_up].remove(left_row)
            holders[taken].add(left_row)
        links[row][first], ends[link] = link, first
        holders[first].add(row)
    return ends


def _path(
    row: int,
    links: dict[int, dict[int, int]],
    holders: dict[int, set[int]],
    width: int,
    most: int,
) -> tuple[list[tuple[int, int, int]], int]:
    """Moves of links, last first, that free a right row for a left row; and that right row.

    A move is a left row, the right row that it gives up, and the one that it takes.
    """
    unseen = set(range(width)) - links[row].keys()
    came: dict[int, tuple[int, int] | None] = dict.fromkeys(unseen)
    waiting, unseen = deque(sorted(unseen)), set(links[row])
    while len(holders[waiting[0]]) >= most:
        full = waiting.popleft()
        for left_row in holders[full]:
            new = unseen - links[left_row].keys()
            came |= dict.fromkeys(new, (left_row, full))
            waiting.extend(new)
            unseen -= new
    steps, end = [], waiting[0]
    while (before := came[end]) is not None:
        steps.append((before[0], before[1], end))
        end = before[1]
    return steps, end


def without_cycles(owners: Integers, rng: np.random.Generator) -> Integers:
    """Owners (n,) of rows among the same rows, -1 for none, without cycles.

    A row of each cycle exchanges parents with a random row, which keeps all degrees; a cycle that
    is left after a few exchanges is cut at a row, which loses its parent.
    """
    owners = owners.copy()
    for _ in range(_PARENT_EXCHANGES):
        one = _one_of_each(owners)
        if not len(one):
            return owners
        partners = rng.choice(np.flatnonzero(owners >= 0), len(one))
        for row, partner in zip(one.tolist(), partners.tolist(), strict=True):
            owners[[row, partner]] = owners[[partner, row]]
    owners[_one_of_each(owners)] = -1
    return owners


def on_cycles(owners: Integers) -> Booleans:
    """Which rows (n,) are on a cycle: those left when rows without children are peeled off."""
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
    """The least row number of each cycle."""
    circles, least = on_cycles(owners), []
    for row in np.flatnonzero(circles).tolist():
        if circles[row]:
            least.append(row)
        ancestor = row
        while circles[ancestor]:
            circles[ancestor] = False
            ancestor = int(owners[ancestor])
    return np.array(least, dtype=np.int64)
