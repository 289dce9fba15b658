"""Synthetic tables in a SQLite or PostgreSQL database: types, NOT NULL, keys, one transaction.

Tables are made, filled in bulk and tied by their keys before anybody else sees one of them: a run
that is killed leaves nothing, and the same one again loads all. A table of notes says which release
each table is of, so that what was loaded is not loaded twice.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import sqlalchemy as sa
from pandas.api import types as pt

from cloister.errors import StorageError
from cloister.schema.attributes import Float
from cloister.schema.columns import Column, Grid, Listed, Serial
from cloister.schema.domain import Domain
from cloister.schema.relations import ForeignKey
from cloister.schema.sources.databases import connect

_SMALL = np.iinfo(np.int32)
"""The range of INTEGER; BIGINT holds the rest."""


@dataclass(frozen=True)
class SyntheticTable:
    """A synthetic table in a Parquet file, with its name and keys in a database.

    ``primary`` is the column that names a row, ``unique`` are columns no two rows agree on.
    """

    name: str
    domain: Domain
    file: Path
    primary: str | None = None
    references: Sequence[ForeignKey] = field(default=())
    unique: Sequence[Sequence[str]] = field(default=())


def table_definitions(tables: Sequence[SyntheticTable]) -> list[sa.Table]:
    """The definitions of tables, in their order."""
    metadata = sa.MetaData()
    return [_definition(table, metadata) for table in tables]


def _definition(table: SyntheticTable, metadata: sa.MetaData) -> sa.Table:
    columns: list[Any] = [
        sa.Column(
            column.name,
            type_of(column),
            primary_key=column.name == table.primary,
            nullable=column.null_code is not None,
            autoincrement=False,
        )
        for column in table.domain
    ]
    references = [
        sa.ForeignKeyConstraint([key.column], [f"{key.parent}.{key.key}"])
        for key in table.references
    ]
    unique = [sa.UniqueConstraint(*names) for names in table.unique]
    return sa.Table(table.name, metadata, *columns, *references, *unique)


def type_of(column: Column) -> sa.types.TypeEngine[Any]:
    """The SQL type that holds all values of a column as a synthetic table has them."""
    dtype = pd.api.types.pandas_dtype(column.dtype)
    if pt.is_bool_dtype(dtype):
        return sa.Boolean()
    if pt.is_integer_dtype(dtype):
        least, most = _whole_range(column)
        return sa.Integer() if _SMALL.min <= least and most <= _SMALL.max else sa.BigInteger()
    if pt.is_float_dtype(dtype):
        return _decimal(column) or sa.Double()
    if pt.is_datetime64_any_dtype(dtype):
        return sa.Date() if column.attribute.type == "date" else sa.DateTime()
    return sa.String(_longest(column))


def _whole_range(column: Column) -> tuple[int, int]:
    """The least and the greatest whole number of a column, its special values among them."""
    if isinstance(column, Grid):
        last = column.origin + (column.steps - 1) * column.stride
        return min(column.origin, *column.beyond, last), max(last, *column.beyond, column.origin)
    if isinstance(column, Serial):
        return column.first, column.last
    assert isinstance(column, Listed)
    whole = [int(float(value)) for value in column.listed]
    return min(whole), max(whole)


def _decimal(column: Column) -> sa.Numeric[Any] | None:
    """An exact decimal where a spec declares how many places it has."""
    attribute = column.attribute
    if not isinstance(attribute, Float) or attribute.decimals is None:
        return None
    most = max(map(abs, (attribute.min, attribute.max, *attribute.special)))
    return sa.Numeric(len(str(int(most))) + attribute.decimals, attribute.decimals)


def _longest(column: Column) -> int:
    """Characters of the longest text of a column, one at least: SQL has no text of none."""
    if isinstance(column, Serial):
        return len(column.prefix) + max(column.width, len(str(column.last))) + len(column.suffix)
    return max(map(len, column.labels or ("",)), default=1) or 1


_ROWS_LOADED = 50_000
"""Rows of one COPY message or one executemany: few, so that their texts take little memory."""

_LONGEST_NAMES = {"postgresql": 63, "sqlite": 1000}
"""Bytes of a name: PostgreSQL cuts longer ones without a word; SQLite sets no limit."""

NOTES = "cloister_release"
"""The table of notes: which release each synthetic table is of."""


@dataclass(frozen=True)
class LoadTarget:
    """A database to load tables into, and the release and dataset that they are of.

    If it ``replaces``, tables that earlier releases of the dataset made there are dropped first.
    """

    url: str
    release: str
    dataset: str
    replaces: bool = False

    @property
    def what(self) -> str:
        """The beginning of a message on it."""
        return "the tables cannot be written to the database"


def require_loadable(target: LoadTarget, tables: Sequence[SyntheticTable]) -> None:
    """Check that tables can be made in a database: by making them, and taking it back.

    Raises:
        StorageError: it cannot be reached or written, or holds such a table of another release.
    """
    with _transaction(target, keep=False) as connection:
        if not _loaded(connection, target, tables):
            _make_room(connection, target, tables)
            _make(connection, tables)


def load_tables(target: LoadTarget, tables: Sequence[SyntheticTable]) -> None:
    """Make and fill tables, parents first; nothing is done if the release's are there.

    Others see those of an earlier release until all of these are there.

    Raises:
        StorageError: they cannot be written; nothing was.
    """
    with _transaction(target, keep=True) as connection:
        if _loaded(connection, target, tables):
            return
        _make_room(connection, target, tables)
        made = _make(connection, tables)
        for table, definition in zip(tables, made, strict=True):
            _FILL[connection.dialect.name](connection, definition, table.file)
        if connection.dialect.name == "postgresql":
            _add_references(connection, made)
        _note(connection, target, tables)


@contextmanager
def _transaction(target: LoadTarget, *, keep: bool) -> Iterator[sa.Connection]:
    """A transaction that ends as one: kept, or taken back."""
    with connect(target.url, target.what, made=True) as connection:
        if connection.dialect.name not in _FILL:
            raise StorageError(f"{target.what}: it is neither PostgreSQL nor SQLite; use one")
        _BEGIN[connection.dialect.name](connection)
        try:
            yield connection
            connection.exec_driver_sql("COMMIT" if keep else "ROLLBACK")
        except BaseException:
            # A lost connection or a full disk has ended the transaction: that is what went wrong.
            with suppress(sa.exc.DBAPIError):
                connection.exec_driver_sql("ROLLBACK")
            raise
    if not keep:
        _remove_empty(connection.engine.url)


def _begin_sqlite(connection: sa.Connection) -> None:
    driver: Any = connection.connection.driver_connection
    driver.isolation_level = None
    connection.exec_driver_sql("PRAGMA foreign_keys = ON")
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    # rows may refer to later rows of their own table
    connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")


def _begin_postgresql(connection: sa.Connection) -> None:
    connection.execution_options(isolation_level="AUTOCOMMIT")
    connection.exec_driver_sql("SET client_encoding = 'UTF8'")
    connection.exec_driver_sql("SET DateStyle = 'ISO'")
    connection.exec_driver_sql("BEGIN")


def _remove_empty(url: sa.URL) -> None:
    """Remove the empty file that SQLite makes of a database in which nothing was kept."""
    if url.get_backend_name() == "sqlite" and url.database:
        file = Path(url.database)
        if file.is_file() and file.stat().st_size == 0:
            file.unlink()


def _loaded(
    connection: sa.Connection, target: LoadTarget, tables: Sequence[SyntheticTable]
) -> bool:
    """Whether all tables of this release are there."""
    notes, seen = _noted(connection), sa.inspect(connection)
    return all(
        table.name in notes
        and notes[table.name][0] == target.release
        and seen.has_table(table.name)
        for table in tables
    )


def _make_room(
    connection: sa.Connection, target: LoadTarget, tables: Sequence[SyntheticTable]
) -> None:
    """Drop the tables of earlier releases of the dataset, if they are to be replaced.

    Raises:
        StorageError: a table of one of the names is there that must not be dropped.
    """
    notes, seen = _noted(connection), sa.inspect(connection)
    replaced = [
        name
        for name, (_, dataset) in notes.items()
        if target.replaces and dataset == target.dataset and seen.has_table(name)
    ]
    for table in tables:
        if seen.has_table(table.name) and table.name not in replaced:
            raise StorageError(
                f"the database has a table '{table.name}' that {_WHOSE[target.replaces]}; drop it, "
                "or give an empty database or schema with --out"
            )
    if not replaced:
        return
    metadata = sa.MetaData()
    metadata.reflect(connection, only=replaced, resolve_fks=False)
    metadata.drop_all(connection)
    _forget(connection, replaced)


def _note(connection: sa.Connection, target: LoadTarget, tables: Sequence[SyntheticTable]) -> None:
    """Note the release of each table, in place of what was noted of one that was dropped."""
    _forget(connection, [table.name for table in tables])
    notes = [
        {"table_name": table.name, "release": target.release, "dataset": target.dataset}
        for table in tables
    ]
    connection.execute(sa.insert(_notes(sa.MetaData())), notes)


def _forget(connection: sa.Connection, names: Sequence[str]) -> None:
    notes = _notes(sa.MetaData())
    connection.execute(sa.delete(notes).where(notes.c.table_name.in_(names)))


def _noted(connection: sa.Connection) -> dict[str, tuple[str, str]]:
    """The release and the dataset of each table that a release made, by its name."""
    if not sa.inspect(connection).has_table(NOTES):
        return {}
    notes = connection.execute(sa.select(_notes(sa.MetaData()))).all()
    return {name: (release, dataset) for name, release, dataset in notes}


def _make(connection: sa.Connection, tables: Sequence[SyntheticTable]) -> list[sa.Table]:
    """Make the tables, those of PostgreSQL without foreign keys, and the table of notes."""
    dialect, made = connection.dialect.name, table_definitions(tables)
    for name in (name for table in made for name in (table.name, *_names(table))):
        if len(name.encode()) > _LONGEST_NAMES[dialect]:
            raise StorageError(f"'{name}' is too long a name for the database; rename it")
    _notes(sa.MetaData()).create(connection, checkfirst=True)
    for table in made:
        references: list[Any] | None = [] if dialect == "postgresql" else None
        connection.execute(sa.schema.CreateTable(table, include_foreign_key_constraints=references))
    return made


def _add_references(connection: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """Add the foreign keys, which PostgreSQL checks on all rows at once."""
    for table in tables:
        for reference in sorted(table.foreign_key_constraints, key=lambda key: [*key.column_keys]):
            connection.execute(sa.schema.AddConstraint(reference))


def _notes(metadata: sa.MetaData) -> sa.Table:
    """The table of notes; its texts hold the names of specs, of 100 characters at most."""
    return sa.Table(
        NOTES,
        metadata,
        sa.Column("table_name", sa.String(200), primary_key=True),
        sa.Column("release", sa.String(100), nullable=False),
        sa.Column("dataset", sa.String(100), nullable=False),
    )


def _copy(connection: sa.Connection, table: sa.Table, file: Path) -> None:
    """Fill a table of PostgreSQL by COPY."""
    quote = connection.dialect.identifier_preparer.quote
    columns = ", ".join(quote(name) for name in _names(table))
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor:
        command = f"COPY {quote(table.name)} ({columns}) FROM STDIN (FORMAT csv)"
        with cursor.copy(command) as copied:
            for rows in _pieces(file, table):
                text = io.BytesIO()
                pc.write_csv(rows, text, pc.WriteOptions(include_header=False))
                copied.write(text.getbuffer())


def _insert(connection: sa.Connection, table: sa.Table, file: Path) -> None:
    """Fill a table of SQLite by executemany; days and moments are texts there."""
    statement = str(sa.insert(table).compile(dialect=connection.dialect))
    driver: Any = connection.connection.driver_connection
    for rows in _pieces(file, table):
        lists = [_texts_of_moments(column).to_pylist() for column in rows.columns]
        driver.executemany(statement, zip(*lists, strict=True))


def _pieces(file: Path, table: sa.Table) -> Iterator[pa.Table]:
    """The rows of a Parquet file, a few at a time, in the types of a table."""
    for batch in pq.ParquetFile(file).iter_batches(_ROWS_LOADED):
        rows = pa.Table.from_batches([batch])
        columns = [_in_type(rows[column.name], column.type) for column in table.columns]
        yield pa.table(columns, names=_names(table))


def _names(table: sa.Table) -> list[str]:
    return [column.name for column in table.columns]


def _in_type(column: pa.ChunkedArray, kind: sa.types.TypeEngine[Any]) -> pa.ChunkedArray:
    """A column of a Parquet file without its dictionary, a day as one where the type is DATE.

    Moments in a zone are moved to UTC.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit))
    return column.cast(pa.date32()) if isinstance(kind, sa.Date) else column


def _texts_of_moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Days and moments as ISO texts, moments to the second; other columns as they are."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return column.cast(pa.string())
    return column


_WHOSE = {
    False: "is not of this release (--replace replaces those of an earlier one)",
    True: "no release of this dataset made",
}
"""What is wrong with a table that is in the way, by whether earlier ones are replaced."""

_BEGIN = {"sqlite": _begin_sqlite, "postgresql": _begin_postgresql}
_FILL = {"sqlite": _insert, "postgresql": _copy}
