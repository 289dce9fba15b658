"""Constraints as text: what is read, what is refused, and that printing and reading are inverse."""

import datetime as dt

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cloister.constraints.declared import format_holoclean, parse_holoclean
from cloister.constraints.denial import Cell, Constant, DenialConstraint, Op, Predicate
from cloister.constraints.offsets import Offset, OffsetUnit
from cloister.constraints.text import (
    dependency,
    format_denial,
    format_dependency,
    key,
    parse_denial,
    parse_dependency,
)
from cloister.errors import ConstraintError

characters = st.characters(exclude_categories=["Cs", "Cc"])
odd_names = st.text(characters, min_size=1, max_size=12).filter(lambda name: name == name.strip())
UGLY = ["capital-gain", "my col", "a`b", "driver's age", 'the "x"', "Income (USD)", "a,b", "a&b"]
names = st.one_of(odd_names, st.sampled_from([*UGLY, "t2.x", "größe", "x->y"]))
numbers = st.one_of(
    st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False)
)
texts = st.text(characters, max_size=12)
constants = st.one_of(st.booleans(), numbers, texts)


def rules(
    constants: st.SearchStrategy[Constant], *, shifted: bool = False
) -> st.SearchStrategy[DenialConstraint]:
    amounts = st.integers(1, 99) | st.integers(-99, -1) | st.sampled_from([0.5, -1.25])
    offsets = st.none() | st.builds(Offset, amounts, st.sampled_from(OffsetUnit))
    shifts = {"offset": offsets, "whole_day": st.booleans()} if shifted else {}
    cells = st.builds(Cell, st.sampled_from([1, 2]), names, **shifts)
    predicates = st.builds(Predicate, cells, st.sampled_from(Op), st.one_of(cells, constants))
    several = st.lists(predicates, min_size=1, max_size=4).map(tuple)
    rule = st.builds(DenialConstraint, st.just("r"), several)
    return rule.filter(lambda r: any(cell.row == 1 for p in r.predicates for cell in p.cells))


@given(rules(constants, shifted=True))
def test_denial_text_round_trip(rule: DenialConstraint) -> None:
    read = parse_denial(format_denial(rule), "r")
    assert read == rule
    assert [type(p.right) for p in read.predicates] == [type(p.right) for p in rule.predicates]


@given(rules(texts))
def test_holoclean_round_trip(rule: DenialConstraint) -> None:
    assert parse_holoclean(format_holoclean(rule), "here") == rule.predicates


@given(st.lists(names, min_size=2, max_size=6, unique=True), st.integers(1, 5))
def test_dependency_round_trip(attributes: list[str], cut: int) -> None:
    assume(cut < len(attributes))
    left, right = tuple(attributes[:cut]), tuple(attributes[cut:])
    assert parse_dependency(format_dependency(left, right), "r") == (left, right)


def test_denial_of_two_rows() -> None:
    rule = parse_denial("t1.capital-gain > t2.capital-gain AND t1.`my col`<>t2.b", "r", hard=False)
    gain = Predicate(Cell(1, "capital-gain"), Op.GT, Cell(2, "capital-gain"))
    other = Predicate(Cell(1, "my col"), Op.NE, Cell(2, "b"))
    assert rule == DenialConstraint("r", (gain, other), hard=False)


@pytest.mark.parametrize("row", ["t", "t1", "t2"])
def test_denial_of_one_row(row: str) -> None:
    rule = parse_denial(
        f"{row}.age < 18 and {row}.income = 'it''s' and {row}.ok == TRUE and 1.5e3 >= {row}.x", "r"
    )
    assert [(p.left, p.op, p.right) for p in rule.predicates] == [
        (Cell(1, "age"), Op.LT, 18),
        (Cell(1, "income"), Op.EQ, "it's"),
        (Cell(1, "ok"), Op.EQ, True),
        (Cell(1, "x"), Op.LE, 1500.0),
    ]
    assert rule.arity == 1
    born = DenialConstraint("r", (Predicate(Cell(1, "born"), Op.GT, dt.date(2020, 1, 31)),))
    assert format_denial(born) == "t.born > '2020-01-31'"


def test_names_with_dashes_and_spaces_in_a_dependency_need_no_quotes() -> None:
    for text in ("education->education-num", " education  -> `education-num` "):
        assert parse_dependency(text, "r") == (("education",), ("education-num",))
    assert parse_dependency("Pay Grade, D1. Age (y) ->Job  Title, `x, y` ", "r") == (
        ("Pay Grade", "D1. Age (y)"),
        ("Job  Title", "x, y"),
    )


def test_dependency_and_key_as_rules() -> None:
    equal = Predicate(Cell(1, "a"), Op.EQ, Cell(2, "a"))
    differ = Predicate(Cell(1, "b"), Op.NE, Cell(2, "b"))
    assert dependency("r", ["a"], "b").predicates == (equal, differ)
    assert key("r", ["a"]).predicates == (equal,)
    for attributes in ([], ["a", "a"]):
        with pytest.raises(ConstraintError, match="constraint 'k'"):
            key("k", attributes)


NO_RULES = [
    *("", "t1.a", "t1.a <", "age < 18", "1 < 2", "t1.a = t2.a and", "t1.a = t2.a, t1.b = t2.b"),
    *("t1.a ~ 3", "t3.a = 1", "t1.a = 'open", "t1.a = 12abc", "t1.a < t2.a < 3"),
]
NO_DEPENDENCIES = [
    *("", "a, b", "a ->", "-> b", "a -> a", "a, a -> b", "a, -> b", "a -> b -> c"),
    *("`a`b -> c", "a -> b, , c"),
]


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((parse_denial, text) for text in NO_RULES),
        *((parse_dependency, text) for text in NO_DEPENDENCIES),
    ],
)
def test_text_that_is_no_rule_or_dependency_is_refused(parse, text: str) -> None:
    with pytest.raises(ConstraintError, match="constraint 'minors'"):
        parse(text, "minors")


def test_holoclean_lines() -> None:
    both = parse_holoclean("t1&t2&EQ(t1.a.b,t2.a.b)&IQ( t1.Income (USD) , t2.Income (USD) )", "x")
    assert both == (
        Predicate(Cell(1, "a.b"), Op.EQ, Cell(2, "a.b")),
        Predicate(Cell(1, "Income (USD)"), Op.NE, Cell(2, "Income (USD)")),
    )
    assert parse_holoclean("t1&t2&GT(t1.driver's age,t2.`a,b`)", "x") == (
        Predicate(Cell(1, "driver's age"), Op.GT, Cell(2, "a,b")),
    )
    assert parse_holoclean("t1&LT(t1.age,'18')", "x") == (Predicate(Cell(1, "age"), Op.LT, "18"),)
    assert parse_holoclean('t2&GTE("a ""b""",t2.x)', "x") == (
        Predicate(Cell(1, "x"), Op.LE, 'a "b"'),
    )
    assert parse_holoclean("t1&LTE(t1.x,-2.5)&EQ(t1.y,t1.z)", "x") == (
        Predicate(Cell(1, "x"), Op.LE, -2.5),
        Predicate(Cell(1, "y"), Op.EQ, Cell(1, "z")),
    )


@pytest.mark.parametrize(
    "line",
    ["t1&t2", "EQ(t1.a,t2.a)", "t1&t2&EQ(t1.a)", "t1&t2&LIKE(t1.a,t2.a)", "t1&EQ(t1.a,t2.a)",
     "t1&EQ('a','b')", "t1&t2&EQ(t1.a,t2.a)&", "t1&t2&EQ(t1.a,t2.a) IQ(t1.b,t2.b)",
     "t1&t2&EQ(a,b)"],
)  # fmt: skip
def test_lines_that_are_not_holoclean_are_refused_with_their_place(line: str) -> None:
    with pytest.raises(ConstraintError, match=r"rules\.ic, line 3"):
        parse_holoclean(line, "rules.ic, line 3")
    with pytest.raises(ConstraintError, match="line break"):
        format_holoclean(DenialConstraint("r", (Predicate(Cell(1, "a"), Op.EQ, "x\ny"),)))
