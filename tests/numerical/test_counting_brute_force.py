"""Counting against loops over all pairs, on small random tables and random constraints."""

import itertools
import operator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from declared_table import domain_of
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloister.constraints import counting
from cloister.constraints.denial import Cell, DenialConstraint, Op, Predicate
from cloister.constraints.offsets import Offset, OffsetUnit
from cloister.schema.attributes import Boolean, Categorical, Date, Datetime, Float, Integer, Ordinal
from cloister.schema.domain import Domain, Table
from cloister.schema.scratch import scratch_table

NUMBERS, LISTED, RANKED = ("age-at start", "b", "c"), ("tag", "other tag"), ("grade",)
TIMES, FLAGS = ("day", "other day", "moment"), ("flag",)
LISTS = {
    "tag": ["x", "y", "z"],
    "other tag": ["w", "z", "y"],
    "grade": ["low", "mid", "high"],
    "day": ["2020-02-29"],
    "other day": ["2020-02-29"],
    "moment": ["2020-02-29 00:00:00"],
    "flag": [True, False],
}
DOMAIN = domain_of(
    **{"age-at start": Integer(type="integer", min=-2, max=2, nullable=True)},
    b=Integer(type="integer", min=-2, max=2),
    c=Float(type="float", min=-2, max=2, decimals=1, nullable=True),
    tag=Categorical(type="categorical", values=["x", "y", "z"], nullable=True),
    **{"other tag": Categorical(type="categorical", values=["w", "z", "y"])},
    grade=Ordinal(type="ordinal", values=["low", "mid", "high"], nullable=True),
    day=Date(type="date", min="2020-02-27", max="2020-03-02", nullable=True),
    **{"other day": Date(type="date", min="2020-02-28", max="2020-03-01")},
    moment=Datetime(
        type="datetime",
        min="2020-02-28T22:00:00",
        max="2020-02-29T03:00:00",
        step=3600,
        nullable=True,
    ),
    flag=Boolean(type="boolean", nullable=True),
)
COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EQUALITIES = [Op.EQ, Op.NE]


def shifted(cell: Cell) -> st.SearchStrategy[Cell]:
    """A cell as it is, or with an offset, or the day of a moment."""
    if cell.attribute in NUMBERS:
        amounts = st.sampled_from([None, 1, -2, 0.1, -0.3, 1.25])
        return amounts.map(lambda amount: replace(cell, offset=amount and Offset(amount)))
    if cell.attribute not in TIMES:
        return st.just(cell)
    offsets = st.builds(
        Offset, st.sampled_from([-13, -1, 1, 2, 12]), st.sampled_from([*OffsetUnit][1:])
    )
    whole = st.booleans() if cell.attribute == "moment" else st.just(False)
    return st.builds(replace, st.just(cell), offset=st.none() | offsets, whole_day=whole)


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    family = draw(st.sampled_from([NUMBERS, NUMBERS, LISTED, RANKED, TIMES, TIMES, FLAGS]))
    op = draw(st.sampled_from(EQUALITIES if family in (LISTED, FLAGS) else list(Op)))
    left = draw(shifted(Cell(draw(st.sampled_from([1, 2])), draw(st.sampled_from(family)))))
    if draw(st.integers(0, 3)) == 0:
        values = (
            st.integers(-2, 2)
            if family is NUMBERS
            else st.sampled_from(LISTS.get(left.attribute, [""]))
        )
        return Predicate(left, op, draw(values))
    other = draw(st.sampled_from([left.attribute, left.attribute, *family]))
    right = Cell(draw(st.sampled_from([1, 2, 3 - left.row])), other)
    return Predicate(left, op, draw(shifted(right)))


constraints = st.builds(
    DenialConstraint,
    st.just("rule"),
    st.lists(predicates(), min_size=1, max_size=4).map(tuple),
    st.booleans(),
)


@st.composite
def tables(draw: st.DrawFn, most: int = 12) -> Table:
    rows = draw(st.integers(0, most))
    seed = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([2, 100]))
    codes = {
        c.name: np.minimum(seed.integers(0, spread, rows), seed.integers(0, c.size, rows))
        for c in DOMAIN
    }
    return Table(DOMAIN, codes)


def records(table: Table) -> list[dict[str, object]]:
    return table.frame().astype(object).to_dict("records")


def value_of(cell: Cell, pair: dict[int, dict[str, object]]) -> Any:
    value: Any = pair[cell.row][cell.attribute]
    if pd.isna(value):
        return value
    if cell.whole_day:
        value = value.normalize()
    if cell.offset is None:
        return Decimal(str(value)) if cell.attribute in NUMBERS else value
    if cell.offset.unit is OffsetUnit.ONES:
        return Decimal(str(value)) + Decimal(str(cell.offset.amount))
    return value + pd.DateOffset(**{cell.offset.unit.value: cell.offset.amount})


def satisfies(predicate: Predicate, pair: dict[int, dict[str, object]]) -> bool:
    left, right = value_of(predicate.left, pair), predicate.right
    if isinstance(right, Cell):
        right = value_of(right, pair)
    if pd.isna(left) or pd.isna(right):
        return False
    if predicate.left.attribute == "grade":
        left, right = (LISTS["grade"].index(value) for value in (left, right))
    if isinstance(left, pd.Timestamp):
        right = pd.Timestamp(right)
    return COMPARE[predicate.op](left, right)


def violates(constraint: DenialConstraint, first: dict, second: dict) -> bool:
    return any(
        all(satisfies(p, pair) for p in constraint.predicates)
        for pair in ({1: first, 2: second}, {1: second, 2: first})
    )


def brute_per_row(constraint: DenialConstraint, table: Table) -> list[int]:
    rows = records(table)
    if constraint.arity == 1:
        return [int(violates(constraint, row, row)) for row in rows]
    counts = [0] * len(rows)
    for i, j in itertools.combinations(range(len(rows)), 2):
        if violates(constraint, rows[i], rows[j]):
            counts[i] += 1
            counts[j] += 1
    return counts


def same(row: int, attribute: str, op: str, other: str | None = None) -> Predicate:
    return Predicate(Cell(row, attribute), Op(op), Cell(3 - row, other or attribute))


FOUR_ORDERS = DenialConstraint(
    "r", (same(1, "b", "<"), same(1, "c", "<="), same(2, "b", ">", "c"), same(1, "grade", ">="))
)
CONTRADICTION = DenialConstraint("r", (same(1, "b", "<"), same(2, "b", "<")))
MASKS = DenialConstraint(
    "r", (Predicate(Cell(1, "b"), Op.GT, 0), Predicate(Cell(2, "tag"), Op.EQ, "y"))
)
SIDES = DenialConstraint(
    "r",
    (
        same(1, "tag", "="),
        same(1, "b", "<"),
        same(1, "c", ">"),
        Predicate(Cell(1, "tag"), Op.EQ, "y"),
        Predicate(Cell(2, "grade"), Op.NE, "low"),
    ),
)
SECOND = DenialConstraint("r", (Predicate(Cell(2, "b"), Op.GT, 0),))
DIFFERS = DenialConstraint("r", tuple(same(1, name, "!=") for name in ("b", "c", "tag", "grade")))


@settings(max_examples=examples(400))
@given(constraints, tables())
@example(FOUR_ORDERS, Table(DOMAIN, {c.name: np.arange(20) * 7 % c.size for c in DOMAIN}))
@example(CONTRADICTION, Table(DOMAIN, {c.name: np.arange(9) % c.size for c in DOMAIN}))
@example(MASKS, Table(DOMAIN, {c.name: np.arange(9) % c.size for c in DOMAIN}))
@example(SIDES, Table(DOMAIN, {c.name: np.arange(40) * 13 % c.size for c in DOMAIN}))
@example(SECOND, Table(DOMAIN, {c.name: np.arange(9) % c.size for c in DOMAIN}))
@example(DIFFERS, Table(DOMAIN, {c.name: np.arange(30) * 11 % c.size for c in DOMAIN}))
def test_counts_are_those_of_loops_over_all_pairs(constraint, table) -> None:
    expected = brute_per_row(constraint, table)
    total = sum(expected) // constraint.arity
    assert counting.violations_per_row(constraint, table).tolist() == expected
    assert counting.count_violations(constraint, table) == total
    ends = [0, table.rows // 3, table.rows // 2, table.rows]
    blocks = scratch_table([table.take(slice(*pair)) for pair in itertools.pairwise(ends)])
    for most in (counting._MERGED_ROWS, 1):
        with mock.patch.object(counting, "_MERGED_ROWS", most):
            assert counting.count_violations(constraint, blocks) == total
    whole = table.rows if constraint.arity == 1 else table.rows * (table.rows - 1) // 2
    assert counting.violation_share(constraint, table) == (Fraction(total, whole) if whole else 0)


@settings(max_examples=100)
@given(constraints, tables(), st.integers(0, 2**32 - 1))
def test_counts_do_not_depend_on_the_order_of_the_rows(constraint, table, seed) -> None:
    order = np.random.default_rng(seed).permutation(table.rows)
    counts = counting.violations_per_row(constraint, table)
    assert (counting.violations_per_row(constraint, table.take(order)) == counts[order]).all()


@pytest.mark.parametrize("orders", [1, 2, 3, 4])
def test_counts_of_many_orders_match_an_array_of_all_pairs(orders: int) -> None:
    rng = np.random.default_rng(orders)
    domain = Domain.of(
        {f"x{i}": Integer(type="integer", min=0, max=999) for i in range(orders)}, Path()
    )
    table = Table(domain, {name: rng.integers(0, 1000, 400) for name in domain.names})
    ops = [Op.LT, Op.GE, Op.LE, Op.GT][:orders]
    rule = DenialConstraint("r", tuple(same(1, f"x{i}", op) for i, op in enumerate(ops)))
    holds = np.ones((400, 400), dtype=bool)
    for i, op in enumerate(ops):
        holds &= COMPARE[op](table.codes[f"x{i}"][:, None], table.codes[f"x{i}"][None, :])
    np.fill_diagonal(holds, False)
    assert (counting.violations_per_row(rule, table) == (holds | holds.T).sum(axis=1)).all()


def test_zero_and_negative_zero_are_one_value() -> None:
    domain = Domain.of({"c": Float(type="float", min=-1, max=1, decimals=0)}, Path())
    table = domain.encode(pd.DataFrame({"c": [0.0, -0.0, 1.0]}))
    assert counting.count_violations(DenialConstraint("key", (same(1, "c", "="),)), table) == 1


def test_counts_larger_than_32_bits_are_exact() -> None:
    rows = 200_000
    domain = Domain.of({"b": Integer(type="integer", min=0, max=1)}, Path())
    table = Table(domain, {"b": np.zeros(rows, dtype=np.int64)})
    rule = DenialConstraint("key", (same(1, "b", "="),), hard=False)
    assert counting.count_violations(rule, table) == rows * (rows - 1) // 2
    (report,) = counting.violation_reports([rule], table)
    assert (report.name, report.hard, report.percent) == ("key", False, 100.0)
