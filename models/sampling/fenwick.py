"""Counting points below queries, one after the other: a Fenwick tree in one hash table.

A term counts the points in the query's group with each of k ranks below the query's. Its points
are stored as the nodes of a k-dimensional Fenwick tree, each node under a 64-bit key made of the
group and the node's index: empty nodes take no memory, and a point or a query has O(log^k) nodes.
Keys of two different nodes agree with probability 2^-64.

Source: Fenwick, "A new data structure for cumulative frequency tables" (1994).
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers
from cloister.hashing import FIRST_FACTOR, GOLDEN, SECOND_FACTOR

NodeKeys = NDArray[np.uint64]

START_SLOTS = 1 << 12
"""Slots of an empty hash table, a power of two; it grows when half of them are taken."""


@numba.njit(cache=True, inline="always")
def scramble(key: np.uint64) -> np.uint64:
    """A key whose bits all depend on all bits of the given one, as in SplitMix64; never 0."""
    key = (key ^ (key >> np.uint64(30))) * FIRST_FACTOR
    key = (key ^ (key >> np.uint64(27))) * SECOND_FACTOR
    key ^= key >> np.uint64(31)
    return key if key != np.uint64(0) else GOLDEN


@numba.njit(cache=True, inline="always")
def _slot(keys: NodeKeys, key: np.uint64) -> np.int64:
    last = np.uint64(len(keys) - 1)
    slot = key & last
    while keys[slot] != np.uint64(0) and keys[slot] != key:
        slot = (slot + np.uint64(1)) & last
    return np.int64(slot)


# In one dimension, node p of a Fenwick tree counts the points with ranks in [p - lowbit(p), p).
# Ranks below r are the disjoint nodes r, r - lowbit(r), ... (clear the lowest bit); a point of rank
# r is in the nodes r + 1, r + 1 + lowbit, ... up to the limit (add it). In k dimensions the nodes
# are the products of one choice a dimension, at most log^k, listed in `nodes` by their hashes.


@numba.njit(cache=True)
def _expand(nodes: NodeKeys, size: int, places: Integers, count: int) -> int:
    # from the last place to the first, so that nodes[:size] is read before it is overwritten
    for index in range(count - 1, -1, -1):
        for node in range(size):
            nodes[index * size + node] = scramble(nodes[node] * GOLDEN + np.uint64(places[index]))
    return size * count


@numba.njit(cache=True)
def _below(key: np.uint64, ranks: Integers, orders: int, nodes: NodeKeys, places: Integers) -> int:
    nodes[0], size = key, 1
    for order in range(orders):
        rank, count = ranks[order], 0
        while rank > 0:
            places[count], count = rank, count + 1
            rank &= rank - 1
        size = _expand(nodes, size, places, count)
    return size


@numba.njit(cache=True)
def _above(
    key: np.uint64,
    ranks: Integers,
    limits: Integers,
    orders: int,
    nodes: NodeKeys,
    places: Integers,
) -> int:
    nodes[0], size = key, 1
    for order in range(orders):
        rank, count = ranks[order] + 1, 0
        while rank <= limits[order]:
            places[count], count = rank, count + 1
            rank += rank & -rank
        size = _expand(nodes, size, places, count)
    return size


@numba.njit(cache=True)
def _count(keys: NodeKeys, counts: Integers, nodes: NodeKeys, size: int) -> int:
    total = 0
    for node in range(size):
        total += counts[_slot(keys, nodes[node])]
    return total


@numba.njit(cache=True)
def _grow(keys: NodeKeys, counts: Integers) -> tuple[NodeKeys, Integers, int]:
    wider, moved, used = np.zeros(4 * len(keys), np.uint64), np.zeros(4 * len(keys), np.int64), 0
    # nodes whose points were all withdrawn are left behind
    for index in range(len(keys)):
        if counts[index] != 0:
            to = _slot(wider, keys[index])
            wider[to], moved[to] = keys[index], counts[index]
            used += 1
    return wider, moved, used


@numba.njit(cache=True)
def insert(
    table: tuple[NodeKeys, Integers, int],
    terms: tuple[Integers, Integers],
    points: tuple[NodeKeys, Integers],
    row: int,
    weight: int,
    scratch: tuple[NodeKeys, Integers],
) -> tuple[NodeKeys, Integers, int]:
    """Add ``row`` of the points, ``weight`` times, to every term that counts it.

    Shapes: ``terms`` orders (t,) and limits (t, k); ``points`` keys (n, t), 0 where a term does
    not count a row, and ranks (n, t, k).
    """
    keys, counts, used = table
    orders, limits = terms
    for term in range(len(orders)):
        key = points[0][row, term]
        if key == np.uint64(0):
            continue
        size = _above(key, points[1][row, term], limits[term], orders[term], scratch[0], scratch[1])
        for node in range(size):
            # at most half full, so that a search ends after a few slots
            if 2 * (used + 1) > len(keys):
                keys, counts, used = _grow(keys, counts)
            slot = _slot(keys, scratch[0][node])
            used += keys[slot] == np.uint64(0)
            keys[slot] = scratch[0][node]
            counts[slot] += weight
    return keys, counts, used


@numba.njit(cache=True)
def insert_all(
    table: tuple[NodeKeys, Integers, int],
    terms: tuple[Integers, Integers],
    points: tuple[NodeKeys, Integers],
    weight: int,
    scratch: tuple[NodeKeys, Integers],
) -> tuple[NodeKeys, Integers, int]:
    """Add every row of the points, ``weight`` times."""
    for row in range(len(points[0])):
        table = insert(table, terms, points, row, weight, scratch)
    return table


@numba.njit(cache=True)
def penalty(
    table: tuple[NodeKeys, Integers, int],
    orders: Integers,
    prices: Floats,
    queries: tuple[NodeKeys, Integers],
    row: int,
    scale: float,
    scratch: tuple[NodeKeys, Integers],
) -> float:
    """The cost of one query's violations with all points; infinite if it violates a hard rule.

    ``prices`` (t, 3): what a point found by each term adds to the cost, to the cost before it is
    multiplied by ``scale``, and to the number of hard violations.
    """
    cost, scaled, hard = 0.0, 0.0, 0.0
    for term in range(len(orders)):
        key = queries[0][row, term]
        if key != np.uint64(0):
            size = _below(key, queries[1][row, term], orders[term], scratch[0], scratch[1])
            matches = _count(table[0], table[1], scratch[0], size)
            cost += prices[term, 0] * matches
            scaled += prices[term, 1] * matches
            hard += prices[term, 2] * matches
    return np.inf if hard > 0 else cost + scaled * scale


@numba.njit(cache=True)
def _pick(logs: Floats, uniform: float) -> int:
    best = logs.max()
    if best == -np.inf:
        return -1
    heights = np.cumsum(np.exp(logs - best))
    return min(np.searchsorted(heights, uniform * heights[-1], side="right"), len(logs) - 1)


@numba.njit(cache=True)
def _count_choice(
    table: tuple[NodeKeys, Integers, int],
    terms: tuple[Integers, Integers],
    points: tuple[NodeKeys, Integers],
    first: int,
    chosen: int,
    weight: int,
    scratch: tuple[NodeKeys, Integers],
) -> tuple[NodeKeys, Integers, int]:
    """Add the candidate that a row has chosen, if any (-1), ``weight`` times.

    ``first`` is the index of the row's first candidate.
    """
    return insert(table, terms, points, first + chosen, weight, scratch) if chosen >= 0 else table


@numba.njit(cache=True)
def choose_directly(
    table: tuple[NodeKeys, Integers, int],
    terms: tuple[Integers, Integers, Floats],
    queries: tuple[NodeKeys, Integers],
    points: tuple[NodeKeys, Integers],
    logs: Floats,
    scales: Floats,
    rows: Integers,
    choice: Integers,
    uniforms: Floats,
    scratch: tuple[NodeKeys, Integers],
) -> tuple[NodeKeys, Integers, int]:
    """One candidate a row, in proportion to its probability times exp(-penalty).

    Rows one after the other, each against all points so far; the chosen candidate becomes a point.
    If a row has a choice already, that is withdrawn first. ``logs`` (n, d) log-probabilities,
    ``rows`` (n,) the row's index in ``choice``, which takes the candidate's number, or -1 if every
    candidate violates a hard rule.

    Source: Kamino Algorithm 3, lines 7-10 and 12.
    """
    ahead = (terms[0], terms[1])
    candidates = logs.shape[1]
    scored = np.empty(candidates)
    for row in range(len(rows)):
        first = row * candidates
        # line 12: a cell that is drawn anew is no longer a point
        table = _count_choice(table, ahead, points, first, choice[rows[row]], -1, scratch)
        # lines 7 to 10: log p(v) - sum of weight times violations, in nats
        for candidate in range(candidates):
            scored[candidate] = logs[row, candidate]
            if scored[candidate] > -np.inf:
                scored[candidate] -= penalty(
                    table, terms[0], terms[2], queries, first + candidate, scales[row], scratch
                )
        choice[rows[row]] = _pick(scored, uniforms[row])
        # the next row of the batch meets this one too
        table = _count_choice(table, ahead, points, first, choice[rows[row]], 1, scratch)
    return table


@numba.njit(cache=True)
def accept_reject(
    table: tuple[NodeKeys, Integers, int],
    terms: tuple[Integers, Integers, Floats],
    queries: tuple[NodeKeys, Integers],
    points: tuple[NodeKeys, Integers],
    logs: Floats,
    scales: Floats,
    rows: Integers,
    choice: Integers,
    uniforms: Floats,
    scratch: tuple[NodeKeys, Integers],
) -> tuple[NodeKeys, Integers, int]:
    """As :func:`choose_directly`, but candidates are drawn by probability and accepted by penalty.

    ``uniforms`` (n, 2 tries). After the last try the last candidate is taken, or none if it
    violates a hard rule.

    Source: Kamino section 7.3.2, at most 300 tries a cell.
    """
    ahead = (terms[0], terms[1])
    candidates = logs.shape[1]
    costs = np.empty(candidates)
    for row in range(len(rows)):
        first = row * candidates
        table = _count_choice(table, ahead, points, first, choice[rows[row]], -1, scratch)
        # the cost of a candidate, computed when it is drawn first; -1 before
        costs[:] = -1.0
        taken = -1
        for attempt in range(uniforms.shape[1] // 2):
            taken = _pick(logs[row], uniforms[row, 2 * attempt])
            if taken < 0:
                break
            if costs[taken] < 0:
                costs[taken] = penalty(
                    table, terms[0], terms[2], queries, first + taken, scales[row], scratch
                )
            if uniforms[row, 2 * attempt + 1] < np.exp(-costs[taken]):
                break
        choice[rows[row]] = taken if taken >= 0 and costs[taken] < np.inf else -1
        table = _count_choice(table, ahead, points, first, choice[rows[row]], 1, scratch)
    return table


@numba.njit(cache=True)
def admit_rows(
    table: tuple[NodeKeys, Integers, int],
    terms: tuple[Integers, Integers, Floats],
    queries: tuple[NodeKeys, Integers],
    points: tuple[NodeKeys, Integers],
    scales: Floats,
    uniforms: Floats,
    admitted: Booleans,
    scratch: tuple[NodeKeys, Integers],
) -> tuple[NodeKeys, Integers, int]:
    """Keep each row with probability exp(-penalty) against all points so far.

    A row that is kept becomes a point.
    """
    ahead = (terms[0], terms[1])
    for row in range(len(admitted)):
        if admitted[row]:
            admitted[row] = uniforms[row] < np.exp(
                -penalty(table, terms[0], terms[2], queries, row, scales[row], scratch)
            )
        if admitted[row]:
            table = insert(table, ahead, points, row, 1, scratch)
    return table
