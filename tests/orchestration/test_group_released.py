"""A release planned for rows, on an account of persons: charged and certified by group privacy."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from cloister.flows.cli.app import run
from cloister.privacy.accounting.composition import group_cost
from cloister.privacy.events import Bounded, event_from_json
from cloister.tasks.data.sources import TablesSource
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger, release_of
from cloister.tasks.release.verify import verify_records
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import resolve

SPEC = """
name: visits
source: {path: visits.csv}
privacy: {unit: row, group: {key: person, max_rows: 3}, relation: add_remove, rows: {public: 300},
  budget: {epsilon: 20, delta: 1/1000, per: ever}}
attributes:
  person: {type: text, pattern: "P{0001..9999}"}
  ward: {type: categorical, values: [a, b, c, d, e], provenance: plan}
  cost: {type: integer, min: 0, max: 9, provenance: prices}
release: {method: independent, epsilon: 1, delta: 1e-6}
"""


@pytest.fixture
def visits(folder: Path) -> Path:
    """A folder with the spec and the rows of a hundred persons, five at most of each."""
    rng = np.random.default_rng(5)
    owner = np.repeat(np.arange(100), rng.integers(1, 6, 100))
    pd.DataFrame(
        {
            "person": [f"P{at + 1:04}" for at in owner],
            "ward": rng.choice(list("abcde"), len(owner)),
            "cost": rng.integers(0, 10, len(owner)),
        }
    ).to_csv("visits.csv", index=False)
    Path("visits.yaml").write_text(SPEC, encoding="utf-8")
    return folder


def opened(folder: Path):
    request = resolve(ReleaseRequest(spec=folder / "visits.yaml"))
    return TablesSource().read_rows("r-1", request, Home.current())[0].tables["visits"]


def cells(table) -> list[tuple]:
    return sorted(zip(*(codes.tolist() for codes in table.codes.values()), strict=True))


def test_without_a_person_the_rows_are_those_of_all_others(visits: Path) -> None:
    """The bound is kept person by person: one of any number of rows changes three at most."""
    whole, frame = cells(opened(visits)), pd.read_csv("visits.csv")
    assert max(pd.Series([row[0] for row in whole]).value_counts()) == 3
    for person in ("P0001", "P0050", "P0100"):
        frame[frame["person"] != person].to_csv("visits.csv", index=False)
        rest, left = cells(opened(visits)), list(whole)
        for row in rest:
            left.remove(row)  # an error where another person's rows changed
        assert 1 <= len(left) <= 3 and len({row[0] for row in left}) == 1


@pytest.mark.parametrize("rows", [1, 2, 5, 40])
@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1, 3), Fraction(1)])
def test_the_price_of_a_group_is_that_of_its_rows_one_by_one(epsilon, rows) -> None:
    whole, charged = group_cost(epsilon, Fraction(1, 10**20), rows)
    steps = sum(np.exp(float(epsilon) * step) for step in range(rows))
    assert whole == rows * epsilon
    assert float(charged) == pytest.approx(1e-20 * steps, rel=1e-5)
    assert float(charged) >= 1e-20 * steps * (1 - 1e-12)
    assert group_cost(epsilon, Fraction(0), rows) == (whole, 0)


def test_an_account_of_persons_is_charged_for_rows_by_group_privacy(visits, prefect_server, capsys):
    add = ["dataset", "add", "visits", "--place", "visits.csv", "--unit", "key:person"]
    assert run([*add, "--reason", "register 12"]) == 0
    words = ["release", "visits.yaml", "--json", "--evaluate", "none"]
    capsys.readouterr()
    assert run(words) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    held = release_of(Home.current(), said["release"])
    price = group_cost(Fraction(1), Fraction(1, 10**6), 3)
    assert (held.request.epsilon, held.request.delta) == price
    assert held.request.unit == "key:person"
    assert event_from_json(held.request.events) == Bounded(*price)  # for whatever composes events
    assert said["charged"] == {"epsilon": "3", "delta": str(price[1])}
    assert open_ledger(Home.current()).budget("visits", "key:person").spent == 3
    public = Path(said["files"]["public"])
    certificate = yaml.safe_load((public / "certificate.yaml").read_text(encoding="utf-8"))
    guarantee = certificate["guarantee"]
    assert Fraction(guarantee["epsilon"]) == 3 and Fraction(guarantee["delta"]) == price[1]
    assert guarantee["unit"] == "one person: all rows with the same person, at most 3 of them"
    assert 2 < guarantee["accounted"]["epsilon"] <= 3
    assert any("planned for one row, at epsilon 1, delta 1e-6" in w for w in guarantee["meaning"])
    assert verify_records(Home.current(), None)[1] == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("add_remove", "replace_one", "needs relation add_remove"),
        ("key: person, max", "key: nobody, max", "is no attribute"),
        ("unit: row", "unit: {key: person, max_rows: 3}", "is of rows"),
        ('"P{0001..9999}"', '"P{0001..9999}", nullable: true', "is nullable"),
        ("method: independent, epsilon: 1,", "method: deniability, epsilon: 1,", "made from seeds"),
        ("epsilon: 1,", "epsilon: 9,", "reaches 1"),
    ],
)
def test_a_group_that_no_argument_covers_is_refused_before_any_charge(
    visits: Path, prefect_server, capsys, old, new, why
) -> None:
    Path("visits.yaml").write_text(SPEC.replace(old, new), encoding="utf-8")
    assert run(["release", "visits.yaml", "--evaluate", "none"]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert not list((visits / "home" / "releases").glob("*"))
