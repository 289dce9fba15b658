"""Databases by SQLAlchemy URL: connections, and rows of their tables as the driver gives each cell.

Messages name the type of a driver's error alone; its text can hold a value or a password.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import psycopg
import sqlalchemy as sa

from cloister.errors import StorageError
from cloister.schema.sources.batches import SourceBatch, SourceCells, require_columns
from cloister.schema.sources.files_and_urls import VARIABLE, table_place
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
    if parsed.get_backend_name() == "sqlite" and not made:
        _require_file(parsed.database)
    return parsed


_PORTS = {"postgresql": 5432}
"""Where a server listens if its URL does not say."""


def table_identity(url: str, table: str) -> str:
    """A table of a database as a text that is the same for every user and driver of it.

    Raises:
        StorageError: a variable that the URL names is not set.
    """
    resolved = _resolved(url, made=True)
    database = resolved.database
    if resolved.get_backend_name() == "sqlite" and database:
        database = str(Path(database).resolve())
    backend = resolved.get_backend_name()
    port = resolved.port or _PORTS.get(backend)
    server = sa.URL.create(backend, host=resolved.host, port=port, database=database)
    return f"{server.render_as_string()} table {table}"


def _require_file(database: str | None) -> None:
    """Check that a SQLite file is there: SQLite would make an empty one."""
    named = database and database != ":memory:" and not database.startswith("file:")
    if named and not Path(str(database)).exists():
        raise StorageError(f"the database {database} does not exist; correct the url")


_ROWS_FETCHED = 50_000
"""Rows fetched from a database at a time: few, so that a driver's own copy of them is small."""


def read_database(spec: Spec) -> Iterator[SourceBatch]:
    """The declared columns of a database's table, some rows at a time, as Python values.

    Raises:
        StorageError: the database or the table cannot be read.
        DataError: the table has other columns than declared.
    """
    with _connected(spec) as connection:
        yield from _selected(connection, spec)


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


def _selected(connection: sa.Connection, spec: Spec) -> Iterator[SourceBatch]:
    names = list(spec.attributes)
    prepare, stored = _CELL_READERS.get(connection.dialect.name, (_as_given, _untyped))
    reflected = _reflected(connection, spec)
    prepare(connection)
    query = sa.select(*(stored(reflected.columns[name]).label(None) for name in names))
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
