"""The rows of a release behind the door: their persons, and the digest that shows changes."""

import json
from fractions import Fraction

import numpy as np
import pytest

from cloister.tasks.data.sources import TablesSource
from cloister.tasks.home.home import Home
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import resolve

MOST = 3


@pytest.fixture
def opened(tmp_path):
    """Open rows of (person, value) under an id; the table and the digest."""
    return opening(tmp_path)


def opening(tmp_path, constraints=(), **nullable):
    home = Home.current({"CLOISTER_HOME": str(tmp_path / "home")})
    spec = {
        "name": "visits",
        "source": {"path": "data.csv"},
        "privacy": {
            "unit": {"key": "person", "max_rows": MOST},
            "relation": "add_remove",
            "rows": {"public": 100},
            "budget": {"epsilon": 10, "delta": 0, "per": "ever"},
        },
        "attributes": {
            "person": {"type": "integer", "min": 1, "max": 10, "provenance": "form"},
            "value": {"type": "integer", "min": 0, "max": 200, "provenance": "form", **nullable},
        },
        "constraints": list(constraints),
        "validation": {"on_invalid": "clip"},
        "release": {"method": "independent", "epsilon": 1, "delta": 0},
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(spec), encoding="utf-8")

    def open_rows(rows, release="r-1"):
        data = tmp_path / "data.csv"
        data.write_text(
            "person,value\n" + "".join(f"{person},{value}\n" for person, value in rows),
            encoding="utf-8",
        )
        order = resolve(ReleaseRequest(spec=tmp_path / "spec.yaml", data=data))
        assert order.budget.epsilon == Fraction(1)
        database, digests = TablesSource().read_rows(release, order, home)
        (table,) = database.tables.values()
        return table, digests

    return open_rows


def values(opened):
    return set(opened[0].codes["value"].tolist())


def test_persons_outside_the_domain_are_left_out_not_merged_into_one(opened):
    before = [
        (person, 10 * person + visit)
        for person in range(1, 31)
        for visit in range(4)
        if 10 * person <= 190
    ]
    alone = values(opened(before))
    assert len(alone) == 10 * MOST
    assert values(opened([(31, 200), *before])) == alone


def test_one_person_under_several_spellings_is_one_person(opened):
    rows = [(spelling, value) for value, spelling in enumerate(["7", "07", "+7", "7.0"] * 3)]
    assert opened(rows)[0].rows == MOST


def test_no_two_releases_have_the_same_digest_of_the_same_rows(opened):
    rows = [(person, value) for person in (1, 2) for value in np.arange(5)]
    assert opened(rows)[1].data == opened(rows)[1].data
    assert opened(rows)[1].data != opened(rows, "r-2")[1].data
    assert opened(rows)[1].data != opened(rows[1:])[1].data


def test_rows_that_break_a_rule_of_missing_cells_are_left_out_before_any_bound(tmp_path):
    rule = {"name": "seen", "check": "t.value is missing exactly if t.person = 1"}
    open_rows = opening(tmp_path, [rule, {"deny": "t.value > 5"}], nullable=True)
    table, _ = open_rows([(1, ""), (1, 3), (2, 4), (2, ""), (3, 9)])
    assert sorted(table.codes["value"]) == [4, 9, table.domain["value"].null_code]
