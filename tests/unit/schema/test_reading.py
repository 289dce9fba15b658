"""Declared columns from CSV, Parquet and SQL, and the message for each unusable source."""

import sqlite3

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from cells import spec_of
from declared_table import WHOLE

from cloister.errors import DataError, SpecError, StorageError
from cloister.schema.domain import Domain
from cloister.schema.sources.csv_files import _BLOCK_BYTES
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec import ValidationSpec
from cloister.schema.validation import read_table

NAMES = ["b", "a"]
LARGE = pd.array([2**60 + 1, None], dtype="Int64")


def _spec(names=NAMES, **source):
    location = source if "url" in source else {"path": "people.csv", **source}
    return spec_of("fail", dict.fromkeys(names, WHOLE), **location)


def _read(folder, content, names=NAMES, **source):
    path = folder / "people.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_frame(_spec(names, **source), path)


def _cells(frame):
    return [[None if pd.isna(cell) else cell for cell in row] for row in frame.to_numpy()]


@pytest.mark.parametrize(
    ("content", "source", "cells"),
    [
        ("a,b\n1,02\n3,\n", {}, [["02", "1"], [None, "3"]]),
        ("\ufeffa,b\r\n1,2\r\n", {}, [["2", "1"]]),
        ("a;b\n1;2\n", {"delimiter": ";"}, [["2", "1"]]),
        ('a,b\n"x\ny","p,""q"\n', {}, [['p,"q', "x\ny"]]),
        ('a,b\nNA,\n"NA",?\n', {"missing": ["NA", "?"]}, [["", None], [None, None]]),
        ("a,b\nNA,1\n", {}, [["1", "NA"]]),
        (b"a,b\n1,\xff\xc3\xa9\n3,4\n", {}, [["\\xffé", "1"], ["4", "3"]]),
    ],
)
def test_csv_cells_are_text_in_declared_order(tmp_path, content, source, cells):
    frame = _read(tmp_path, content, **source)
    assert list(frame.columns) == NAMES
    assert (frame.dtypes == "str").all()
    assert _cells(frame) == cells


@pytest.mark.parametrize("uneven", [b"\xe9,7,8", b"7,8,\xff", b"\xe9"])
def test_no_byte_of_an_uneven_line_that_is_not_utf_8_is_shown(tmp_path, monkeypatch, uneven):
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    path, spec = tmp_path / "people.csv", _spec()
    path.write_bytes(b"a,b\n1,2\n" + uneven + b"\n\xe9,4\n")
    with pytest.raises(DataError, match=r"1 row with more or fewer cells.*\(row 2\)"):
        read_frame(spec, path)
    validation = ValidationSpec(on_invalid="drop")
    frame = read_frame(spec.model_copy(update={"validation": validation}), path)
    assert not unraisable
    assert _cells(frame) == [["2", "1"], ["4", "\\xe9"]]


RAGGED = "a,b\n1,2\n1,2,3\n4,5\n6\n"


@pytest.mark.parametrize(
    ("content", "source", "words"),
    [
        ("", {}, "is empty"),
        ("\n", {}, "is empty"),
        ("a,b\n", {}, "has no rows"),
        ("a;b\n1;2\n", {}, "separated by a semicolon; set source.delimiter to ';'"),
        ("a\tb\n1\t2\n", {}, "separated by a tab"),
        ("a,b\n1,2\n", {"delimiter": ";"}, "separated by a comma"),
        ("5,6\n1,2\n", {}, "none of the declared columns is among its 2"),
        ("a,b,a\n1,2,3\n", {}, "'a' occur more than once"),
        ("a\n1\n", {}, "'b' are missing"),
        ("a,b,c\n1,2,3\n", {}, "'c' are not declared"),
        (RAGGED, {}, "2 rows with more or fewer cells than the header (rows 2, 4)"),
        (b"\xff,b\n1,2\n", {}, "not UTF-8"),
    ],
)
def test_an_unusable_csv_is_told_without_its_cells(tmp_path, content, source, words):
    with pytest.raises(DataError) as caught:
        _read(tmp_path, content, **source)
    assert words in str(caught.value)


@pytest.mark.parametrize("on_invalid", ["drop", "clip"])
def test_ragged_rows_are_left_out_and_counted_where_invalid_rows_are(tmp_path, on_invalid):
    (tmp_path / "people.csv").write_text(RAGGED)
    spec = _spec().model_copy(update={"validation": ValidationSpec(on_invalid=on_invalid)})
    assert _cells(read_frame(spec, tmp_path / "people.csv")) == [["2", "1"], ["5", "4"]]
    domain = Domain.of(spec.attributes, spec.folder)
    table, report = read_table(spec, domain, tmp_path / "people.csv")
    assert (table.rows, report.rows, report.dropped, report.malformed) == (2, 4, 2, 2)
    assert not report.valid


LONG = "secret-1,secret-2\n" * (2 * _BLOCK_BYTES // 18 + 2)
"""In a cell whose quote is never closed, or closed after more than two blocks."""


@pytest.mark.parametrize(
    "content",
    [
        *("secret-1,secret-2\nsecret-3,4\n", "a,b\nsecret-1,2,3\n", "a,b\nsecret-1\n"),
        *('a,b\n"secret-1,2\n', f'a,b\n1,2\n"{LONG}', f'a,b\n1,2\n"{LONG}",4\n'),
    ],
    ids=["header", "long row", "short row", "open", "long open", "long closed"],
)
def test_a_cell_never_reaches_a_message(tmp_path, content):
    with pytest.raises(DataError) as caught:
        _read(tmp_path, content)
    assert "secret" not in str(caught.value)


def test_paths_that_cannot_be_read_are_storage_errors_and_unknown_formats_asked_for(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for path in (tmp_path / "none.csv", tmp_path / "folder.csv", tmp_path / "none.parquet"):
        with pytest.raises(StorageError, match="cannot be read"):
            read_frame(_spec(), path)
    (tmp_path / "people.dat").write_text("a,b\n1,2\n")
    with pytest.raises(SpecError, match=r"set source.format"):
        read_frame(_spec(), tmp_path / "people.dat")
    assert len(read_frame(_spec(format="csv"), tmp_path / "people.dat")) == 1


def test_odd_column_names_in_a_compressed_file_are_read(tmp_path):
    names = ['with "quotes", and comma', "dash-ed", "größe", "a b"]
    path = tmp_path / "people.csv.gz"
    pd.DataFrame([[1, 2, 3, 4]], columns=names).to_csv(path, index=False)
    frame = read_frame(_spec(names), path)
    assert (list(frame), _cells(frame)) == (names, [["1", "2", "3", "4"]])


def test_parquet_faults_are_told_and_nested_columns_refused_by_their_schema(tmp_path):
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"a": [1], "b": [["secret"]]}), path)
    told = r"column 'b' is of type list.*holds no single values"
    with pytest.raises(DataError, match=told) as caught:
        read_frame(_spec(), path)
    assert "secret" not in str(caught.value)
    path.write_text("a,b\nsecret,2\n")
    with pytest.raises(DataError, match="not a whole Parquet file") as caught:
        read_frame(_spec(), path)
    assert "secret" not in str(caught.value)
    pd.DataFrame({"a": [1], "c": [2]}).to_parquet(path)
    with pytest.raises(DataError, match="'b' are missing"):
        read_frame(_spec(), path)


def test_parquet_and_databases_keep_whole_numbers_whole(tmp_path, monkeypatch):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/people.db")
    days = pd.to_datetime(["2020-01-01", None])
    frame = pd.DataFrame({"a": LARGE, "b": ["x", None], "day": days})
    frame.to_parquet(tmp_path / "people.parquet")
    read = read_frame(_spec(["b", "day", "a"]), tmp_path / "people.parquet")
    assert (list(read), read["a"].tolist()) == (["b", "day", "a"], list(LARGE))
    frame.to_sql("odd table", engine, index=False)
    engine.dispose()
    monkeypatch.setenv("PEOPLE_DB", f"sqlite:///{tmp_path}/people.db")
    read = read_frame(_spec(["day", "b", "a"], url="${PEOPLE_DB}", table="odd table"))
    assert list(read.columns) == ["day", "b", "a"]
    assert read["a"].tolist() == [2**60 + 1, None]
    assert read["day"].tolist() == ["2020-01-01 00:00:00.000000", None]


def test_one_odd_value_in_a_database_changes_no_other(tmp_path):
    """SQLite has a type for each value: one that its driver would refuse spoils no table."""
    with sqlite3.connect(tmp_path / "people.db") as server:
        server.execute("CREATE TABLE people (a BOOLEAN, b DATE)")
        server.execute(
            "INSERT INTO people VALUES (1, '2020-01-01'), ('x', 'no day'), "
            "(0, CAST(x'61ff' AS TEXT))"
        )
    read = read_frame(_spec(url=f"sqlite:///{tmp_path}/people.db", table="people"))
    assert _cells(read) == [["2020-01-01", 1], ["no day", "x"], ["a\\xff", 0]]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("sqlite://", "NoSuchTableError"),
        ("postgresql+psycopg://user:hush@127.0.0.1:1/x", "OperationalError"),
        ("nonsense://user:hush@x", "NoSuchModuleError"),
        ("hush", "ArgumentError"),
    ],
)
def test_a_database_that_cannot_be_read_is_told_without_its_password(url, kind):
    with pytest.raises(StorageError, match=kind) as caught:
        read_frame(_spec(url=url, table="people"))
    assert "hush" not in str(caught.value)
