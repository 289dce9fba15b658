"""Parts of a table of PostgreSQL: under one snapshot each row is in one part, whatever happens."""

import pickle
import sqlite3

import psycopg
import pytest
import sqlalchemy as sa
from declared_table import TWO, declared
from examples import few
from postgres_schemas import schema

from cloister.errors import DataError, StorageError
from cloister.schema.sources.parts import read_part, source_parts
from cloister.schema.sources.reading import read_frame

ROWS = 2_000
"""Rows of a table: about 9 pages of two integers."""

ALL = [(row % 10, row // 400) for row in range(ROWS)]
FILL = f"SELECT n % 10, n / 400 FROM generate_series(0, {ROWS - 1}) AS n"


@pytest.fixture(scope="module")
def url():
    with schema() as made:
        executed(made, *CREATED.values())
        yield made


def executed(url, *statements):
    """Each in a transaction of its own."""
    plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as server:
        for statement in statements:
            server.execute(statement)


def spec_of(folder, url, name="t"):
    return declared(folder, TWO, {"path": None, "url": url, "table": name})


def rows_of(part, spec):
    return [
        tuple(map(int, row))
        for batch in read_part(part, spec)
        for row in zip(*(batch.cells[name].values() for name in "ab"), strict=True)
    ]


CREATED = {
    "plain": f"CREATE TABLE plain (a, b) AS {FILL}",
    'odd "name": 100%': f'CREATE TABLE "odd ""name"": 100%" (a, b) AS {FILL}',
    "analysed": f"CREATE TABLE analysed (a, b) AS {FILL}; ANALYZE analysed",
    "materialised": f"CREATE MATERIALIZED VIEW materialised (a, b) AS {FILL}",
    "divided": "CREATE TABLE divided (a integer, b integer) PARTITION BY RANGE (b);"
    "CREATE TABLE d1 PARTITION OF divided FOR VALUES FROM (0) TO (1);"
    "CREATE TABLE d2 PARTITION OF divided FOR VALUES FROM (1) TO (9);"
    f"INSERT INTO divided {FILL}",
    "parent": "CREATE TABLE parent (a integer, b integer);"
    "CREATE TABLE child (more text) INHERITS (parent);"
    f"INSERT INTO parent {FILL} LIMIT 800; INSERT INTO child (a, b) {FILL} OFFSET 800",
    "holes": f"CREATE TABLE holes (a, b) AS {FILL} UNION ALL SELECT 77, 77 FROM "
    "generate_series(1, 2000); DELETE FROM holes WHERE a = 77",
}


CHANGES = [
    "UPDATE {0} SET a = 1 - a, b = b + 1 WHERE a < 2",
    "DELETE FROM {0} WHERE b = 3",
    "INSERT INTO {0} SELECT * FROM {0}",
    "VACUUM {0}",
]


@pytest.mark.parametrize("name", few(CREATED, 4))
def test_parts_of_a_table_are_its_rows(tmp_path, url, name):
    spec = spec_of(tmp_path, url, name)
    for most in (300, 10**6):
        with source_parts(spec, None, most) as parts:
            read = [rows_of(part, spec) for part in parts]
            assert all(part.pin for part in parts)
        assert sorted(sum(read, [])) == sorted(ALL)
        assert len(parts) == 1 if most > ROWS else len(parts) > 1
        if name not in ("divided", "parent"):
            assert sum(read, []) == ALL
    frame = read_frame(spec)
    assert sorted(zip(frame["a"], frame["b"], strict=True)) == sorted(ALL)


def test_rows_that_change_meanwhile_are_read_once_and_as_they_were(tmp_path, url):
    """Without one snapshot an updated row moves to the last page, and is read twice."""
    executed(url, f"CREATE TABLE changing (a, b) AS {FILL}")
    spec = spec_of(tmp_path, url, "changing")
    with source_parts(spec, None, 500) as parts:
        sent, read = pickle.loads(pickle.dumps(parts)), []
        for part in sent:
            read.append(rows_of(part, spec))
            executed(url, *(change.format("changing") for change in CHANGES))
        assert sum(read, []) == ALL
        assert [rows_of(part, spec) for part in sent] == read
    assert len(read_frame(spec)) > ROWS


def test_a_table_is_not_rewritten_while_its_parts_are_read(tmp_path, url):
    executed(url, f"CREATE TABLE packed (a, b) AS {FILL}", "DELETE FROM packed WHERE b = 0")
    spec = spec_of(tmp_path, url, "packed")
    with source_parts(spec, None, 500) as parts:
        for rewriting in ("VACUUM FULL packed", "TRUNCATE packed"):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                executed(url, "SET lock_timeout = '200ms'", rewriting)
        assert sum((rows_of(part, spec) for part in parts), []) == ALL[400:]
    executed(url, "SET lock_timeout = '200ms'", "VACUUM FULL packed")


END_CONNECTIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_class ON relation = pg_class.oid "
    "WHERE relnamespace = to_regnamespace(current_schema()) AND pid <> pg_backend_pid()"
)
"""Ends what holds a snapshot of this schema's tables."""


def test_a_part_of_a_snapshot_that_has_ended_or_was_lost_ends_the_release(tmp_path, url):
    """A connection that is lost after all parts were read is no fault."""
    spec = spec_of(tmp_path, url, "plain")
    said = "has ended; run the same command, which resumes"
    with source_parts(spec, None, 500) as ended:
        pass
    with source_parts(spec, None, 500) as lost:
        read = [rows_of(part, spec) for part in lost]
        executed(url, END_CONNECTIONS)
        for parts in (ended, lost):
            with pytest.raises(StorageError, match=said):
                rows_of(parts[0], spec)
    assert sum(read, []) == ALL


def test_a_view_is_one_part(tmp_path, url):
    executed(url, "CREATE OR REPLACE VIEW seen AS SELECT * FROM plain")
    spec = spec_of(tmp_path, url, "seen")
    with source_parts(spec, None, 500) as parts:
        (part,) = parts
        assert (part.pin, rows_of(part, spec)) == (None, ALL)


def test_what_the_reader_of_parts_raises_is_its_own(tmp_path, url):
    with (
        pytest.raises(sqlite3.OperationalError, match="another"),
        source_parts(spec_of(tmp_path, url, "plain"), None, 500),
    ):
        raise sqlite3.OperationalError("another")


def test_faults_are_told_before_any_part(tmp_path, url):
    executed(url, "CREATE TABLE IF NOT EXISTS narrow (a integer)")
    for name, error, words in (
        ("narrow", DataError, "'b' are missing"),
        ("none", StorageError, "NoSuchTableError"),
    ):
        with (
            pytest.raises(error, match=words),
            source_parts(spec_of(tmp_path, url, name), None, 500),
        ):
            pass
