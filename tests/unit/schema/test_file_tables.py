"""Several files are drafted as tables: keys and references are found in their rows."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from films import films

from cloister.errors import InputError
from cloister.models.task import task_of
from cloister.schema.drafts.reflection import write_draft
from cloister.schema.relations import Database
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec, unconfirmed_facts
from cloister.schema.validation import read_table

USERS, FILMS, RATINGS = 300, 150, 4_000


def drafted(folder: Path, frames: dict[str, pd.DataFrame]) -> tuple[str, Spec]:
    """The draft of files written from frames, without header if they have none; and its spec."""
    paths = []
    for name, frame in frames.items():
        path = folder / (name if "." in name else f"{name}.csv")
        if path.suffix == ".csv":
            frame.to_csv(path, index=False, header=isinstance(frame.columns[0], str))
        else:
            frame.to_parquet(path)
        paths.append(str(path))
    text = write_draft(paths, None)
    (folder / "tables.yaml").write_text(text, encoding="utf-8")
    return text, load_spec(folder / "tables.yaml")


def references(spec: Spec) -> set[tuple[str, str, str]]:
    return {
        (name, column, to.table)
        for name, table in spec.tables.items()
        for column, to in table.references.items()
    }


def proposed(text: str) -> list[str]:
    return re.findall(r"#  - (\{key: .*\})", text)


def database(spec: Spec, frames: dict[str, pd.DataFrame]) -> Database:
    """The rows as a release reads them."""
    task = task_of(spec, {name: len(frames[name]) for name in spec.tables})
    read = {name: read_table(spec.table(name), task.tables[name].domain)[0] for name in spec.tables}
    return Database(task.schema, read)


def test_links_keys_and_the_unit_are_found(tmp_path):
    frames = films(USERS, FILMS, RATINGS).frames
    text, spec = drafted(tmp_path, {name: frames[name] for name in ("ratings", "films", "users")})
    assert references(spec) == {("ratings", "user", "users"), ("ratings", "film", "films")}
    keys = {name: table.key for name, table in spec.tables.items()}
    assert keys == {"users": "id", "films": "id", "ratings": None}
    assert spec.privacy.unit.table == "users"
    assert "# guessed: to users belong rows of ratings, and it is named as persons are" in text
    assert "# or {table: films}, to which rows of ratings belong" in text
    assert proposed(text) == ["{key: [user, film], provenance: data-derived}"]
    most = frames["ratings"]["user"].value_counts().max()
    assert most <= spec.tables["ratings"].references["user"].max_rows < 2 * most
    assert not [rows for _, rows in database(spec, frames).dangling() if rows]
    assert "keys" in spec.unconfirmed
    assert "references with their max_rows" in unconfirmed_facts(spec)[0][1]


def _shop(rng: np.random.Generator, orphans: int = 20) -> dict[str, pd.DataFrame]:
    numbers = np.sort(rng.choice(90_000, 400, replace=False) + 10_000)
    buyer = rng.choice(numbers, 2_500)
    buyer[:orphans] = rng.choice(9_000, orphans)
    lines = rng.integers(1, 4, 2_500)
    customers = {
        "KD_NR": numbers,
        "GEB": rng.integers(1940, 2005, 400),
        "X7": rng.normal(50, 9, 400),
    }
    orders = {"n": np.arange(1, 2_501), "z": buyer, "k": rng.choice(["A1", "B2", "C3"], 2_500)}
    positions = {
        "auftr nr": np.repeat(np.arange(1, 2_501), lines),
        "lfd": np.concatenate([np.arange(1, count + 1) for count in lines]),
        "art": [f"AR-{number:03d}" for number in rng.integers(0, 120, lines.sum())],
    }
    articles = {"sku": [f"AR-{n:03d}" for n in range(120)], "preis": rng.integers(1, 99, 120)}
    tables = {"KD_STAMM": customers, "auftr": orders, "pos": positions, "artikel": articles}
    return {name: pd.DataFrame(columns) for name, columns in tables.items()}


def test_numbers_under_ugly_names_refer_where_that_is_no_chance(tmp_path):
    frames = _shop(np.random.default_rng(5))
    text, spec = drafted(tmp_path, frames)
    assert references(spec) == {
        ("auftr", "z", "KD_STAMM"),
        ("pos", "auftr nr", "auftr"),
        ("pos", "art", "artikel"),
    }
    assert spec.privacy.unit.table == "KD_STAMM"
    assert "z: 20 of 2,500 rows name no row of KD_STAMM; a release leaves them out" in text
    assert "primary key (auftr nr, lfd) is not kept" in text
    assert [rows for _, rows in database(spec, frames).dangling() if rows] == [20]
    _, without = drafted(tmp_path, _shop(np.random.default_rng(5), orphans=200))
    assert ("auftr", "z", "KD_STAMM") not in references(without)


def test_a_file_without_header_refers_by_plain_numbers_if_it_names_nearly_all(tmp_path):
    rng = np.random.default_rng(2)
    people = {"id": np.arange(1, 301), "age": rng.integers(18, 90, 300)}
    goods = {"id": np.arange(1, 121), "weight": rng.integers(1, 99, 120)}
    links = np.stack([rng.integers(1, most, 5_000) for most in (301, 121, 6)], axis=1)
    tables = {"seen": links, "goods": goods, "people": people}
    text, spec = drafted(tmp_path, {name: pd.DataFrame(rows) for name, rows in tables.items()})
    assert references(spec) == {("seen", "c1", "people"), ("seen", "c2", "goods")}
    assert spec.tables["seen"].source.header == ("c1", "c2", "c3")
    assert "# the first line is a row: write names in header" in text
    assert spec.privacy.unit.table == "people"


def test_missing_references_a_hierarchy_and_stored_numbers(tmp_path):
    rng = np.random.default_rng(3)
    boss = pd.array([None, *(rng.integers(0, row) // 7 + 1 for row in range(1, 200))], "Int64")
    staff = pd.DataFrame({"id": np.arange(1, 201), "boss": boss, "grade": rng.integers(1, 9, 200)})
    days = {"staff_id": rng.integers(1, 201, 900), "days": rng.integers(1, 30, 900)}
    leave = pd.DataFrame(days, dtype="Int64")
    leave.loc[:49, "staff_id"] = pd.NA
    text, spec = drafted(tmp_path, {"leave.parquet": leave, "staff.parquet": staff})
    assert references(spec) == {("staff", "boss", "staff"), ("leave", "staff_id", "staff")}
    assert spec.tables["leave"].attributes["staff_id"].nullable
    assert spec.privacy.unit == "row"
    assert "row # of any table: rows that may refer to none" in text
    read = database(spec, {"leave": leave, "staff": staff})
    assert not [rows for _, rows in read.dangling() if rows]


def test_a_table_that_extends_another_has_one_row_of_each(tmp_path):
    rng = np.random.default_rng(4)
    keys = [f"P-{number:04d}" for number in range(250)]
    people = pd.DataFrame({"person": keys, "sex": rng.choice(["F", "M"], 250)})
    wills = pd.DataFrame({"person": keys[::-1], "sealed": rng.choice(["yes", "no"], 250)})
    _, spec = drafted(tmp_path, {"people": people, "wills": wills})
    assert references(spec) == {("wills", "person", "people")}
    assert spec.tables["wills"].references["person"].max_rows == 1


def test_a_column_among_the_keys_of_two_tables_names_both(tmp_path):
    rng = np.random.default_rng(6)
    keys = [f"N{number:05d}" for number in rng.choice(9_999, 200, replace=False)]
    others = [f"N{number}" for number in range(90_000, 90_040)]
    frames = {
        "left": pd.DataFrame({"u": keys, "x": rng.integers(0, 9, 200)}),
        "right": pd.DataFrame({"v": [*keys[:150], *others], "y": rng.integers(0, 9, 190)}),
        "seen": pd.DataFrame({"w": rng.choice(keys[:150], 900), "z": rng.integers(0, 9, 900)}),
    }
    text, spec = drafted(tmp_path, frames)
    assert ("seen", "w", "right") in references(spec)
    assert "w: its values are among the keys of left, too" in text


def test_persons_below_a_catalogue_are_the_unit(tmp_path):
    rng = np.random.default_rng(7)
    towns, customers = [f"T{n:03d}" for n in range(90)], [f"C{n:04d}" for n in range(500)]
    tables = {
        "towns": {"id": towns, "km": rng.integers(1, 99, 90)},
        "customers": {"id": customers, "town": rng.choice(towns, 500)},
        "orders": {"customer": rng.choice(customers, 1_500), "x": rng.integers(1, 9, 1_500)},
    }
    text, spec = drafted(tmp_path, {name: pd.DataFrame(rows) for name, rows in tables.items()})
    assert spec.privacy.unit.table == "customers"
    assert "# or {table: towns}, to which rows of customers, orders belong" in text


def test_tables_that_share_nothing_are_protected_row_by_row(tmp_path):
    rng = np.random.default_rng(8)
    frames = {
        name: pd.DataFrame({"age": rng.integers(18, 90, 200), "kind": rng.choice(list("ab"), 200)})
        for name in ("one", "two")
    }
    text, spec = drafted(tmp_path, frames)
    assert not references(spec)
    assert spec.privacy.unit == "row"
    assert "since none refers to another" in text


def test_files_of_one_name_and_a_database_among_files_are_refused(tmp_path):
    (tmp_path / "b").mkdir()
    for path in (tmp_path / "a.csv", tmp_path / "b" / "a.csv"):
        path.write_text("x\n1\n2\n", encoding="utf-8")
    with pytest.raises(InputError, match="rename one"):
        write_draft([str(tmp_path / "a.csv"), str(tmp_path / "b" / "a.csv")], None)
    with pytest.raises(InputError, match="give its URL alone"):
        write_draft([str(tmp_path / "a.csv"), "sqlite:///a.db"], None)
