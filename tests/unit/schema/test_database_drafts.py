"""Drafts from the schema of a database: what they hold of its keys, and what they say they lack."""

import re
import sqlite3
from pathlib import Path

import pytest
from postgres_schemas import schema

from cloister.errors import SpecError
from cloister.schema.attributes import Float
from cloister.schema.drafts.reflection import draft_database
from cloister.schema.sources.databases import connect
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import data_derived, load_spec


def drafted(folder: Path, statements: str) -> tuple[str, Spec]:
    """The draft of a SQLite database made by statements, and the spec that it reads as."""
    with sqlite3.connect(folder / "a.db") as server:
        server.executescript(statements)
    server.close()
    text = draft_database(f"sqlite:///{folder}/a.db")
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    return text, load_spec(folder / "a.yaml")


def references(spec: Spec) -> set[tuple[str, str, str]]:
    return {
        (name, column, to.table)
        for name, table in spec.tables.items()
        for column, to in table.references.items()
    }


LINKS = """
CREATE TABLE people (
  id INTEGER PRIMARY KEY, boss INTEGER REFERENCES people (id), born DATE NOT NULL
);
CREATE TABLE films (code CHAR(5) PRIMARY KEY, kind VARCHAR(9) NOT NULL, poster BLOB);
CREATE TABLE seen (
  person INTEGER NOT NULL REFERENCES people (id), film CHAR(5) NOT NULL REFERENCES films (code),
  stars SMALLINT, at TIME, PRIMARY KEY (person, film)
);
"""


def test_a_draft_has_links_hierarchies_and_what_may_be_missing(tmp_path):
    text, spec = drafted(tmp_path, f"{LINKS} INSERT INTO people VALUES (4711, NULL, '1931-07-13')")
    assert "4711" not in text
    assert "1931" not in text
    assert spec.privacy.unit.table == "people"
    assert spec.tables["people"].attributes["boss"].nullable
    assert not spec.tables["people"].attributes["id"].nullable
    assert spec.tables["films"].ignore == ("poster",)
    assert spec.tables["films"].attributes["code"].pattern == "K{0001..9999}"
    seen = spec.tables["seen"]
    assert references(spec) >= {("seen", "person", "people"), ("seen", "film", "films")}
    assert seen.constraints[0].key == ["person", "film"]
    assert seen.ignore == ("at",)
    assert seen.attributes["stars"].nullable
    assert set(data_derived(spec)) == {"born", "kind", "stars"}


def test_where_rows_may_refer_to_none_a_row_is_the_unit(tmp_path):
    _, spec = drafted(
        tmp_path,
        "CREATE TABLE shops (id INTEGER PRIMARY KEY, town CHAR(3) NOT NULL);"
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, born DATE NOT NULL);"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, c INTEGER REFERENCES customers (id), x REAL);"
        "CREATE TABLE lines (id INTEGER PRIMARY KEY, nr INTEGER NOT NULL REFERENCES orders (id));",
    )
    assert spec.privacy.unit == "row"
    assert sum(part.rows is None for part in spec.tables.values()) == 1


def test_the_unit_is_the_table_of_persons_that_others_belong_to(tmp_path):
    to = "INTEGER NOT NULL REFERENCES"
    text, spec = drafted(
        tmp_path,
        "CREATE TABLE regions (id INTEGER PRIMARY KEY, name CHAR(3) NOT NULL);"
        f"CREATE TABLE customers (id INTEGER PRIMARY KEY, r {to} regions (id));"
        f"CREATE TABLE orders (n INTEGER PRIMARY KEY, c {to} customers (id));"
        f"CREATE TABLE lines (nr INTEGER NOT NULL, o {to} orders (n));",
    )
    assert spec.privacy.unit.table == "customers"
    assert "to customers belong rows of lines, orders, and it is named as persons are" in text
    assert "# or {table: regions}, to which rows of customers, lines, orders belong" in text


def test_a_draft_has_a_column_of_each_type_of_numbers(tmp_path):
    types = ["REAL", "FLOAT", "DOUBLE PRECISION", "NUMERIC(8, 2)", "DECIMAL(5, 1)"]
    columns = ", ".join(f"n{number} {each} NOT NULL" for number, each in enumerate(types))
    _, spec = drafted(tmp_path, f"CREATE TABLE a ({columns})")
    assert not spec.ignore
    assert {type(attribute) for attribute in spec.attributes.values()} == {Float}
    assert [attribute.decimals for attribute in spec.attributes.values()][3:] == [2, 1]


STAYS = """
CREATE TABLE patients (id INTEGER PRIMARY KEY, card TEXT UNIQUE, born DATE);
CREATE TABLE beds (ward INTEGER, bed INTEGER, width INTEGER, PRIMARY KEY (ward, bed));
CREATE TABLE stays (
  patient INTEGER NOT NULL REFERENCES patients (id), nr INTEGER, ward INTEGER, bed INTEGER,
  PRIMARY KEY (patient, nr), FOREIGN KEY (ward, bed) REFERENCES beds (ward, bed)
);
CREATE TABLE drugs (
  patient INTEGER NOT NULL, nr INTEGER, name TEXT, sheet BLOB, UNIQUE (nr, sheet),
  FOREIGN KEY (patient, nr) REFERENCES stays (patient, nr)
);
CREATE TABLE wills (patient INTEGER PRIMARY KEY REFERENCES patients (id), sealed BOOLEAN);
"""


def test_keys_of_several_columns_are_rules_or_lead_to_the_row_above(tmp_path):
    """A unique column gets fresh numbers, and a unique reference one row."""
    text, spec = drafted(tmp_path, STAYS)
    assert [rule.key for rule in spec.tables["beds"].constraints] == [["ward", "bed"]]
    assert not spec.tables["stays"].constraints
    assert "# primary key (patient, nr) is not kept: a key with a reference" in text
    assert "# key (nr, sheet) is not kept: sheet is left out" in text
    assert spec.tables["drugs"].references["patient"].table == "patients"
    assert "(patient, nr) to stays (patient, nr) is not kept: a reference is one column" in text
    assert "(ward, bed) to beds (ward, bed) is not kept: a reference is one column; its" in text
    assert spec.tables["patients"].attributes["card"].type == "text"
    assert spec.tables["wills"].references["patient"].max_rows == 1


def test_what_names_a_row_by_a_column_that_refers_names_the_row_above(tmp_path):
    text, spec = drafted(
        tmp_path,
        "CREATE TABLE a (id INTEGER PRIMARY KEY, x INTEGER);"
        "CREATE TABLE b (id INTEGER PRIMARY KEY REFERENCES a (id), x INTEGER);"
        "CREATE TABLE c (of_b INTEGER NOT NULL REFERENCES b (id), x INTEGER);",
    )
    assert spec.tables["b"].references["id"].max_rows == 1
    assert spec.tables["c"].references["of_b"].table == "a"
    assert "(of_b) to b (id) is kept as one to a" in text
    refers = "    references:\n      id:"
    chained = text.replace('of_b: {table: "a"', 'of_b: {table: "b"')
    chained = chained.replace(refers, f"    key: id\n{refers}")
    (tmp_path / "chained.yaml").write_text(chained, encoding="utf-8")
    with pytest.raises(SpecError, match="refer to 'a', or give 'b' a key of its own"):
        load_spec(tmp_path / "chained.yaml")


def test_a_foreign_key_that_no_single_key_answers_is_named(tmp_path):
    text, spec = drafted(
        tmp_path,
        "CREATE TABLE a (id INTEGER PRIMARY KEY, code INTEGER UNIQUE, x INTEGER);"
        "CREATE TABLE b (id INTEGER PRIMARY KEY, x INTEGER);"
        "CREATE TABLE c (of_a INTEGER REFERENCES a (code), of_b INTEGER NOT NULL REFERENCES b (id),"
        " FOREIGN KEY (of_b) REFERENCES a (id));",
    )
    assert list(spec.tables["c"].references) == ["of_b"]
    assert "(of_a) to a (code) is not kept: rows are named by the key of their table, id" in text
    assert re.search(r"\(of_b\) to [ab] \(id\) is not kept: a column refers to one table", text)


CIRCLE = """
CREATE TABLE wards (id INTEGER PRIMARY KEY, head INTEGER, beds INTEGER NOT NULL);
CREATE TABLE nurses (
  id INTEGER PRIMARY KEY, ward INTEGER NOT NULL REFERENCES wards (id), grade INTEGER NOT NULL
);
CREATE TABLE shifts (nurse INTEGER NOT NULL REFERENCES nurses (id), day DATE NOT NULL);
ALTER TABLE wards ADD FOREIGN KEY (head) REFERENCES nurses (id);
"""


def test_of_a_circle_the_reference_that_may_be_missing_is_left_out(tmp_path):
    with schema() as url:
        with connect(url, "tables") as connection:
            connection.exec_driver_sql(CIRCLE)
            connection.commit()
        text = draft_database(url)
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    spec = load_spec(tmp_path / "a.yaml")
    assert "foreign key (head) to nurses (id) is not kept: references would go in a circle" in text
    assert list(spec.tables) == ["wards", "nurses", "shifts"]
    assert references(spec) == {("nurses", "ward", "wards"), ("shifts", "nurse", "nurses")}
    assert spec.privacy.unit.table == "wards"
