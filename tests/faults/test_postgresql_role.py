"""The role of docs/postgresql-role.sql: all of the ledger works under it, and no entry changes."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_requests import ask
from postgres_schemas import connect_to_postgres
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from cloister.errors import StorageError
from cloister.privacy.ledger import Account, Ledger, Person, State
from cloister.privacy.ledger.governance import change_person
from cloister.privacy.ledger.leases import Owner
from cloister.privacy.ledger.records import JournalState, Mark

SCRIPT = Path(__file__).parents[2] / "docs" / "postgresql-role.sql"

CALL = "FOR EACH ROW EXECUTE FUNCTION cloister_entries_refuse()"
RETURNS_OLD = "RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$"


@pytest.fixture
def appending(postgres_place: str) -> Iterator[str]:
    """The URL of a ledger for a user who has the role alone; its tables are of somebody else."""
    Ledger.open(postgres_place)
    user, owner = f"cloister_{uuid.uuid4().hex}", make_url(postgres_place)
    schema = str(owner.query["options"]).removeprefix("-csearch_path=")
    with connect_to_postgres() as server:
        server.execute(f"SET search_path TO {schema}")
        for _ in range(2):
            server.execute(SCRIPT.read_text(encoding="utf-8"))
        server.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'test' IN ROLE cloister_append")
    try:
        yield owner.set(username=user, password="test").render_as_string(hide_password=False)
    finally:
        with connect_to_postgres() as server:
            server.execute(f"DROP ROLE {user}")


def test_all_operations_work_under_the_role(appending: str) -> None:
    ledger = Ledger.open(appending)
    change_person(ledger, "anna", lambda person: officer_of(person), "anna", "mandate")
    ledger.open_account(Account("adult", "row", "add_remove", ("/data/1.csv",)), "anna", "register")
    ledger.grant("adult", "row", 2, "1e-4", "year", "anna", "policy")
    release = ledger.reserve(ask(), "anna").release.id
    returned = ledger.reserve(ask(), "anna").release.id
    ledger.advance(returned, State.REFUNDED, "anna", "not needed")
    ledger.spend(release, "anna", "journal", "data")
    begin = Mark(0, "ab" * 32, "cd" * 16)
    journal = JournalState(begin, False, frozenset([begin.digest]))
    lease = ledger.begin_run(release, "anna", journal, Owner.current())
    lease.record(1, "ef" * 32)
    assert ledger.is_running(release)
    lease.close()
    ledger.seal(release, "anna", Mark(1, "ef" * 32))
    ledger.advance(release, State.CANDIDATE, "anna", "the run ended")
    ledger.deliver(release, "anna")
    ledger.advance(release, State.APPROVED, "anna", "fine")
    ledger.sign(release, "anna", "34" * 32)
    ledger.advance(release, State.WITHDRAWN, "anna", "a mistake")
    assert ledger.budget("adult", "row").left == 1
    assert ledger.verify() == []


def officer_of(person: Person) -> Person:
    return Person(person.name, ("officer", "engineer"), (person.name,))


STATEMENTS = [
    "UPDATE cloister_entries SET line = 'x'",
    "DELETE FROM cloister_entries",
    "TRUNCATE cloister_entries",
    "TRUNCATE cloister_leases",
    "DELETE FROM cloister_leases",
    "DROP TABLE cloister_entries",
    "DROP TABLE cloister_leases",
    "DROP TRIGGER cloister_entries_delete ON cloister_entries",
    "DROP FUNCTION cloister_entries_refuse() CASCADE",
    "ALTER TABLE cloister_entries DISABLE TRIGGER ALL",
    "ALTER TABLE cloister_entries DISABLE TRIGGER cloister_entries_insert",
    "ALTER TABLE cloister_entries DROP CONSTRAINT cloister_entries_slot_key",
    "ALTER TABLE cloister_entries ADD COLUMN more text",
    "ALTER TABLE cloister_entries RENAME TO other",
    "CREATE RULE silent AS ON INSERT TO cloister_entries DO INSTEAD NOTHING",
    f"CREATE TRIGGER other BEFORE INSERT ON cloister_entries {CALL}",
    f"CREATE OR REPLACE FUNCTION cloister_entries_refuse() {RETURNS_OLD}",
    "CREATE TABLE other (seq BIGINT)",
    "SET session_replication_role = replica",
]


def test_no_entry_and_no_guard_changes_under_the_role(appending: str) -> None:
    ledger = Ledger.open(appending)
    ledger.grant("adult", "row", 2, "1e-4", "year", "anna", "policy")
    entries = ledger.entries()
    follows_nothing = "INSERT INTO cloister_entries VALUES (3, 'a', 'b', 'c', 'd')"
    said = dict.fromkeys(STATEMENTS, "permission denied|must be owner")
    for statement, match in (said | {follows_nothing: "append-only"}).items():
        refused = pytest.raises(DBAPIError, match=match)
        with refused, ledger.store.engine.begin() as connection:
            connection.exec_driver_sql(statement)
        assert ledger.entries() == entries and ledger.verify() == []


def test_an_empty_schema_says_that_the_tables_are_missing(appending: str) -> None:
    with connect_to_postgres() as server:
        schema = make_url(appending).query["options"]
        assert isinstance(schema, str)
        server.execute(f"SET search_path TO {schema.removeprefix('-csearch_path=')}")
        server.execute("DROP TABLE cloister_entries")
    with pytest.raises(StorageError, match="permissions"):
        Ledger.open(appending)
