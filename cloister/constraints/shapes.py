"""The shape of a denial constraint: a functional dependency, a key or an order rule."""

from __future__ import annotations

from dataclasses import dataclass

from cloister.constraints.denial import Cell, DenialConstraint, Op, Predicate

_Same = tuple[str, Op]
"""An attribute and the comparison ``t1.attribute op t2.attribute``."""


@dataclass(frozen=True)
class OrderRule:
    """A rule on two orders: no two rows that agree on ``equal`` satisfy both comparisons.

    They are ``t1.first first_op t2.first`` and ``t1.second second_op t2.second``. ``first_op`` is >
    or >=, ``second_op`` any of <, <=, >, >=.
    """

    equal: tuple[str, ...]
    first: str
    first_op: Op
    second: str
    second_op: Op


def functional_dependency(constraint: DenialConstraint) -> tuple[tuple[str, ...], str] | None:
    """Left attributes and right attribute of a functional dependency, else None.

    The left side is empty when the rule says that a column is constant.
    """
    same = _all_same(constraint)
    differ = [name for name, op in same if op is Op.NE]
    equal = tuple(name for name, op in same if op is Op.EQ)
    if len(differ) != 1 or len(equal) + 1 != len(same) or differ[0] in equal:
        return None
    return equal, differ[0]


def key_attributes(constraint: DenialConstraint) -> tuple[str, ...] | None:
    """The attributes on which no two rows may agree, else None."""
    same = _all_same(constraint)
    return tuple(name for name, _ in same) if same and all(op is Op.EQ for _, op in same) else None


def order_rule(constraint: DenialConstraint) -> OrderRule | None:
    """The constraint as equalities and exactly two order predicates, else None.

    Rows are exchanged so that the first order is > or >=.
    """
    same = _all_same(constraint)
    orders = [(name, op) for name, op in same if op.is_order]
    equal = tuple(name for name, op in same if op is Op.EQ)
    if len(orders) != 2 or len(equal) + 2 != len(same) or len({name for name, _ in orders}) != 2:
        return None
    if orders[0][1] in (Op.LT, Op.LE):
        orders = [(name, op.mirrored) for name, op in orders]
    return OrderRule(equal, *orders[0], *orders[1])


def _all_same(constraint: DenialConstraint) -> tuple[_Same, ...]:
    """All predicates as comparisons of one attribute between the two rows, without repetitions.

    Empty if one predicate has another form.
    """
    same = [_same(predicate) for predicate in constraint.predicates]
    return tuple(dict.fromkeys(s for s in same if s)) if all(same) else ()


def _same(predicate: Predicate) -> _Same | None:
    left, right = predicate.left, predicate.right
    if not isinstance(right, Cell) or left.attribute != right.attribute or left.row == right.row:
        return None
    return left.attribute, predicate.op if left.row == 1 else predicate.op.mirrored
