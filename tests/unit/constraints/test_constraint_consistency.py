"""Contradictions among constraints that public inputs show."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tables import domain_of

from cloister.constraints import (
    Cell,
    DenialConstraint,
    Op,
    Predicate,
    bind,
    dependency,
    key,
    key_capacity,
    parse_denial,
    require_consistent,
    smallest_conflict,
)
from cloister.errors import ConstraintError
from cloister.schema.attributes import Categorical, Date, Float, Integer
from cloister.schema.domain import Domain, Table

DOMAIN = Domain.of(
    {
        "age": Integer(type="integer", min=0, max=100),
        "pay": Float(type="float", min=0, max=1e9, decimals=6),
        "sex": Categorical(type="categorical", values=["f", "m"]),
        "zip": Categorical(type="categorical", values=[f"z{i}" for i in range(20_000)]),
        "note": Categorical(type="categorical", values=["x"], nullable=True),
        "start": Date(type="date", min="2000-01-01", max="2020-12-31"),  # type: ignore[arg-type]
        "end": Date(type="date", min="2000-01-01", max="2020-12-31"),  # type: ignore[arg-type]
    },
    Path(),
)


def conflict(*texts: str, rows: int = 2) -> tuple[str, ...]:
    return smallest_conflict(
        [parse_denial(text, f"c{i}") for i, text in enumerate(texts)], DOMAIN, rows
    )


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["t.age >= 0"], ("c0",)),
        (["t.age > 0"], ()),
        (["t.pay < 0.5", "t.pay > 0.4"], ("c0", "c1")),
        (["t.pay < 0.4", "t.pay > 0.400001"], ()),
        (["t.age < 50", "t.age > 50", "t.age = 50", "t.sex = 'f'"], ("c0", "c1", "c2")),
        (["t.sex = 'f' and t.age < 18", "t.sex = 'm'", "t.age >= 18"], ("c0", "c1", "c2")),
        (["t.sex = 'f'", "t.zip = 'z7'", "t.sex = 'm'"], ("c0", "c2")),
        (["t.note = 'x'"], ()),
        (["t.start <= t.end", "t.start >= t.end"], ("c0", "c1")),
        (["t.start < t.end", "t.start > t.end", "t.start = '2010-05-05'"], ()),
        (["t1.age <= t2.age"], ("c0",)),
        (["t1.age = t2.age", "t1.age != t2.age"], ("c0", "c1")),
        (["t1.zip = t2.zip", "t1.sex = t2.sex"], ()),
        (["t1.age = t2.age", "t.age != 7"], ("c0", "c1")),
        (["t1.age < t2.age and t1.pay > t2.pay", "t1.zip = t2.zip and t1.sex != t2.sex"], ()),
    ],
)
def test_smallest_conflicts(texts: list[str], expected: tuple[str, ...]) -> None:
    assert conflict(*texts) == expected
    assert conflict("t1.age <= t2.age", rows=1) == ()  # rules on pairs do not bind a single row


def test_many_constraints_are_looked_at_in_bounded_time() -> None:
    chain = [dependency(f"d{i}", [f"c{i}"], f"c{i + 1}") for i in range(29)]
    assert smallest_conflict([*chain, key("k", ["c0", "c29"])], domain_of(*[3] * 30)) == ()


def test_a_contradiction_names_its_constraints_and_soft_ones_may_contradict() -> None:
    women, men = parse_denial("t.sex = 'f'", "no women"), parse_denial("t.sex = 'm'", "no men")
    with pytest.raises(ConstraintError, match="'no women', 'no men'"):
        require_consistent([women, men, key("k", ["zip"])], DOMAIN, 10)
    soft = [parse_denial("t.age >= 0", "r", hard=False), key("k", ["sex"], hard=False)]
    require_consistent(soft, DOMAIN, 10)


def test_a_key_needs_as_many_values_as_rows() -> None:
    assert key_capacity(["sex", "age"], DOMAIN) == 202
    assert key_capacity(["sex", "note"], DOMAIN) is None
    require_consistent([key("k", ["sex", "age"])], DOMAIN, 202)
    said = "'k': its key has 202 values in the declared domain for 203 rows"
    with pytest.raises(ConstraintError, match=said):
        require_consistent([key("k", ["sex", "age"])], DOMAIN, 203)


SMALL = Domain.of(
    {
        "a": Integer(type="integer", min=0, max=4, special=[9]),
        "b": Float(type="float", min=0, max=3, decimals=0, nullable=True),
        "tag": Categorical(type="categorical", values=["x", "y"]),
    },
    Path(),
)


@st.composite
def small_rules(draw: st.DrawFn) -> DenialConstraint:
    predicates = []
    for _ in range(draw(st.integers(1, 3))):
        tag = draw(st.integers(0, 3)) == 0
        left = Cell(draw(st.sampled_from([1, 2])), "tag" if tag else draw(st.sampled_from("ab")))
        op = draw(st.sampled_from([Op.EQ, Op.NE] if tag else list(Op)))
        second = Cell(draw(st.sampled_from([1, 2])), "tag" if tag else draw(st.sampled_from("ab")))
        constant = draw(st.sampled_from("xy")) if tag else draw(st.integers(-1, 5))
        predicates.append(Predicate(left, op, draw(st.sampled_from([second, constant]))))
    return DenialConstraint("r", tuple(predicates))


def satisfiable(rules: list[DenialConstraint], rows: int) -> bool:
    cells = np.array(list(itertools.product(*(range(column.size) for column in SMALL))))
    pairs = np.indices((len(cells),) * rows).reshape(rows, -1)[[0, -1]]
    sides = [Table(SMALL, dict(zip(SMALL.names, cells[side].T, strict=True))) for side in pairs]
    denied = np.zeros(pairs.shape[1], dtype=bool)
    for rule in rules:
        if rule.arity <= rows:
            bound = bind(rule, SMALL)
            denied |= bound.violation_mask(*sides) | bound.violation_mask(*sides[::-1])
    return not denied.all()


@settings(max_examples=examples(150))
@given(st.lists(small_rules(), min_size=1, max_size=4), st.sampled_from([1, 2]))
def test_a_conflict_is_found_if_and_only_if_the_whole_domain_has_none_to_offer(rules, rows):
    named = [DenialConstraint(f"c{i}", rule.predicates) for i, rule in enumerate(rules)]
    conflict = smallest_conflict(named, SMALL, rows)
    assert bool(conflict) != satisfiable(named, rows)
    if conflict:
        members = [rule for rule in named if rule.name in conflict]
        assert not satisfiable(members, rows)
        assert len(members) == 1 or satisfiable(members[1:], rows)
