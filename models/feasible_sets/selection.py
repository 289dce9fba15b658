"""Choosing feasible sets: conflict-free sets of joint levels with large released mass.

Nearly exact for functional dependencies (the heaviest or likeliest right side of each left side),
order rules (the heaviest chain) and rules on single rows; else greedily by mass.

Privacy: the inputs are public or already released; nothing here reads data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from cloister.arrays import TINY, Booleans, Floats, Integers
from cloister.constraints.denial import NEGATED, BoundConstraint, Op, Operand, holds
from cloister.models.feasible_sets.feasible_set import (
    Coupling,
    FeasibleSet,
    Levels,
    grid,
    with_missing,
)

_Bounds = tuple[Floats, Floats]

_COUPLING_WEIGHT = 3.0
"""Weight of the monotone coupling of both margins, relative to the released mass of a chain."""

_LEAST_MASS = 1e-12
"""Least mass of a level, or in a denominator."""

_ANYWHERE, _LEAST_MARGIN = 1e-3, 1e-6
"""Weight of independent levels in the table of a chain, which decides where no row was counted; and
the least share of a level in it."""

_POSSIBLE: Mapping[Op, Callable[[_Bounds, _Bounds], Booleans]] = {
    Op.EQ: lambda left, right: (left[0] <= right[1]) & (right[0] <= left[1]),
    Op.NE: lambda left, right: ~((left[0] == right[1]) & (left[1] == right[0])),
    Op.LT: lambda left, right: left[0] < right[1],
    Op.LE: lambda left, right: left[0] <= right[1],
    Op.GT: lambda left, right: left[1] > right[0],
    Op.GE: lambda left, right: left[1] >= right[0],
}

_OVERFILLED = 0.01
"""Room of a full right side, as a part of a left side: 4.6 nats of evidence override it."""

_SIMILAR = 0.25
"""Relative standard deviation of the difference of two masses of the same rows."""

_NEVER = -1e9
"""Evidence of an infeasible pair in the assignment, which needs finite numbers."""

_LEAST_SHARE = 1e-9
"""Least room of a right side, as a share of the rows."""

_LEAST_SPREAD = 1e-6
"""Differences of masses below this count as none."""


def function_set(
    left: Sequence[Levels], right: Levels, chosen: Integers, values: Integers
) -> FeasibleSet:
    """The set of a functional dependency: one right side, a single value, for each left side.

    Shapes, both (product of left sizes,): ``chosen`` the right side's level for each joint left
    level, negative for infeasible ones, ``values`` its fine code there.
    """
    joint = grid([level.size for level in left])
    known = chosen >= 0
    for column, level in enumerate(left):
        known &= joint[:, column] != level.null
    levels = np.column_stack([joint, chosen])[known]
    names = (*(level.name for level in left), right.name)
    box = np.stack([values, values + 1], axis=1)[known]
    feasible_set = FeasibleSet(names, levels, {right.name: box} if right.wide.any() else {})
    return with_missing([*left, right], feasible_set)


def chain_set(
    equal: Sequence[Levels], first: Levels, second: Levels, sign: int, mass: Floats
) -> FeasibleSet:
    """The set of a strict order rule: a chain of (first, second) for each value of ``equal``.

    The chain of greatest mass, where the monotone coupling of both margins is added to the mass, so
    that neither attribute distorts the distribution of the other.

    Args:
        sign: +1 if a greater first never occurs with a lesser second, -1 if never with a greater.
        mass: shape (product of equal sizes, first size, second size), released mass.
    """
    joint = grid([level.size for level in equal]) if equal else np.zeros((1, 0), dtype=np.int64)
    there = np.all(
        [joint[:, index] != level.null for index, level in enumerate(equal)]
        + [np.ones(len(joint), bool)],
        axis=0,
    )
    rising = first.present[np.argsort(first.low[first.present], kind="stable")]
    along = second.present[np.argsort(second.low[second.present], kind="stable")][::sign]
    ordered = mass[there][:, rising][:, :, along]
    blocks = [
        _chain(joint[there][index], ordered[index], first, second, rising, along, sign)
        for index in range(len(ordered))
    ]
    levels, first_box, second_box = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    names = (*(level.name for level in equal), first.name, second.name)
    boxes = {first.name: first_box, second.name: second_box}
    feasible_set = FeasibleSet(names, levels, boxes, (Coupling(first.name, second.name, sign),))
    return with_missing([*equal, first, second], feasible_set)


def heaviest_path(mass: Floats) -> Integers:
    """The heaviest monotone lattice path from corner to corner of a matrix.

    Shape (rows + columns - 1, 2).
    """
    best = np.empty_like(mass)
    for row in range(mass.shape[0]):
        for column in range(mass.shape[1]):
            before = max(
                best[row - 1, column] if row else -np.inf,
                best[row, column - 1] if column else -np.inf,
            )
            best[row, column] = mass[row, column] + (before if row or column else 0.0)
    row, column = mass.shape[0] - 1, mass.shape[1] - 1
    path = [(row, column)]
    while row or column:
        up = row > 0 and (column == 0 or best[row - 1, column] >= best[row, column - 1])
        row, column = (row - 1, column) if up else (row, column - 1)
        path.append((row, column))
    return np.array(path[::-1], dtype=np.int64)


def monotone_coupling(rows: Floats, columns: Floats) -> Floats:
    """The joint mass (r, c) with margins (r,) and (c,) that lies on a rising lattice path.

    Source: the north-west corner rule; Hoeffding (1940).
    """
    heights = np.cumsum(rows / rows.sum()), np.cumsum(columns / columns.sum())
    knots = np.unique(np.concatenate(heights))
    mass = np.diff(knots, prepend=0.0)
    cells = [
        np.minimum(np.searchsorted(height, knots - mass / 2), len(height) - 1) for height in heights
    ]
    joint = np.zeros((len(rows), len(columns)))
    np.add.at(joint, tuple(cells), mass)
    return joint


def _chain(
    fixed: Integers,
    mass: Floats,
    first: Levels,
    second: Levels,
    rising: Integers,
    along: Integers,
    sign: int,
) -> tuple[Integers, Integers, Integers]:
    shares = mass / max(mass.sum(), _LEAST_MASS)
    margins = (shares.sum(axis) + _LEAST_MARGIN for axis in (1, 0))
    shares = shares + _ANYWHERE * np.outer(*margins)
    shares = shares + _COUPLING_WEIGHT * monotone_coupling(shares.sum(1), shares.sum(0))
    path = heaviest_path(shares)
    weight = np.maximum(shares[path[:, 0], path[:, 1]], _LEAST_MASS)
    on_first, on_second = rising[path[:, 0]], along[path[:, 1]]
    first_box = _split(first, on_first, weight)
    second_box = (
        _split(second, on_second, weight)
        if sign > 0
        else _split(second, on_second[::-1], weight[::-1])[::-1]
    )
    fixed_levels = np.broadcast_to(fixed, (len(path), len(fixed)))
    return np.column_stack([fixed_levels, on_first, on_second]), first_box, second_box


def _split(levels: Levels, run: Integers, weight: Floats) -> Integers:
    """Divide each level's fine codes among the neighbouring path cells on that level.

    A cut belongs to the cells on both sides.
    """
    boxes = np.stack([levels.start[run], levels.stop[run]], axis=1)
    edges = np.flatnonzero(np.diff(run, prepend=-1, append=-1))
    for begin, end in pairwise(edges):
        if end - begin > 1:
            start, last = boxes[begin, 0], boxes[begin, 1] - 1
            part = np.concatenate([[0.0], np.cumsum(weight[begin:end]) / weight[begin:end].sum()])
            cuts = start + np.rint(part * (last - start)).astype(np.int64)
            boxes[begin:end] = np.stack([cuts[:-1], cuts[1:] + 1], axis=1)
    return boxes


def row_set(constraint: BoundConstraint, levels: Sequence[Levels]) -> FeasibleSet:
    """The set of a rule on single rows: all joint levels in which some value satisfies it."""
    joint = grid([level.size for level in levels])
    columns = {level.name: (level, joint[:, index]) for index, level in enumerate(levels)}

    def bounds(side: Operand | float | None) -> _Bounds | None:
        if not isinstance(side, Operand):
            return _constant(side)
        level, rows = columns[side.attribute]
        low, high = _bounds(side, level)
        return low[rows], high[rows]

    surely = np.ones(len(joint), dtype=bool)
    for predicate in constraint.predicates:
        left = bounds(predicate.left)
        assert left is not None
        surely &= _certain(predicate.op, left, bounds(predicate.right))
    return FeasibleSet(tuple(level.name for level in levels), joint[~surely])


def greedy_set(
    constraint: BoundConstraint, levels: Sequence[Levels], mass: Floats
) -> FeasibleSet | None:
    """The set of any rule on pairs: joint levels by mass, each without conflict with the rest.

    ``mass`` has shape (product of sizes,). A level must not conflict with itself either: if most
    do, all are narrowed to one value per attribute. A missing value falsifies only the predicates
    on it: in a comparison of two columns the other column of its row still counts. None if even
    single values conflict with themselves, as under a key.
    """
    joint = grid([level.size for level in levels])
    present = np.all(
        [joint[:, column] != level.null for column, level in enumerate(levels)], axis=0
    )
    order = np.argsort(-mass, kind="stable")
    taken = _Taken(constraint, levels, narrowed=False)
    if present.any() and taken.conflict_with_self(joint[present]).mean() > 0.5:
        taken = _Taken(constraint, levels, narrowed=True)
    free = ~taken.conflict_with_self(joint)
    if not (free & present).any():
        return None
    # invariant: no two levels taken conflict, and none with itself
    for candidate in joint[order][free[order]]:
        taken.consider(candidate)
    boxes = {
        level.name: level.point_boxes[taken.rows[:, column]]
        for column, level in enumerate(levels)
        if level.wide.any()
    }
    return FeasibleSet(
        tuple(level.name for level in levels), taken.rows, boxes if taken.narrowed else {}
    )


class _Taken:
    """Joint levels taken so far by the greedy choice."""

    def __init__(
        self, constraint: BoundConstraint, levels: Sequence[Levels], narrowed: bool
    ) -> None:
        self.narrowed = narrowed
        self._predicates = constraint.predicates
        self._columns = {level.name: column for column, level in enumerate(levels)}
        sides = (side for p in constraint.predicates for side in (p.left, p.right))
        self._bounds = {
            side: _bounds(side, level.pointed if narrowed else level)
            for side in sides
            if isinstance(side, Operand)
            for level in (levels[self._columns[side.attribute]],)
        }
        self._chosen: list[Integers] = []

    @property
    def rows(self) -> Integers:
        return np.array(self._chosen, dtype=np.int64)

    def conflict_with_self(self, rows: Integers) -> Booleans:
        return self._possible(rows, rows)

    def consider(self, row: Integers) -> None:
        if self._chosen:
            taken = np.array(self._chosen)
            if (self._possible(row[None], taken) | self._possible(taken, row[None])).any():
                return
        self._chosen.append(row)

    def _possible(self, first: Integers, second: Integers) -> Booleans:
        holds = np.ones(max(len(first), len(second)), dtype=bool)
        for predicate in self._predicates:
            left = self._range(predicate.left, first, second)
            right = (
                self._range(predicate.right, first, second)
                if isinstance(predicate.right, Operand)
                else _constant(predicate.right)
            )
            holds &= _possible(predicate.op, left, right)
        return holds

    def _range(self, side: Operand, first: Integers, second: Integers) -> _Bounds:
        low, high = self._bounds[side]
        rows = (first if side.row == 1 else second)[:, self._columns[side.attribute]]
        return low[rows], high[rows]


def _bounds(side: Operand, level: Levels) -> _Bounds:
    """The least and greatest number (size,) that each level of an attribute is compared by.

    Offsets keep the order of values, which lists of other labels do not: in several of these any
    number may be.
    """
    low, high = side.renumber(level.low), side.renumber(level.high)
    if side.label_numbers is None:
        return low, high
    return np.where(level.wide, -np.inf, low), np.where(level.wide, np.inf, high)


def _constant(number: float | None) -> _Bounds | None:
    """A constant as a range, None for ``missing``."""
    return None if number is None else (np.array(number), np.array(number))


def _possible(op: Op, left: _Bounds, right: _Bounds | None) -> Booleans:
    """Whether a predicate holds for some values of two ranges; no comparison on missing ones."""
    if right is None:
        return holds(op, left[0], None)
    known = ~(np.isnan(left[0]) | np.isnan(right[0]))
    return known & _POSSIBLE[op](left, right)


def _certain(op: Op, left: _Bounds, right: _Bounds | None) -> Booleans:
    """Whether a predicate holds for all values of two ranges; no comparison on missing ones."""
    if right is None:
        return holds(op, left[0], None)
    known = ~(np.isnan(left[0]) | np.isnan(right[0]))
    return known & ~_POSSIBLE[NEGATED[op]](left, right)


def likely_right(
    right: Levels, evidence: Floats, left_mass: Floats, right_mass: Floats, rng: np.random.Generator
) -> Integers:
    """A right side for each left side, the most likely one that has room for it.

    ``evidence`` (lefts, right size) has log-probabilities up to a constant, -inf for infeasible
    pairs. Left sides (lefts,), the heaviest first, fill the right sides (size,) up to their mass; a
    full right side is taken only on strong evidence. Negative where a left side may have none.
    """
    known, shares = evidence[:, right.present], right_mass[right.present] + _LEAST_SHARE
    shares, mass = shares / shares.sum(), left_mass / left_mass.sum()
    room = shares.copy()
    chosen = np.full(len(known), -1, dtype=np.int64)
    for left in np.lexsort((rng.random(len(mass)), -mass)):
        if np.isfinite(known[left]).any():
            log_room = np.log(np.maximum(room, _OVERFILLED * mass[left] + TINY))
            best = int(np.argmax(known[left] + log_room))
            chosen[left] = right.present[best]
            room[best] -= mass[left]
    return chosen


def one_to_one_right(
    right: Levels, evidence: Floats, left_mass: Floats, right_mass: Floats
) -> Integers:
    """A distinct right side for each left side: the most likely assignment.

    A left side and its right side have the same rows, so their masses are evidence too. Arguments
    as for :func:`likely_right`. Negative where a left side has none.

    Source: Kuhn, "The Hungarian method for the assignment problem" (1955), as in scipy.
    """
    from scipy.optimize import linear_sum_assignment

    spread = _SIMILAR * (left_mass[:, None] + right_mass[None, right.present]) + _LEAST_SPREAD
    unlike = np.square((left_mass[:, None] - right_mass[None, right.present]) / spread)
    known = evidence[:, right.present]
    rows, columns = linear_sum_assignment(np.maximum(known - unlike, _NEVER), maximize=True)
    chosen = np.full(len(left_mass), -1, dtype=np.int64)
    there = np.isfinite(known[rows, columns])
    chosen[rows[there]] = right.present[columns[there]]
    return chosen


def ranked_right(right: Levels, left_mass: Floats, right_mass: Floats) -> Integers:
    """A distinct right side for each left side: the heaviest for the heaviest, and so on.

    Arguments and result as for :func:`one_to_one_right`, for more pairs than can be compared.
    """
    both = min(len(left_mass), len(right.present))
    chosen = np.full(len(left_mass), -1, dtype=np.int64)
    heaviest = np.argsort(-right_mass[right.present], kind="stable")
    chosen[np.argsort(-left_mass, kind="stable")[:both]] = right.present[heaviest[:both]]
    return chosen


def balanced_right(
    right: Levels, left_mass: Floats, right_mass: Floats, rng: np.random.Generator
) -> Integers:
    """Right sides for left sides without a joint statistic, which preserve the right shares.

    Left sides, in random order, fill the right sides (size,) in proportion to their mass; result
    (lefts,).
    """
    order = rng.permutation(len(left_mass))
    ordered = left_mass[order] + _LEAST_MASS
    middle = (np.cumsum(ordered) - ordered / 2) / ordered.sum()
    shares = right_mass[right.present] + _LEAST_MASS
    positions = np.searchsorted(np.cumsum(shares) / shares.sum(), middle)
    chosen = np.empty(len(order), dtype=np.int64)
    chosen[order] = right.present[np.minimum(positions, len(right.present) - 1)]
    return chosen
