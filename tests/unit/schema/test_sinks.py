"""Synthetic tables in databases: types, keys, one transaction, no second time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psycopg
import pytest
import sqlalchemy as sa
from cells import spec_of
from postgres_schemas import schema

from cloister.errors import StorageError
from cloister.schema.attributes import Boolean, Categorical, Date, Datetime, Float, Integer, TextKey
from cloister.schema.domain import Domain, Table
from cloister.schema.relations import ForeignKey
from cloister.schema.sinks import NOTES, LoadTarget, SyntheticTable, load_tables, require_loadable
from cloister.schema.sources.databases import connect
from cloister.schema.sources.files_and_urls import holds_password
from cloister.schema.sources.reading import read_frame

PARENT = {
    "id": TextKey(type="text", pattern="{1..9999}", dtype="int64"),
    'odd "name': Categorical(
        type="categorical", values=["a,b", 'q"q', "x\ny", "", "\\N", "é"], nullable=True
    ),
    "born": Date(type="date", min="1900-01-01", max="2001-01-01", nullable=True),
    "seen": Datetime(type="datetime", min="2000-01-01", max="2001-01-01"),
    "called": Datetime(
        type="datetime", min="2000-01-01", max="2001-01-01", dtype="datetime64[us, Europe/Berlin]"
    ),
    "price": Float(type="float", min=0, max=99.99, decimals=2, nullable=True),
    "share": Float(type="float", min=0, max=1),
    "flag": Boolean(type="boolean", nullable=True),
    "kind": Categorical(type="categorical", values=["u", "v"], dtype="category"),
}
CHILD = {
    "number": TextKey(type="text", pattern="C{0001..9999}"),
    "parent": PARENT["id"],
    "count": Integer(type="integer", min=0, max=2**40),
}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path, monkeypatch):
    """An empty database, by a URL that names the environment, since it may hold a password."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/out.db"
        return
    with schema() as target:
        monkeypatch.setenv("CLOISTER_TEST_TARGET", target)
        yield "${CLOISTER_TEST_TARGET}"


def tables_in(folder: Path, parents: int = 200, children: int = 500) -> list[SyntheticTable]:
    """Two tables of random values in Parquet files."""
    rng = np.random.default_rng(1)
    domains = [Domain.of(attributes, folder) for attributes in (PARENT, CHILD)]
    files = [folder / f"{name}.parquet" for name in ("Parent t", "child")]
    for domain, file, rows in zip(domains, files, (parents, children), strict=True):
        codes = {column.name: rng.integers(0, column.size, rows) for column in domain}
        codes[domain.names[0]] = np.arange(rows)
        if "parent" in codes:
            codes["parent"] = rng.integers(0, parents, rows)
        Table(domain, codes).frame().to_parquet(file, index=False)
    key = ForeignKey("child", "parent", "Parent t", "id", 9)
    return [
        SyntheticTable("Parent t", domains[0], files[0], "id"),
        SyntheticTable("child", domains[1], files[1], "number", (key,), (("parent", "count"),)),
    ]


def test_what_is_loaded_is_read_back_and_types_and_keys_are_enforced(url, tmp_path):
    tables = tables_in(tmp_path)
    load_tables(LoadTarget(url, "r-1", "shop"), tables)
    for table, attributes in zip(tables, (PARENT, CHILD), strict=True):
        keys = {name: attribute.model_dump() for name, attribute in attributes.items()}
        spec = spec_of("fail", keys, url=url, table=table.name)
        again = table.domain.encode(read_frame(spec)).frame()
        pd.testing.assert_frame_equal(again, pd.read_parquet(table.file), check_dtype=False)
    with connect(url, "schema") as connection:
        parent, child = map(sa.inspect(connection).get_columns, ("Parent t", "child"))
    types = {column["name"]: str(column["type"]) for column in parent + child}
    narrowest = {"id": "INTEGER", "price": "NUMERIC(4, 2)", "born": "DATE", "flag": "BOOLEAN"}
    narrowest |= {'odd "name': "VARCHAR(3)", "count": "BIGINT"}
    assert types.items() >= narrowest.items()
    assert types["seen"] in ("TIMESTAMP", "DATETIME")
    nullable = [name for name, attribute in PARENT.items() if attribute.nullable]
    assert [column["name"] for column in parent if column["nullable"]] == nullable
    for values in (
        "VALUES ('C9999', 9999, 1)",
        "VALUES ('C0001', 1, -1)",
        "VALUES ('C9999', NULL, 1)",
        "SELECT 'C9999', parent, count FROM child",
    ):
        with pytest.raises(StorageError, match="IntegrityError"), connect(url, "row") as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA foreign_keys = ON")
            connection.execute(sa.text(f"INSERT INTO child (number, parent, count) {values}"))


def with_a_reference_to_no_row(table: SyntheticTable) -> None:
    frame = pd.read_parquet(table.file)
    frame.loc[0, "parent"] = 9_999
    frame.to_parquet(table.file)


def test_checks_second_loads_and_other_releases_change_nothing(url, tmp_path):
    tables, target = tables_in(tmp_path), LoadTarget(url, "r-1", "shop")
    require_loadable(target, tables)
    assert not (tmp_path / "out.db").exists()
    load_tables(target, tables)
    load_tables(target, tables)
    require_loadable(target, tables)
    with connect(url, "rows") as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM child")).scalar() == 500
        notes = connection.execute(sa.text(f"SELECT * FROM {NOTES}")).all()  # noqa: S608
    assert {tuple(note) for note in notes} == {
        (name, "r-1", "shop") for name in ("Parent t", "child")
    }
    for touch in (require_loadable, load_tables):
        with pytest.raises(StorageError, match="'Parent t' that is not of this release"):
            touch(LoadTarget(url, "r-2", "shop"), tables)


def test_a_later_release_replaces_the_tables_of_its_dataset_alone(url, tmp_path):
    load_tables(LoadTarget(url, "r-1", "shop"), tables_in(tmp_path))
    fewer = tables_in(tmp_path, children=300)
    later = LoadTarget(url, "r-2", "shop", replaces=True)
    require_loadable(later, fewer)
    assert _held(url) == (500, {"r-1"}), "a check changes nothing"
    load_tables(later, fewer)
    load_tables(later, fewer)
    assert _held(url) == (300, {"r-2"})
    with pytest.raises(StorageError, match="'Parent t' that no release of this dataset made"):
        load_tables(LoadTarget(url, "r-3", "library", replaces=True), fewer)
    with_a_reference_to_no_row(fewer[1])
    with pytest.raises(StorageError, match="IntegrityError"):
        load_tables(LoadTarget(url, "r-4", "shop", replaces=True), fewer)
    assert _held(url) == (300, {"r-2"}), "what fails leaves the earlier release whole"
    load_tables(LoadTarget(url, "r-5", "shop", replaces=True), fewer[:1])
    with connect(url, "schema") as connection:
        assert set(sa.inspect(connection).get_table_names()) == {"Parent t", NOTES}
        connection.execute(sa.text('DROP TABLE "Parent t"'))
        connection.commit()
    load_tables(LoadTarget(url, "r-6", "shop"), tables_in(tmp_path))
    assert _held(url) == (500, {"r-6"}), "tables that somebody dropped are loaded again"


def _held(url: str) -> tuple[int, set[str]]:
    """Rows of the child table, and the releases that the table of notes names."""
    with connect(url, "rows") as connection:
        rows = connection.execute(sa.text("SELECT count(*) FROM child")).scalar_one()
        notes = connection.execute(sa.text(f"SELECT release FROM {NOTES}")).scalars()  # noqa: S608
        return rows, set(notes)


def test_references_of_no_row_leave_nothing_and_a_table_that_nobody_noted_stays(url, tmp_path):
    tables = tables_in(tmp_path)
    with_a_reference_to_no_row(tables[1])
    with pytest.raises(StorageError, match="IntegrityError"):
        load_tables(LoadTarget(url, "r-1", "shop"), tables)
    with connect(url, "table", made=True) as connection:
        assert sa.inspect(connection).get_table_names() == []
        connection.execute(sa.text("CREATE TABLE child (number INTEGER)"))
        connection.commit()
    with pytest.raises(StorageError, match="'child' that no release of this dataset made"):
        require_loadable(LoadTarget(url, "r-1", "shop", replaces=True), tables)
    with pytest.raises(StorageError, match="'child' that is not of this release"):
        require_loadable(LoadTarget(url, "", "shop"), tables[1:])


LOAD = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from pathlib import Path
from test_sinks import tables_in
from cloister.schema.sinks import LoadTarget, load_tables
load_tables(LoadTarget(sys.argv[2], "r-1", "shop"), tables_in(Path(sys.argv[3]), 9_000, 9_000))
"""


def _loading(url: str, folder: Path) -> subprocess.Popen:
    paths = ":".join([str(Path(__file__).parent), *sys.path])
    return subprocess.Popen([sys.executable, "-c", LOAD, paths, url, str(folder)])


def _waited(happened) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
def test_a_load_that_is_killed_leaves_nothing_and_ends_when_repeated(url, tmp_path):
    """In PostgreSQL it waits for a table that another session is about to make; killed there."""
    tables = tables_in(tmp_path, 9_000, 9_000)
    if url.startswith("sqlite"):
        loading = _loading(url, tmp_path)
        _waited((tmp_path / "out.db-journal").exists)
        os.kill(loading.pid, signal.SIGKILL)
        loading.wait()
    else:
        plain = os.environ["CLOISTER_TEST_TARGET"].replace("+psycopg", "")
        with psycopg.connect(plain) as writer, psycopg.connect(plain, autocommit=True) as watch:
            writer.execute("CREATE TABLE child (a int)")
            loading = _loading(url, tmp_path)
            waits = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND query LIKE '%CREATE TABLE child%'"
            )
            _waited(lambda: watch.execute(waits).fetchone() == (1,))
            os.kill(loading.pid, signal.SIGKILL)
            loading.wait()
            writer.rollback()
    with connect(url, "schema", made=True) as connection:
        assert sa.inspect(connection).get_table_names() == []
    load_tables(LoadTarget(url, "r-1", "shop"), tables)
    with connect(url, "rows") as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM child")).scalar() == 9_000


def test_names_that_a_database_would_cut_are_refused(tmp_path):
    domain = Domain.of({"a" * 64: PARENT["kind"]}, tmp_path)
    with schema() as target, pytest.raises(StorageError, match="too long a name"):
        require_loadable(LoadTarget(target, "r-1", "x"), [SyntheticTable("x", domain, tmp_path)])


LITERAL = [
    *("postgresql://officer:hush@db/x", "postgresql://officer:a${B}@db/x"),
    *("postgresql://db/x?user=a&password=hush", "postgresql+psycopg://:hush@/x"),
]
NAMED = [
    *("postgresql://officer:${PW}@db/x", "postgresql://db/x?password=${PW}", "${DATABASE_URL}"),
    *("postgresql:///x?service=synthetic", "sqlite:////tmp/a:b@c.db"),
]


def test_a_password_in_a_url_is_seen_and_one_from_the_environment_may_have_any_letter(monkeypatch):
    from cloister.schema.sources.databases import _resolved

    assert all(map(holds_password, LITERAL))
    assert not any(map(holds_password, NAMED))
    monkeypatch.setenv("PW", "a@b/c:d?e#f%")
    assert _resolved("postgresql://officer:${PW}@db/x", made=True).password == "a@b/c:d?e#f%"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("postgresql://a:${CLOISTER_NO_SUCH_VARIABLE}@127.0.0.1/x", "VARIABLE, which is not set"),
        ("sqlite:////no/such.db", "does not exist"),
    ],
)
def test_a_database_that_is_not_there_is_named_and_not_made(place, words):
    with pytest.raises(StorageError, match=words), connect(place, "it"):
        pass


def test_rows_may_refer_to_later_rows_of_their_own_table(url, tmp_path):
    key = TextKey(type="text", pattern="{1..99}", dtype="Int64")
    domain = Domain.of({"id": key, "boss": key.model_copy(update={"nullable": True})}, tmp_path)
    rows = Table(domain, {"id": np.arange(3), "boss": np.array([2, 99, 1])})
    rows.frame().to_parquet(tmp_path / "staff.parquet", index=False)
    itself = ForeignKey("staff", "boss", "staff", "id", 2)
    table = SyntheticTable("staff", domain, tmp_path / "staff.parquet", "id", (itself,))
    load_tables(LoadTarget(url, "r-1", "staff"), [table])
    with connect(url, "rows") as connection:
        loaded = connection.execute(sa.text("SELECT id, boss FROM staff ORDER BY id")).all()
    assert [tuple(row) for row in loaded] == [(1, 3), (2, None), (3, 2)]
