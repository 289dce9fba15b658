"""Contradictions among hard constraints, found from public inputs before anything is spent.

Constraints contradict each other if no row, or no two rows, of the domain satisfy all of them. This
is decided on a joint domain in which each attribute has, between any two constants, as many values
as cells that are compared with it: further values of that range satisfy the same predicates. A
joint domain of more than a million cells is not searched, and of a large group of constraints only
the thousand smallest sets. Rules with offsets are searched where they compare two columns of one
row; those with months, or days of moments, where all are in one direction. A reported contradiction
is real, but one may go unreported.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from cloister.arrays import Booleans, Floats
from cloister.constraints import denial
from cloister.constraints.text import key_attributes
from cloister.errors import ConstraintError
from cloister.figures import count_of
from cloister.schema.columns import Column, Grid
from cloister.schema.domain import Domain
from cloister.schema.ticks import is_month, ticks_per_unit

_MOST_CELLS = 1_000_000
"""Cells of the largest joint domain that is searched; it takes a byte for each."""

_MOST_SUBSETS = 1_000
"""Sets of constraints, the smallest first, that are searched in a group of linked constraints."""

_MOST_AXES = 64
"""Axes of an array, one for each attribute of each row: numpy's own limit since version 2."""

_Values = Mapping[str, Floats]
"""The numbers of each attribute that represent its domain."""


def require_consistent(
    constraints: Iterable[denial.DenialConstraint], domain: Domain, rows: int
) -> None:
    """Check that constraints fit the domain, and that ``rows`` rows can satisfy the hard ones.

    The inputs are public.

    Raises:
        ConstraintError: names the smallest set of constraints that contradict each other, or a key
            with fewer values than rows; or a constraint does not fit the domain.
    """
    every = tuple(constraints)
    for constraint in every:
        denial.bind(constraint, domain)
    hard = [constraint for constraint in every if constraint.hard]
    conflict = smallest_conflict(hard, domain, rows)
    if conflict:
        raise ConstraintError(_describe(conflict, rows))
    for constraint in hard:
        _require_capacity(constraint, domain, rows)


def smallest_conflict(
    constraints: Iterable[denial.DenialConstraint], domain: Domain, rows: int = 2
) -> tuple[str, ...]:
    """Names of a smallest set of constraints that no row, or no ``rows`` rows, can satisfy.

    Empty if none is found.

    Raises:
        ConstraintError: a constraint does not fit the domain.
    """
    bound = [denial.bind(constraint, domain) for constraint in constraints]
    if rows < 2 or not any(_can_deny_equal_rows(constraint) for constraint in bound):
        bound = [constraint for constraint in bound if constraint.arity == 1]
    for subset in itertools.chain.from_iterable(
        _suspects(group, domain) for group in _connected(bound)
    ):
        if _contradicts(subset, domain):
            return tuple(constraint.name for constraint in subset)
    return ()


def follows(
    rule: denial.DenialConstraint, constraints: Iterable[denial.DenialConstraint], domain: Domain
) -> bool:
    """Whether every row of a domain that satisfies the ``constraints`` satisfies a rule too.

    All are on single rows. False if the joint domain is too large to be searched.

    Raises:
        ConstraintError: a constraint does not fit the domain.
    """
    compared = (
        cell.plain
        for predicate in rule.predicates
        if predicate.right is not None
        for cell in predicate.cells
    )
    there = (
        denial.Predicate(cell, denial.Op.EQ, None)
        for cell in dict.fromkeys(compared)
        if domain[cell.attribute].null_code is not None
    )
    broken = (*(predicate.negated for predicate in rule.predicates), *there)
    denials = [
        denial.DenialConstraint(f"{rule.name} is broken", (predicate,)) for predicate in broken
    ]
    return _contradicts(
        [denial.bind(constraint, domain) for constraint in (*constraints, *denials)], domain
    )


def holds_for_equal_rows(constraint: denial.DenialConstraint, domain: Domain) -> bool:
    """Whether two rows that agree on everything can never violate a constraint as a pair."""
    return constraint.arity == 1 or not _can_deny_equal_rows(denial.bind(constraint, domain))


def key_capacity(attributes: Iterable[str], domain: Domain) -> int | None:
    """Number of rows that can differ on a key.

    None if one may be missing, since missing values never agree.
    """
    columns = [domain[name] for name in attributes]
    if any(column.null_code is not None for column in columns):
        return None
    return math.prod(column.values for column in columns)


def _require_capacity(constraint: denial.DenialConstraint, domain: Domain, rows: int) -> None:
    attributes = key_attributes(constraint)
    capacity = key_capacity(attributes, domain) if attributes else None
    if capacity is not None and capacity < rows:
        raise ConstraintError(
            f"constraint '{constraint.name}': its key has {count_of(capacity, 'value')} in the "
            f"declared domain for {count_of(rows, 'row')}; widen the domain, request fewer rows or "
            "drop the key"
        )


def _describe(names: Sequence[str], rows: int) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    subject = (
        f"constraint {listed}: no" if len(names) == 1 else f"constraints {listed}: together, no"
    )
    return (
        f"{subject} table of {count_of(rows, 'row')} over the declared domain can satisfy this; "
        "drop or correct a constraint, make it soft, or widen the domain"
    )


def _can_deny_equal_rows(constraint: denial.BoundConstraint) -> bool:
    """Whether two rows may violate a two-row rule though they agree on everything."""
    differing = (
        p.op in (denial.Op.NE, denial.Op.LT, denial.Op.GT) and _same_attribute(p)
        for p in constraint.predicates
    )
    return constraint.arity == 2 and not any(differing)


def _same_attribute(predicate: denial.BoundPredicate) -> bool:
    right = predicate.right
    return isinstance(right, denial.Operand) and right == replace(predicate.left, row=right.row)


def _attributes(constraint: denial.BoundConstraint) -> set[str]:
    return {operand.attribute for p in constraint.predicates for operand in _operands(p)}


def _operands(predicate: denial.BoundPredicate) -> tuple[denial.Operand, ...]:
    return (
        (predicate.left, predicate.right)
        if isinstance(predicate.right, denial.Operand)
        else (predicate.left,)
    )


def _connected(constraints: Sequence[denial.BoundConstraint]) -> list[list[denial.BoundConstraint]]:
    """The constraints in groups that share no attribute."""
    groups: list[tuple[set[str], list[denial.BoundConstraint]]] = []
    for constraint in constraints:
        touched = [group for group in groups if group[0] & _attributes(constraint)]
        merged = set.union(_attributes(constraint), *(names for names, _ in touched))
        members = [member for _, group in touched for member in group]
        groups = [group for group in groups if group not in touched] + [
            (merged, [*members, constraint])
        ]
    return [members for _, members in groups]


def _suspects(
    group: list[denial.BoundConstraint], domain: Domain
) -> Iterator[tuple[denial.BoundConstraint, ...]]:
    """The subsets of a group by size; none if the whole group is known to be consistent."""
    if _is_modest(group, domain) and not _contradicts(group, domain):
        return iter(())
    sizes = range(1, len(group) + 1)
    return itertools.islice(
        itertools.chain.from_iterable(itertools.combinations(group, k) for k in sizes),
        _MOST_SUBSETS,
    )


def _is_modest(constraints: Sequence[denial.BoundConstraint], domain: Domain) -> bool:
    if not all(_is_direct(constraints, names, domain) for names in _linked(constraints)):
        return False
    values = _stand_ins(constraints, domain)
    rows = max(constraint.arity for constraint in constraints)
    cells = math.prod(len(numbers) for numbers in values.values()) ** rows
    return cells <= _MOST_CELLS and len(values) * rows <= _MOST_AXES


def _contradicts(constraints: Sequence[denial.BoundConstraint], domain: Domain) -> bool:
    """Whether every cell of the joint domain violates one of the constraints.

    False if the joint domain is too large to be searched.
    """
    if not _is_modest(constraints, domain):
        return False
    values = _stand_ins(constraints, domain)
    rows = range(1, 1 + max(constraint.arity for constraint in constraints))
    axes = {cell: axis for axis, cell in enumerate(itertools.product(rows, values))}
    directed = [c.predicates for c in constraints] + [
        tuple(p.exchanged for p in c.predicates) for c in constraints
    ]
    allowed = np.ones([len(values[name]) for _, name in axes], dtype=bool)
    for predicates in directed:
        if all(operand.row in rows for p in predicates for operand in _operands(p)):
            allowed &= ~_violated(predicates, values, axes)
    return not bool(allowed.any())


def _violated(
    predicates: Sequence[denial.BoundPredicate],
    values: _Values,
    axes: Mapping[tuple[int, str], int],
) -> Booleans:
    violated: Booleans = np.ones([1] * len(axes), dtype=bool)
    for p in predicates:
        right = (
            _along_axis(p.right, values, axes) if isinstance(p.right, denial.Operand) else p.right
        )
        violated = violated & denial.holds(p.op, _along_axis(p.left, values, axes), right)
    return violated


def _along_axis(
    operand: denial.Operand, values: _Values, axes: Mapping[tuple[int, str], int]
) -> Floats:
    shape = [1] * len(axes)
    shape[axes[operand.row, operand.attribute]] = -1
    return operand.renumber(values[operand.attribute]).reshape(shape)


def _stand_ins(constraints: Sequence[denial.BoundConstraint], domain: Domain) -> _Values:
    """Numbers of each attribute that represent its domain in these constraints.

    NaN among them if it may be missing.
    """
    values = {}
    rows = max(constraint.arity for constraint in constraints)
    for linked in _linked(constraints):
        columns = [domain[name] for name in sorted(linked)]
        cuts, spare = _cuts(constraints, columns), rows * len(columns)
        sides = {column.name: _compared(column.name, constraints) for column in columns}
        if len(columns) > 1:
            numbers = [_near(column, sides[column.name], cuts, spare) for column in columns]
            cuts = cuts.union(
                number
                for column, near in zip(columns, numbers, strict=True)
                for side in sides[column.name]
                for number in side.renumber(near).tolist()
            )
        for column in columns:
            listed = len(columns) > 1 and column.labels is not None
            near = (
                column.comparable(np.arange(column.values))
                if listed
                else _near(column, sides[column.name], cuts, spare)
            )
            values[column.name] = _with_missing(column, near)
    return values


def _cuts(constraints: Sequence[denial.BoundConstraint], columns: Sequence[Column]) -> set[float]:
    """Constants and ends of columns, as numbers that are compared with each other."""
    cuts = _constants(constraints, {column.name for column in columns})
    ends = (
        side.renumber(_ends(column)).tolist()
        for column in columns
        for side in _compared(column.name, constraints)
    )
    return cuts.union(*ends)


def _compared(
    name: str, constraints: Sequence[denial.BoundConstraint]
) -> tuple[denial.Operand, ...]:
    """The sides of predicates on an attribute, each shift once."""
    sides = (
        replace(side, row=1)
        for constraint in constraints
        for predicate in constraint.predicates
        for side in _operands(predicate)
        if side.attribute == name
    )
    return tuple(dict.fromkeys(sides))


def _is_direct(
    constraints: Sequence[denial.BoundConstraint], names: set[str], domain: Domain
) -> bool:
    """Whether values near ends, constants and their images stand for all others of some columns.

    Not where sums of offsets may lead on, through a third column, to another row, or in a circle:
    there and back are sums the same for all values if offsets are, and one grid is in the other.
    """
    compared = [p for c in constraints for p in c.predicates if p.left.attribute in names]
    sides = [side for predicate in compared for side in _operands(predicate)]
    if not any(side.shift for side in sides):
        return True
    if len(names) > 2 or any(constraint.arity > 1 for constraint in constraints):
        return False
    pairs = [p for p in compared if isinstance(p.right, denial.Operand)]
    ops = [p.op if p.left.attribute == min(names) else p.op.mirrored for p in pairs]
    if all(op.is_order and op.value[0] == ops[0].value[0] for op in ops):
        return True
    steps = sorted(step for side in sides if (step := _step(side, domain[side.attribute])))
    even = len(steps) == len(sides)
    return even and all(step % steps[0] == 0 for step in steps)


def _step(side: denial.Operand, column: Column) -> Fraction | None:
    """What lies between neighbours among the numbers of a column; None if that varies."""
    shift = side.shift
    if not isinstance(column, Grid) or is_month(column.attribute):
        return None
    if shift is not None and not shift.is_constant:
        return None
    return (
        column.stride * (shift.factor if shift else 1) / Fraction(ticks_per_unit(column.attribute))
    )


def _linked(constraints: Sequence[denial.BoundConstraint]) -> list[set[str]]:
    """The attributes in classes that are compared with each other."""
    classes: list[set[str]] = []
    for p in (p for constraint in constraints for p in constraint.predicates):
        compared = {operand.attribute for operand in _operands(p)}
        touched = [names for names in classes if names & compared]
        classes = [names for names in classes if not names & compared] + [compared.union(*touched)]
    return classes


def _constants(constraints: Sequence[denial.BoundConstraint], names: set[str]) -> set[float]:
    predicates = (
        p for constraint in constraints for p in constraint.predicates if p.left.attribute in names
    )
    return {p.right for p in predicates if isinstance(p.right, float)}


def _ends(column: Column) -> Floats:
    return column.comparable(np.array([0, _steps(column) - 1]))


def _near(
    column: Column, sides: Iterable[denial.Operand], cuts: Iterable[float], spare: int
) -> Floats:
    """The first value that leads to each cut or above it, ``spare`` next ones, and special values.

    By each of the ``sides`` on which predicates compare the column.
    """
    steps = _steps(column)
    positions = (
        bisect.bisect_left(range(steps), cut, key=partial(_number, column, side))
        for side in sides
        for cut in cuts
    )
    near = {position + step for position in positions for step in range(spare + 1)}
    codes = sorted(code for code in near if code < steps)
    return column.comparable(np.array([*codes, *range(steps, column.values)], dtype=np.int64))


def _number(column: Column, side: denial.Operand, code: int) -> float:
    return float(side.renumber(column.comparable(np.array([code])))[0])


def _steps(column: Column) -> int:
    """Number of fine codes in increasing order, before special values."""
    return column.steps if isinstance(column, Grid) else column.values


def _with_missing(column: Column, numbers: Floats) -> Floats:
    return np.append(numbers, np.nan) if column.null_code is not None else numbers


def closure_of(names: Iterable[str], dependencies: Iterable[tuple[Iterable[str], str]]) -> set[str]:
    """All attributes that some attributes determine, themselves among them.

    ``dependencies`` are left attributes and a right one each.
    """
    closed, listed = set(names), list(dependencies)
    while more := {right for left, right in listed if closed.issuperset(left)} - closed:
        closed |= more
    return closed
