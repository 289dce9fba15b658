"""Databases by SQLAlchemy URL: connections, and rows of their tables as the driver gives each cell.

Messages name the type of a driver's error alone; its text can hold a value or a password.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import psycopg
import sqlalchemy as sa

from cloister.errors import StorageError
from cloister.schema.sources import stored_files
from cloister.schema.sources.batches import SourceBatch, SourceCells, require_columns
from cloister.schema.sources.files_and_urls import VARIABLE, is_loopback, table_place
from cloister.schema.spec import Spec

_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
"""The driver that is installed, for the dialects that have several."""

_AS_PASSWORD = re.compile(r"(?<=:)\$\{(\w+)\}(?=@)")
"""A variable that is a whole password, whose letters may mean something in a URL."""


@contextmanager
def connect(url: str, what: str, *, made: bool = False) -> Iterator[sa.Connection]:
    """A connection to a database, closed at the end.

    ``what`` begins the message of an error, as in "table 'a' cannot be read". A SQLite file is
    ``made`` if that is said, and must be there if not.

    Raises:
        StorageError: a variable is not set, or the database cannot be reached, read or written.
    """
    try:
        engine = sa.create_engine(_resolved(url, made), poolclass=sa.NullPool)
        with engine.connect() as connection:
            yield connection
    except (sa.exc.SQLAlchemyError, psycopg.Error, sqlite3.Error, ImportError) as error:
        kind = type(error).__name__
        raise StorageError(f"{what} ({kind}); check url, table, driver and rights") from None


def _resolved(url: str, made: bool) -> sa.URL:
    for name in VARIABLE.findall(url):
        if name not in os.environ:
            raise StorageError(
                f"the URL of a database names the environment variable {name}, which is not set; "
                "set it"
            )
    quoted = _AS_PASSWORD.sub(lambda match: quote(os.environ[match[1]], safe=""), url)
    parsed = sa.make_url(VARIABLE.sub(lambda match: os.environ[match[1]], quoted))
    parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
    if parsed.get_backend_name() == "sqlite":
        _require_path(parsed)
    if parsed.get_backend_name() == "sqlite" and not made:
        _require_file(parsed.database)
    return parsed


def _require_path(url: sa.URL) -> None:
    """Check that a SQLite file is named by its path, so that it can be told from another."""
    if "uri" in url.query or (url.database or "").startswith("file:"):
        raise StorageError(
            "the URL of a database names a SQLite file by a URI (file:), not by its path; write "
            "sqlite:///PATH"
        )


_PORTS = {"postgresql": 5432}
"""Where a server listens if its URL does not say."""


_USUAL_SCHEMAS = {"postgresql": "public", "sqlite": "main"}
"""Where a table lies whose name has no schema, if nobody changes the search path."""


def table_identities(url: str, table: str) -> tuple[str, ...]:
    """A table of a database as texts that are the same for every user and driver of it.

    The first is as it is named, and all that the oldest ledgers hold. One more has its schema, and
    one name for this machine, where the first has not; of SQLite one more has its letters as SQLite
    compares them. No database is asked.

    Raises:
        StorageError: a variable that the URL names is not set, it names a SQLite file by a URI, or
            a database of another kind.
    """
    resolved = _resolved(url, made=True)
    schema, name = table_place(table)
    usual = _USUAL_SCHEMAS.get(resolved.get_backend_name())
    if usual is None:
        raise StorageError(
            "source.url names a database whose tables cannot be told from others by their names; "
            "read it from SQLite or PostgreSQL, or from files"
        )
    whole = f"{schema or usual}.{name}"
    named = [f"{_server(resolved)} table {table}", f"{_server(_near(resolved))} table {whole}"]
    if resolved.get_backend_name() == "sqlite":
        named.append(f"{_server(resolved)} table {stored_files.as_sqlite_compares(whole)}")
    return tuple(dict.fromkeys(named))


def stored_identities(url: str, table: str) -> tuple[str, ...]:
    """A table of PostgreSQL as its server names it; none of SQLite, whose file names it.

    By the address of the server, and by the identifier that each has for life, where the user may
    read it. A partition is named below its table, as a file in a folder is.

    Raises:
        StorageError: the database cannot be reached, or has no such table.
    """
    resolved = _near(_resolved(url, made=True))
    if resolved.get_backend_name() != "postgresql":
        return ()
    what = f"table '{table}' of source.url cannot be identified, and nothing was charged"
    with connect(url, what) as connection:
        rows = connection.execute(sa.text(_STORED), {"name": _quoted(table)}).all()
        known = connection.execute(sa.text(_MAY_IDENTIFY)).scalar_one()
        server = connection.execute(sa.text(_IDENTIFIER)).scalar_one() if known else None
    return tuple(
        f"{address} table {path}"
        for database, path in rows
        for address in (
            _server(resolved.set(database=database)),
            *([f"postgresql system {server}/{database}"] if server else []),
        )
    )


_STORED = """
WITH RECURSIVE named (oid, name) AS (
  SELECT pg_class.oid, nspname || '.' || relname
  FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
), whole (oid, path) AS (
  SELECT oid, name FROM named WHERE oid = CAST(:name AS regclass)
  UNION ALL
  SELECT named.oid, named.name || '/' || path
  FROM whole JOIN pg_inherits ON inhrelid = whole.oid JOIN named ON named.oid = inhparent
)
SELECT current_database(), path FROM whole WHERE oid NOT IN (SELECT inhrelid FROM pg_inherits)
"""
"""The database and the name of a table, below those of the tables that it is a part of."""

_MAY_IDENTIFY = """
SELECT coalesce(has_function_privilege(to_regprocedure('pg_control_system()'), 'EXECUTE'), false)
"""
_IDENTIFIER = "SELECT system_identifier FROM pg_control_system()"


def _near(url: sa.URL) -> sa.URL:
    """A URL with one name for its server's machine, and for this one if its server listens here."""
    if url.get_backend_name() not in _PORTS:
        return url
    host = (url.host or "localhost").lower()
    return url.set(host="localhost" if is_loopback(host) else host)


def _server(url: sa.URL) -> str:
    """A database without whoever reads it and how."""
    backend, database = url.get_backend_name(), url.database
    if backend == "sqlite" and database:
        database = str(Path(database).resolve())
    port = url.port or _PORTS.get(backend)
    return sa.URL.create(backend, host=url.host, port=port, database=database).render_as_string()


def _require_file(database: str | None) -> None:
    """Check that a SQLite file is there: SQLite would make an empty one."""
    if database and database != ":memory:" and not Path(str(database)).exists():
        raise StorageError(f"the database {database} does not exist; correct the url")


_ROWS_FETCHED = 50_000
"""Rows fetched from a database at a time: few, so that a driver's own copy of them is small."""


def read_database(
    spec: Spec, span: stored_files.Span = stored_files.WHOLE, snapshot: str | None = None
) -> Iterator[SourceBatch]:
    """The declared columns of a database's table, some rows at a time, as Python values.

    Of a ``snapshot`` of PostgreSQL those in a span of pages.

    Raises:
        StorageError: the database or the table cannot be read, or the snapshot has ended.
        DataError: the table has other columns than declared.
    """
    with _connected(spec) as connection:
        if snapshot:
            _begin_unchanging(connection)
            _see(connection, snapshot)
        yield from _selected(connection, spec, _in_pages(span) if snapshot else sa.true())


@contextmanager
def page_spans(
    spec: Spec, rows_per_part: int | None
) -> Iterator[tuple[str | None, Sequence[stored_files.Span]]]:
    """Spans of pages of a table, each of about so many rows, and the snapshot to read them in.

    Only PostgreSQL has both: any connection of the same user sees the rows as they were, until the
    context ends. Elsewhere, and of views and foreign tables, there is one span and no snapshot.

    A row of a snapshot has one place for as long as its table is not rewritten, which the lock
    forbids that a reader holds. Spans cover all places, so that each row is in one of them, though
    the number of pages is that of today.

    Raises:
        StorageError: the database or the table cannot be read.
        DataError: the table has other columns than declared.
    """
    if rows_per_part is None:
        yield None, [stored_files.WHOLE]
        return
    require_table_columns(spec)
    raised: BaseException | None = None
    with _connected(spec) as connection:
        snapshot, spans = _held_pages(connection, spec, rows_per_part)
        try:
            yield snapshot, spans
        except BaseException as error:  # noqa: BLE001 - of the reader, not of this connection
            raised = error
        with suppress(sa.exc.DBAPIError):  # lost since: who still reads is told by its part
            connection.rollback()
    if raised is not None:
        raise raised


def _held_pages(
    connection: sa.Connection, spec: Spec, rows_per_part: int
) -> tuple[str | None, Sequence[stored_files.Span]]:
    if connection.dialect.name != "postgresql":
        return None, [stored_files.WHOLE]
    schema, name = table_place(str(spec.source.table))
    rows = sa.select(sa.literal(1)).select_from(sa.Table(name, sa.MetaData(), schema=schema))
    _begin_unchanging(connection)
    (plan,) = connection.exec_driver_sql(  # which also locks the table, as any reader does
        f"EXPLAIN (FORMAT JSON) {rows.compile(connection, compile_kwargs={'literal_binds': True})}"
    ).scalar_one()
    pages = _pages(connection, spec)
    if pages is None:
        return None, [stored_files.WHOLE]
    connection.execute(sa.text(_NO_END))
    parts = max(round(plan["Plan"]["Plan Rows"] / rows_per_part), 1)
    begins = range(0, max(pages, 1), max(-(-pages // parts), 1))
    snapshot = connection.execute(sa.text("SELECT pg_export_snapshot()")).scalar_one()
    return snapshot, stored_files.spans_from(begins)


def _pages(connection: sa.Connection, spec: Spec) -> int | None:
    """The pages of a table; None if they cannot be read one without the others."""
    dialect = connection.dialect
    if dialect.name != "postgresql" or (dialect.server_version_info or ()) < _BY_PAGES:
        return None
    named = _quoted(str(spec.source.table))
    pages, divisible = connection.execute(sa.text(_PAGES), {"name": named}).one()
    return int(pages) if divisible else None


def _quoted(table: str) -> str:
    """A table as PostgreSQL reads its name."""
    schema, name = table_place(table)
    return psycopg.sql.Identifier(*([schema] if schema else []), name).as_string()


def require_pages(spec: Spec) -> None:
    """Passes if the rows of a database's table can be read in parts, each twice as once.

    Raises:
        StorageError: the table cannot be read, or is a view, a foreign table, or of another
            database than PostgreSQL from version 14 on.
    """
    with _connected(spec) as connection:
        pages = _pages(connection, spec)
    if pages is None:
        raise StorageError(
            f"workers read files, and tables of PostgreSQL 14 or later; '{spec.source.table}' of "
            "source.url is a view, or of another database: leave --workers out"
        )


_BY_PAGES = (14,)
"""The version of PostgreSQL that first reads some pages of a table without reading the others."""

_NO_END = """
SELECT set_config(name, '0', false) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""
"""The snapshot lasts as long as the release, whatever is usual for a transaction."""

_PAGES = """
WITH RECURSIVE tables (oid) AS (
  SELECT CAST(CAST(:name AS regclass) AS oid)
  UNION SELECT inhrelid FROM pg_inherits JOIN tables ON inhparent = tables.oid
)
SELECT max(pg_relation_size(tables.oid)) / CAST(current_setting('block_size') AS integer),
  bool_and(relkind = 'p' OR relkind IN ('r', 'm') AND amname = 'heap')
FROM tables JOIN pg_class ON pg_class.oid = tables.oid LEFT JOIN pg_am ON pg_am.oid = relam
"""
"""The pages of a table, of its largest partition, and whether all of them are kept in pages."""


def _begin_unchanging(connection: sa.Connection) -> None:
    """Have all that a connection reads be of one snapshot."""
    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _see(connection: sa.Connection, snapshot: str) -> None:
    """Have a connection see the rows of a snapshot.

    Raises:
        StorageError: the snapshot has ended.
    """
    quoted = psycopg.sql.Literal(snapshot).as_string()
    try:
        connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT {quoted}")
    except sa.exc.DBAPIError:
        raise StorageError(
            "the connection that held the rows of the database as they were has ended; run the "
            "same command, which resumes the release if the rows are still the same"
        ) from None


def _in_pages(span: stored_files.Span) -> sa.ColumnElement[bool]:
    """Whether a row lies in some pages."""
    begin, end = span
    bounds = [f"ctid >= CAST('({begin},0)' AS tid)"]
    bounds += [] if end is None else [f"ctid < CAST('({end},0)' AS tid)"]
    return sa.and_(*map(sa.text, bounds))


def require_table_columns(spec: Spec) -> None:
    """Passes if a database's table or view is there and has the declared columns.

    Raises:
        StorageError: the database cannot be reached, or the table is not there.
        DataError: it has other columns.
    """
    with _connected(spec) as connection:
        _reflected(connection, spec)


def _connected(spec: Spec) -> AbstractContextManager[sa.Connection]:
    what = f"table '{spec.source.table}' of source.url cannot be read"
    return connect(str(spec.source.url), what)


def _reflected(connection: sa.Connection, spec: Spec) -> sa.Table:
    schema, table = table_place(str(spec.source.table))
    reflected = sa.Table(table, sa.MetaData(), schema=schema, autoload_with=connection)
    columns = [column.name for column in reflected.columns if column.name not in spec.ignore]
    require_columns(columns, list(spec.attributes), f"table '{spec.source.table}'")
    return reflected


def _selected(
    connection: sa.Connection, spec: Spec, condition: sa.ColumnElement[bool]
) -> Iterator[SourceBatch]:
    names = list(spec.attributes)
    prepare, stored = _CELL_READERS.get(connection.dialect.name, (_as_given, _untyped))
    reflected = _reflected(connection, spec)
    prepare(connection)
    query = sa.select(*(stored(reflected.columns[name]).label(None) for name in names)).where(
        condition
    )
    rows = connection.execution_options(stream_results=True).execute(query)
    for some in rows.partitions(_ROWS_FETCHED):
        columns = zip(names, zip(*some, strict=True), strict=True)
        yield SourceBatch(
            {
                name: SourceCells.of_series(pd.Series(list(cells), dtype=object))
                for name, cells in columns
            }
        )


def _untyped(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """A column as its driver gives it, without a conversion that one value could break for all."""
    return sa.type_coerce(column, sa.types.NullType())


def _as_given(connection: sa.Connection) -> None:
    """Leave the connection as it is."""
    del connection


def _with_any_bytes(connection: sa.Connection) -> None:
    """Have SQLite give texts that are not UTF-8 with backslash escapes.

    By default it refuses the whole table.
    """
    driver: Any = connection.connection.driver_connection
    driver.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")


def _in_iso_and_utc(connection: sa.Connection) -> None:
    """Have PostgreSQL write days and moments in one way, whatever its settings are."""
    connection.exec_driver_sql("SET DateStyle = 'ISO'")
    connection.exec_driver_sql("SET TimeZone = 'UTC'")


def _as_text_unless_plain(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """A PostgreSQL column, as text if its driver refuses some values, such as dates after 9999."""
    return _untyped(column) if isinstance(column.type, _PLAIN) else sa.cast(column, sa.Text)


_PLAIN = (sa.Boolean, sa.Integer, sa.Numeric, sa.Float, sa.String, sa.LargeBinary, sa.Uuid)
_CELL_READERS: dict[
    str, tuple[Callable[[sa.Connection], None], Callable[[sa.Column[Any]], sa.ColumnElement[Any]]]
] = {
    "sqlite": (_with_any_bytes, _untyped),
    "postgresql": (_in_iso_and_utc, _as_text_unless_plain),
}
