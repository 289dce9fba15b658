"""Checks: sentences on a row that stand for denials, also of when an attribute is missing."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from declared_table import domain_of

from cloister import constraints
from cloister.errors import ConstraintError
from cloister.schema.attributes import Categorical, Integer, TextKey
from cloister.schema.domain import Table

WORDS = ["a", "b", "c"]
DOMAIN = domain_of(
    id=TextKey(type="text", pattern="R{0..99}"),
    left=Integer(type="integer", min=0, max=9, nullable=True),
    status=Categorical(type="categorical", values=WORDS),
    q6=Categorical(type="categorical", values=WORDS, nullable=True),
    q5=Integer(type="integer", min=0, max=2, nullable=True),
)
NULLABLE = ("left", "q6", "q5")
ROWS = list(itertools.product([None, 3], WORDS, [*WORDS, None], [0, 1, 2, None]))

Row = tuple[int | None, str, str | None, int | None]


def broken(check: str) -> list[bool]:
    """The rows of all kinds that break one of the denials of a check."""
    columns = pd.DataFrame(ROWS, columns=["left", "status", "q6", "q5"], dtype=object)
    table = Table(DOMAIN, {name: DOMAIN[name].encode(columns[name]) for name in columns})
    rules = constraints.parse_check(check, "r", NULLABLE)
    masks = [constraints.bind(rule, DOMAIN).violation_mask(table, table) for rule in rules]
    return [any(each) for each in zip(*masks, strict=True)]


MEANINGS: dict[str, Callable[[Row], bool]] = {
    "t.left is missing exactly if t.status = 'a'": lambda r: (r[0] is None) == (r[1] == "a"),
    "t.left is missing if t.status != 'a'": lambda r: r[0] is None or r[1] == "a",
    "t.left is not missing only if t.q6 = 'a'": lambda r: r[0] is None or r[2] == "a",
    "t.left is not missing exactly if t.q6 != 'a'": lambda r: (
        (r[0] is not None) == (r[2] not in (None, "a"))
    ),
    "t.left is null Exactly  If t.q6 = 'a' or t.q6 = 'b'": lambda r: (
        (r[0] is None) == (r[2] in ("a", "b"))
    ),
    "t.left is missing exactly if t.status = 'a' and t.q5 >= 1": lambda r: (
        (r[0] is None) == (r[1] == "a" and r[3] is not None and r[3] >= 1)
    ),
    "t.left is not missing exactly if t.q6 = 'b' or t.q5 < 1 or t.status = 'c'": lambda r: (
        (r[0] is not None) == (r[2] == "b" or (r[3] is not None and r[3] < 1) or r[1] == "c")
    ),
    "t.left is missing exactly if t.q6 is missing": lambda r: (r[0] is None) == (r[2] is None),
    "t.left is missing only if t.q6 is null or t.q5 is not missing": lambda r: (
        r[0] is not None or r[2] is None or r[3] is not None
    ),
    "t.left = 3 exactly if t.status = 'a'": lambda r: (r[0] == 3) == (r[1] == "a"),
    "t.q5 = 0 if and only if t.left = 3": lambda r: (r[3] == 0) == (r[0] == 3),
    "t.q5 != 0 if t.status = 'a' or t.left = 3": lambda r: (
        r[3] in (1, 2) or (r[1] != "a" and r[0] is None)
    ),
    "t.left > t.q5 only if t.q6 = 'a' and t.q5 < 2": lambda r: (
        r[0] is None or r[3] is None or (r[2] == "a" and r[3] < 2)
    ),
    "t.q5 >= 1 exactly if t.q6 is not missing": lambda r: (r[3] in (1, 2)) == (r[2] is not None),
}


@pytest.mark.parametrize("check", MEANINGS)
def test_a_check_is_broken_by_exactly_the_rows_that_break_its_sentence(check: str) -> None:
    assert broken(check) == [not MEANINGS[check](row) for row in ROWS]


def test_a_check_is_one_denial_for_each_direction() -> None:
    rules = constraints.parse_check(
        "t.left is missing exactly if t.status = 'a'", "leave", NULLABLE
    )
    assert [(rule.name, constraints.format_denial(rule)) for rule in rules] == [
        ("leave_1", "t.status = 'a' and t.left is not missing"),
        ("leave_2", "t.left is missing and t.status != 'a'"),
    ]
    (one,) = constraints.parse_check("t.left is missing if t.status = 'a'", "leave", NULLABLE)
    assert one.name == "leave"


def test_denials_of_missing_are_declared_again_as_they_were() -> None:
    declared = [
        constraints.ConstraintDeclaration(
            check="t.left is missing exactly if t.q6 = 'a'", name="leave"
        ),
        constraints.ConstraintDeclaration(
            deny="t1.left is missing and t2.q5 is not null", soft=True
        ),
    ]
    rules = constraints.constraints_of(declared, DOMAIN.names, Path(), domain=DOMAIN)
    again = [constraints.declaration_of(rule) for rule in rules]
    assert constraints.constraints_of(again, DOMAIN.names, Path()) == rules
    assert [rule.arity for rule in rules] == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("t.left = 3 when t.status = 'a'", "cannot read"),
        ("t.left is missing", "cannot read"),
        ("t.left is missing and t.q6 is missing if t.q5 = 1", "cannot read"),
        ("t.left is missing if t.q5 = 1 and t.q6 = 'a' or t.q6 = 'b'", "both and and or"),
        ("t1.left is missing if t2.q5 = 1", "on two rows"),
        ("t.left is missing if t.q5", "each part compares"),
        ("t.left is missing if t.q5 is 1", "each part compares"),
    ],
)
def test_other_sentences_are_refused(check: str, said: str) -> None:
    with pytest.raises(ConstraintError, match=said):
        constraints.parse_check(check, "r", NULLABLE)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("t.status is missing and t.q5 = 1", "'status' is missing, but it never is"),
        ("t.id is not missing and t.q5 = 1", "a text key"),
    ],
)
def test_what_is_never_missing_cannot_be_said_to_be(rule: str, said: str) -> None:
    with pytest.raises(ConstraintError, match=said):
        constraints.bind(constraints.parse_denial(rule, "r"), DOMAIN)


def test_contradictions_of_missing_are_found_and_it_has_no_form_of_holoclean() -> None:
    texts = ("t.left is missing", "t.left is not missing and t.q5 is missing", "t.q5 < 3")
    rules = [constraints.parse_denial(text, f"r{number}") for number, text in enumerate(texts)]
    constraints.require_consistent(rules[:2], DOMAIN, 10)
    with pytest.raises(ConstraintError, match="'r0', 'r1', 'r2'"):
        constraints.require_consistent(rules, DOMAIN, 10)
    with pytest.raises(ConstraintError, match="no HoloClean form"):
        constraints.format_holoclean(constraints.parse_denial("t.left is missing", "r"))
