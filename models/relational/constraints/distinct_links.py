"""Links of which no two are between the same rows, with the degrees of all rows as they are."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from cloister.arrays import Integers

_EXCHANGES = 30
"""Times that doubled links exchange an end with random others; sparse ones need two or three."""


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
    for _ in range(_EXCHANGES):
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
