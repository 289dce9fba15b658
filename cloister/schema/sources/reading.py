"""The declared columns of a table: text from CSV, storage types from Parquet, values from SQL.

No type is inferred from what rows hold: the storage of a cell is that of the file's own schema, or
of the value that the database gives, so that no row changes how another is read.

Messages name files, columns and row numbers, never a cell. Names of undeclared columns are given
only when the file plainly has a header, since the first line of a file without one is data.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from cloister.errors import DataError, SpecError, StorageError
from cloister.schema.sources.csv_files import (
    ROWS_NAMED,
    csv_header,
    well_formed_rows,
    without_ragged,
)
from cloister.schema.sources.databases import connect
from cloister.schema.sources.numbers import read_numbers
from cloister.schema.sources.storage_types import column_of_arrow, is_readable
from cloister.schema.sources.urls import table_place
from cloister.schema.spec import Spec

_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}

_T = TypeVar("_T")

_ROWS_FETCHED = 50_000
"""Rows fetched from a database at a time: few, so that a driver's own copy of them is small."""

_AS_STORED: dict[str, Any] = {"partitioning": None, "coerce_int96_timestamp_unit": "us"}


def read_frame(spec: Spec, data: Path | None = None) -> pd.DataFrame:
    """The declared columns, in declared order, shape (n, columns), n > 0.

    ``data`` takes the place of the spec's source. CSV cells stay text (dtype ``str``), the declared
    missing tokens become missing; Parquet columns are in the storage that their schema says, SQL
    columns hold Python values. Lines of a CSV file with more or fewer cells than its header are
    left out and counted (`malformed_rows`), or refused where ``on_invalid`` is ``fail``.

    Raises:
        StorageError: the file or database cannot be read.
        DataError: no rows, no header, columns that are missing, undeclared, doubled or nested,
            ragged rows.

    Privacy: row by row, apart from errors: a file whose lines cannot be separated is refused whole.
    """
    frame = (
        _read_path(data or Path(spec.source.path or ""), spec)
        if data or spec.source.path
        else _read_sql(spec)
    )
    if frame.empty:
        raise DataError(
            f"{data or spec.source.path or spec.source.table} has no rows; give a table with rows"
        )
    return frame


def table_format(path: Path, declared: str | None = None) -> str:
    """``csv`` or ``parquet``, from the ending of a path, else as declared.

    Raises:
        SpecError: the ending is unknown and nothing is declared.
    """
    known = _FORMATS.get(path.suffix.lower(), declared)
    if known is None:
        raise SpecError(
            f"{path}: its format is not known from its ending; set source.format to csv or parquet"
        )
    return known


def _read_path(path: Path, spec: Spec) -> pd.DataFrame:
    read = {"csv": _read_csv, "parquet": _read_parquet}[table_format(path, spec.source.format)]
    return guard_reading(path, lambda: read(path, spec))


def guard_reading(path: Path, read: Callable[[], _T]) -> _T:
    """What ``read`` makes of a file.

    Raises:
        StorageError: the file cannot be opened, or does not fit in memory; names path and reason.
    """
    try:
        return read()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "not readable"
        raise StorageError(
            f"{path} cannot be read ({reason}); check its path and permissions"
        ) from None
    except MemoryError:
        raise StorageError(
            f"{path} does not fit in memory; free memory or give fewer columns"
        ) from None


def _read_csv(path: Path, spec: Spec) -> pd.DataFrame:
    names, source = list(spec.attributes), spec.source
    found = _declared(csv_header(path, source.delimiter, source.encoding), spec)
    require_columns(found, names, str(path), source.delimiter)
    frame = read_numbers(well_formed_rows(path, source, names), spec.attributes, source)
    return without_ragged(frame, path, source) if spec.validation.on_invalid == "fail" else frame


def _declared(found: Sequence[str], spec: Spec) -> list[str]:
    """The columns that were found, without those that the spec says to ignore."""
    return [name for name in found if name not in spec.ignore]


def _read_parquet(path: Path, spec: Spec) -> pd.DataFrame:
    names = list(spec.attributes)
    require_columns(_declared(parquet_names(path), spec), names, str(path))
    return read_native(path, names)


def parquet_names(path: Path) -> list[str]:
    """The column names of a Parquet file; DataError if it is not one."""
    return list(_parquet(path, pq.read_schema).names)


def read_native(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """The named columns of a Parquet file in the storage that its schema says, shape (n, columns).

    Raises:
        DataError: it is no Parquet file, or a column's type is none of single values.
    """
    table = _parquet(path, lambda file: pq.read_table(file, columns=list(names), **_AS_STORED))
    for field in table.schema:
        if not is_readable(field.type):
            raise DataError(
                f"{path}: column '{field.name}' is of type {field.type}, which holds no single "
                "values; write it as numbers, dates or text"
            )
    return frame_of_arrow(table.select(list(names)))


def frame_of_arrow(table: pa.Table) -> pd.DataFrame:
    """The columns of a table in the storage that its schema says, shape (n, columns)."""
    return pd.DataFrame({name: column_of_arrow(table[name]) for name in table.column_names})


def _parquet(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except pa.ArrowException:
        raise DataError(
            f"{path} is not a whole Parquet file; write it again, or set source.format"
        ) from None


def _read_sql(spec: Spec) -> pd.DataFrame:
    what = f"table '{spec.source.table}' of source.url cannot be read"
    with connect(str(spec.source.url), what) as connection:
        return _selected(connection, spec)


def _selected(connection: sa.Connection, spec: Spec) -> pd.DataFrame:
    names = list(spec.attributes)
    schema, table = table_place(str(spec.source.table))
    prepare, stored = _DRIVERS.get(connection.dialect.name, (_as_given, _untyped))
    reflected = sa.Table(table, sa.MetaData(), schema=schema, autoload_with=connection)
    columns_found = _declared([column.name for column in reflected.columns], spec)
    require_columns(columns_found, names, f"table '{spec.source.table}'")
    prepare(connection)
    query = sa.select(*(stored(reflected.columns[name]).label(None) for name in names))
    found = connection.execution_options(stream_results=True).execute(query)
    columns: list[list[Any]] = [[] for _ in names]
    for rows in found.partitions(_ROWS_FETCHED):
        for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
            column.extend(cells)
    return pd.DataFrame(
        {name: pd.Series(column, dtype=object) for name, column in zip(names, columns, strict=True)}
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


_PLAIN = (sa.Boolean, sa.Integer, sa.Numeric, sa.String, sa.LargeBinary, sa.Uuid)
_DRIVERS: dict[
    str, tuple[Callable[[sa.Connection], None], Callable[[sa.Column[Any]], sa.ColumnElement[Any]]]
] = {
    "sqlite": (_with_any_bytes, _untyped),
    "postgresql": (_in_iso_and_utc, _as_text_unless_plain),
}


def require_columns(
    found: Sequence[str], declared: Sequence[str], where: str, delimiter: str | None = None
) -> None:
    """Passes if ``found`` has exactly the declared columns, in any order.

    Raises:
        DataError: names the first fault: delimiter, header, doubled, missing or undeclared columns.
    """
    known = set(declared)
    if not known.intersection(found):
        raise DataError(f"{where}: {_no_header(found, known, delimiter)}")
    doubled = [name for name, count in Counter(found).items() if count > 1]
    missing = [name for name in declared if name not in found]
    undeclared = [name for name in found if name not in known]
    if doubled:
        raise DataError(
            f"{where}: the column(s) {_named(doubled)} occur more than once; "
            "rename or drop all but one"
        )
    if missing:
        raise DataError(
            f"{where}: the declared column(s) {_named(missing)} are missing; add them, "
            f"or take them out of the spec's attributes{_also(undeclared)}"
        )
    if undeclared:
        raise DataError(
            f"{where}: the column(s) {_named(undeclared)} are not declared; add them to the spec's "
            "attributes, or to ignore"
        )


def _no_header(found: Sequence[str], known: set[str], delimiter: str | None) -> str:
    for other, name in DELIMITERS.items():
        if (
            delimiter is not None
            and other != delimiter
            and known.intersection(_cells_by(found, delimiter, other))
        ):
            return f"its cells are separated by {name}; set source.delimiter to {other!r}"
    return (
        f"none of the declared columns is among its {len(found)}; "
        "its first line must name the columns"
    )


def _cells_by(found: Sequence[str], delimiter: str, other: str) -> list[str]:
    """The cells of a header line if it is split by another delimiter."""
    return [cell.strip('"') for cell in delimiter.join(found).split(other)]


def _also(undeclared: Sequence[str]) -> str:
    return f" (not declared: {_named(undeclared)})" if undeclared else ""


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - ROWS_NAMED} more" if len(names) > ROWS_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:ROWS_NAMED]) + more
