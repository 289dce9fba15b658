"""Leases: one process at a time draws the answers of a release, from its whole journal.

A lease is a row that changes, beside the chain of entries, which does not. It names its owner,
expires unless it is renewed, and holds the place of the last answer on disk. Every answer is
recorded in it before it is used, by a statement that does nothing unless the lease is still this
owner's. So an owner who lost it, whatever the clocks show, uses no further answer, and a journal
that lacks an answer that was used is not accepted again.

Times are those of the database's clock, in milliseconds.

A lease whose owner is known to have ended, as its machine shows, need not expire first.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from sqlalchemy import Connection, TextClause, text
from sqlalchemy import inspect as inspect_database

from cloister.errors import JournalMismatch, StorageError
from cloister.privacy.ledger.guards import LEASES, LEASES_STATEMENT
from cloister.privacy.ledger.records import Mark
from cloister.privacy.ledger.store import Store

_ENDED = ("Z", "X")
"""States of a process in /proc that ended and was not waited for yet."""

_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat behind the program's name: state, start in clock ticks since boot."""


_GIVEN_UP: set[str] = set()
"""Tokens of runs of this process that gave up their lease, which a full disk may not let in."""


@dataclass(frozen=True)
class Owner:
    """A process and one run in it; ``token`` is random and identifies the run.

    ``boot`` and ``namespace`` say which processes its ``pid`` and ``started`` can be compared
    with; they are empty where the system has no /proc.
    """

    token: str
    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Self:
        """A new run in this process."""
        pid = os.getpid()
        started = "".join(_stat(pid)[_STARTED : _STARTED + 1])
        return cls(secrets.token_hex(16), socket.gethostname(), _boot(), _namespace(), pid, started)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The owner that :attr:`text` wrote."""
        return cls(**json.loads(text))

    @property
    def text(self) -> str:
        """The owner as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended: it ran here since the last boot, and is gone."""
        if self.token in _GIVEN_UP:
            return True
        if not self.boot or (self.boot, self.namespace) != (_boot(), _namespace()):
            return False
        process = _stat(self.pid)
        return not process or process[_STATE] in _ENDED or process[_STARTED] != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _boot() -> str:
    return _text(Path("/proc/sys/kernel/random/boot_id")).strip()


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of a process behind its name, which may hold anything; none if it is gone."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


LEASE_SECONDS = 120.0
"""How long a lease lasts unless renewed: for so long a machine that died blocks others."""

RENEW_SECONDS = 30.0
"""Time between renewals: three in a row may fail."""

_NOW = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
}
"""The time by the database's clock; 2440587.5 is the Julian day of 1970-01-01."""

_LOCK = {"sqlite": "", "postgresql": " FOR UPDATE"}
"""Locks a row, so that its owner records no answer until it is decided who owns it."""


@dataclass(frozen=True)
class Held:
    """The lease of a release in the database, free without owner; ``left`` is in seconds."""

    owner: Owner | None
    left: float
    last: Mark | None

    @property
    def live(self) -> bool:
        """Whether its owner may still be running."""
        return self.owner is not None and self.left > 0 and not self.owner.ended


def held_lease(store: Store, connection: Connection, release: str) -> Held:
    """The lease of a release, inside a writing transaction.

    A ledger of a version without leases gets their table.
    """
    if not inspect_database(connection).has_table(LEASES):
        connection.exec_driver_sql(LEASES_STATEMENT)
    now = _NOW[store.dialect]
    query = (
        f"SELECT owner, expires - {now}, position, digest FROM {LEASES} WHERE release = :release"
    )
    row = connection.execute(text(query + _LOCK[store.dialect]), {"release": release}).first()
    if row is None:
        return Held(None, 0, None)
    owner, left, position, digest = row
    return Held(
        Owner.parse(owner) if owner else None,
        left / 1000,
        Mark(position, digest) if digest else None,
    )


def take(store: Store, connection: Connection, release: str, owner: Owner) -> None:
    """Make ``owner`` the owner; the row's mark of the journal is not changed."""
    connection.execute(
        text(
            f"INSERT INTO {LEASES} (release, token, owner, expires, position, digest) "
            f"VALUES (:release, :token, :owner, {_until(store)}, 0, '') "
            "ON CONFLICT (release) DO UPDATE "
            "SET token = :token, owner = :owner, expires = excluded.expires"
        ),
        {"release": release, "token": owner.token, "owner": owner.text},
    )


def shorten(store: Store, connection: Connection, release: str) -> None:
    """Let a lease last no longer than one taken now: the clock has been set back since."""
    connection.execute(
        text(f"UPDATE {LEASES} SET expires = {_until(store)} WHERE release = :release"),
        {"release": release},
    )


def end(connection: Connection, release: str) -> None:
    """End the lease, whoever holds it."""
    if inspect_database(connection).has_table(LEASES):
        query = f"UPDATE {LEASES} SET token = '', owner = '', expires = 0 WHERE release = :release"
        connection.execute(text(query), {"release": release})


class Lease:
    """The right of one run to draw the answers of its release; renewed by a thread.

    A ``Guard`` of a journal. Each method may be called by any thread.
    """

    def __init__(self, store: Store, release: str, owner: Owner, began: float) -> None:
        """``began``, by the monotonic clock: when the transaction that took it began."""
        self._store, self._release, self._owner = store, release, owner
        self._until = began + LEASE_SECONDS
        self._connection: Connection | None = None
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._renewer = threading.Thread(
            target=self._renew_until_closed, name=f"lease of {release}", daemon=True
        )
        self._renewer.start()

    def require(self) -> None:
        """Check that the lease is this run's, in the ledger if it was not renewed in time.

        Raises:
            JournalMismatch: another process took over the release, or a person withdrew it.
            StorageError: the ledger cannot be reached.
        """
        if self._closing.is_set() or time.monotonic() >= self._until:
            self.renew()

    def renew(self) -> None:
        """Let the lease last from now.

        Raises:
            JournalMismatch: another process took over the release, or a person withdrew it.
            StorageError: the ledger cannot be reached.
        """
        self._update("", {})

    def record(self, position: int, digest: str) -> None:
        """Record the place of the last answer on disk, which renews the lease.

        Raises:
            JournalMismatch: another process took over the release, or a person withdrew it.
            StorageError: the ledger cannot be reached.
        """
        self._update(
            ", position = :position, digest = :digest", {"position": position, "digest": digest}
        )

    def close(self) -> None:
        """Give up the lease; for others it expires where the ledger cannot be reached."""
        if self._closing.is_set():
            return
        self._closing.set()
        _GIVEN_UP.add(self._owner.token)
        with self._lock, suppress(StorageError):
            self._execute("token = '', owner = '', expires = 0", {})
        self._disconnect()

    def _update(self, more: str, values: dict[str, object]) -> None:
        began = time.monotonic()
        with self._lock:
            extended = not self._closing.is_set() and self._execute(
                f"expires = {_until(self._store)}{more}", values
            )
        if not extended:
            raise JournalMismatch(
                f"Release {self._release} was taken over by another process, or withdrawn: this "
                "run uses no further answer; see cloister ledger show."
            )
        self._until = began + LEASE_SECONDS

    def _execute(self, change: str, values: dict[str, object]) -> bool:
        """Change the lease if it is this run's; whether it was.

        A connection that was lost is opened again, once.
        """
        query = text(f"UPDATE {LEASES} SET {change} WHERE release = :release AND token = :token")
        values = {"release": self._release, "token": self._owner.token, **values}
        fresh = self._connection is None
        try:
            return self._run(query, values)
        except StorageError:
            self._disconnect()
            if fresh:
                raise
        return self._run(query, values)

    def _run(self, query: TextClause, values: dict[str, object]) -> bool:
        with self._store.clear_errors():
            if self._connection is None:
                self._connection = self._store.connect()
            with self._connection.begin():
                return bool(self._connection.execute(query, values).rowcount)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(StorageError), self._store.clear_errors():
                connection.close()

    def _renew_until_closed(self) -> None:
        while not self._closing.wait(RENEW_SECONDS):
            with suppress(StorageError, JournalMismatch):
                self.renew()


def _until(store: Store) -> str:
    return f"{_NOW[store.dialect]} + {int(LEASE_SECONDS * 1000)}"
