"""The database of entries, SQLite (WAL, one writer) or PostgreSQL (advisory lock), and exports.

It gives transactions and clear errors.

Every operation uses a fresh connection, so a store may be shared by threads and inherited by forked
processes. A writing transaction holds the only write lock from its first statement: ``BEGIN
IMMEDIATE`` on SQLite, a transaction's advisory lock on PostgreSQL (read committed, so what it reads
next is what the last writer committed).

Exports are written as a whole or not at all, and replace nothing but an earlier export of the same
ledger.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy import inspect as inspect_database
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from cloister.errors import StorageError, VerificationError
from cloister.files import database_to_read, is_read_only, write_whole
from cloister.privacy.ledger.entries import Entry
from cloister.privacy.ledger.guards import DECLARED, LIST_OBJECTS, STATEMENTS, TABLE, differences

_WRITES = "cloister_writes"
_LOCK = (
    "SELECT pg_advisory_xact_lock(hashtext('cloister ledger'), hashtext(current_schema()::text))"
)
_ROWS = f"SELECT seq, slot, previous, hash, line FROM {TABLE}"
_INSERT = text(
    f"INSERT INTO {TABLE} (seq, slot, previous, hash, line) "
    "VALUES (:seq, :slot, :previous, :hash, :line)"
)


@dataclass(frozen=True)
class Row:
    """An entry as the database holds it: its line, and copies of what the guards check."""

    seq: int
    slot: str
    previous: str
    hash: str
    line: str

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """The row of an entry."""
        return cls(entry.seq, entry.slot, entry.previous, entry.hash, entry.line)


@dataclass(frozen=True)
class Store:
    """A database of entries; ``timeout`` is how long a writer waits for another, in seconds."""

    engine: Engine
    timeout: float

    @classmethod
    def open(cls, address: str | Path, timeout: float) -> Self:
        """The store at a path or SQLAlchemy URL, made if there is none.

        In a read-only folder it can be read, and nothing is made.

        Errors: ``StorageError`` if it cannot be reached, read or made.
        """
        url = _url(address)
        if url.get_backend_name() == "sqlite" and not _sealed(url):
            _make_file(url, timeout)
        store = cls(_engine(url, timeout), timeout)
        store._prepare()
        return store

    @property
    def name(self) -> str:
        """Its name in messages: the URL without a password."""
        return self.engine.url.render_as_string(hide_password=True)

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self.engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees the last committed state."""
        with self.clear_errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """The only writing transaction at its time; committed at the end, undone by any exception.

        Errors: ``StorageError`` if the lock, the disk or the connection fails; nothing is then
            half-written.
        """
        with (
            self.clear_errors(),
            self.engine.execution_options(**{_WRITES: True}).begin() as connection,
        ):
            if self.dialect == "postgresql":
                self._lock(connection)
            yield connection

    def connect(self) -> Connection:
        """A connection of the caller's own, whose transactions write.

        To be used inside ``clear_errors``.
        """
        connection = self.engine.connect().execution_options(**{_WRITES: True})
        if self.dialect == "postgresql":
            connection.exec_driver_sql(f"SET lock_timeout = {int(self.timeout * 1000)}")
            connection.commit()
        return connection

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Errors of the database as ``StorageError``."""
        try:
            yield
        except DBAPIError as error:
            raise StorageError(
                f"The ledger {self.name} {_explain(error.orig, self.timeout)}"
            ) from error

    def rows(self, connection: Connection, first: int | None = None) -> list[Row]:
        """All entries, by number; or those from the ``first`` number on."""
        since = "" if first is None else f" WHERE seq >= {first:d}"
        return [_row(*row) for row in connection.exec_driver_sql(f"{_ROWS}{since} ORDER BY seq")]

    def find(self, connection: Connection, seq: int) -> Entry | None:
        """The entry with a number, if it is there and its text is as it was written."""
        row = connection.execute(text(f"{_ROWS} WHERE seq = :seq"), {"seq": seq}).first()
        with suppress(VerificationError):
            entry = Entry.parse(_row(*row).line) if row else None
            return entry if entry and entry.hash == entry.digest else None
        return None

    def append(self, connection: Connection, entry: Entry) -> None:
        """Add one entry, inside a writing transaction."""
        connection.execute(_INSERT, asdict(Row.of(entry)))

    def damages(self) -> list[str]:
        """Problems of the database itself: table and guards, pages and indexes."""
        with self.reading() as connection:
            return [*self.changed_guards(connection), *self._broken(connection)]

    def changed_guards(self, connection: Connection) -> list[str]:
        """Problems of the table and its guards."""
        return differences(self._objects(connection), DECLARED[self.dialect]())

    def _objects(self, connection: Connection) -> dict[str, str]:
        return {
            str(name): str(text)
            for name, text in connection.exec_driver_sql(LIST_OBJECTS[self.dialect])
        }

    def _broken(self, connection: Connection) -> list[str]:
        """What SQLite's own check finds; PostgreSQL has its own checksums."""
        if self.dialect == "postgresql":
            return []
        lines = [str(line) for (line,) in connection.exec_driver_sql("PRAGMA integrity_check(1)")]
        return [
            f"the database is damaged ({line.splitlines()[0]})" for line in lines if line != "ok"
        ]

    def _lock(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(self.timeout * 1000)}")
        connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
        connection.exec_driver_sql(_LOCK)

    def _prepare(self) -> None:
        with self.reading() as connection:
            exists = inspect_database(connection).has_table(TABLE)
            objects = self._objects(connection) if self.dialect == "sqlite" else {}
        if not exists and objects:
            raise StorageError(
                f"{self.name} is a database without the table of a ledger: restore a copy, or give "
                "another place."
            )
        if not exists:
            self._make()

    def _make(self) -> None:
        with self.writing() as connection:
            if not inspect_database(connection).has_table(TABLE):
                for statement in STATEMENTS[self.dialect]:
                    connection.exec_driver_sql(statement)


def _row(seq: Any, slot: Any, previous: Any, digest: Any, line: Any) -> Row:
    """An entry as a database may hold it after damage: a line that is not text is read as empty."""
    return Row(seq, slot, previous, digest, line if isinstance(line, str) else "")


def _url(address: str | Path) -> URL:
    if isinstance(address, Path) or "://" not in address:
        return URL.create("sqlite", database=str(Path(address).absolute()))
    try:
        url = make_url(address)
        if url.drivername in ("postgres", "postgresql"):
            url = url.set(drivername="postgresql+psycopg")
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        backend = ""
    if backend not in STATEMENTS or (
        backend == "sqlite" and url.database in (None, "", ":memory:")
    ):
        raise StorageError(
            "The ledger's address is neither a file, sqlite:///FILE nor postgresql://HOST/DATABASE."
        )
    return url


def _sealed(url: URL) -> bool:
    return is_read_only(Path(str(url.database)).parent)


def _make_file(url: URL, timeout: float) -> None:
    path = Path(str(url.database))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_empty(path)
        _use_wal(path, timeout)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"The ledger {path} cannot be opened ({reason}): correct the path or its permissions."
        ) from error
    except sqlite3.Error as error:
        raise StorageError(f"The ledger {path} {_explain(error, timeout)}") from error


def _make_empty(path: Path) -> None:
    """Make an empty file for its owner alone, unless there is one, which is not opened.

    Who closes a file gives up all locks that this process has on it, those of its other connections
    too (POSIX). SQLite of another process would then take the database for unused and remove the
    log of a connection that goes on writing: what it commits would be lost.

    Source: https://www.sqlite.org/howtocorrupt.html, section 2.2.
    """
    if path.exists():
        return
    with suppress(FileExistsError):
        write_whole(path, lambda _: None, replace=False)


def _use_wal(path: Path, timeout: float) -> None:
    """Switch the file to write-ahead logging, once; SQLite itself does not wait for a lock here."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            with closing(sqlite3.connect(path, timeout=timeout)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not _code(error).startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _engine(url: URL, timeout: float) -> Engine:
    if url.get_backend_name() == "postgresql":
        return create_engine(
            url,
            poolclass=NullPool,
            isolation_level="READ COMMITTED",
            hide_parameters=True,
            connect_args={"connect_timeout": max(1, int(timeout))},
        )
    arguments: dict[str, Any] = {"connect_args": {"timeout": timeout}}
    if _sealed(url):
        source = database_to_read(Path(str(url.database)))
        arguments = {"creator": partial(sqlite3.connect, source, timeout, uri=True)}
    engine = create_engine(url, poolclass=NullPool, hide_parameters=True, **arguments)
    event.listen(engine, "connect", _own_transactions)
    event.listen(engine, "begin", _begin)
    return engine


def _own_transactions(connection: Any, _: object) -> None:
    """Let ``_begin`` start transactions, not the driver; every commit reaches the disk."""
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous = FULL").close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(
        "BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITES) else "BEGIN"
    )


def _code(error: BaseException | None) -> str:
    """The database's own name of an error: SQLite's symbol, PostgreSQL's five characters."""
    return str(getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None) or "")


def _explain(error: BaseException | None, timeout: float) -> str:
    code = _code(error)
    for codes, meaning in _MEANINGS:
        if code.startswith(codes):
            return meaning.format(timeout=timeout)
    return (
        f"cannot be reached, or the connection was lost ({code or type(error).__name__}): {_AGAIN}"
    )


_AGAIN = "run the same command again; what was charged is not charged twice."

_MEANINGS: Sequence[tuple[tuple[str, ...], str]] = (
    (
        ("SQLITE_BUSY", "SQLITE_LOCKED", "55P03"),
        "was locked by another process for {timeout:g} seconds: " + _AGAIN,
    ),
    (("SQLITE_FULL", "53100"), "has no room on its disk: make room, then " + _AGAIN),
    (
        ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "42501"),
        "cannot be written: correct its permissions.",
    ),
    (
        ("SQLITE_NOTADB", "SQLITE_CORRUPT"),
        "is damaged or no database: restore a copy, then run cloister verify.",
    ),
    (("SQLITE_IOERR",), "cannot be read or written: check its disk, then " + _AGAIN),
    (
        ("SQLITE_CONSTRAINT", "23"),
        "refused an entry that does not follow the last one: run cloister verify.",
    ),
)


_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def write_export(path: Path, content: bytes) -> None:
    """Write an export, readable by its owner alone.

    Raises:
        StorageError: it cannot be written, or another file is there than an earlier export of this
            ledger.
    """
    try:
        earlier = _is_earlier(path, content)
        write_whole(path, lambda part: part.write_bytes(content), replace=earlier)
    except FileExistsError:
        raise _not_an_export(path) from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"{path} cannot be written ({reason}): make room or correct the path."
        ) from error


def _is_earlier(path: Path, content: bytes) -> bool:
    """Whether an earlier export is there, with which this one begins; False if nothing is.

    Raises:
        StorageError: something else is.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode) or not _begins(path, content):
        raise _not_an_export(path)
    return True


def _begins(path: Path, content: bytes) -> bool:
    with os.fdopen(os.open(path, _READ), "rb") as file:
        earlier = file.read(len(content) + 1)
    return bool(earlier) and earlier.endswith(b"\n") and content.startswith(earlier)


def _not_an_export(path: Path) -> StorageError:
    return StorageError(
        f"{path} is not an earlier export of this ledger, and is left as it is: give another file."
    )
