"""What follows from rules on single rows, by the declared domain."""

import pytest
from declared_table import domain_of

from cloister.constraints import parse_check, parse_denial
from cloister.constraints.consistency import follows
from cloister.schema.attributes import Categorical, Integer

NUMBER = Integer(type="integer", min=0, max=90, nullable=True)
DOMAIN = domain_of(
    a=NUMBER.model_copy(update={"nullable": False}),
    b=NUMBER,
    c=NUMBER,
    kind=Categorical(type="categorical", values=["new", "sent", "there"]),
)


def rules(*texts):
    return [parse_denial(text, f"r{number}") for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("known", "rule", "expected"),
    [
        (["t.a > t.b", "t.b > 50"], "t.a > 60", False),
        (["t.a > t.b", "t.b > 50", "t.b is missing"], "t.a > 50", True),
        (["t.a > t.b", "t.b > 50", "t.b is missing"], "t.a > 49", False),
        (["t.b is missing and t.kind != 'new'", "t.kind = 'new'"], "t.b is missing", True),
        (["t.b is missing and t.c is not missing"], "t.c is not missing and t.b is missing", True),
        (["t.b is missing and t.c is not missing"], "t.b is missing", False),
        ([], "t.a > 90", True),
        ([], "t.b > 90 and t.b is not missing", True),
    ],
)
def test_rules_that_follow_are_known(known, rule, expected):
    assert follows(*rules(rule), rules(*known), DOMAIN) is expected


def test_checks_of_one_column_say_of_two_others_which_is_there():
    nullable = {"b", "c"}
    checks = (
        "t.b is missing exactly if t.kind = 'new'",
        "t.c is not missing exactly if t.kind = 'there'",
    )
    said = [check for text in checks for check in parse_check(text, text, nullable)]
    assert follows(*rules("t.b is missing and t.c is not missing"), said, DOMAIN)
    assert not follows(*rules("t.c is missing and t.b is not missing"), said, DOMAIN)
