"""Both databases keep the ledger append-only, by themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from ledger_requests import ask
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from two_databases import on_both

from cloister.errors import BudgetExceeded, StorageError, VerificationError
from cloister.privacy.exact import decimal_below
from cloister.privacy.ledger import Ledger, State
from cloister.privacy.ledger.governance import decline
from cloister.privacy.ledger.lookups import declined as listed
from cloister.privacy.ledger.outbox import events_after
from cloister.tasks.release.review import declined_facts

TABLE = "cloister_entries"


@pytest.fixture
def ledger(place: str) -> Ledger:
    """A ledger of four entries: a grant, two reservations, one spent."""
    opened = Ledger.open(place)
    opened.grant("adult", "row", 2, "1e-6", "ever", "officer", "why")
    first = opened.reserve(ask(release="r-1"), "flow").release.id
    opened.reserve(ask(release="r-2"), "flow")
    opened.spend(first, "flow", "journal-1", "data-1")
    return opened


@contextmanager
def unguarded(ledger: Ledger) -> Iterator[Connection]:
    """A connection without the guards: someone with all rights on the database."""
    with ledger.store.engine.begin() as connection:
        for event in ("insert", "update", "delete", "truncate")[
            : 3 if ledger.store.dialect == "sqlite" else 4
        ]:
            on = "" if ledger.store.dialect == "sqlite" else f" ON {TABLE}"
            connection.exec_driver_sql(f"DROP TRIGGER {TABLE}_{event}{on}")
        yield connection


def refused(ledger: Ledger, statement: str) -> None:
    before = ledger.entries()
    with pytest.raises(DBAPIError, match="append-only"), ledger.store.engine.begin() as connection:
        connection.exec_driver_sql(statement)
    assert ledger.entries() == before


@on_both
def test_a_release_lives_its_life(ledger, place) -> None:
    ledger.advance("r-1", State.CANDIDATE, "flow", "evaluated", {"certificate": "cd" * 32})
    ledger.advance("r-2", State.REFUNDED, "flow", "not needed")
    again = Ledger.open(place)
    assert [release.state for release in again.releases()] == [State.CANDIDATE, State.REFUNDED]
    assert again.budget("adult", "row").left == 1
    with pytest.raises(BudgetExceeded):
        again.reserve(ask(epsilon="1.5"), "flow")
    assert again.verify([entry.anchor for entry in again.entries()]) == []


CHANGES = [
    f"UPDATE {TABLE} SET line = 'x' WHERE seq = 2",
    f"UPDATE {TABLE} SET seq = 9 WHERE seq = 4",
    f"DELETE FROM {TABLE} WHERE seq = 4",
    f"DELETE FROM {TABLE}",
    f"INSERT INTO {TABLE} VALUES (6, 'a', 'b', 'c', 'd')",
    f"INSERT INTO {TABLE} VALUES (5, 'a', 'b', 'c', 'd')",
    f"INSERT INTO {TABLE} SELECT 5, slot, 'b', 'c', 'd' FROM {TABLE} WHERE seq = 2",
    f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE seq = 4",
]


@on_both
def test_the_database_refuses_to_change_or_remove_also_by_its_own_shortcuts(ledger: Ledger) -> None:
    for statement in CHANGES:
        refused(ledger, statement)
    if ledger.store.dialect == "sqlite":
        refused(ledger, f"INSERT OR REPLACE INTO {TABLE} VALUES (4, 'a', 'b', 'c', 'd')")
        refused(ledger, f"REPLACE INTO {TABLE} VALUES (2, 'a', 'b', 'c', 'd')")
        last = f"(SELECT hash FROM {TABLE} WHERE seq = 4)"
        for copied in ("slot, {last}, 'c'", "'a', {last}, hash"):
            columns = copied.format(last=last)
            refused(
                ledger,
                f"INSERT OR REPLACE INTO {TABLE} SELECT 5, {columns}, 'd' "
                f"FROM {TABLE} WHERE seq = 2",
            )
        refused(ledger, f"UPDATE OR REPLACE {TABLE} SET seq = 1 WHERE seq = 2")
    else:
        refused(ledger, f"TRUNCATE {TABLE}")
        refused(ledger, f"TRUNCATE {TABLE} CASCADE")
        refused(ledger, f"SET LOCAL session_replication_role = replica; DELETE FROM {TABLE}")
        upsert = (
            f"INSERT INTO {TABLE} VALUES (4, 'a', 'b', 'c', 'd') "
            "ON CONFLICT (seq) DO UPDATE SET line = 'x'"
        )
        refused(ledger, upsert)


@pytest.mark.parametrize("column", ["slot", "previous", "hash", "line"])
@pytest.mark.parametrize("seq", [1, 3, 4])
def test_an_altered_row_is_named_and_stops_the_ledger(ledger, column, seq) -> None:
    with unguarded(ledger) as connection:
        connection.exec_driver_sql(
            f"UPDATE {TABLE} SET {column} = replace({column}, '0', '1') || ' ' WHERE seq = {seq}"
        )
    found = ledger.verify()
    assert seq in {finding.entry for finding in found}
    assert "_delete is missing from the database" in str(found[0])
    with pytest.raises(VerificationError, match=f"entry {seq}"):
        ledger.reserve(ask(), "flow")
    with pytest.raises(VerificationError):
        ledger.budget("adult", "row")


@on_both
def test_a_removed_row_is_named_and_stops_the_ledger(ledger) -> None:
    anchor = ledger.anchor()
    assert anchor is not None
    with unguarded(ledger) as connection:
        connection.exec_driver_sql(f"DELETE FROM {TABLE} WHERE seq = 2")
    assert 2 in {finding.entry for finding in ledger.verify([anchor])}
    with pytest.raises(VerificationError, match="entry 2"):
        ledger.reserve(ask(), "flow")


@on_both
def test_a_cut_tail_is_found_by_an_anchor(ledger: Ledger) -> None:
    anchor = ledger.anchor()
    assert anchor is not None
    with unguarded(ledger) as connection:
        connection.exec_driver_sql(f"DELETE FROM {TABLE} WHERE seq = 4")
    assert [finding.entry for finding in ledger.verify()] == [0] * (
        3 if ledger.store.dialect == "sqlite" else 4
    )
    assert 4 in {finding.entry for finding in ledger.verify([anchor])}


@on_both
def test_names_that_sql_would_trip_over_are_kept(ledger) -> None:
    name = 'Robert\'); DROP TABLE "x"; -- %s :seq é 🙂 \x00'
    ledger.grant(name, "it's", 1, 0, "ever", "officer", name)
    ledger.reserve(ask(dataset=name, unit="it's", release="r-9"), "flow")
    assert ledger.release("r-9").request.dataset == name
    assert ledger.verify() == []


def test_a_server_that_is_not_there_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="cannot be reached") as caught:
        Ledger.open("postgresql://user:secret@127.0.0.1:1/none", timeout=2)
    assert "secret" not in str(caught.value)


def test_a_request_that_was_declined_is_an_entry_that_charges_nothing(ledger) -> None:
    before = ledger.budget("adult", "row")
    declined = [decline(ledger, ask(epsilon=50), "engineer", purpose) for purpose in ("", "a try")]
    assert ledger.budget("adult", "row") == before
    assert ledger.verify() == []
    events, last = events_after(ledger, 4)
    assert [event.kind for event in events] == ["declined", "declined"]
    assert [(event.seq, event.hash) for event in events] == [
        (entry.seq, entry.hash) for entry in declined
    ]
    assert events_after(ledger, last) == ([], last)
    assert listed(ledger) == listed(ledger, "adult") == declined
    assert listed(ledger, "other") == []
    facts = declined_facts(declined[1], ledger.books().house)
    asked = {name: facts[name] for name in ("dataset", "epsilon", "left", "by", "reason")}
    left = decimal_below(before.left)
    assert asked == {
        "dataset": "adult",
        "epsilon": "50",
        "left": left,
        "by": "engineer",
        "reason": "a try",
    }
    older = {name: value for name, value in declined[1].body.items() if name != "left"}
    older_facts = declined_facts(replace(declined[1], body=older), ledger.books().house)
    assert older_facts["left"] == "not recorded"


@on_both
def test_an_event_is_there_if_its_entry_is(ledger) -> None:
    with pytest.raises(RuntimeError), ledger.writing() as transaction:
        held = transaction.books.releases["r-1"]
        moved = {"by": "flow", "reason": "evaluated", "evidence": {}}
        transaction.move(held, State.CANDIDATE, moved)
        raise RuntimeError
    assert events_after(ledger, 4) == ([], 4)
    ledger.advance("r-1", State.CANDIDATE, "flow", "evaluated", {})
    ((event,), _) = events_after(ledger, 4)
    assert (event.kind, event.release, event.dataset) == ("candidate", "r-1", "adult")
