"""Matching of rows under a conjunction of predicates, without making pairs.

Each row of one table as t1 is matched with the rows of another as t2:

    predicates on one row     masks of either side
    =                         groups
    !=                        inclusion and exclusion: all, less those that agree
    one order                 sorting within groups
    two orders                a sweep over one, a Fenwick tree over the other
    more                      divide and conquer over the bits of a rank: r < q if and only if there
                              is exactly one bit that q has and r lacks, above which they agree

With n rows, k orders and d inequations that is O(2^d n log^(k-1) n) after sorting. Fenwick (1994);
the divide and conquer is Bentley's (1980) on the bits of ranks. Rules compare nothing but the
different tuples of values of their attributes, so that rows with equal ones are matched once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numba
import numpy as np
import pandas as pd

from cloister.arrays import Booleans, Floats, Integers
from cloister.constraints.denial import BoundPredicate, Op, Operand
from cloister.schema.domain import Table

_SPARSE = 4
"""Joint codes per row above which a hash table is used; below, an array with one entry a code."""

_WIDEST = 2**62
"""Joint codes at most before they are renumbered: more might not fit int64."""


@dataclass(frozen=True)
class Tuples:
    """The different tuples of a table of n rows.

    ``table`` has one row for each; ``of_row`` (n,) is the number of each row's tuple.
    """

    table: Table
    of_row: Integers

    @classmethod
    def of(cls, table: Table, attributes: Sequence[str]) -> Tuples:
        """The tuples of the attributes; the other columns of ``table`` are left out."""
        of_row, size = _joint([table.codes[name] for name in attributes])
        some_row = np.zeros(size, dtype=np.int64)
        some_row[of_row] = np.arange(table.rows)
        return cls(
            Table(table.domain, {name: table.codes[name][some_row] for name in attributes}), of_row
        )

    def sums(self, weights: Integers | None = None) -> Integers:
        """Number of rows, or the sum of their weights (n,), of each tuple; exact below 2^53."""
        return np.bincount(self.of_row, weights, self.table.rows).astype(np.int64, copy=False)


def factorize(values: Floats | Integers) -> Integers:
    """Numbers 0, 1, ... (n,) of the different values (n,)."""
    return pd.factorize(values)[0].astype(np.int64, copy=False)


def refine_groups(groups: Integers, codes: Integers) -> Integers:
    """Numbers (n,) of the different pairs of a group and a code."""
    return _joint([groups, codes])[0]


def _joint(columns: Sequence[Integers]) -> tuple[Integers, int]:
    """Numbers (n,) of the different rows of whole numbers, and how many there are."""
    joint, size = columns[0], _code_span(columns[0])
    for column in columns[1:]:
        span = _code_span(column)
        if size * span > _WIDEST:
            joint, size = _numbered_below(joint, size)
        joint, size = joint * span + column, size * span
    return _numbered_below(joint, size)


def _code_span(codes: Integers) -> int:
    return int(codes.max(initial=-1)) + 1


def _numbered_below(codes: Integers, size: int) -> tuple[Integers, int]:
    if size > _SPARSE * len(codes):
        numbers = factorize(codes)
        return numbers, _code_span(numbers)
    present = np.zeros(size, dtype=bool)
    present[codes] = True
    return (np.cumsum(present) - 1)[codes], int(present.sum())


_SIGNS = {Op.LT: 1, Op.EQ: 2, Op.LE: 3, Op.GT: 4, Op.NE: 5, Op.GE: 6}
_OPS = {signs: op for op, signs in _SIGNS.items()}


@dataclass(frozen=True)
class Conjunction:
    """Predicates on t1 alone, on t2 alone (written on t1), and across both rows.

    Those across have t1 on the left, and there is one for each two columns.
    """

    first: frozenset[BoundPredicate]
    second: frozenset[BoundPredicate]
    across: frozenset[BoundPredicate]
    possible: bool = True

    @classmethod
    def of(cls, predicates: Sequence[BoundPredicate]) -> Conjunction:
        """The conjunction of some predicates."""
        first = frozenset(p for p in predicates if p.rows == {1})
        second = frozenset(p.exchanged for p in predicates if p.rows == {2})
        return cls(first, second, frozenset()).with_across(
            p for p in predicates if len(p.rows) == 2
        )

    @property
    def exchanged(self) -> Conjunction:
        """The same conjunction with the two rows exchanged."""
        across = frozenset(p.exchanged.mirrored for p in self.across)
        return Conjunction(self.second, self.first, across, self.possible)

    def conjoin(self, other: Conjunction) -> Conjunction:
        """The conjunction of both."""
        joined = Conjunction(
            self.first | other.first, self.second | other.second, self.across, self.possible
        )
        return joined.with_across(other.across)

    def with_across(self, predicates: Iterable[BoundPredicate]) -> Conjunction:
        """With further comparisons across both rows.

        Comparisons of the same two columns become one, or the conjunction is impossible.
        """
        merged: dict[tuple[Operand, Operand], BoundPredicate] = {}
        possible = self.possible
        for p in (*self.across, *(p if p.left.row == 1 else p.mirrored for p in predicates)):
            assert isinstance(p.right, Operand)
            columns = p.left, p.right
            signs = _SIGNS[p.op] & _SIGNS[merged.get(columns, p).op]
            possible &= signs > 0
            merged[columns] = replace(p, op=_OPS.get(signs, p.op))
        return replace(self, across=frozenset(merged.values()), possible=possible)


def either_order(predicates: Sequence[BoundPredicate]) -> tuple[tuple[int, Conjunction], ...]:
    """Signed conjunctions that count the rows with which a row violates, in either order.

    The signed matches of a row as t1 add up to that count.
    """
    forward = Conjunction.of(predicates)
    both = forward.conjoin(forward.exchanged)
    return (
        ((1, forward),) if both == forward else ((1, forward), (1, forward.exchanged), (-1, both))
    )


_Paired = tuple[Integers, Integers]
"""Whole numbers of the rows as t1 and of the rows as t2, each (rows,)."""


@dataclass(frozen=True)
class Matching:
    """Rows of one table as t1 and of another as t2, prepared for matching under a conjunction.

    ``queries`` and ``points`` are the numbers of the rows of either table that can match at all;
    the first has ``rows`` rows.
    """

    rows: int
    queries: Integers
    points: Integers
    join: _Join

    @classmethod
    def of(cls, conjunction: Conjunction, first: Table, second: Table) -> Matching:
        """The rows of ``first`` as t1 with those of ``second`` as t2."""
        across = tuple(conjunction.across)
        queries, query_columns = _active(first, conjunction.first, [p.left for p in across])
        points, point_columns = _active(second, conjunction.second, [p.right for p in across])  # type: ignore[misc]
        if not conjunction.possible:
            queries, query_columns = queries[:0], [column[:0] for column in query_columns]
        join = _Join.of(
            [p.op for p in across], query_columns, point_columns, (len(queries), len(points))
        )
        return cls(first.rows, queries, points, join)

    def count(self, weights: Integers) -> Integers:
        """Total weight of the rows of the second table (m,) that match each row of the first.

        Shape (n,).
        """
        counts = np.zeros(self.rows, dtype=np.int64)
        if len(self.queries) and len(self.points):
            counts[self.queries] = replace(self.join, weights=weights[self.points]).count()
        return counts


def _active(
    table: Table, alone: Iterable[BoundPredicate], compared: Sequence[Operand]
) -> tuple[Integers, list[Floats]]:
    """The numbers of the rows that can match at all, and their columns of compared numbers."""
    mask = np.ones(table.rows, dtype=bool)
    for predicate in alone:
        mask &= predicate.holds(table, table)
    columns = [operand.of(table) for operand in compared]
    for column in columns:
        mask &= ~np.isnan(column)
    return np.flatnonzero(mask), [column[mask] for column in columns]


@dataclass(frozen=True)
class _Join:
    """Weighted matching of queries (q,) with points (p,) by groups, codes and ranks.

    A query matches a point if their groups are equal, their codes in each of ``differ`` are not,
    and in each of ``order`` the point's rank is below the query's.
    """

    groups: _Paired
    weights: Integers
    differ: tuple[_Paired, ...]
    order: tuple[_Paired, ...]

    @classmethod
    def of(
        cls,
        ops: Sequence[Op],
        queries: list[Floats],
        points: list[Floats],
        sizes: tuple[int, int],
    ) -> _Join:
        groups = np.zeros(sizes[0], dtype=np.int64), np.zeros(sizes[1], dtype=np.int64)
        join = cls(groups, np.ones(sizes[1], dtype=np.int64), (), ())
        for op, query, point in zip(ops, queries, points, strict=True):
            if op.is_order:
                join = replace(join, order=(*join.order, _ranks(op, query, point)))
            elif op is Op.EQ:
                join = join.group_by(_codes(query, point))
            else:
                join = replace(join, differ=(*join.differ, _codes(query, point)))
        return replace(
            join, order=tuple(sorted(join.order, key=lambda ranks: int(ranks[1].max(initial=0))))
        )

    def count(self) -> Integers:
        """Total weight of the points that match each query (q,)."""
        if self.differ:
            rest = replace(self, differ=self.differ[1:])
            return rest.count() - rest.group_by(self.differ[0])._count_in_shared_groups()
        if len(self.order) > 2:
            return self._count_by_bits()
        return (_count_equal, _count_one_order, _count_two_orders)[len(self.order)](self)

    def group_by(self, codes: _Paired) -> _Join:
        """With groups that agree on the codes as well."""
        split = len(codes[0])
        groups = refine_groups(np.concatenate(self.groups), np.concatenate(codes))
        return replace(self, groups=(groups[:split], groups[split:]))

    def take(self, queries: Booleans, points: Booleans) -> _Join:
        """The matching of some queries with some points, by mask."""
        differ, order = (
            tuple((query[queries], point[points]) for query, point in pairs)
            for pairs in (self.differ, self.order)
        )
        return _Join(
            (self.groups[0][queries], self.groups[1][points]), self.weights[points], differ, order
        )

    def _count_in_shared_groups(self) -> Integers:
        """As ``count``, restricted to groups with both a query and a point."""
        sizes = _sizes(self.groups)
        shared = (sizes[0] > 0) & (sizes[1] > 0)
        queries, points = shared[self.groups[0]], shared[self.groups[1]]
        counts = np.zeros(len(queries), dtype=np.int64)
        counts[queries] = self.take(queries, points).count()
        return counts

    def _count_by_bits(self) -> Integers:
        query, point = self.order[0]
        rest = replace(self, order=self.order[1:])
        counts = np.zeros(len(query), dtype=np.int64)
        for bit in range(int(query.max(initial=0)).bit_length()):
            queries, points = (query >> bit) & 1 == 1, (point >> bit) & 1 == 0
            above = query[queries] >> (bit + 1), point[points] >> (bit + 1)
            counts[queries] += rest.take(queries, points).group_by(above)._count_in_shared_groups()
        return counts


def _codes(query: Floats, point: Floats) -> _Paired:
    """Whole numbers that are equal where the values are."""
    both = factorize(np.concatenate([query, point]))
    return both[: len(query)], both[len(query) :]


def _ranks(op: Op, query: Floats, point: Floats) -> _Paired:
    """Ranks such that ``query op point`` if and only if the point's is below the query's."""
    if op in (Op.LT, Op.LE):
        return _ranks(op.mirrored, -query, -point)
    different, ranks = np.unique(point, return_inverse=True)
    if np.array_equal(query, point):
        return ranks + (op is Op.GE), ranks
    return np.searchsorted(different, query, side="left" if op is Op.GT else "right"), ranks


def _sizes(groups: _Paired) -> _Paired:
    size = 1 + max(int(side.max(initial=-1)) for side in groups)
    return np.bincount(groups[0], minlength=size), np.bincount(groups[1], minlength=size)


def _count_equal(join: _Join) -> Integers:
    queries, points = join.groups
    size = 1 + max(int(side.max(initial=-1)) for side in join.groups)
    return np.bincount(points, weights=join.weights, minlength=size).astype(np.int64)[queries]


def _count_one_order(join: _Join) -> Integers:
    ((query_rank, point_rank),) = join.order
    query_group, point_group = (side * _rank_span(join.order[0]) for side in join.groups)
    keys = point_group + point_rank
    order = np.argsort(keys)
    below = np.concatenate([[0], np.cumsum(join.weights[order])])
    first, last = (
        np.searchsorted(keys[order], sought) for sought in (query_group, query_group + query_rank)
    )
    counts: Integers = below[last] - below[first]
    return counts


def _count_two_orders(join: _Join) -> Integers:
    tree, swept = join.order
    queries, points = (
        np.argsort(g * _rank_span(swept) + rank) for g, rank in zip(join.groups, swept, strict=True)
    )
    counts = np.empty(len(queries), dtype=np.int64)
    counts[queries] = _sweep(
        np.stack([side[queries] for side in (join.groups[0], swept[0], tree[0])]),
        np.stack([side[points] for side in (join.groups[1], swept[1], tree[1])]),
        join.weights[points],
        _rank_span(tree),
    )
    return counts


def _rank_span(ranks: _Paired) -> int:
    return 1 + max(int(side.max(initial=0)) for side in ranks)


@numba.njit(cache=True)
def _sweep(queries: Integers, points: Integers, weights: Integers, size: int) -> Integers:
    """Weight of the points of each query's group that are below it in both ranks.

    Shapes: ``queries`` (3, q) and ``points`` (3, p): group, rank, rank less than ``size``; sorted
        by the first two.
    """
    tree = np.zeros(size + 1, dtype=np.int64)
    counts = np.zeros(queries.shape[1], dtype=np.int64)
    start = stop = 0
    for q in range(queries.shape[1]):
        group = queries[0, q]
        if q == 0 or queries[0, q - 1] != group:
            for p in range(start, stop):
                _add(tree, points[2, p], -weights[p])
            while stop < points.shape[1] and points[0, stop] < group:
                stop += 1
            start = stop
        while (
            stop < points.shape[1] and points[0, stop] == group and points[1, stop] < queries[1, q]
        ):
            _add(tree, points[2, stop], weights[stop])
            stop += 1
        node = queries[2, q]
        while node > 0:
            counts[q] += tree[node]
            node &= node - 1
    return counts


@numba.njit(cache=True)
def _add(tree: Integers, rank: int, weight: int) -> None:
    node = rank + 1
    while node < len(tree):
        tree[node] += weight
        node += node & -node
