"""Hard rules that order two numbers of a row, and what follows from them; public."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cloister.constraints import DenialConstraint, bind
from cloister.constraints.consistency import follows
from cloister.constraints.denial import Cell, Constant, Op, Predicate
from cloister.models.task import Task
from cloister.schema.attributes import Datetime
from cloister.schema.columns import Grid
from cloister.schema.domain import Domain
from cloister.schema.ticks import float_decimals, is_month, values_of_ticks


def ordered(rule: DenialConstraint) -> tuple[str, str, int] | None:
    """The less and the greater number of a rule on one row, and their least difference in ticks."""
    if len(rule.predicates) != 1 or rule.arity != 1:
        return None
    predicate = rule.predicates[0]
    left, op, right = predicate.left, predicate.op, predicate.right
    if not isinstance(right, Cell) or left.attribute == right.attribute or not op.is_order:
        return None
    names = (left.attribute, right.attribute)
    less, greater = names if op in (Op.GT, Op.GE) else names[::-1]
    return less, greater, int(op in (Op.GE, Op.LE))


def ordered_pair(rule: DenialConstraint, task: Task) -> tuple[Grid, Grid, int] | None:
    """The same as columns, if they are on one scale."""
    names = ordered(rule)
    less, greater = (task.domain[name] for name in names[:2]) if names else (None, None)
    if names is None or not isinstance(less, Grid) or not isinstance(greater, Grid):
        return None
    return (less, greater, names[2]) if _scale(less) == _scale(greater) else None


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


def _leads(less: str, greater: str, least: int, task: Task, before: tuple[str, ...] = ()) -> bool:
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
        further = step != greater and is_there(step, greater, task)
        if further and _leads(step, greater, apart, task, (*before, less)):
            return True
    return False


def _with_bounds(task: Task) -> Task:
    """The task with bounds such that each value of an ordered number allows one of the other."""
    orders = [rule for rule in task.hard if ordered_pair(rule, task)]
    bounded = task
    for rule in orders * len(orders):  # a bound may move along a chain of orders
        bounded = replace(
            bounded, constraints=(*bounded.constraints, *_implied_bounds(rule, bounded))
        )
    return bounded


def _implied_bounds(rule: DenialConstraint, task: Task) -> Iterator[DenialConstraint]:
    """Bounds on the two numbers of an order, which rule out values that leave the other one none.

    If the other one may be missing alone, only bounds that rule out at most one value. None if
    there are special values off the grid, which may satisfy any order.
    """
    pair = ordered_pair(rule, task)
    assert pair is not None
    less, greater, least = pair
    low, high = bounded_ends(less, task), bounded_ends(greater, task)
    if low is None or high is None or less.beyond or greater.beyond:
        return
    for column, partner, cut, op in (
        (less, greater, high[1] - least, Op.GT),
        (greater, less, low[0] + least, Op.LT),
    ):
        first, last = low if column is less else high
        over = last - cut if op is Op.GT else cut - first
        free = is_there(partner.name, column.name, task) or over <= column.stride
        if over > 0 and first <= cut <= last and free:
            bound = Predicate(Cell(1, column.name), op, _constant(column, cut))
            yield DenialConstraint(f"{rule.name}, bound of {column.name}", (bound,))


def _constant(column: Grid, tick: int) -> Constant:
    """A tick of a column as a rule names it."""
    attribute = column.attribute
    value = values_of_ticks(attribute, np.array([tick]))[0][0]
    units = {"date": "datetime64[D]", "datetime": "datetime64[us]"}
    unit = units.get(attribute.type)
    constant: Constant = (value.astype(unit) if unit else value).item()
    return constant


def bounded_ends(column: Grid, task: Task) -> tuple[int, int] | None:
    """The ticks of the first and last value that all hard bounds of a number allow, if any does."""
    first, last = 0, column.steps - 1
    for rule in task.hard:
        if (bound := bound_of(rule, column)) is not None:
            first, last = max(first, bound[0]), min(last, bound[1])
    start, end = (column.origin + code * column.stride for code in (first, last))
    return (start, end) if first <= last else None


def bound_of(rule: DenialConstraint, column: Grid) -> tuple[int, int] | None:
    """The first and last fine code allowed by a rule that bounds a number by a constant.

    None for another rule.
    """
    if len(rule.predicates) != 1 or rule.attributes != (column.name,) or rule.arity != 1:
        return None
    (predicate,) = bind(rule, Domain((column,))).predicates
    cut, op = predicate.right, predicate.op
    if not isinstance(cut, float) or not op.is_order:
        return None

    def number(code: int) -> float:
        return float(column.comparable(np.array([code]))[0])

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
