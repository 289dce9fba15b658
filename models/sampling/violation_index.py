"""Violations of one row with all rows before it, by an index that grows with the rows.

Any denial constraint on pairs becomes signed terms. Either order of the pair counts: forward, plus
exchanged, less both at once; each inequality is all rows less those that agree. A term then has a
group (the equalities), at most a few orders, and conditions on each row alone, and is counted by
:mod:`cloister.models.sampling.fenwick` in O(log^k n) for k orders.

Source: Kamino Algorithm 3, line 8, and equation (4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.constraints import BoundPredicate, DenialConstraint, Op, Operand, bind
from cloister.constraints.counting import violations_per_row
from cloister.constraints.matching import Conjunction, either_order
from cloister.hashing import FIRST_FACTOR, GOLDEN
from cloister.models.sampling import fenwick
from cloister.schema.columns import Column, Grid
from cloister.schema.domain import Domain, Table
from cloister.schema.ticks import ticks_per_unit

_RANK_BITS = 64
"""Most nodes of a rank in one dimension of a Fenwick tree: its bits."""


@dataclass(frozen=True)
class Chooser:
    """A way to choose among candidates: a compiled kernel, and its uniform numbers per row."""

    kernel: Callable[..., tuple[fenwick.NodeKeys, Integers, int]]
    draws: int

    def uniforms(self, rows: int, rng: np.random.Generator) -> Floats:
        """Uniform numbers (rows,), or (rows, draws) where there are several."""
        return rng.random(rows if self.draws == 1 else (rows, self.draws))


DIRECT = Chooser(fenwick.choose_directly, 1)
"""One draw from the candidates' probabilities under their penalties."""


def accepting(tries: int) -> Chooser:
    """Draws by probability alone, at most ``tries`` per cell, each accepted by its penalty.

    Penalties are non-negative. Two uniform numbers per try.
    """
    return Chooser(fenwick.accept_reject, 2 * tries)


@dataclass(frozen=True)
class Penalty:
    """A constraint and the cost of one violation, in nats; infinite for a hard one.

    ``per`` is "pair" as in the paper, or "share" for the cost of violating with all rows before.
    """

    constraint: DenialConstraint
    weight: float = np.inf
    per: str = "pair"


@dataclass(frozen=True)
class Scale:
    """Integers 0, ..., size - 1 in the order of the numbers that one or two columns have."""

    low: float
    units: float
    size: int

    @classmethod
    def of(cls, sides: Sequence[Operand], domain: Domain) -> Scale:
        """One integer for each number that two sides of a predicate may be compared by."""
        columns = [domain[side.attribute] for side in sides]
        ends = np.concatenate(
            [
                side.renumber(column.comparable(_extremes(column)))
                for side, column in zip(sides, columns, strict=True)
            ]
        )
        units = max(
            float(side.shift.units) if side.shift else ticks_per_unit(column.attribute)
            for side, column in zip(sides, columns, strict=True)
        )
        low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
        return cls(low, units, round((high - low) * units) + 1)

    def ranks(self, values: Floats) -> Integers:
        """The integers (n,) of comparable numbers (n,); 0 for missing ones."""
        known = np.where(np.isnan(values), self.low, values)
        return np.rint((known - self.low) * self.units).astype(np.int64)


def _extremes(column: Column) -> Integers:
    special = column.special_codes if isinstance(column, Grid) else ()
    last = column.steps - 1 if isinstance(column, Grid) else column.values - 1
    return np.array([0, last, *special], dtype=np.int64)


@dataclass(frozen=True)
class MatchTerm:
    """A signed number of matches of a query with points.

    They agree on ``equal`` and are ordered by ``order``; ``query_alone`` and ``point_alone`` are
    conditions on one of them.
    """

    sign: int
    number: int
    query_alone: tuple[BoundPredicate, ...]
    point_alone: tuple[BoundPredicate, ...]
    across: tuple[BoundPredicate, ...]
    equal: tuple[BoundPredicate, ...]
    order: tuple[tuple[BoundPredicate, Scale], ...]

    def group_keys(self, rows: Table, query: bool) -> fenwick.NodeKeys:
        """The key of each row's group (n,); 0 where the term does not count the row."""
        active = np.ones(rows.rows, dtype=bool)
        for alone in self.query_alone if query else self.point_alone:
            active &= alone.holds(rows, rows)
        for predicate in self.across:
            active &= ~np.isnan(_side(predicate, query).of(rows))
        keys = np.full(rows.rows, self.number + 1, dtype=np.uint64) * GOLDEN
        for predicate in self.equal:
            values = _side(predicate, query).of(rows) + 0.0
            keys = _scramble(keys ^ values.view(np.uint64))
        return np.where(active, keys, np.uint64(0))

    def ranks(self, rows: Table, query: bool) -> list[Integers]:
        """For each order, integers (n,): a point matches where its integer is below the query's."""
        return [_ranks(predicate, scale, rows, query) for predicate, scale in self.order]


def _side(predicate: BoundPredicate, query: bool) -> Operand:
    side = predicate.left if query else predicate.right
    assert isinstance(side, Operand)
    return side


def _ranks(predicate: BoundPredicate, scale: Scale, rows: Table, query: bool) -> Integers:
    ranks = scale.ranks(_side(predicate, query).of(rows))
    if predicate.op in (Op.LT, Op.LE):
        ranks = scale.size - 1 - ranks
    return ranks + (query and predicate.op in (Op.LE, Op.GE))


def _scramble(keys: fenwick.NodeKeys) -> fenwick.NodeKeys:
    keys = (keys ^ (keys >> np.uint64(29))) * FIRST_FACTOR
    keys = (keys ^ (keys >> np.uint64(32))) * GOLDEN
    return np.maximum(keys ^ (keys >> np.uint64(30)), np.uint64(1))


def terms_of(penalty: Penalty, domain: Domain, first: int) -> list[MatchTerm]:
    """The signed terms of a constraint on pairs, numbered from ``first``.

    Under a hard one a pair that violates in both orders may be counted twice.
    """
    hard = np.isinf(penalty.weight)
    terms: list[MatchTerm] = []
    for sign, conjunction in either_order(bind(penalty.constraint, domain).predicates):
        if conjunction.possible and not (hard and sign < 0):
            terms += _terms(sign, conjunction, domain, first + len(terms))
    return terms


def _terms(sign: int, conjunction: Conjunction, domain: Domain, first: int) -> list[MatchTerm]:
    across = tuple(sorted(conjunction.across, key=repr))
    equal = tuple(p for p in across if p.op is Op.EQ)
    order = tuple((p, _scale(p, domain)) for p in across if p.op.is_order)
    alone = tuple(conjunction.first), tuple(conjunction.second)
    return [
        MatchTerm(
            sign * (-1) ** len(agreeing), first + index, *alone, across, (*equal, *agreeing), order
        )
        for index, agreeing in enumerate(_subsets([p for p in across if p.op is Op.NE]))
    ]


def _subsets(items: Sequence[BoundPredicate]) -> Iterator[tuple[BoundPredicate, ...]]:
    for size in range(len(items) + 1):
        yield from combinations(items, size)


def _scale(predicate: BoundPredicate, domain: Domain) -> Scale:
    return Scale.of([_side(predicate, query) for query in (True, False)], domain)


@dataclass
class PairIndex:
    """All rows so far, as points of the terms of penalties; more rows are chosen against them."""

    domain: Domain
    penalties: tuple[Penalty, ...]
    rows: int = field(default=0, init=False)
    _table: tuple[fenwick.NodeKeys, Integers, int] = field(init=False)

    def __post_init__(self) -> None:
        self._table = (
            np.zeros(fenwick.START_SLOTS, dtype=np.uint64),
            np.zeros(fenwick.START_SLOTS, dtype=np.int64),
            0,
        )

    @cached_property
    def _terms(self) -> list[tuple[MatchTerm, Penalty]]:
        terms: list[tuple[MatchTerm, Penalty]] = []
        for penalty in self.penalties:
            if penalty.constraint.arity == 2:
                terms += [(term, penalty) for term in terms_of(penalty, self.domain, len(terms))]
        return terms

    @cached_property
    def _layout(self) -> tuple[Integers, Integers]:
        orders = np.array([len(term.order) for term, _ in self._terms], dtype=np.int64)
        limits = np.zeros((len(orders), max(1, orders.max(initial=0))), dtype=np.int64)
        for index, (term, _) in enumerate(self._terms):
            limits[index, : len(term.order)] = [scale.size for _, scale in term.order]
        return orders, limits

    @cached_property
    def _scratch(self) -> tuple[fenwick.NodeKeys, Integers]:
        nodes = [np.prod([int(limit).bit_length() + 1 for limit in row]) for row in self._layout[1]]
        return np.zeros(int(max(nodes, default=1)) + 1, dtype=np.uint64), np.zeros(
            _RANK_BITS, dtype=np.int64
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes of the penalties."""
        return tuple(
            dict.fromkeys(
                name for penalty in self.penalties for name in penalty.constraint.attributes
            )
        )

    def record(self, rows: Table, weight: int = 1) -> None:
        """Add rows as points; take them away again with weight -1."""
        self._table = fenwick.insert_all(
            self._table, self._layout, self._features(rows, query=False), weight, self._scratch
        )
        self.rows += weight * rows.rows

    def admit(self, rows: Table, rng: np.random.Generator) -> Booleans:
        """Mask (n,) of the rows kept, one after the other, each with probability exp(-penalty).

        They become points.
        """
        uniforms = rng.random(rows.rows)
        admitted = uniforms < np.exp(-self._alone(rows))
        queries, points = self._features(rows, query=True), self._features(rows, query=False)
        self._table = fenwick.admit_rows(
            self._table,
            self._priced,
            queries,
            points,
            self._scales(rows.rows),
            rng.random(rows.rows),
            admitted,
            self._scratch,
        )
        self.rows += int(admitted.sum())
        return admitted

    def choose(
        self,
        candidates: Table,
        logs: Floats,
        rows: Integers,
        choice: Integers,
        chooser: Chooser,
        rng: np.random.Generator,
    ) -> None:
        """Choose one candidate for each of some rows, one after the other; it becomes a point.

        Args:
            candidates: the d candidates of each of n rows, row by row: n * d rows. logs: (n, d)
            log-probabilities of the candidates. rows: (n,) places of the rows in ``choice``.
            choice: set to each row's candidate, or -1 where all violate a hard constraint; a
            choice that a row has already is withdrawn first.
            chooser: the way to choose.
        """
        queries, points = (
            self._features(candidates, query=True),
            self._features(candidates, query=False),
        )
        priced = logs - self._alone(candidates).reshape(logs.shape)
        scales, uniforms = self._scales(len(rows)), chooser.uniforms(len(rows), rng)
        fresh = int((choice[rows] < 0).sum())
        self._table = chooser.kernel(
            self._table,
            self._priced,
            queries,
            points,
            priced,
            scales,
            rows,
            choice,
            uniforms,
            self._scratch,
        )
        self.rows += fresh

    def _scales(self, rows: int) -> Floats:
        return 1.0 / np.maximum(self.rows + np.arange(rows, dtype=np.float64), 1.0)

    @cached_property
    def _priced(self) -> tuple[Integers, Integers, Floats]:
        prices = np.zeros((len(self._terms), 3))
        for index, (term, penalty) in enumerate(self._terms):
            hard = np.isinf(penalty.weight)
            kind = 2 if hard else ("pair", "share").index(penalty.per)
            prices[index, kind] = term.sign * (1.0 if hard else penalty.weight)
        return (*self._layout, prices)

    def _alone(self, rows: Table) -> Floats:
        """The cost (n,) of violating constraints on single rows."""
        cost = np.zeros(rows.rows)
        for penalty in self.penalties:
            if penalty.constraint.arity == 1:
                cost[violations_per_row(penalty.constraint, rows) > 0] += penalty.weight
        return cost

    def _features(self, rows: Table, query: bool) -> tuple[fenwick.NodeKeys, Integers]:
        keys = np.zeros((rows.rows, len(self._terms)), dtype=np.uint64)
        ranks = np.zeros((rows.rows, len(self._terms), self._layout[1].shape[1]), dtype=np.int64)
        for index, (term, _) in enumerate(self._terms):
            keys[:, index] = term.group_keys(rows, query)
            for order, values in enumerate(term.ranks(rows, query)):
                ranks[:, index, order] = values
        return keys, ranks
