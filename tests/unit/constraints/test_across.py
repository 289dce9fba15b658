"""Constraints across a foreign key: what they say, and that who refers to whom keeps them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.constraints.across import across_constraints
from cloister.errors import ConstraintError
from cloister.models.relational.placement import Compatibility, Placement
from cloister.models.transforms.unit_tables import on_one_row
from cloister.schema.attributes import Boolean, Categorical, Date, Integer, TextKey
from cloister.schema.declarations import ConstraintDeclaration
from cloister.schema.domain import Domain, Table
from cloister.schema.relations import Database, ForeignKey, Schema, parent_rows

KEY = TextKey(type="text", pattern="{1..99999}")
DAYS = {"type": "date", "min": "2000-01-01", "max": "2000-12-31"}
NATIONS = Categorical(type="categorical", values=["a", "b", "c"])
REVERSED = Categorical(type="categorical", values=["c", "b", "a"])
PAY, FLAG = Integer(type="integer", min=0, max=9), Boolean(type="boolean")
TABLES = {
    "customers": {"id": KEY, "since": Date(**DAYS, nullable=True), "nation": NATIONS},
    "orders": {"number": KEY, "customer": KEY, "placed on": Date(**DAYS), "nation": REVERSED},
    "staff": {
        "id": KEY,
        "boss": KEY.model_copy(update={"nullable": True}),
        "pay": PAY,
        "chief": FLAG,
    },
    "calls": {"caller": KEY, "called": KEY, "long": FLAG},
}
KEYS = (
    ForeignKey("orders", "customer", "customers", "id", 4),
    ForeignKey("staff", "boss", "staff", "id", 9, optional=True),
    ForeignKey("calls", "caller", "customers", "id", 9),
    ForeignKey("calls", "called", "customers", "id", 9),
)
SCHEMA = Schema(
    {name: Domain.of(attributes, Path()) for name, attributes in TABLES.items()},
    KEYS,
    ("customers",),
)
NATION, OTHER = "orders.nation", "customers.nation"
LATE = "orders.`placed on` < customers.since"
SOON = "orders.`placed on` - 1 month > customers.since + 10 days"


def declared(*texts: str):
    return across_constraints([ConstraintDeclaration(deny=text) for text in texts], SCHEMA)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (LATE, "customer"),
        ("customers.since > orders.`placed on`", "customer"),
        ("customers.since + 3 months > orders.`placed on` - 2 days", "customer"),
        ("orders.customer.since > orders.`placed on`", "customer"),
        ("staff.pay > staff.boss.pay", "boss"),
        ("calls.long = true and calls.called.nation = 'a'", "called"),
    ],
)
def test_a_rule_names_columns_of_two_tables(text: str, column: str) -> None:
    (rule,) = declared(text)
    assert rule.key.column == column
    assert {cell.row for each in rule.rule.predicates for cell in each.cells} == {1, 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("orders.colour = 'a' and customers.nation = 'a'", "no column orders.colour"),
        ("orders.nation = 'a'", "on one of the tables alone|not across one foreign key"),
        ("customers.nation = 'a'", "not across one foreign key"),
        ("calls.long = true and customers.nation = 'a'", "TABLE.REFERENCE.COLUMN"),
        ("orders.nation != staff.pay", "not across one foreign key"),
        ("orders.nation = customers.since", "compare columns of one type"),
        ("orders.number = customers.id", "no column orders.number"),
        ("orders.nation ~ customers.nation", "cannot read"),
        (f"{NATION} != {OTHER} and {NATION} = 'a.b'", "not in its list of values"),
    ],
)
def test_what_is_not_across_one_key_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        declared(text)


def test_a_soft_rule_and_other_forms_are_refused() -> None:
    for keys in ({"deny": LATE, "soft": True}, {"fd": "a -> b"}):
        with pytest.raises(ConstraintError, match="a deny, and hard"):
            across_constraints([ConstraintDeclaration(**keys)], SCHEMA)


def test_a_rule_on_a_row_with_attributes_of_its_parent_keeps_its_offsets() -> None:
    (rule,) = declared(SOON)
    (joint,) = on_one_row(rule.rule.predicates, {1: {}, 2: {"customer: since": "since"}})
    assert [(cell.row, cell.attribute, str(cell.offset)) for cell in joint.cells] == [
        (1, "orders.placed on", "- 1 month"),
        (1, "since", "+ 10 days"),
    ]


def drawn(name: str, rows: int, rng: np.random.Generator) -> Table:
    codes = {
        column.name: np.arange(rows) if column.kind == "key" else rng.integers(0, column.size, rows)
        for column in SCHEMA.tables[name]
    }
    return Table(SCHEMA.tables[name], codes)


def having(table: Table, name: str, codes: np.ndarray) -> Table:
    return Table(table.domain, {**table.codes, name: codes})


def database(rng: np.random.Generator, parents: int, rows: int) -> Database:
    tables = {name: drawn(name, 5, rng) for name in SCHEMA.tables}
    tables |= {"customers": drawn("customers", parents, rng), "orders": drawn("orders", rows, rng)}
    tables["orders"] = having(tables["orders"], "customer", rng.integers(0, parents, rows))
    return Database(SCHEMA, tables)


def test_violations_are_those_of_a_loop_over_rows() -> None:
    whole = database(np.random.default_rng(1), 30, 200)
    orders, customers = (whole.tables[name].frame() for name in ("orders", "customers"))
    by_id = customers.set_index("id")["since"]
    expected = int((orders["placed on"] < orders["customer"].map(by_id)).sum())
    (rule,) = declared(LATE)
    report = rule.report(whole)
    assert (report.violations, report.hard) == (expected, True)
    assert report.percent == pytest.approx(100 * expected / 200)
    assert (parent_rows(whole, KEYS[0]) == whole.tables["orders"].codes["customer"]).all()


def settled(seed: int, parents: int, texts: tuple[str, ...], shared: tuple[str, ...]):
    """Orders with at most four a customer, settled; and the database before."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 4 * parents + 1))
    owners = rng.permutation(np.repeat(np.arange(parents), 4))[:rows]
    orders, above = drawn("orders", rows, rng), drawn("customers", parents, rng)
    rules = declared(*texts)
    compatible = Compatibility(SCHEMA, orders, above, rules, shared)
    return owners, orders, above, rules, Placement(compatible, 4, rng).settle(owners)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    parents=st.integers(1, 40),
    texts=st.sampled_from(
        [(), (LATE,), (SOON,), (f"{NATION} != {OTHER}",), (LATE, f"{NATION} = {OTHER}")]
    ),
    shared=st.sampled_from([(), ("nation",)]),
)
def test_all_rows_that_are_left_fit_their_parents(seed, parents, texts, shared) -> None:
    """Zero violations, and at most four rows a parent."""
    owners, orders, above, rules, placed = settled(seed, parents, texts, shared)
    linked = np.flatnonzero(placed >= 0)
    rows = orders.take(linked)
    for rule in rules:
        children, parents_rows = rule.sides(rows, above.take(placed[linked]))
        assert not rule.bound(SCHEMA).violation_mask(children, parents_rows).any()
    assert np.bincount(placed[linked], minlength=parents).max(initial=0) <= 4
    if shared:
        pairs = np.unique(np.stack([placed[linked], rows.codes["nation"]]), axis=1)
        assert len(np.unique(pairs[0])) == pairs.shape[1]
    if not texts and not shared:
        assert (placed == owners).all()


def test_exchanges_keep_degrees_and_rows_and_leave_out_those_that_fit_no_parent() -> None:
    rng = np.random.default_rng(3)
    orders, above = drawn("orders", 2_000, rng), drawn("customers", 1_000, rng)
    orders = having(orders, "placed on", 100 + orders.codes["placed on"] * 5 // 8)
    above = having(above, "since", above.codes["since"] // 3)
    owners = np.repeat(np.arange(1_000), 2)
    compatible = Compatibility(SCHEMA, orders, above, declared(LATE), ())
    placed = Placement(compatible, 4, rng).settle(owners)
    assert (np.bincount(placed, minlength=1_000) == 2).all()
    assert (placed != owners).sum() < 600  # most rows keep their parent
    orders, above = drawn("orders", 40, rng), drawn("customers", 20, rng)
    above = having(above, "since", np.full(20, 200))
    orders = having(orders, "placed on", np.arange(40) * 9)
    compatible = Compatibility(SCHEMA, orders, above, declared(LATE), ())
    placed = Placement(compatible, 4, rng).settle(rng.integers(0, 20, 40) // 2 * 2)
    assert ((placed >= 0) == (orders.codes["placed on"] >= 200)).all()
