"""What a constraint is recognised as."""

import pytest

from cloister.constraints import (
    Op,
    OrderRule,
    functional_dependency,
    key_attributes,
    order_rule,
    parse_denial,
)

DEPENDENCIES = {
    "t1.a = t2.a and t2.b = t1.b and t2.c != t1.c": (("a", "b"), "c"),
    "t1.a = t2.a and t1.a = t2.a and t1.c != t2.c": (("a",), "c"),
    "t1.c != t2.c": ((), "c"),
    "t1.a = t2.a and t1.a != t2.a": None,
    "t1.a = t2.b and t1.c != t2.c": None,
    "t1.a = t2.a and t1.c != 3": None,
    "t1.a = t2.a and t1.b != t2.b and t1.c != t2.c": None,
    "t1.a = t2.a and t1.c < t2.c": None,
    "t1.a = t2.a": None,
    "t.a != 3": None,
}
KEYS = {
    "t1.a = t2.a and t2.b = t1.b": ("a", "b"),
    "t1.a = t2.b": None,
    "t1.a = t2.a and t1.b != t2.b": None,
    "t1.a = t2.a and t1.b = 3": None,
    "t.a = 3": None,
}
ORDERS = {
    "t1.a > t2.a and t1.b < t2.b": OrderRule((), "a", Op.GT, "b", Op.LT),
    "t1.a <= t2.a and t1.b < t2.b and t1.e = t2.e": OrderRule(("e",), "a", Op.GE, "b", Op.GT),
    "t2.a < t1.a and t1.b <= t2.b": OrderRule((), "a", Op.GT, "b", Op.LE),
    "t1.a > t2.a and t1.a < t2.a": None,
    "t1.a > t2.a": None,
    "t1.a > t2.b and t1.b < t2.b": None,
    "t1.a > t2.a and t1.b < t2.b and t1.c < t2.c": None,
    "t1.a > t2.a and t1.b < t2.b and t1.c != t2.c": None,
}
SHAPES = {functional_dependency: DEPENDENCIES, key_attributes: KEYS, order_rule: ORDERS}


@pytest.mark.parametrize("recognised", SHAPES)
def test_a_constraint_is_recognised_as_what_it_is(recognised) -> None:
    shapes = SHAPES[recognised]
    assert {text: recognised(parse_denial(text, "r")) for text in shapes} == shapes


def test_unary() -> None:
    assert parse_denial("t.a = 1 and t.a < t.b", "r").arity == 1
    assert parse_denial("t1.a = t2.a", "r").arity == 2
