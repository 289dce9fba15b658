"""The table of entries, and the triggers that make it append-only and chained.

No row can be changed or removed, and a new one must have the next number and the hash of the last.
The insert guard also stops SQLite's ``INSERT OR REPLACE``, which removes rows without running the
triggers on removal.
"""

from __future__ import annotations

from cloister.privacy.ledger.entries import GENESIS

TABLE = "cloister_entries"

LEASES = "cloister_leases"
"""The table of leases, whose rows change: it is not part of the chain."""

LEASES_STATEMENT = f"""CREATE TABLE {LEASES} (
    release  TEXT NOT NULL PRIMARY KEY,
    token    TEXT NOT NULL,
    owner    TEXT NOT NULL,
    expires  BIGINT NOT NULL,
    position BIGINT NOT NULL,
    digest   TEXT NOT NULL
)"""

_COLUMNS = """
    seq      BIGINT NOT NULL PRIMARY KEY,
    slot     TEXT NOT NULL UNIQUE,
    previous TEXT NOT NULL UNIQUE,
    hash     TEXT NOT NULL UNIQUE,
    line     TEXT NOT NULL
"""

_FOLLOWS = f"""
    NEW.seq = (SELECT coalesce(max(seq), 0) + 1 FROM {TABLE})
    AND NEW.previous = coalesce((SELECT hash FROM {TABLE} ORDER BY seq DESC LIMIT 1), '{GENESIS}')
    AND NOT EXISTS (SELECT 1 FROM {TABLE} WHERE slot = NEW.slot OR hash = NEW.hash)
"""


def _sqlite_guard(name: str, event: str, condition: str) -> str:
    return (
        f"CREATE TRIGGER {TABLE}_{name} BEFORE {event} ON {TABLE} WHEN {condition} "
        f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
    )


_REFUSE = (
    "RAISE EXCEPTION 'the ledger is append-only' USING ERRCODE = 'integrity_constraint_violation';"
)

_SQLITE = (
    f"CREATE TABLE {TABLE} ({_COLUMNS}) WITHOUT ROWID",
    _sqlite_guard("insert", "INSERT", f"NOT coalesce({_FOLLOWS}, 0)"),
    _sqlite_guard("update", "UPDATE", "1"),
    _sqlite_guard("delete", "DELETE", "1"),
)

_POSTGRESQL = (
    f"CREATE TABLE {TABLE} ({_COLUMNS})",
    f"""CREATE FUNCTION {TABLE}_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        {_REFUSE}
    END $$""",
    f"""CREATE FUNCTION {TABLE}_follow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF coalesce({_FOLLOWS}, false) THEN RETURN NEW; END IF;
        {_REFUSE}
    END $$""",
    (
        f"CREATE TRIGGER {TABLE}_insert BEFORE INSERT ON {TABLE} FOR EACH ROW "
        f"EXECUTE FUNCTION {TABLE}_follow()"
    ),
    *(
        f"CREATE TRIGGER {TABLE}_{event.lower()} BEFORE {event} ON {TABLE} FOR EACH {scope} "
        f"EXECUTE FUNCTION {TABLE}_refuse()"
        for event, scope in (("UPDATE", "ROW"), ("DELETE", "ROW"), ("TRUNCATE", "STATEMENT"))
    ),
    *(
        f"ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER {TABLE}_{event}"
        for event in ("insert", "update", "delete", "truncate")
    ),
)

STATEMENTS = {
    "sqlite": (*_SQLITE, LEASES_STATEMENT),
    "postgresql": (*_POSTGRESQL, LEASES_STATEMENT),
}
"""What makes the tables and the guards, by database."""
