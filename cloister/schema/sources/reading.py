"""The declared columns of a table: text from CSV, storage types from Parquet, values from SQL.

No type is inferred from what rows hold: the storage of a cell is that of the file's own schema, or
of the value that the database gives, so that no row changes how another is read.

Messages name files, columns and row numbers, never a cell.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from cloister.arrays import Booleans
from cloister.errors import DataError, SpecError, StorageError
from cloister.schema.blocks import LETTERS
from cloister.schema.parsing import parse
from cloister.schema.sources import csv_files, databases, parquet_files
from cloister.schema.sources.batches import SourceBatch, SourceCells
from cloister.schema.spec import Spec

_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


_MOST_TIMES = 10
"""Times the declared rows that a Parquet file may have: the declared number may be a rough figure,
and memory is forecast by it."""


def require_declared_size(spec: Spec, data: Path | None = None) -> None:
    """Check by its footer that a Parquet file has not many times the declared rows.

    The footer says nothing of single blocks of growing data.

    Raises:
        StorageError: the file cannot be read.
        DataError: it has, or it is no Parquet file.

    Privacy: whether the number of rows is above the bound is said exactly.
    """
    path, declared = _path_of(spec, data), spec.privacy.rows.public
    if (
        path is None
        or declared is None
        or spec.blocks
        or table_format(path, spec.source.format) != "parquet"
    ):
        return
    with guarded_reading(path):
        rows = parquet_files.parquet_rows(path)
    if rows > _MOST_TIMES * declared:
        raise DataError(
            f"{path} has more than {_MOST_TIMES} times the declared {declared:,} rows; declare "
            "about as many as it has in privacy.rows, or of one of several tables in its rows"
        )


def read_batches(spec: Spec, data: Path | None = None) -> Iterator[SourceBatch]:
    """The rows of a spec's source, or of ``data`` in its place, some at a time and at least one.

    Of growing data those of the spec's blocks, and those that are in none.

    CSV cells stay text (dtype ``str``), the declared missing tokens become missing; Parquet columns
    are in the storage that their schema says, SQL columns hold Python values. Lines of a CSV file
    with more or fewer cells than its header are left out and counted, or refused where
    ``on_invalid`` is ``fail``.

    Raises:
        StorageError: the file or database cannot be read.
        DataError: no rows, no header, columns that are missing, undeclared, doubled or nested,
            ragged rows.

    Privacy: row by row, apart from errors: a file whose lines cannot be separated is refused whole.
        Which rows come together changes nothing of what they are.
    """
    path, rows = _path_of(spec, data), 0
    batches = databases.read_database(spec) if path is None else _read_path(path, spec)
    for batch in rows_in_blocks(batches, spec) if spec.blocks else batches:
        rows += batch.rows
        yield batch
    if not rows:
        raise DataError(f"{path or spec.source.table} has no rows; give a table with rows")


def require_declared_columns(spec: Spec, data: Path | None = None) -> None:
    """Passes if a spec's source, or ``data`` in its place, has the declared columns.

    Raises:
        StorageError: the file or database cannot be read.
        DataError: no header, or columns that are missing, undeclared or doubled.

    Privacy: reads the header of a file, or the schema of a table, and no row.
    """
    path = _path_of(spec, data)
    if path is None:
        databases.require_table_columns(spec)
        return
    check = {
        "csv": csv_files.require_csv_columns,
        "parquet": parquet_files.require_parquet_columns,
    }
    with guarded_reading(path):
        check[table_format(path, spec.source.format)](path, spec)


def read_frame(spec: Spec, data: Path | None = None) -> pd.DataFrame:
    """The rows of :func:`read_batches` in memory: declared columns, in order, shape (n, columns).

    `malformed_rows` counts the lines that were left out.
    """
    batches = list(read_batches(spec, data))
    columns = {
        name: pd.concat([batch.cells[name].values() for batch in batches], ignore_index=True)
        for name in spec.attributes
    }
    return csv_files.mark_malformed(
        pd.DataFrame(columns), sum(batch.malformed for batch in batches)
    )


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


def places_of(spec: Spec, data: Path | None = None) -> tuple[str, ...]:
    """Where the data of a spec lies: absolute paths without links, and tables of databases.

    Raises:
        StorageError: a variable that a URL names is not set.
    """
    return tuple(
        databases.table_identity(part.source.url, part.source.table or "")
        if part.source.url and not data
        else str(Path(data or part.source.path or "").resolve())
        for part in spec.parts.values()
    )


def _path_of(spec: Spec, data: Path | None) -> Path | None:
    return data or (Path(spec.source.path) if spec.source.path else None)


def _read_path(path: Path, spec: Spec) -> Iterator[SourceBatch]:
    readers = {"csv": csv_files.read_csv, "parquet": parquet_files.read_parquet}
    read = readers[table_format(path, spec.source.format)]
    with guarded_reading(path):
        yield from read(path, spec)


@contextmanager
def guarded_reading(path: Path) -> Iterator[None]:
    """Where a file is read.

    Raises:
        StorageError: the file cannot be opened, or does not fit in memory; names path and reason.
    """
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "not readable"
        raise StorageError(
            f"{path} cannot be read ({reason}); check its path and permissions"
        ) from None
    except MemoryError:
        raise StorageError(
            f"{path} does not fit in memory; free memory or give fewer columns"
        ) from None


def rows_in_blocks(batches: Iterable[SourceBatch], spec: Spec) -> Iterator[SourceBatch]:
    """The rows of a spec's blocks, and those without a readable date, which are in no block.

    Privacy: row by row. Rows without a readable date are left for validation, which leaves them
        out, or refuses them where ``on_invalid`` is ``fail``: the column is not nullable.
    """
    assert spec.privacy.block is not None
    column, letters = spec.privacy.block.column, LETTERS[spec.privacy.block.per]
    for batch in batches:
        cells = batch.cells[column]
        typed, _ = parse(cells.distinct().reset_index(drop=True), spec.attributes[column])
        names = _days(typed).str[:letters]
        stays = (names.isna() | names.isin(spec.blocks)).to_numpy(dtype=bool)[cells.indices]
        yield batch if stays.all() else _taken(batch, stays)


def _days(typed: pd.Series) -> pd.Series:
    """The days of dates or moments as texts, as ``2026-10-31``; missing where these are."""
    texts = np.datetime_as_string(typed.to_numpy().astype("datetime64[D]"))
    return pd.Series(texts, dtype="string").mask(typed.isna().to_numpy(dtype=bool))


def _taken(batch: SourceBatch, stays: Booleans) -> SourceBatch:
    cells = {
        name: SourceCells(column.stored, column.indices[stays], column.read)
        for name, column in batch.cells.items()
    }
    return SourceBatch(cells, batch.malformed)
