"""What a constraint is recognised as."""

from __future__ import annotations

import pytest

from cloister.constraints import (
    DenialConstraint,
    Op,
    OrderRule,
    functional_dependency,
    key_attributes,
    order_rule,
    parse_denial,
)


def rule(text: str) -> DenialConstraint:
    return parse_denial(text, "r")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t1.a = t2.a and t2.b = t1.b and t2.c != t1.c", (("a", "b"), "c")),
        ("t1.a = t2.a and t1.a = t2.a and t1.c != t2.c", (("a",), "c")),
        ("t1.c != t2.c", ((), "c")),
        ("t1.a = t2.a and t1.a != t2.a", None),
        ("t1.a = t2.b and t1.c != t2.c", None),
        ("t1.a = t2.a and t1.c != 3", None),
        ("t1.a = t2.a and t1.b != t2.b and t1.c != t2.c", None),
        ("t1.a = t2.a and t1.c < t2.c", None),
        ("t1.a = t2.a", None),
        ("t.a != 3", None),
    ],
)
def test_functional_dependency(text: str, expected: object) -> None:
    assert functional_dependency(rule(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t1.a = t2.a and t2.b = t1.b", ("a", "b")),
        ("t1.a = t2.b", None),
        ("t1.a = t2.a and t1.b != t2.b", None),
        ("t1.a = t2.a and t1.b = 3", None),
        ("t.a = 3", None),
    ],
)
def test_key(text: str, expected: object) -> None:
    assert key_attributes(rule(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t1.a > t2.a and t1.b < t2.b", OrderRule((), "a", Op.GT, "b", Op.LT)),
        ("t1.a <= t2.a and t1.b < t2.b and t1.e = t2.e", OrderRule(("e",), "a", Op.GE, "b", Op.GT)),
        ("t2.a < t1.a and t1.b <= t2.b", OrderRule((), "a", Op.GT, "b", Op.LE)),
        ("t1.a > t2.a and t1.a < t2.a", None),
        ("t1.a > t2.a", None),
        ("t1.a > t2.b and t1.b < t2.b", None),
        ("t1.a > t2.a and t1.b < t2.b and t1.c < t2.c", None),
        ("t1.a > t2.a and t1.b < t2.b and t1.c != t2.c", None),
    ],
)
def test_order_rule(text: str, expected: object) -> None:
    assert order_rule(rule(text)) == expected


def test_unary() -> None:
    assert rule("t.a = 1 and t.a < t.b").arity == 1
    assert rule("t1.a = t2.a").arity == 2
