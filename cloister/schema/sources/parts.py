"""Parts of a source that can be read apart from each other, by whichever process sees the source.

All parts, one after the other, are the rows of the source. What parts there are is read from
footers, boundaries of records and statistics, and each is pinned to what the source was: a part
that is read again, as by another process after a first was lost, is the same or ends the release.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from cloister.arrays import Booleans
from cloister.errors import DataError, StorageError
from cloister.schema.blocks import LETTERS
from cloister.schema.parsing import parse
from cloister.schema.sources import csv_files, csv_records, databases, parquet_files, stored_files
from cloister.schema.sources.batches import SourceBatch, SourceCells
from cloister.schema.spec import Spec


@dataclass(frozen=True)
class SourcePart:
    """Some rows of a source, by where they lie; nothing of what they hold.

    ``file`` is an absolute path or a URL, None for the table of a database. ``span`` counts row
    groups of Parquet, bytes of CSV, pages of a table. ``pin`` is what the file was, or the snapshot
    of a database; None of a database without, whose rows may be others when they are read again.
    """

    file: str | None
    span: stored_files.Span = stored_files.WHOLE
    pin: str | None = field(default=None, repr=False)


@contextmanager
def source_parts(
    spec: Spec, data: Path | None = None, rows_per_part: int | None = None
) -> Iterator[Sequence[SourcePart]]:
    """The parts of a spec's source, or of ``data`` in its place, in the order of its rows.

    Parts have about ``rows_per_part`` rows; without it each file is one. Parts are read while the
    context lasts. A file of one large row group, one that is packed or of UTF-16, and a table that
    is not kept in pages of PostgreSQL are one part.

    Raises:
        StorageError: the source cannot be read.
        DataError: it has other columns than declared, or is no file of its format.

    Privacy: their number and bounds depend on the rows, exactly: they are internal.
    """
    source = source_path(spec, data)
    if source is None:
        with databases.page_spans(spec, rows_per_part) as (snapshot, spans):
            yield [SourcePart(None, span, snapshot) for span in spans]
        return
    with stored_files.guarded_reading(source):
        files = stored_files.files_of(source)
    yield [part for file in files for part in _parts_of(file, spec, rows_per_part)]


def source_path(spec: Spec, data: Path | None) -> str | Path | None:
    """The path or URL of a spec's source, or ``data`` in its place; None of a database."""
    return data or spec.source.path


def _parts_of(file: str, spec: Spec, rows_per_part: int | None) -> Iterator[SourcePart]:
    absolute = file if stored_files.is_remote(file) else os.path.abspath(file)  # noqa: PTH100
    with stored_files.guarded_reading(file):
        pin = stored_files.pin_of(file)
        require_file_columns(file, spec)
        spans: Sequence[stored_files.Span] = [stored_files.WHOLE]
        if rows_per_part and stored_files.table_format(file, spec.source.format) == "csv":
            spans = csv_records.record_spans(file, spec.source, rows_per_part)
        elif rows_per_part:
            spans = parquet_files.row_group_spans(file, rows_per_part)
    return (SourcePart(absolute, span, pin) for span in spans)


def require_file_columns(file: str, spec: Spec) -> None:
    """Passes if the header of a CSV file, or the schema of a Parquet file, has a spec's columns.

    Raises:
        DataError: no header, or columns that are missing, undeclared or doubled.
        OSError: it cannot be read.
    """
    check = {
        "csv": csv_files.require_csv_columns,
        "parquet": parquet_files.require_parquet_columns,
    }
    check[stored_files.table_format(file, spec.source.format)](file, spec)


def read_part(part: SourcePart, spec: Spec) -> Iterator[SourceBatch]:
    """The rows of a part, some at a time, as :func:`reading.read_batches` gives them.

    Of growing data those of the spec's blocks, and those that are in none. Lines of CSV with more
    or fewer cells than the header are left out and counted.

    Raises:
        StorageError: it cannot be read, or is no longer what it was when the parts were made.
        DataError: its columns are nested, or its lines cannot be separated.
    """
    batches = _stored_rows(part, spec)
    return _rows_in_blocks(batches, spec) if spec.blocks else batches


def _stored_rows(part: SourcePart, spec: Spec) -> Iterator[SourceBatch]:
    if part.file is None:
        yield from databases.read_database(spec, part.span, part.pin)
        return
    read = {"csv": csv_files.read_csv, "parquet": parquet_files.read_parquet}
    with stored_files.guarded_reading(part.file):
        _require_pinned(part.file, part.pin)
        try:
            yield from read[stored_files.table_format(part.file, spec.source.format)](
                part.file, spec, part.span
            )
        except DataError:  # as of a file that is being written
            _require_pinned(part.file, part.pin)
            raise
        _require_pinned(part.file, part.pin)


def _require_pinned(file: str, pin: str | None) -> None:
    if stored_files.pin_of(file) != pin:
        raise StorageError(
            f"{file} is no longer the file that this release began to read; put that one back and "
            "run the same command, which resumes the release"
        )


def _rows_in_blocks(batches: Iterable[SourceBatch], spec: Spec) -> Iterator[SourceBatch]:
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
