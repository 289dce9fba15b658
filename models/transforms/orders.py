"""Hard rules that order two numbers of a row, and what follows from them; public."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cloister.arrays import Integers
from cloister.constraints import DenialConstraint, bind
from cloister.constraints.consistency import follows
from cloister.constraints.denial import Cell, Constant, Op, Operand, Predicate
from cloister.constraints.offsets import Shift
from cloister.models.task import Task
from cloister.schema.attributes import Datetime
from cloister.schema.columns import Grid
from cloister.schema.domain import Domain
from cloister.schema.ticks import float_decimals, is_month, ticks_per_unit, values_of_ticks
from cloister.schema.written_moments import SECONDS_OF_DAY


@dataclass(frozen=True)
class OrderedCell:
    """A cell of an order, with what is added to it, on the scale of the order.

    That counts ticks of the finer of the two columns: ``per`` in one of this column.
    """

    cell: Cell
    column: Grid
    shift: Shift | None = None
    per: int = 1

    def on_scale(self, codes: Integers) -> Integers:
        """Ticks (n,) of fine codes (n,)."""
        ticks = self.column.ticks(codes)
        return (ticks if self.shift is None else self.shift.add(ticks)) * self.per

    def first_at(self, tick: int) -> int:
        """The first fine code that leads to a tick or beyond; the number of steps if none does."""
        codes = range(self.column.steps)
        return bisect.bisect_left(
            codes, tick, key=lambda code: int(self.on_scale(np.array([code]))[0])
        )

    @property
    def step(self) -> int:
        """Ticks of which all differences between values are multiples."""
        day = 0 if self.constant is not None or self.shift is None else self.shift.day
        return math.gcd(self.column.stride, day) * self.per

    @property
    def constant(self) -> int | None:
        """The ticks that are added to each value; None if they are not the same for all."""
        if self.shift is None:
            return 0
        return self.shift.added * self.per if self.shift.is_constant else None


@dataclass(frozen=True)
class Order:
    """A rule on the order of two numbers of a row, at least ``least`` (0 or 1) ticks apart."""

    rule: DenialConstraint
    less: OrderedCell
    greater: OrderedCell
    least: int


def ordered(rule: DenialConstraint) -> tuple[Cell, Cell, int] | None:
    """The less and the greater cell of a rule on one row, and their least difference in ticks."""
    if len(rule.predicates) != 1 or rule.arity != 1:
        return None
    predicate = rule.predicates[0]
    left, op, right = predicate.left, predicate.op, predicate.right
    if not isinstance(right, Cell) or left.attribute == right.attribute or not op.is_order:
        return None
    less, greater = (left, right) if op in (Op.GT, Op.GE) else (right, left)
    return less, greater, int(op in (Op.GE, Op.LE))


def order_of(rule: DenialConstraint, task: Task) -> Order | None:
    """The order that a rule says, if its numbers are on one scale."""
    cells = ordered(rule)
    if cells is None:
        return None
    (bound,) = bind(rule, task.domain).predicates
    assert isinstance(bound.right, Operand)
    shifts = {side.attribute: side.shift for side in (bound.left, bound.right)}
    less, greater = (task.domain[cell.attribute] for cell in cells[:2])
    if not isinstance(less, Grid) or not isinstance(greater, Grid):
        return None
    below = _side(cells[0], less, shifts[less.name], greater)
    above = _side(cells[1], greater, shifts[greater.name], less)
    return Order(rule, below, above, cells[2]) if below and above else None


def _side(cell: Cell, column: Grid, shift: Shift | None, partner: Grid) -> OrderedCell | None:
    """A column on a scale that holds all values of both; None if there is none."""
    attribute, per = column.attribute, 1
    if _scale(column) != _scale(partner):
        if {_scale(column)[0], _scale(partner)[0]} != {"date", "datetime"}:
            return None
        if attribute.type == "date":
            per = SECONDS_OF_DAY * round(ticks_per_unit(partner.attribute))
    if shift is not None and is_month(attribute):
        whole_months = Shift(1, added=shift.months)
        return None if shift.added else OrderedCell(cell, column, whole_months, per)
    if shift is not None and shift.units != ticks_per_unit(attribute):
        return None
    return OrderedCell(cell, column, shift, per)


def is_there(name: str, partner: str, task: Task) -> bool:
    """Whether hard rules imply that a number is never missing in a row that has the other one."""
    if task.domain[name].null_code is None:
        return True
    gone = Predicate(Cell(1, name), Op.EQ, None)
    alone = DenialConstraint("", (gone, Predicate(Cell(1, partner), Op.NE, None)))
    rules = (rule for rule in task.hard if rule.arity == 1)
    saying = (rule for rule in rules if _said_missing(rule).intersection({name, partner}))
    return task.domain[partner].null_code is not None and follows(alone, saying, task.domain)


def prepared(task: Task) -> Task:
    """The task without orders that follow from others, and with the bounds that orders imply."""
    return _with_bounds(_without_implied(task))


def _without_implied(task: Task) -> Task:
    """The task without hard orders that follow from others, as ``a > c`` in a chain a, b, c."""
    lean = task
    for rule in task.hard:
        rest = tuple(constraint for constraint in lean.constraints if constraint is not rule)
        fewer, order = replace(task, constraints=rest), ordered(rule)
        if order is not None and _leads(*order, fewer):
            lean = fewer
    return lean


def _leads(
    less: Cell, greater: Cell, least: int, task: Task, before: tuple[Cell, ...] = ()
) -> bool:
    """Whether hard orders lead from one number to another, at least ``least`` (0 or 1) apart.

    Through numbers that are present wherever the greater one is.
    """
    for rule in task.hard:
        order = ordered(rule)
        if order is None or order[0] != less or order[1] in before:
            continue
        step, apart = order[1], max(least - order[2], 0)
        if step == greater and not apart:
            return True
        further = step != greater and is_there(step.attribute, greater.attribute, task)
        if further and _leads(step, greater, apart, task, (*before, less)):
            return True
    return False


def _with_bounds(task: Task) -> Task:
    """The task with bounds such that each value of an ordered number allows one of the other."""
    orders = [order for rule in task.hard if (order := order_of(rule, task))]
    bounded = task
    for order in orders * len(orders):  # a bound may move along a chain of orders
        bounded = replace(
            bounded, constraints=(*bounded.constraints, *_implied_bounds(order, bounded))
        )
    return bounded


def _implied_bounds(order: Order, task: Task) -> Iterator[DenialConstraint]:
    """Bounds on the two numbers of an order, which rule out values that leave the other one none.

    If the other one may be missing alone, only bounds that rule out at most one value. None if
    there are special values off the grid, which may satisfy any order.
    """
    less, greater = order.less, order.greater
    low, high = bounded_ends(less.column, task), bounded_ends(greater.column, task)
    if low is None or high is None or less.column.beyond or greater.column.beyond:
        return
    lowest, highest = less.on_scale(np.array(low))[0], greater.on_scale(np.array(high))[1]
    for side, partner, cut, op in (
        (less, greater, less.first_at(highest - order.least + 1) - 1, Op.GT),
        (greater, less, greater.first_at(lowest + order.least), Op.LT),
    ):
        column, (first, last) = side.column, low if side is less else high
        over = last - cut if op is Op.GT else cut - first
        free = is_there(partner.column.name, column.name, task) or over <= 1
        if over > 0 and first <= cut <= last and free:
            tick = column.origin + cut * column.stride
            bound = Predicate(Cell(1, column.name), op, _constant(column, tick))
            yield DenialConstraint(f"{order.rule.name}, bound of {column.name}", (bound,))


def _constant(column: Grid, tick: int) -> Constant:
    """A tick of a column as a rule names it."""
    attribute = column.attribute
    value = values_of_ticks(attribute, np.array([tick]))[0][0]
    units = {"date": "datetime64[D]", "datetime": "datetime64[us]"}
    unit = units.get(attribute.type)
    constant: Constant = (value.astype(unit) if unit else value).item()
    return constant


def bounded_ends(column: Grid, task: Task) -> tuple[int, int] | None:
    """The first and the last fine code that all hard bounds of a number allow, if any does."""
    first, last = 0, column.steps - 1
    for rule in task.hard:
        if (bound := bound_of(rule, column)) is not None:
            first, last = max(first, bound[0]), min(last, bound[1])
    return (first, last) if first <= last else None


def bound_of(rule: DenialConstraint, column: Grid) -> tuple[int, int] | None:
    """The first and last fine code allowed by a rule that bounds a number by a constant.

    None for another rule.
    """
    if len(rule.predicates) != 1 or rule.attributes != (column.name,) or rule.arity != 1:
        return None
    (predicate,) = bind(rule, Domain((column,))).predicates
    side, cut, op = predicate.left, predicate.right, predicate.op
    if not isinstance(cut, float) or not op.is_order:
        return None

    def number(code: int) -> float:
        return float(side.renumber(column.comparable(np.array([code])))[0])

    find = bisect.bisect_left if op in (Op.LT, Op.GE) else bisect.bisect_right
    index = find(range(column.steps), cut, key=number)
    return (index, column.steps - 1) if op in (Op.LT, Op.LE) else (0, index - 1)


def _said_missing(rule: DenialConstraint) -> set[str]:
    """The attributes that a rule tests for being missing."""
    return {predicate.left.attribute for predicate in rule.predicates if predicate.right is None}


def _scale(column: Grid) -> tuple[str, int]:
    """The unit of a column's ticks."""
    attribute = column.attribute
    if isinstance(attribute, Datetime):
        return "datetime", attribute.tick_micros
    if is_month(attribute):
        return "month", 0
    return attribute.type, float_decimals(attribute) if attribute.type == "float" else 0
