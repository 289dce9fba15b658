"""Parquet files: the declared columns in the storage that their schema says, and their footers.

Messages name files and columns, never a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cloister.errors import DataError
from cloister.schema.series import time_type, zoned_dtype
from cloister.schema.sources import stored_files
from cloister.schema.sources.batches import SourceBatch, SourceCells, read_arrow, require_columns
from cloister.schema.sources.storage_types import column_of_arrow, is_readable, is_text_of_arrow
from cloister.schema.spec import Spec

_BATCH_CELLS = 1 << 22
"""Cells that are read at a time: they take some 100 MB, and what each batch costs is little."""

_AS_STORED: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}

_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
"""What texts are where their letters do not matter."""


def read_parquet(
    file: str | Path, spec: Spec, span: stored_files.Span = stored_files.WHOLE
) -> Iterator[SourceBatch]:
    """The declared columns of some row groups of a Parquet file, some rows at a time.

    Raises:
        DataError: it is no Parquet file, or a column's type is none of single values.
        OSError: it cannot be read.
    """
    return read_columns(file, list(spec.attributes), span)


def require_parquet_columns(file: str | Path, spec: Spec) -> None:
    """Passes if the schema of a Parquet file has the declared columns.

    Raises:
        DataError: it is no Parquet file, or has other columns.
        OSError: it cannot be read.
    """
    columns = [name for name in parquet_names(file) if name not in spec.ignore]
    require_columns(columns, list(spec.attributes), str(file))


def row_group_spans(file: str | Path, rows_per_part: int) -> Sequence[stored_files.Span]:
    """The row groups of a Parquet file, in order, in spans of at most so many rows.

    A larger row group is a span. The end of the last is None.

    Raises:
        DataError: it is no Parquet file.
        OSError: it cannot be read.
    """
    footer, begins, rows = _parquet(file, pq.read_metadata), [0], 0
    for group in range(footer.num_row_groups):
        size = footer.row_group(group).num_rows
        if rows and rows + size > rows_per_part:
            begins.append(group)
            rows = 0
        rows += size
    return stored_files.spans_from(begins)


def read_columns(
    file: str | Path,
    names: Sequence[str],
    span: stored_files.Span = stored_files.WHOLE,
    footer: pq.FileMetaData | None = None,
) -> Iterator[SourceBatch]:
    """The named columns of some row groups of a Parquet file, some rows at a time.

    The ``footer`` is read if it is not given; that of many row groups takes as long as one of them.

    Raises:
        DataError: it is no Parquet file, or a column's type is none of single values.
        OSError: it cannot be read.
    """
    footer = _parquet(file, pq.read_metadata) if footer is None else footer
    schema = footer.schema.to_arrow_schema()
    _require_readable([schema.field(name) for name in names], file)
    texts = [name for name in names if is_text_of_arrow(schema.field(name).type)]
    rows = max(_BATCH_CELLS // len(names), 1)
    with _whole(file), stored_files.open_file(file) as opened:
        reader = pq.ParquetFile(
            opened,
            metadata=footer,
            read_dictionary=texts,
            pre_buffer=stored_files.is_remote(file),
            **_AS_STORED,
        )
        groups = range(reader.num_row_groups)[slice(*span)]
        for piece in reader.iter_batches(rows, row_groups=groups, columns=list(names)):
            _require_sound_codes(piece)
            yield SourceBatch(
                {name: SourceCells.of_arrow(piece.column(name), read_arrow) for name in names}
            )


def parquet_names(file: str | Path) -> list[str]:
    """The column names of a Parquet file; DataError if it is not one."""
    return list(_parquet(file, pq.read_schema).names)


def parquet_rows(file: str | Path) -> int:
    """The number of rows in the footer of a Parquet file; DataError if it is not one."""
    return int(_parquet(file, pq.read_metadata).num_rows)


def is_larger_unpacked(file: str | Path, names: Sequence[str], most: int) -> bool:
    """Whether the named columns have more than ``most`` bytes, shared texts written out.

    Raises:
        DataError: it is no Parquet file, or a column's type is none of single values.
    """
    footer = _parquet(file, pq.read_metadata)
    stored = sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
    kinds = {field.name: field.type for field in _parquet(file, pq.read_schema)}
    texts = [name for name in names if _is_text(kinds[name])]
    if stored > most or not texts:
        return bool(stored > most)
    length = 0
    for batch in read_columns(file, texts):
        for cells in batch.cells.values():
            lengths = pc.binary_length(cells.stored).fill_null(0).to_numpy(zero_copy_only=False)
            length += int(lengths[cells.indices].sum(dtype=np.int64))
        if length > most:
            return True
    return False


def _is_text(kind: pa.DataType) -> bool:
    return is_text_of_arrow(kind.value_type if pa.types.is_dictionary(kind) else kind)


def nested_names(file: str | Path) -> list[str]:
    """The columns of a Parquet file that hold no single values; DataError if it is not one."""
    return [field.name for field in _parquet(file, pq.read_schema) if not is_readable(field.type)]


def time_dtypes(file: str | Path) -> dict[str, str]:
    """The pandas dtypes of times of day, lengths of time and moments with a zone, by column."""
    dtypes = {field.name: _time_dtype(field.type) for field in _parquet(file, pq.read_schema)}
    return {name: kind for name, kind in dtypes.items() if kind is not None}


def _time_dtype(stored: pa.DataType) -> str | None:
    """The dtype of a column of times; None of other columns, and of a zone that is not known."""
    if pa.types.is_timestamp(stored) and stored.tz is not None:
        return zoned_dtype(f"datetime64[{stored.unit}, {stored.tz}]")
    kind = f"{stored}[pyarrow]"
    return kind if time_type(kind) is not None else None


def read_native(file: str | Path, names: Sequence[str]) -> pd.DataFrame:
    """The named columns of a Parquet file in the storage that its schema says, shape (n, columns).

    Raises:
        DataError: it is no Parquet file, or a column's type is none of single values.
    """
    table = _parquet(
        file,
        lambda opened: _validated(
            pq.read_table(opened, columns=list(names), partitioning=None, **_AS_STORED)
        ),
    )
    _require_readable(list(table.schema), file)
    return frame_of_arrow(table.select(list(names)))


def frame_of_arrow(table: pa.Table) -> pd.DataFrame:
    """The columns of a table in the storage that its schema says, shape (n, columns)."""
    return pd.DataFrame({name: column_of_arrow(table[name]) for name in table.column_names})


def _require_readable(fields: Sequence[pa.Field], file: str | Path) -> None:
    for field in fields:
        if not is_readable(field.type):
            raise DataError(
                f"{file}: column '{field.name}' is of type {field.type}, which holds no single "
                "values; write it as numbers, dates or text, or name it under ignore"
            )


def _validated(table: Any) -> Any:
    """A table as it was read.

    Raises:
        ArrowInvalid: codes beyond their dictionary, or text that is no UTF-8.
    """
    table.validate(full=True)
    return table


def _require_sound_codes(batch: pa.RecordBatch) -> None:
    """Passes a batch whose cells can be read; text that is no UTF-8 is a fault of its cell.

    Raises:
        ArrowInvalid: codes beyond their dictionary, or bytes beyond their column.
    """
    for column in batch.columns:
        _of_bytes(column).validate(full=True)


def _of_bytes(column: Any) -> Any:
    """A column whose texts are bytes, without a copy."""
    if pa.types.is_dictionary(column.type):
        texts = _of_bytes(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, texts, safe=False)
    return column.view(_BYTES[column.type]) if column.type in _BYTES else column


def _parquet(file: str | Path, read: Callable[[pa.NativeFile], Any]) -> Any:
    with _whole(file), stored_files.open_file(file) as opened:
        return read(opened)


@contextmanager
def _whole(file: str | Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        of_system = isinstance(error, OSError) and (error.errno or stored_files.is_remote(file))
        if of_system:  # and not of the content
            raise
        raise DataError(
            f"{file} is not a whole Parquet file; write it again, or set source.format"
        ) from None
