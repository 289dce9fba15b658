"""Counting points below queries, one after the other: a Fenwick tree of any dimension, kept in one hash table.

A term asks how many points lie in the query's group with each of k ranks below the query's. Its
points are kept as the nodes of a k-dimensional Fenwick tree, each node under a 64-bit mark made of
the group and the node's place: empty nodes take no room, and a point or a query meets O(log^k)
nodes. Marks of different nodes agree with probability 2^-64 a pair.

Source: Fenwick, "A new data structure for cumulative frequency tables" (1994).
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

NodeKeys = NDArray[np.uint64]
Counts = NDArray[np.int64]
Ranks = NDArray[np.int64]
Numbers = NDArray[np.float64]

START = 1 << 12
EVEN = np.uint64(0x9E3779B97F4A7C15)
ONE, TWO = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@numba.njit(cache=True, inline="always")
def mixed(mark: np.uint64) -> np.uint64:
    """A mark whose bits all depend on all bits of the given one; never 0.

    Source: Steele et al., SplitMix (2014).
    """
    mark = (mark ^ (mark >> np.uint64(30))) * ONE
    mark = (mark ^ (mark >> np.uint64(27))) * TWO
    mark ^= mark >> np.uint64(31)
    return mark if mark != np.uint64(0) else EVEN


@numba.njit(cache=True, inline="always")
def _slot(marks: NodeKeys, mark: np.uint64) -> np.int64:
    last = np.uint64(len(marks) - 1)
    at = mark & last
    while marks[at] != np.uint64(0) and marks[at] != mark:
        at = (at + np.uint64(1)) & last
    return np.int64(at)


@numba.njit(cache=True)
def _expanded(nodes: NodeKeys, size: int, places: Ranks, found: int) -> int:
    for at in range(found - 1, -1, -1):
        for node in range(size):
            nodes[at * size + node] = mixed(nodes[node] * EVEN + np.uint64(places[at]))
    return size * found


@numba.njit(cache=True)
def _below(mark: np.uint64, ranks: Ranks, orders: int, nodes: NodeKeys, places: Ranks) -> int:
    nodes[0], size = mark, 1
    for order in range(orders):
        place, found = ranks[order], 0
        while place > 0:
            places[found], found = place, found + 1
            place &= place - 1
        size = _expanded(nodes, size, places, found)
    return size


@numba.njit(cache=True)
def _above(
    mark: np.uint64, ranks: Ranks, limits: Ranks, orders: int, nodes: NodeKeys, places: Ranks
) -> int:
    nodes[0], size = mark, 1
    for order in range(orders):
        place, found = ranks[order] + 1, 0
        while place <= limits[order]:
            places[found], found = place, found + 1
            place += place & -place
        size = _expanded(nodes, size, places, found)
    return size


@numba.njit(cache=True)
def _counted(marks: NodeKeys, counts: Counts, nodes: NodeKeys, size: int) -> int:
    total = 0
    for node in range(size):
        total += counts[_slot(marks, nodes[node])]
    return total


@numba.njit(cache=True)
def _grown(marks: NodeKeys, counts: Counts) -> tuple[NodeKeys, Counts, int]:
    wider, moved, used = np.zeros(4 * len(marks), np.uint64), np.zeros(4 * len(marks), np.int64), 0
    for at in range(len(marks)):
        if counts[at] != 0:
            to = _slot(wider, marks[at])
            wider[to], moved[to] = marks[at], counts[at]
            used += 1
    return wider, moved, used


@numba.njit(cache=True)
def insert(
    table: tuple[NodeKeys, Counts, int],
    terms: tuple[Ranks, Ranks],
    points: tuple[NodeKeys, Ranks],
    at: int,
    weight: int,
    scratch: tuple[NodeKeys, Ranks],
) -> tuple[NodeKeys, Counts, int]:
    """Add row ``at`` of the points, ``weight`` times, to every term in which it takes part.

    Shapes: ``terms`` orders (t,) and limits (t, k); ``points`` marks (n, t), 0 where a row takes no
    part, and ranks (n, t, k).
    """
    marks, counts, used = table
    orders, limits = terms
    for term in range(len(orders)):
        mark = points[0][at, term]
        if mark == np.uint64(0):
            continue
        size = _above(mark, points[1][at, term], limits[term], orders[term], scratch[0], scratch[1])
        for node in range(size):
            if 2 * (used + 1) > len(marks):
                marks, counts, used = _grown(marks, counts)
            slot = _slot(marks, scratch[0][node])
            used += marks[slot] == np.uint64(0)
            marks[slot] = scratch[0][node]
            counts[slot] += weight
    return marks, counts, used


@numba.njit(cache=True)
def insert_all(
    table: tuple[NodeKeys, Counts, int],
    terms: tuple[Ranks, Ranks],
    points: tuple[NodeKeys, Ranks],
    weight: int,
    scratch: tuple[NodeKeys, Ranks],
) -> tuple[NodeKeys, Counts, int]:
    """Add every row of the points, ``weight`` times."""
    for at in range(len(points[0])):
        table = insert(table, terms, points, at, weight, scratch)
    return table


@numba.njit(cache=True)
def penalty(
    table: tuple[NodeKeys, Counts, int],
    orders: Ranks,
    prices: Numbers,
    queries: tuple[NodeKeys, Ranks],
    at: int,
    scale: float,
    scratch: tuple[NodeKeys, Ranks],
) -> float:
    """What the violations of one query with all points cost; infinite if it violates a hard rule.

    ``prices`` (t, 3): what a point found by each term adds to the cost, to the cost before it is
    multiplied by ``scale``, and to the number of hard violations.
    """
    cost, scaled, hard = 0.0, 0.0, 0.0
    for term in range(len(orders)):
        mark = queries[0][at, term]
        if mark != np.uint64(0):
            size = _below(mark, queries[1][at, term], orders[term], scratch[0], scratch[1])
            found = _counted(table[0], table[1], scratch[0], size)
            cost += prices[term, 0] * found
            scaled += prices[term, 1] * found
            hard += prices[term, 2] * found
    return np.inf if hard > 0 else cost + scaled * scale


@numba.njit(cache=True)
def _chosen(logs: Numbers, uniform: float) -> int:
    best = logs.max()
    if best == -np.inf:
        return -1
    heights = np.cumsum(np.exp(logs - best))
    return min(np.searchsorted(heights, uniform * heights[-1], side="right"), len(logs) - 1)


@numba.njit(cache=True)
def choose(
    table: tuple[NodeKeys, Counts, int],
    terms: tuple[Ranks, Ranks, Numbers],
    queries: tuple[NodeKeys, Ranks],
    points: tuple[NodeKeys, Ranks],
    logs: Numbers,
    scales: Numbers,
    rows: Counts,
    choice: Counts,
    uniforms: Numbers,
    scratch: tuple[NodeKeys, Ranks],
) -> tuple[NodeKeys, Counts, int]:
    """One candidate a row, in proportion to its probability and the exponential of minus its penalty.

    Rows one after the other, each against all points so far; the chosen candidate becomes a point.
    A row that has a choice already gives it up first. ``logs`` (n, d) log-probabilities, ``rows``
    (n,) the row's place in ``choice``, which takes the candidate's number, or -1 if every candidate
    violates a hard rule.

    Source: Kamino Algorithm 3, lines 7-10 and 12.
    """
    ahead = (terms[0], terms[1])
    candidates = logs.shape[1]
    scored = np.empty(candidates)
    for row in range(len(rows)):
        if choice[rows[row]] >= 0:
            table = insert(table, ahead, points, row * candidates + choice[rows[row]], -1, scratch)
        for at in range(candidates):
            scored[at] = logs[row, at]
            if scored[at] > -np.inf:
                scored[at] -= penalty(
                    table, terms[0], terms[2], queries, row * candidates + at, scales[row], scratch
                )
        choice[rows[row]] = _chosen(scored, uniforms[row])
        if choice[rows[row]] >= 0:
            table = insert(table, ahead, points, row * candidates + choice[rows[row]], 1, scratch)
    return table


@numba.njit(cache=True)
def accept_reject(
    table: tuple[NodeKeys, Counts, int],
    terms: tuple[Ranks, Ranks, Numbers],
    queries: tuple[NodeKeys, Ranks],
    points: tuple[NodeKeys, Ranks],
    logs: Numbers,
    scales: Numbers,
    rows: Counts,
    choice: Counts,
    uniforms: Numbers,
    scratch: tuple[NodeKeys, Ranks],
) -> tuple[NodeKeys, Counts, int]:
    """As :func:`choose`, but a candidate is drawn by its probability alone and accepted by its penalty, in turn.

    ``uniforms`` (n, 2 tries). After the last try the last candidate is taken, or none if it
    violates a hard rule.

    Source: Kamino section 7.3.2, at most 300 tries a cell.
    """
    ahead = (terms[0], terms[1])
    candidates = logs.shape[1]
    costs = np.empty(candidates)
    for row in range(len(rows)):
        if choice[rows[row]] >= 0:
            table = insert(table, ahead, points, row * candidates + choice[rows[row]], -1, scratch)
        costs[:] = -1.0
        taken = -1
        for attempt in range(uniforms.shape[1] // 2):
            taken = _chosen(logs[row], uniforms[row, 2 * attempt])
            if taken < 0:
                break
            if costs[taken] < 0:
                cell = row * candidates + taken
                costs[taken] = penalty(
                    table, terms[0], terms[2], queries, cell, scales[row], scratch
                )
            if uniforms[row, 2 * attempt + 1] < np.exp(-costs[taken]):
                break
        choice[rows[row]] = taken if taken >= 0 and costs[taken] < np.inf else -1
        if choice[rows[row]] >= 0:
            table = insert(table, ahead, points, row * candidates + choice[rows[row]], 1, scratch)
    return table


@numba.njit(cache=True)
def admit(
    table: tuple[NodeKeys, Counts, int],
    terms: tuple[Ranks, Ranks, Numbers],
    queries: tuple[NodeKeys, Ranks],
    points: tuple[NodeKeys, Ranks],
    scales: Numbers,
    uniforms: Numbers,
    kept: NDArray[np.bool_],
    scratch: tuple[NodeKeys, Ranks],
) -> tuple[NodeKeys, Counts, int]:
    """Keep each row with probability exp(-penalty) against all points so far.

    A row that is kept becomes a point.
    """
    ahead = (terms[0], terms[1])
    for row in range(len(kept)):
        if kept[row]:
            kept[row] = uniforms[row] < np.exp(
                -penalty(table, terms[0], terms[2], queries, row, scales[row], scratch)
            )
        if kept[row]:
            table = insert(table, ahead, points, row, 1, scratch)
    return table
