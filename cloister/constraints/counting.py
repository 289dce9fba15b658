"""Exact numbers of violations of any denial constraint on one or two rows, without making pairs.

A pair violates in one direction if all predicates hold for (t1, t2). With V the pairs (i, j) of different rows that
do, an unordered pair is counted once by |V| - |V and exchanged V| / 2, and the second set is a conjunction as well.
For one conjunction each row as t1 is matched with the rows as t2:

    predicates on one row     masks of either side
    =                         groups
    !=                        inclusion and exclusion: all, less those that agree
    one order                 sorting within groups
    two orders                a sweep over one, a Fenwick tree over the other
    more                      divide and conquer over the bits of a rank: r < q if and only if there is exactly one
                              bit that q has and r lacks, above which they agree

Rows that agree on all compared attributes are counted together. With n rows, k orders and d inequations that is
O(2^d n log^(k-1) n) after sorting. Fenwick (1994); the divide and conquer is Bentley's (1980) on the bits of ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numba
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cloister.constraints.binding import BoundPredicate, Mask, Operand, bind
from cloister.constraints.denial import DenialConstraint, Op
from cloister.schema.columns import Numbers
from cloister.schema.domain import Table

Counts = NDArray[np.int64]
Paired = tuple[Counts, Counts]
"""Whole numbers of the rows as t1 and of the rows as t2, each (rows,)."""

_SIGNS = {Op.LT: 1, Op.EQ: 2, Op.LE: 3, Op.GT: 4, Op.NE: 5, Op.GE: 6}
_OPS = {signs: op for op, signs in _SIGNS.items()}


@dataclass(frozen=True)
class ViolationReport:
    """Violations of one constraint: rows or unordered pairs of rows, and their share of all in percent."""

    name: str
    hard: bool
    violations: int
    percent: float


def count_violations(constraint: DenialConstraint, table: Table) -> int:
    """Number of rows (one-row rules) or unordered pairs of rows (two-row rules) that violate the constraint.

    Raises:
        ConstraintError: the constraint does not fit the domain of the table.
    """
    bound = bind(constraint, table.domain)
    if bound.arity == 1:
        return int(bound.violated(table, table).sum())
    forward = Conjunction.of(bound.predicates)
    directed = int(_partners(forward, table).sum())
    both = forward.joined(forward.exchanged)
    return directed - (directed if both == forward else int(_partners(both, table).sum())) // 2


def violations_per_row(constraint: DenialConstraint, table: Table) -> Counts:
    """Number of violating pairs that each row is in, int64 (n,); 0 or 1 for one-row rules.

    Raises:
        ConstraintError: the constraint does not fit the domain of the table.
    """
    bound = bind(constraint, table.domain)
    if bound.arity == 1:
        return bound.violated(table, table).astype(np.int64)
    forward = Conjunction.of(bound.predicates)
    both = forward.joined(forward.exchanged)
    if both == forward:
        return _partners(forward, table)
    return _partners(forward, table) + _partners(forward.exchanged, table) - _partners(both, table)


def violation_share(constraint: DenialConstraint, table: Table) -> Fraction:
    """Violations as a share of all n rows, or of all n (n - 1) / 2 unordered pairs; 0 where there are none."""
    return _share(constraint, count_violations(constraint, table), table.rows)


def violation_reports(constraints: Iterable[DenialConstraint], table: Table) -> tuple[ViolationReport, ...]:
    """Violations of each constraint, in order."""
    counted = ((constraint, count_violations(constraint, table)) for constraint in constraints)
    return tuple(
        ViolationReport(c.name, c.hard, violations, float(100 * _share(c, violations, table.rows)))
        for c, violations in counted
    )


def conflicts(constraint: DenialConstraint, new: Table, kept: Table) -> Mask:
    """Whether each new row violates with any kept row, in either order, bool (m,); alone for one-row rules.

    Raises:
        ConstraintError: the constraint does not fit the domain of the tables.
    """
    bound = bind(constraint, new.domain)
    if bound.arity == 1:
        return bound.violated(new, new)
    forward = Conjunction.of(bound.predicates)
    found = _matches(forward, new, kept) > 0
    return found if forward.exchanged == forward else found | (_matches(forward.exchanged, new, kept) > 0)


def _share(constraint: DenialConstraint, violations: int, rows: int) -> Fraction:
    whole = rows if constraint.arity == 1 else rows * (rows - 1) // 2
    return Fraction(violations, whole) if whole else Fraction(0)


@dataclass(frozen=True)
class Conjunction:
    """Predicates on t1 alone, on t2 alone (written on t1), and across (t1 on the left, one for each two columns)."""

    first: frozenset[BoundPredicate]
    second: frozenset[BoundPredicate]
    across: frozenset[BoundPredicate]
    possible: bool = True

    @classmethod
    def of(cls, predicates: Sequence[BoundPredicate]) -> Conjunction:
        first = frozenset(p for p in predicates if p.rows == {1})
        second = frozenset(p.exchanged for p in predicates if p.rows == {2})
        return cls(first, second, frozenset()).with_across(p for p in predicates if len(p.rows) == 2)

    @property
    def exchanged(self) -> Conjunction:
        """The same said of (t2, t1)."""
        across = frozenset(p.exchanged.mirrored for p in self.across)
        return Conjunction(self.second, self.first, across, self.possible)

    def joined(self, other: Conjunction) -> Conjunction:
        """Both at once."""
        joined = Conjunction(self.first | other.first, self.second | other.second, self.across, self.possible)
        return joined.with_across(other.across)

    def with_across(self, predicates: Iterable[BoundPredicate]) -> Conjunction:
        """With further comparisons across; those of the same two columns become one, or none is possible."""
        merged: dict[tuple[str, str], BoundPredicate] = {}
        possible = self.possible
        for p in (*self.across, *(p if p.left.row == 1 else p.mirrored for p in predicates)):
            assert isinstance(p.right, Operand)
            columns = p.left.attribute, p.right.attribute
            signs = _SIGNS[p.op] & _SIGNS[merged.get(columns, p).op]
            possible &= signs > 0
            merged[columns] = replace(p, op=_OPS.get(signs, p.op))
        return replace(self, across=frozenset(merged.values()), possible=possible)

    def itself(self, table: Table) -> Mask:
        """Where a row (n,) satisfies everything as both t1 and t2."""
        held = [p.holds(table, table) for p in (*self.first, *self.second, *self.across)]
        return np.logical_and.reduce(held)


def _partners(conjunction: Conjunction, table: Table) -> Counts:
    """Number of other rows (n,) that match each row as t1."""
    matches = _matches(conjunction, table, table)
    return matches - conjunction.itself(table) if conjunction.possible else matches


def _matches(conjunction: Conjunction, first: Table, second: Table) -> Counts:
    """Number of rows of ``second`` as t2 (n,) with which all predicates hold, for each row of ``first`` as t1."""
    counts = np.zeros(first.rows, dtype=np.int64)
    if not conjunction.possible:
        return counts
    across = tuple(conjunction.across)
    queries = _Rows.of(first, conjunction.first, [p.left for p in across])
    points = _Rows.of(second, conjunction.second, [p.right for p in across])  # type: ignore[misc]
    join = _Join.of([p.op for p in across], queries, points)
    counts[queries.active] = join.count()[queries.of_row]
    return counts


@dataclass(frozen=True)
class _Rows:
    """The different tuples of compared numbers among the rows that can match at all.

    Shapes: ``active`` (a,) row numbers, ``of_row`` (a,) tuple numbers, ``columns`` each (tuples,).
    """

    active: Counts
    of_row: Counts
    columns: list[Numbers]
    size: int

    @classmethod
    def of(cls, table: Table, alone: Iterable[BoundPredicate], compared: Sequence[Operand]) -> _Rows:
        mask = np.ones(table.rows, dtype=bool)
        for predicate in alone:
            mask &= predicate.holds(table, table)
        columns = [operand.of(table) for operand in compared]
        for column in columns:
            mask &= ~np.isnan(column)
        active = np.flatnonzero(mask)
        return cls._distinct(active, [column[active] for column in columns])

    @classmethod
    def _distinct(cls, active: Counts, columns: list[Numbers]) -> _Rows:
        of_row = np.zeros(len(active), dtype=np.int64)
        for column in columns:
            of_row = _refined(of_row, _numbered(column))
        size = int(of_row.max(initial=-1)) + 1
        some_row = np.zeros(size, dtype=np.int64)
        some_row[of_row] = np.arange(len(active))
        return cls(active, of_row, [column[some_row] for column in columns], size)

    @property
    def multiplicities(self) -> Counts:
        """Number of rows of each tuple (tuples,)."""
        return np.bincount(self.of_row, minlength=self.size)


@dataclass(frozen=True)
class _Join:
    """Weighted matching of queries (q,) with points (p,): equal groups, differing codes, ordered ranks.

    A query matches a point if their groups are equal, their codes in each of ``differ`` are not, and in each of
    ``order`` the point's rank is below the query's.
    """

    groups: Paired
    weights: Counts
    differ: tuple[Paired, ...]
    order: tuple[Paired, ...]

    @classmethod
    def of(cls, ops: Sequence[Op], queries: _Rows, points: _Rows) -> _Join:
        groups = np.zeros(queries.size, dtype=np.int64), np.zeros(points.size, dtype=np.int64)
        join = cls(groups, points.multiplicities, (), ())
        for op, query, point in zip(ops, queries.columns, points.columns, strict=True):
            if op.is_order:
                join = replace(join, order=(*join.order, _ranks(op, query, point)))
            elif op is Op.EQ:
                join = join.grouped(_codes(query, point))
            else:
                join = replace(join, differ=(*join.differ, _codes(query, point)))
        return replace(join, order=tuple(sorted(join.order, key=lambda ranks: int(ranks[1].max(initial=0)))))

    def count(self) -> Counts:
        """Total weight of the points that match each query (q,)."""
        if self.differ:
            rest = replace(self, differ=self.differ[1:])
            return rest.count() - rest.grouped(self.differ[0])._count_met()
        if len(self.order) > 2:
            return self._count_by_bits()
        return (_count_equal, _count_one_order, _count_two_orders)[len(self.order)](self)

    def grouped(self, codes: Paired) -> _Join:
        """With groups that agree on the codes as well."""
        split = len(codes[0])
        groups = _refined(np.concatenate(self.groups), np.concatenate(codes))
        return replace(self, groups=(groups[:split], groups[split:]))

    def take(self, queries: Mask, points: Mask) -> _Join:
        """The matching of some queries with some points, by mask."""
        differ, order = (
            tuple((query[queries], point[points]) for query, point in pairs) for pairs in (self.differ, self.order)
        )
        return _Join((self.groups[0][queries], self.groups[1][points]), self.weights[points], differ, order)

    def _count_met(self) -> Counts:
        """As ``count``, looking only at groups that hold both a query and a point."""
        held = _sizes(self.groups)
        met = (held[0] > 0) & (held[1] > 0)
        queries, points = met[self.groups[0]], met[self.groups[1]]
        counts = np.zeros(len(queries), dtype=np.int64)
        counts[queries] = self.take(queries, points).count()
        return counts

    def _count_by_bits(self) -> Counts:
        query, point = self.order[0]
        rest = replace(self, order=self.order[1:])
        counts = np.zeros(len(query), dtype=np.int64)
        for bit in range(int(query.max(initial=0)).bit_length()):
            queries, points = (query >> bit) & 1 == 1, (point >> bit) & 1 == 0
            above = query[queries] >> (bit + 1), point[points] >> (bit + 1)
            counts[queries] += rest.take(queries, points).grouped(above)._count_met()
        return counts


def _numbered(values: Numbers | Counts) -> Counts:
    """Numbers 0, 1, ... (n,) of the different values (n,)."""
    return pd.factorize(values)[0].astype(np.int64, copy=False)


def _refined(groups: Counts, codes: Counts) -> Counts:
    """Numbers (n,) of the different pairs of a group and a code."""
    return _numbered(groups * (codes.max(initial=0) + 1) + codes)


def _codes(query: Numbers, point: Numbers) -> Paired:
    """Whole numbers that are equal where the values are."""
    both = _numbered(np.concatenate([query, point]))
    return both[: len(query)], both[len(query) :]


def _ranks(op: Op, query: Numbers, point: Numbers) -> Paired:
    """Whole numbers such that ``query op point`` if and only if the point's is below the query's."""
    if op in (Op.LT, Op.LE):
        return _ranks(op.mirrored, -query, -point)
    different, ranks = np.unique(point, return_inverse=True)
    return np.searchsorted(different, query, side="left" if op is Op.GT else "right"), ranks


def _sizes(groups: Paired) -> Paired:
    size = 1 + max(int(side.max(initial=-1)) for side in groups)
    return np.bincount(groups[0], minlength=size), np.bincount(groups[1], minlength=size)


def _count_equal(join: _Join) -> Counts:
    queries, points = join.groups
    size = 1 + max(int(side.max(initial=-1)) for side in join.groups)
    return np.bincount(points, weights=join.weights, minlength=size).astype(np.int64)[queries]


def _count_one_order(join: _Join) -> Counts:
    ((query_rank, point_rank),) = join.order
    query_group, point_group = (side * _span(join.order[0]) for side in join.groups)
    keys = point_group + point_rank
    order = np.argsort(keys)
    below = np.concatenate([[0], np.cumsum(join.weights[order])])
    first, last = (np.searchsorted(keys[order], sought) for sought in (query_group, query_group + query_rank))
    counts: Counts = below[last] - below[first]
    return counts


def _count_two_orders(join: _Join) -> Counts:
    tree, swept = join.order
    queries, points = (np.argsort(g * _span(swept) + rank) for g, rank in zip(join.groups, swept, strict=True))
    counts = np.empty(len(queries), dtype=np.int64)
    counts[queries] = _sweep(
        np.stack([side[queries] for side in (join.groups[0], swept[0], tree[0])]),
        np.stack([side[points] for side in (join.groups[1], swept[1], tree[1])]),
        join.weights[points],
        _span(tree),
    )
    return counts


def _span(ranks: Paired) -> int:
    return 1 + max(int(side.max(initial=0)) for side in ranks)


@numba.njit(cache=True)
def _sweep(queries: Counts, points: Counts, weights: Counts, size: int) -> Counts:
    """Weight of the points of each query's group that are below it in both ranks.

    Shapes: ``queries`` (3, q) and ``points`` (3, p): group, rank, rank less than ``size``; sorted by the first two.
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
        while stop < points.shape[1] and points[0, stop] == group and points[1, stop] < queries[1, q]:
            _add(tree, points[2, stop], weights[stop])
            stop += 1
        place = queries[2, q]
        while place > 0:
            counts[q] += tree[place]
            place &= place - 1
    return counts


@numba.njit(cache=True)
def _add(tree: Counts, rank: int, weight: int) -> None:
    place = rank + 1
    while place < len(tree):
        tree[place] += weight
        place += place & -place
