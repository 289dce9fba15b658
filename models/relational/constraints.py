"""What rows refer to, changed so that rules hold: across a reference, on pairs of them, on circles.

Across a reference: predicates on a row and its parent, and values that rows of one parent share. On
pairs: a key of two references, so that no two rows link the same two rows; degrees are kept. On a
table that refers to itself: no row is its own ancestor.
"""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.models.relational.placement import Compatibility, Placement
from cloister.models.relational.references import KeyRules
from cloister.schema.domain import Table
from cloister.schema.relations import ForeignKey, Schema

_LINK_EXCHANGES = 100
"""Rounds in which doubled links exchange an end with random ones; two or three if sparse.

In the first half, with links whose right ends are alike: all joint tables stay as they were. Films
of which a third of the users have one each take about forty.
"""

_PARENT_EXCHANGES = 20
"""Rounds in which a row of each cycle exchanges its parent with a random one; few cycles stay."""


def keep_rules(
    key_rules: KeyRules,
    schema: Schema,
    key: ForeignKey,
    sides: tuple[Table, Table],
    owners: Integers,
    rng: np.random.Generator,
) -> Integers:
    """Parents (rows,) with which the rules hold; -1 for none.

    ``sides`` are the rows and the parents.
    """
    rows, parents = sides
    linked = np.flatnonzero(owners >= 0)
    compatible = Compatibility(
        schema, rows.take(linked), parents, key_rules.rules, key_rules.shared
    )
    owners = owners.copy()
    if key.to_itself:
        compatible.agree(owners[linked], rng)
        owners[linked[~compatible.fits(np.arange(len(linked)), owners[linked])]] = -1
    else:
        owners[linked] = Placement(compatible, key.max_rows, rng).settle(owners[linked])
    return owners


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
