"""The table of entries, and the triggers that make it append-only and chained.

No row can be changed or removed, and a new one must have the next number and the hash of the last.
The insert guard also stops SQLite's ``INSERT OR REPLACE``, which removes rows without running the
triggers on removal.

The table and guards of a database are compared with those that a ledger makes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache

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
"""Statements that create the tables and guards, by database."""


_LIST_SQLITE = "SELECT name, coalesce(sql, '') FROM sqlite_master ORDER BY name"

# Bits of pg_trigger.tgtype; 4, 8, 16 and 32 are insert, delete, update and truncate.
_ROW, _BEFORE = 1, 2

_LIST_POSTGRESQL = f"""
    SELECT t.tgname::text,
        concat_ws(' ', 'trigger', t.tgtype, t.tgenabled, t.tgqual IS NULL, p.prosrc)
    FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE t.tgrelid = to_regclass('{TABLE}') AND NOT t.tgisinternal
    UNION ALL
    SELECT '{TABLE}', string_agg(
        concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull), ', '
        ORDER BY a.attnum)
    FROM pg_attribute a
    WHERE a.attrelid = to_regclass('{TABLE}') AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT '{TABLE} ' || pg_get_constraintdef(oid), contype::text
    FROM pg_constraint WHERE conrelid = to_regclass('{TABLE}') AND contype IN ('p', 'u', 'c', 'f')
    UNION ALL
    SELECT r.rulename::text, 'rule' FROM pg_rewrite r WHERE r.ev_class = to_regclass('{TABLE}')
"""

_PARTS = {"insert": (_ROW | _BEFORE | 4, "follow"), "delete": (_ROW | _BEFORE | 8, "refuse")}
_PARTS |= {"update": (_ROW | _BEFORE | 16, "refuse"), "truncate": (_BEFORE | 32, "refuse")}
"""Of each trigger: its type in bits of ``pg_trigger.tgtype``, and the function that it calls."""

LIST_OBJECTS = {"sqlite": _LIST_SQLITE, "postgresql": _LIST_POSTGRESQL}
"""Query for the names and full texts of the table and its guards, by database."""


@cache
def declared_on_sqlite() -> dict[str, str]:
    """The objects of a ledger that was made just now."""
    with closing(sqlite3.connect(":memory:")) as fresh:
        for statement in STATEMENTS["sqlite"]:
            fresh.execute(statement)
        return dict(fresh.execute(_LIST_SQLITE))


def declared_on_postgresql() -> dict[str, str]:
    """The objects of a ledger that was made just now."""
    functions = [
        text.split("$$") for text in STATEMENTS["postgresql"] if text.startswith("CREATE FUNCTION")
    ]
    sources = {
        head.split("(")[0].removeprefix(f"CREATE FUNCTION {TABLE}_"): source
        for head, source, _ in functions
    }
    triggers = {
        f"{TABLE}_{event}": f"trigger {kind} A t {sources[function]}"
        for event, (kind, function) in _PARTS.items()
    }
    columns = {TABLE: "seq bigint t, slot text t, previous text t, hash text t, line text t"}
    unique = {f"{TABLE} UNIQUE ({name})": "u" for name in ("slot", "previous", "hash")}
    return triggers | columns | unique | {f"{TABLE} PRIMARY KEY (seq)": "p"}


DECLARED: Mapping[str, Callable[[], dict[str, str]]] = {
    "sqlite": declared_on_sqlite,
    "postgresql": declared_on_postgresql,
}
"""Query for the objects that `LIST_OBJECTS` lists in a sound database."""


def differences(present: Mapping[str, str], declared: Mapping[str, str]) -> list[str]:
    """Problems of the objects of a database, each given as a name and its text."""
    missing = [
        f"{name} is missing from the database" for name in _needed(declared) - present.keys()
    ]
    extra = [
        f"{name} is in the database, and no ledger makes it"
        for name in present.keys() - declared.keys()
    ]
    common = declared.keys() & present.keys()
    different = [
        f"{name} is not as a ledger makes it" for name in common if present[name] != declared[name]
    ]
    return sorted(missing + extra + different)


def _needed(declared: Mapping[str, str]) -> set[str]:
    """The names that a sound database holds.

    Ledgers of versions without leases get that table when they first run.
    """
    return {name for name in declared if LEASES not in name}
