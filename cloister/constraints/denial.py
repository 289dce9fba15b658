"""Denial constraints, bound to a domain: no row, or no pair of rows, may satisfy all predicates.

Source: Kamino (Ge, Mohapatra, He, Ilyas; VLDB 2021), section 2.1. A constraint over two rows is
violated by an unordered pair if either order of the pair satisfies all predicates. Missing values
compare as in SQL: no comparison holds on them, and ``is missing`` does. Beside a moment a date is
its midnight.

Each predicate of a bound constraint compares float64 numbers. Two columns of listed values are
compared by label: the labels of the right one are numbered as in the left one.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from cloister.arrays import Booleans, Floats
from cloister.constraints.offsets import Offset, Shift, shift_of
from cloister.errors import ConstraintError
from cloister.schema.attributes import Datetime
from cloister.schema.columns import Column
from cloister.schema.domain import Domain, Table

Constant = str | bool | int | float | dt.date | dt.datetime


class Op(StrEnum):
    """A comparison, written as in SQL."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def mirrored(self) -> Op:
        """The equivalent comparison with its two sides exchanged."""
        return _MIRRORED[self]

    @property
    def is_order(self) -> bool:
        """Whether the comparison needs an order of the values."""
        return self not in (Op.EQ, Op.NE)


NEGATED = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT}
"""The comparison that holds on two values where another does not."""

_MIRRORED = {Op.EQ: Op.EQ, Op.NE: Op.NE, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}


@dataclass(frozen=True)
class Cell:
    """An attribute of the first (1) or second (2) row of a pair, with an ``offset`` added.

    Of a moment it may be its ``whole_day``: the midnight before it.
    """

    row: int
    attribute: str
    offset: Offset | None = None
    whole_day: bool = False

    @property
    def plain(self) -> Cell:
        """The cell itself, without an offset."""
        return Cell(self.row, self.attribute)

    @property
    def exchanged(self) -> Cell:
        """The same cell of the other row of the pair."""
        return replace(self, row=3 - self.row)


@dataclass(frozen=True)
class Predicate:
    """``left op right``; the right side is a cell, a constant, or None for ``missing``.

    ``=`` None stands for ``is missing``, ``!=`` None for ``is not missing``.
    """

    left: Cell
    op: Op
    right: Cell | Constant | None

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The one or two cells that are compared."""
        return (self.left, self.right) if isinstance(self.right, Cell) else (self.left,)

    @property
    def negated(self) -> Predicate:
        """The predicate that holds where this one does not, missing values apart."""
        return Predicate(self.left, NEGATED[self.op], self.right)


@dataclass(frozen=True)
class KnownFigure:
    """What is known of a soft constraint without the data: a ``weight`` or a ``rate``.

    The weight is the cost of one violation in nats, the rate a share of pairs of rows, or of rows.
    """

    weight: float | None = None
    rate: float | None = None
    provenance: str | None = None


@dataclass(frozen=True)
class DenialConstraint:
    """A named rule ``not (P1 and ... and Pm)`` over one or two rows.

    Hard (no violation) or soft, with a ``known`` weight or rate or one that is to be measured.
    ``provenance`` is where it is declared to come from, and ``sentence`` the check that it stands
    for, maybe with others: neither is part of the rule.
    """

    name: str
    predicates: tuple[Predicate, ...]
    hard: bool = True
    known: KnownFigure | None = None
    provenance: str = field(default="", compare=False)
    sentence: str = field(default="", compare=False)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that take part, each once, in order of appearance."""
        return tuple(dict.fromkeys(cell.attribute for p in self.predicates for cell in p.cells))

    @property
    def arity(self) -> int:
        """1 for a rule on single rows, 2 for a rule on pairs."""
        return len({cell.row for p in self.predicates for cell in p.cells})


_COMPARE: dict[Op, Callable[[Any, Any], Any]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}


def holds(op: Op, left: Floats, right: Floats | float | None) -> Booleans:
    """Where ``left op right`` holds, elementwise with broadcasting; nowhere if either is NaN.

    With None on the right, where the left is NaN (``=``) or is not (``!=``).
    """
    if right is None:
        missing: Booleans = np.isnan(left)
        return missing if op is Op.EQ else ~missing
    truth: Booleans = _COMPARE[op](left, right)
    return truth & ~np.isnan(left) & ~np.isnan(right) if op is Op.NE else truth


@dataclass(frozen=True)
class Operand:
    """A cell as a number.

    ``label_numbers`` (labels,) gives the numbers of its labels in another column's list; ``shift``
    leads from the number of a column to that which is compared.
    """

    row: int
    attribute: str
    label_numbers: Floats | None = field(default=None, compare=False, repr=False)
    shift: Shift | None = None

    def renumber(self, comparable: Floats) -> Floats:
        """The numbers to compare (n,), from the comparable numbers (n,) of the column."""
        if self.shift is not None:
            return self.shift.of(comparable)
        if self.label_numbers is None:
            return comparable
        present = ~np.isnan(comparable)
        numbers = np.full(len(comparable), np.nan)
        numbers[present] = self.label_numbers[comparable[present].astype(np.int64)]
        return numbers

    def of(self, table: Table) -> Floats:
        """The numbers to compare (n,), from a table of n rows."""
        return self.renumber(table.comparable(self.attribute))

    @property
    def exchanged(self) -> Operand:
        """The same cell of the other row of the pair."""
        return replace(self, row=3 - self.row)


@dataclass(frozen=True)
class BoundPredicate:
    """``left op right`` on numbers; None on the right stands for ``missing``."""

    left: Operand
    op: Op
    right: Operand | float | None

    @property
    def rows(self) -> frozenset[int]:
        """The rows of the pair that take part: 1, 2 or both."""
        return frozenset(side.row for side in (self.left, self.right) if isinstance(side, Operand))

    @property
    def exchanged(self) -> BoundPredicate:
        """The same predicate with the two rows of the pair exchanged."""
        right = self.right.exchanged if isinstance(self.right, Operand) else self.right
        return BoundPredicate(self.left.exchanged, self.op, right)

    @property
    def mirrored(self) -> BoundPredicate:
        """An equivalent predicate with its two cells exchanged.

        The predicate itself if its right side is no cell.
        """
        if not isinstance(self.right, Operand):
            return self
        return BoundPredicate(self.right, self.op.mirrored, self.left)

    def holds(self, first: Table, second: Table) -> Booleans:
        """Where it holds (n,) for row r of ``first`` as t1 with row r of ``second`` as t2."""
        tables = {1: first, 2: second}
        right = (
            self.right.of(tables[self.right.row]) if isinstance(self.right, Operand) else self.right
        )
        return holds(self.op, self.left.of(tables[self.left.row]), right)


@dataclass(frozen=True)
class BoundConstraint:
    """A denial constraint whose predicates compare numbers; ``arity`` 1 or 2 rows."""

    name: str
    predicates: tuple[BoundPredicate, ...]
    hard: bool
    arity: int

    def violation_mask(self, first: Table, second: Table) -> Booleans:
        """Where all predicates hold (n,), row by row: ``first`` as t1, ``second`` as t2."""
        truth = np.ones(first.rows, dtype=bool)
        for predicate in self.predicates:
            truth &= predicate.holds(first, second)
        return truth


def bind(constraint: DenialConstraint, domain: Domain) -> BoundConstraint:
    """The constraint on the numbers of a domain; one on the second row alone moves to the first.

    Raises:
        ConstraintError: an attribute is unknown, or values are compared that cannot be: an order of
            unordered values, a number with text, a constant of another type or outside the list of
            values; or one ``is missing`` that never is.
    """
    if not constraint.predicates:
        raise ConstraintError(
            f"constraint '{constraint.name}': has no predicate; write at least one comparison"
        )
    predicates = tuple(
        _bind(predicate, domain, constraint.name) for predicate in constraint.predicates
    )
    if all(predicate.rows == {2} for predicate in predicates):
        predicates = tuple(predicate.exchanged for predicate in predicates)
    return BoundConstraint(constraint.name, predicates, constraint.hard, constraint.arity)


def presence_rules(
    constraints: Iterable[DenialConstraint], domain: Domain
) -> tuple[BoundConstraint, ...]:
    """The hard rules on one row that say when a cell is missing, as ``nullable`` does.

    They are declared of the data too.

    Raises:
        ConstraintError: one does not fit the domain.
    """
    return tuple(
        bind(rule, domain)
        for rule in constraints
        if rule.hard and rule.arity == 1 and any(p.right is None for p in rule.predicates)
    )


def _bind(predicate: Predicate, domain: Domain, name: str) -> BoundPredicate:
    left = _column(predicate.left, domain, name)
    if isinstance(predicate.right, Cell):
        right = _column(predicate.right, domain, name)
        _require_comparable(left, predicate.op, right, name)
        first = _operand(predicate.left, left, right, name)
        second = _operand(predicate.right, right, left, name)
        return BoundPredicate(
            first, predicate.op, replace(second, label_numbers=_label_numbers(left, right))
        )
    operand = _operand(predicate.left, left, left, name)
    if predicate.right is None:
        _require_nullable(left, name)
        return BoundPredicate(operand, predicate.op, None)
    _require_ordered(left, predicate.op, name)
    return BoundPredicate(operand, predicate.op, _constant(left, predicate.right, name))


def _column(cell: Cell, domain: Domain, name: str) -> Column:
    if cell.attribute not in domain:
        raise ConstraintError(
            f"constraint '{name}': no attribute '{cell.attribute}'; declare it or correct the name"
        )
    return domain[cell.attribute]


def _operand(cell: Cell, column: Column, partner: Column, name: str) -> Operand:
    """The number that a cell is compared by, with a cell of ``partner``."""
    beside_moment = isinstance(partner.attribute, Datetime)
    shift = shift_of(column, cell.offset, cell.whole_day, beside_moment, name)
    return Operand(cell.row, column.name, shift=shift)


def _constant(column: Column, value: Constant, name: str) -> float:
    """The number of a constant.

    Text that the column does not take is tried as a number, since HoloClean quotes both.
    """
    refusals = []
    for reading in _readings(value):
        try:
            return column.constant(reading)
        except ConstraintError as refusal:
            refusals.append(refusal)
    raise ConstraintError(f"constraint '{name}': {refusals[0]}")


def _readings(value: Constant) -> list[Constant]:
    if not isinstance(value, str):
        return [value]
    readings: list[Constant] = [value]
    for read in (int, float):
        with contextlib.suppress(ValueError):
            readings.append(read(value))
    return readings


def _require_comparable(left: Column, op: Op, right: Column, name: str) -> None:
    _require_ordered(left, op, name)
    _require_ordered(right, op, name)
    if left.name == right.name:
        return
    if _family(left) != _family(right) or "key" in (left.kind, right.kind):
        raise ConstraintError(
            f"constraint '{name}': compares '{left.name}' ({left.attribute.type}) with "
            f"'{right.name}' ({right.attribute.type}); compare columns of one type, or dates and "
            "timestamps"
        )
    if op.is_order and left.labels != right.labels:
        raise ConstraintError(
            f"constraint '{name}': orders '{left.name}' and '{right.name}', which list other "
            "values; declare the same list for both"
        )


def _require_nullable(column: Column, name: str) -> None:
    if column.kind == "key":
        raise ConstraintError(
            f"constraint '{name}': says when '{column.name}' is missing, a text key, which each "
            "synthetic row gets afresh; declare it of another type, or drop the rule"
        )
    if column.null_code is None:
        raise ConstraintError(
            f"constraint '{name}': says when '{column.name}' is missing, but it never is; write "
            "nullable: true at it, or drop the rule"
        )


def _require_ordered(column: Column, op: Op, name: str) -> None:
    if op.is_order and column.kind in ("nominal", "key"):
        raise ConstraintError(
            f"constraint '{name}': orders '{column.name}' with {op}, but its values have no order; "
            "use = or !=, or declare it ordinal"
        )


def _family(column: Column) -> str:
    """The class of columns that may be compared: listed values, numbers, or dates and moments."""
    if column.labels is not None:
        return "listed"
    families = {"integer": "number", "float": "number", "date": "time", "datetime": "time"}
    return families.get(column.attribute.type, column.attribute.type)


def _label_numbers(left: Column, right: Column) -> Floats | None:
    if left.labels is None or right.labels is None or left.labels == right.labels:
        return None
    positions = {label: float(position) for position, label in enumerate(left.labels)}
    return np.array(
        [positions.get(label, float(-1 - position)) for position, label in enumerate(right.labels)]
    )


@dataclass(frozen=True)
class ViolationReport:
    """Violations of one constraint: rows or unordered pairs, and their share in percent."""

    name: str
    hard: bool
    violations: int
    percent: float
