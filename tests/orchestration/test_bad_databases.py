"""Databases whose keys do not hold: refused with the reason, or rows left out; nothing lost."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cloister.flows.cli.app import run
from cloister.schema.sources.databases import connect
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger

SPEC = """
name: shop
privacy:
  unit: {table: customers}
  relation: add_remove
  rows: {public: 60}
  budget: {epsilon: 40, delta: 1e-5, per: ever}
tables:
  customers:
    source: {path: customers.csv}
    key: id
    attributes:
      id: {type: text, pattern: "C{001..999}"}
      kind: {type: categorical, values: [a, b]}
  orders:
    source: {path: orders.csv}
    rows: {public: 120}
    references: {customer: {table: customers, max_rows: 3}}
    attributes:
      customer: {type: text, pattern: "C{001..999}"}
      size: {type: integer, min: 0, max: 3}
release: {epsilon: 8, delta: 0, method: relational}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch) -> Path:
    """Sixty customers and orders of whom the test says."""
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    ids = [f"C{number:03}" for number in range(1, 61)]
    customers = pd.DataFrame({"id": ids, "kind": rng.choice(["a", "b"], 60)})
    customers.to_csv(tmp_path / "customers.csv", index=False)
    _orders(tmp_path, rng.choice(ids, 120).tolist())
    (tmp_path / "shop.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def _orders(folder: Path, customers: list[str]) -> None:
    sizes = np.arange(len(customers)) % 4
    frame = pd.DataFrame({"customer": customers, "size": sizes})
    frame.to_csv(folder / "orders.csv", index=False)


def test_rules_that_no_order_can_keep_leave_none_and_the_release_is_delivered(
    prefect_server, shop: Path, capsys
) -> None:
    rules = [f"orders.size >= 0 and customers.kind = '{kind}'" for kind in "ab"]
    declared = "".join(f'  - {{deny: "{rule}"}}\n' for rule in rules)
    text = SPEC.replace("tables:\n", f"constraints:\n{declared}tables:\n")
    (shop / "shop.yaml").write_text(text, encoding="utf-8")
    url = f"sqlite:///{shop}/out.db"
    words = ["release", "shop.yaml", "--out", url, "--csv", "--evaluate", "none"]
    assert run(words) == 0, capsys.readouterr().err
    with connect(url, "rows") as connection:
        counts = [
            connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar()
            for name in ("customers", "orders")
        ]
    assert counts == [60, 0]


def _charged() -> float:
    ledger = existing_ledger(Home.current())
    budgets = ledger.budgets() if ledger else []
    return float(sum(status.spent for status in budgets))


@pytest.mark.parametrize(
    "customers",
    [
        pytest.param(["C999"] * 120, id="no order is of a customer that is there"),
        pytest.param(["C001"] * 120, id="all orders are of one customer, of whom three are used"),
        pytest.param(["C001"], id="one order", marks=pytest.mark.slow),
    ],
)
def test_orders_that_refer_to_none_or_to_one_are_left_out_and_the_release_delivered(
    prefect_server, shop: Path, capsys, customers: list[str]
) -> None:
    _orders(shop, customers)
    out = shop / "out"
    assert run(["release", "shop.yaml", "--out", str(out), "--json"]) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    drawn, orders = (pd.read_parquet(out / f"{name}.parquet") for name in ("customers", "orders"))
    assert len(drawn) == 60
    assert set(orders["customer"]) <= set(drawn["id"])
    assert orders["customer"].value_counts().max() <= 3
    assert said["internal"]["metrics"]["relations.orphans"] == 0
    assert _charged() == 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: _orders(folder, []), "orders.csv has no rows"),
        (
            lambda folder: pd.concat([pd.read_csv(folder / "customers.csv")] * 2).to_csv(
                folder / "customers.csv", index=False
            ),
            "rows have the same key",
        ),
    ],
    ids=["a table without rows", "keys that name two rows"],
)
def test_data_that_cannot_be_used_is_refused_and_its_charge_given_back(
    prefect_server, shop: Path, capsys, change, said: str
) -> None:
    change(shop)
    assert run(["release", "shop.yaml"]) == 2
    assert "validation.json says what is wrong" in capsys.readouterr().err
    (report,) = (shop / "home").glob("releases/*/internal/validation.json")
    assert said in report.read_text(encoding="utf-8")
    assert _charged() == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_rows: 3", "max_rows: 0", "max_rows"),
        ("{table: customers, max_rows", "{table: clients, max_rows", "is no table"),
        ("tables:\n", 'constraints: [{deny: "orders.size = 1"}]\ntables:\n', "across one foreign"),
        (
            "tables:\n",
            'constraints: [{deny: "orders.size > customers.size"}]\ntables:\n',
            "no column customers.size",
        ),
        (
            "tables:\n",
            "constraints: [{deny: orders.size > customers.kind, soft: true}]\ntables:\n",
            "a deny, and hard",
        ),
        ("orders.csv", "../nothing.csv", "does not exist"),
    ],
)
def test_what_a_spec_says_wrongly_is_refused_before_a_charge(
    shop: Path, capsys, old: str, new: str, message: str
) -> None:
    text = SPEC.replace(old, new)
    assert text != SPEC
    (shop / "shop.yaml").write_text(text, encoding="utf-8")
    assert run(["release", "shop.yaml"]) == 2
    assert message in capsys.readouterr().err
    assert not (shop / "home" / "ledger.db").exists()


def test_tables_that_refer_to_each_other_in_a_circle_are_refused(shop: Path, capsys) -> None:
    back = ["      last: {type: text, pattern: 'O{001..999}'}"]
    back += ["    references: {last: {table: orders, max_rows: 1}}"]
    lines = SPEC.replace("    rows: {public: 120}", "    rows: {public: 120}\n    key: number")
    own = "      number: {type: text, pattern: 'O{001..999}'}\n      size: "
    text = lines.replace("      size: ", own).replace("b]}\n", "\n".join(["b]}", *back, ""]))
    (shop / "shop.yaml").write_text(text, encoding="utf-8")
    assert run(["spec", "check", "shop.yaml"]) == 2
    assert "circle" in capsys.readouterr().err
