"""The declared columns of a table: text from CSV, storage types from Parquet, values from SQL.

No type is inferred from what rows hold: the storage of a cell is that of the file's own schema, or
of the value that the database gives, so that no row changes how another is read.

Messages name files, columns and row numbers, never a cell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cloister.arrays import Booleans
from cloister.errors import DataError, SpecError, StorageError
from cloister.schema.blocks import LETTERS
from cloister.schema.parsing import parse
from cloister.schema.series import time_type, zoned_dtype
from cloister.schema.sources.batches import SourceBatch, SourceCells, read_arrow, require_columns
from cloister.schema.sources.csv_files import mark_malformed, read_csv, require_csv_columns
from cloister.schema.sources.databases import read_database, require_table_columns, table_identity
from cloister.schema.sources.storage_types import column_of_arrow, is_readable, is_text_of_arrow
from cloister.schema.spec import Spec

_BATCH_CELLS = 1 << 22
"""Cells that are read at a time: they take some 100 MB, and what each batch costs is little."""

_AS_STORED: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}

_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
"""What texts are where their letters do not matter."""


def read_parquet(path: Path, spec: Spec) -> Iterator[SourceBatch]:
    """The declared columns of a Parquet file, some rows at a time.

    Raises:
        DataError: it is no Parquet file, or its columns are not those declared, or nested.
        OSError: it cannot be read.
    """
    require_parquet_columns(path, spec)
    yield from read_columns(path, list(spec.attributes))


def require_parquet_columns(path: Path, spec: Spec) -> None:
    """Passes if the schema of a Parquet file has the declared columns.

    Raises:
        DataError: it is no Parquet file, or has other columns.
        OSError: it cannot be read.
    """
    columns = [name for name in parquet_names(path) if name not in spec.ignore]
    require_columns(columns, list(spec.attributes), str(path))


def read_columns(
    path: Path, names: Sequence[str], groups: Sequence[int] | None = None
) -> Iterator[SourceBatch]:
    """The named columns of a Parquet file, or of row ``groups`` of it, some rows at a time.

    Raises:
        DataError: it is no Parquet file, or a column's type is none of single values.
        OSError: it cannot be read.
    """
    schema = _parquet(path, pq.read_schema)
    _require_readable([schema.field(name) for name in names], path)
    texts = [name for name in names if is_text_of_arrow(schema.field(name).type)]
    rows = max(_BATCH_CELLS // len(names), 1)
    opened = _parquet(path, lambda file: pq.ParquetFile(file, read_dictionary=texts, **_AS_STORED))
    with opened as file:
        pieces = file.iter_batches(rows, groups, columns=list(names))
        while piece := _parquet(path, lambda _: _with_sound_codes(next(pieces, None))):
            yield SourceBatch(
                {name: SourceCells.of_arrow(piece.column(name), read_arrow) for name in names}
            )


def parquet_names(path: Path) -> list[str]:
    """The column names of a Parquet file; DataError if it is not one."""
    return list(_parquet(path, pq.read_schema).names)


def parquet_rows(path: Path) -> int:
    """The number of rows in the footer of a Parquet file; DataError if it is not one."""
    return int(_parquet(path, pq.read_metadata).num_rows)


def is_larger_unpacked(path: Path, names: Sequence[str], most: int) -> bool:
    """Whether the named columns have more than ``most`` bytes, shared texts written out.

    Raises:
        DataError: it is no Parquet file, or a column's type is none of single values.
    """
    footer = _parquet(path, pq.read_metadata)
    stored = sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
    kinds = {field.name: field.type for field in _parquet(path, pq.read_schema)}
    texts = [name for name in names if _is_text(kinds[name])]
    if stored > most or not texts:
        return bool(stored > most)
    length = 0
    for batch in read_columns(path, texts):
        for cells in batch.cells.values():
            lengths = pc.binary_length(cells.stored).fill_null(0).to_numpy(zero_copy_only=False)
            length += int(lengths[cells.indices].sum(dtype=np.int64))
        if length > most:
            return True
    return False


def _is_text(kind: pa.DataType) -> bool:
    return is_text_of_arrow(kind.value_type if pa.types.is_dictionary(kind) else kind)


def nested_names(path: Path) -> list[str]:
    """The columns of a Parquet file that hold no single values; DataError if it is not one."""
    return [field.name for field in _parquet(path, pq.read_schema) if not is_readable(field.type)]


def time_dtypes(path: Path) -> dict[str, str]:
    """The pandas dtypes of times of day, lengths of time and moments with a zone, by column."""
    dtypes = {field.name: _time_dtype(field.type) for field in _parquet(path, pq.read_schema)}
    return {name: kind for name, kind in dtypes.items() if kind is not None}


def _time_dtype(stored: pa.DataType) -> str | None:
    """The dtype of a column of times; None of other columns, and of a zone that is not known."""
    if pa.types.is_timestamp(stored) and stored.tz is not None:
        return zoned_dtype(f"datetime64[{stored.unit}, {stored.tz}]")
    kind = f"{stored}[pyarrow]"
    return kind if time_type(kind) is not None else None


def read_native(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """The named columns of a Parquet file in the storage that its schema says, shape (n, columns).

    Raises:
        DataError: it is no Parquet file, or a column's type is none of single values.
    """
    table = _parquet(
        path,
        lambda file: _validated(
            pq.read_table(file, columns=list(names), partitioning=None, **_AS_STORED)
        ),
    )
    _require_readable(list(table.schema), path)
    return frame_of_arrow(table.select(list(names)))


def frame_of_arrow(table: pa.Table) -> pd.DataFrame:
    """The columns of a table in the storage that its schema says, shape (n, columns)."""
    return pd.DataFrame({name: column_of_arrow(table[name]) for name in table.column_names})


def _require_readable(fields: Sequence[pa.Field], path: Path) -> None:
    for field in fields:
        if not is_readable(field.type):
            raise DataError(
                f"{path}: column '{field.name}' is of type {field.type}, which holds no single "
                "values; write it as numbers, dates or text, or name it under ignore"
            )


def _validated(table: Any) -> Any:
    """A table as it was read.

    Raises:
        ArrowInvalid: codes beyond their dictionary, or text that is no UTF-8.
    """
    table.validate(full=True)
    return table


def _with_sound_codes(batch: Any) -> Any:
    """A batch as it was read, if there is one; text that is no UTF-8 is a fault of its cell.

    Raises:
        ArrowInvalid: codes beyond their dictionary, or bytes beyond their column.
    """
    for column in batch.columns if batch is not None else ():
        _of_bytes(column).validate(full=True)
    return batch


def _of_bytes(column: Any) -> Any:
    """A column whose texts are bytes, without a copy."""
    if pa.types.is_dictionary(column.type):
        texts = _of_bytes(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, texts, safe=False)
    return column.view(_BYTES[column.type]) if column.type in _BYTES else column


def _parquet(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # of the system, and not of the content
            raise
        raise DataError(
            f"{path} is not a whole Parquet file; write it again, or set source.format"
        ) from None


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
        rows = parquet_rows(path)
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
    batches = read_database(spec) if path is None else _read_path(path, spec)
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
        require_table_columns(spec)
        return
    check = {"csv": require_csv_columns, "parquet": require_parquet_columns}
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
    return mark_malformed(pd.DataFrame(columns), sum(batch.malformed for batch in batches))


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
        table_identity(part.source.url, part.source.table or "")
        if part.source.url and not data
        else str(Path(data or part.source.path or "").resolve())
        for part in spec.parts.values()
    )


def _path_of(spec: Spec, data: Path | None) -> Path | None:
    return data or (Path(spec.source.path) if spec.source.path else None)


def _read_path(path: Path, spec: Spec) -> Iterator[SourceBatch]:
    read = {"csv": read_csv, "parquet": read_parquet}[table_format(path, spec.source.format)]
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
