"""CHECK constraints of a database in its draft: values, bounds, orders; others are listed."""

import sqlite3

import pytest
from postgres_schemas import schema

from cloister.schema.drafts.checks import read_checks
from cloister.schema.drafts.reflection import draft_database
from cloister.schema.sources.databases import connect
from cloister.schema.spec_files.loading import load_spec

SHOP = """
CREATE TABLE shop (
  id INTEGER PRIMARY KEY,
  kind VARCHAR(9) NOT NULL CHECK (kind IN ('a', 'b', 'it''s')),
  grade INTEGER CHECK (grade IN (1, 2, 5)),
  price NUMERIC(8, 2) CHECK (price > 0 AND price <= 1000),
  amount INTEGER NOT NULL CONSTRAINT amounts CHECK (amount BETWEEN 1 AND 99),
  many INTEGER, least INTEGER, most INTEGER,
  since DATE NOT NULL CHECK (since >= '2001-02-03'), "left at" DATE, seen TIMESTAMP,
  state VARCHAR(9), remark VARCHAR(9),
  CHECK (many < 500 AND (0 <= many)),
  CHECK (least <= most),
  CHECK ("left at" IS NULL OR "left at" > since),
  CHECK (seen >= since),
  CHECK (state < remark),
  CONSTRAINT odd CHECK (length(state) = 2),
  CONSTRAINT either CHECK (state <> 'x' OR amount > 5)
);
"""


def require_kept(text, folder):
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    spec = load_spec(folder / "a.yaml")
    columns = spec.attributes
    assert columns["kind"].values == ["a", "b", "it's"]
    assert columns["kind"].provenance == "schema of the database"
    assert columns["grade"].type == "categorical"
    assert columns["grade"].values == [1, 2, 5]
    assert (columns["price"].min, columns["price"].max) == (0.01, 1000)
    assert (columns["amount"].min, columns["amount"].max) == (1, 99)
    assert columns["amount"].provenance == "schema of the database"
    assert (columns["many"].min, columns["many"].max) == (0, 499)
    assert str(columns["since"].min) == "2001-02-03"
    assert columns["since"].data_derived
    rules = [rule.deny for rule in spec.constraints]
    assert rules == ["t.least > t.most", "t.`left at` <= t.since", "t.seen < t.since"]
    assert "# check is not kept: state < remark, " in text
    assert "# check odd is not kept: " in text
    assert "# check either is not kept: " in text


def test_checks_of_sqlite_are_values_bounds_and_orders(tmp_path):
    with sqlite3.connect(tmp_path / "a.db") as server:
        server.executescript(SHOP)
    server.close()
    require_kept(draft_database(f"sqlite:///{tmp_path}/a.db"), tmp_path)


def test_checks_of_postgresql_are_the_same(tmp_path):
    with schema() as url:
        with connect(url, "no server") as connection:
            connection.exec_driver_sql(SHOP)
            connection.commit()
        require_kept(draft_database(url), tmp_path)


UNREAD = [
    *("a > 1 OR b > 2", "a + b > 2", "a > b + 1", "a LIKE 'x%'", "NOT a > 1", "1 < 2"),
    *("lower(a) IN ('x')", "a IN (SELECT 1)", "(a > 1) = (b > 2)", ""),
]


@pytest.mark.parametrize("text", UNREAD)
def test_what_says_more_is_listed_and_nothing_of_it_is_taken(text):
    facts = read_checks([{"sqltext": f"a > 5 AND {text}" if text else text, "name": "c"}])
    assert len(facts.unread) == 1
    assert not facts.values | facts.least | facts.greatest
    assert not facts.orders
