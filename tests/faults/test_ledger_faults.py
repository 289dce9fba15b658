"""Locks, full disks, lost connections: the ledger says so, and holds nothing half-written."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import psycopg
import pytest
from ledger_requests import ask
from small_disks import small_disk
from sqlalchemy import event, make_url
from sqlalchemy.engine import Connection
from two_databases import on_both

from cloister.errors import PrivacyError, StorageError
from cloister.privacy.ledger import Ledger, State
from cloister.privacy.ledger.composition import Charges


@pytest.fixture
def ledger(place: str) -> Ledger:
    opened = Ledger.open(place)
    opened.grant("adult", "row", 100, 0, "ever", "officer", "why")
    return opened


@on_both
def test_a_locked_ledger_says_so_and_works_afterwards(ledger, place) -> None:
    waiting = Ledger.open(place, timeout=0.3)
    with ledger.store.writing():
        assert waiting.budget("adult", "row").left == 100
        with pytest.raises(StorageError, match=r"locked by another process for 0\.3 seconds"):
            waiting.reserve(ask(), "flow")
    waiting.reserve(ask(), "flow")
    assert len(ledger.entries()) == 2 and ledger.verify() == []


@on_both
def test_an_accountant_that_fails_leaves_nothing(ledger) -> None:
    def fail(charges: Charges, delta: Fraction) -> Fraction | None:
        raise PrivacyError("unknown event")

    with pytest.raises(PrivacyError):
        replace(ledger, compose=fail).reserve(ask(), "flow")
    assert len(ledger.entries()) == 1
    ledger.reserve(ask(), "flow")


def lose_connection(place: str, connection: Connection) -> None:
    """Let the server end the session of ``connection``."""
    pid = connection.connection.dbapi_connection.info.backend_pid  # type: ignore[union-attr]
    url = make_url(place).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


@pytest.mark.parametrize(
    "when", ["before_lock", "after_lock", "before_insert", "after_insert", "before_commit"]
)
def test_a_connection_lost_on_the_way_leaves_nothing(postgres_place, when) -> None:
    ledger = Ledger.open(postgres_place)
    ledger.grant("adult", "row", 1, 0, "ever", "officer", "why")
    broken = Ledger.open(postgres_place)
    side, word = when.split("_")

    def on_statement(connection: Connection, _: object, statement: str, *__: object) -> None:
        if word in statement.lower():
            lose_connection(postgres_place, connection)

    if word == "commit":
        event.listen(
            broken.store.engine,
            "commit",
            lambda connection: lose_connection(postgres_place, connection),
        )
    else:
        event.listen(broken.store.engine, f"{side}_cursor_execute", on_statement)
    request = ask()
    with pytest.raises(StorageError, match="connection was lost"):
        broken.reserve(request, "flow")
    assert len(ledger.entries()) == 1
    assert not ledger.reserve(request, "flow").resumed
    assert ledger.budget("adult", "row").left == 0 and ledger.verify() == []


def test_an_answer_lost_after_the_commit_is_charged_once(postgres_place) -> None:
    ledger = Ledger.open(postgres_place)
    ledger.grant("adult", "row", 1, 0, "ever", "officer", "why")
    broken = Ledger.open(postgres_place)
    commit = broken.store.engine.dialect.do_commit

    def commit_and_lose(connection: object) -> None:
        commit(connection)  # type: ignore[arg-type]
        raise psycopg.OperationalError("the answer to the commit was lost")

    broken.store.engine.dialect.do_commit = commit_and_lose  # type: ignore[method-assign]
    request = ask()
    with pytest.raises(StorageError, match="not charged twice"):
        broken.reserve(request, "flow")
    assert ledger.reserve(request, "flow").resumed
    assert ledger.budget("adult", "row").releases == 1 and ledger.verify() == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", kilobytes=512) as folder:
        yield folder


def test_a_full_disk_says_so_and_loses_nothing(disk) -> None:
    ledger = Ledger.open(disk / "ledger.db")
    ledger.grant("adult", "row", 1000, 0, "ever", "officer", "why")
    kept = []
    with pytest.raises(StorageError, match="has no room on its disk: make room"):
        for _ in range(1000):
            kept.append(ledger.reserve(ask(events={"label": "x" * 4000}), "flow").release.id)
    moved = Ledger.open(_copy(disk, disk.parent / "copy"))
    assert kept and [release.id for release in moved.releases()] == kept
    moved.reserve(ask(), "flow")
    assert moved.verify() == []


def _copy(disk: Path, folder: Path) -> Path:
    folder.mkdir()
    for path in disk.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder / "ledger.db"


def test_a_database_at_its_limit_says_so_and_works_afterwards(tmp_path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.grant("adult", "row", 1000, 0, "ever", "officer", "why")

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 30")

    event.listen(ledger.store.engine, "connect", limit)
    kept = 0
    with pytest.raises(StorageError, match="no room on its disk"):
        for kept in range(1000):
            ledger.reserve(ask(events={"label": "x" * 4000}), "flow")
    event.remove(ledger.store.engine, "connect", limit)
    assert len(ledger.releases()) == kept > 0
    ledger.reserve(ask(), "flow")
    assert ledger.verify() == []


def test_a_ledger_that_may_not_be_written_says_so(tmp_path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.grant("adult", "row", 1, 0, "ever", "officer", "why")
    event.listen(
        ledger.store.engine, "connect", lambda raw, _: raw.execute("PRAGMA query_only = 1")
    )
    with pytest.raises(StorageError, match="permissions"):
        ledger.reserve(ask(), "flow")
    assert len(ledger.entries()) == 1


def test_a_damaged_database_says_so(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(path)
    ledger.grant("adult", "row", 1, 0, "ever", "officer", "why")
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    with pytest.raises(StorageError, match="damaged"):
        ledger.entries()


@on_both
def test_a_move_that_is_refused_leaves_nothing(ledger) -> None:
    release = ledger.reserve(ask(), "flow").release.id
    before = ledger.entries()
    with pytest.raises(Exception, match="cannot become"):
        ledger.advance(release, State.PUBLISHED, "reviewer", "why")
    assert ledger.entries() == before
