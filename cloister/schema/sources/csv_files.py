"""CSV files as text: their header, the rows that have as many cells, and the numbers of others.

Cells are read as bytes, and decoded one by one, so that no row changes how another is read.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv

from cloister.errors import DataError
from cloister.schema.encodings import UTF_8, decode
from cloister.schema.sources.storage_types import text_of_arrow
from cloister.schema.spec import SourceSpec

_BLOCK_BYTES = 16 << 20
"""Bytes of a CSV file that are parsed at a time."""

ROWS_NAMED = 10
"""Rows or columns that a message names; the rest are counted."""

_MALFORMED = "malformed"
_SURROGATE = re.compile("[\ud800-\udfff]")

_LATIN = "latin-1"
"""The encoding in which each byte is a letter."""


def malformed_rows(frame: pd.DataFrame) -> int:
    """Number of lines left out, since they had more or fewer cells than the header."""
    return int(frame.attrs.get(_MALFORMED, 0))


def read_text(path: Path, source: SourceSpec, names: Sequence[str]) -> pd.DataFrame:
    """The named columns of a CSV file as text, dtype ``str``, shape (n, columns).

    Bytes that are not of the source's encoding become backslash escapes.

    Raises:
        DataError: ragged rows, or no text with one line a row.
    """
    return without_ragged(well_formed_rows(path, source, names), path, source)


def without_ragged(frame: pd.DataFrame, path: Path, source: SourceSpec) -> pd.DataFrame:
    """The frame of a file, if no row was left out.

    Raises:
        DataError: names the numbers of those that were.
    """
    if malformed_rows(frame):
        raise DataError(_ragged_message(path, source))
    return frame


def well_formed_rows(path: Path, source: SourceSpec, names: Sequence[str]) -> pd.DataFrame:
    """The rows with as many cells as the header; `malformed_rows` counts the others."""
    ragged: list[int] = []
    try:
        table = _csv_table(path, source, names, ragged)
    except pa.ArrowInvalid:
        raise DataError(
            f"{path} is not text with one line a row; close its quotes, and save it as CSV"
        ) from None
    frame = pd.DataFrame({name: _text_of(table[name], source.encoding) for name in names})
    frame.attrs[_MALFORMED] = len(ragged)
    return frame


def csv_header(path: Path, delimiter: str, encoding: str) -> list[str]:
    """The names in the first line of a CSV file.

    Raises:
        DataError: the file is empty or not in its encoding.
    """
    with (
        pa.input_stream(str(path), compression="detect") as raw,
        TextIOWrapper(
            raw, "utf-8-sig" if encoding == UTF_8 else encoding, "surrogateescape", newline=""
        ) as text,
    ):
        try:
            header = next(csv.reader(text, delimiter=delimiter), None)
        except csv.Error:
            raise DataError(f"{path}: its first line is no CSV header; close its quotes") from None
    if any(_SURROGATE.search(name) for name in header or ()):
        raise DataError(
            f"{path} is not {encoding.upper()} text; declare source.encoding, such as latin-1, or "
            "save it as CSV in UTF-8"
        )
    if not header:
        raise DataError(f"{path} is empty; its first line must name the columns")
    return header


def _csv_table(
    path: Path, source: SourceSpec, names: Sequence[str], ragged: list[int], threads: bool = True
) -> pa.Table:
    def skip(row: pacsv.InvalidRow) -> str:
        ragged.append(row.number or 0)
        return "skip"

    return pacsv.read_csv(
        path,
        _read_options(path, source, threads),
        pacsv.ParseOptions(
            delimiter=source.delimiter, newlines_in_values=True, invalid_row_handler=skip
        ),
        pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.large_binary()),
            include_columns=list(names),
            null_values=[_as_read(text, source.encoding) for text in source.missing],
            strings_can_be_null=True,
        ),
    )


def _read_options(path: Path, source: SourceSpec, threads: bool) -> pacsv.ReadOptions:
    """Bytes of another encoding than UTF-8 are read as the letters of Latin-1, one for each."""
    options = pacsv.ReadOptions(use_threads=threads, block_size=_BLOCK_BYTES)
    if source.encoding != UTF_8:
        options.encoding = _LATIN
        options.column_names = csv_header(path, source.delimiter, source.encoding)
        options.skip_rows_after_names = 1
    return options


def _as_read(text: str, encoding: str) -> str:
    return text if encoding == UTF_8 else text.encode(encoding).decode(_LATIN)


def _text_of(column: pa.ChunkedArray, encoding: str) -> pd.Series:
    if encoding == UTF_8:
        return text_of_arrow(column)
    coded: Any = column.combine_chunks().dictionary_encode()
    raw = (cell.decode().encode(_LATIN) for cell in coded.dictionary.to_pylist())
    distinct = [decode(cell, encoding) for cell in raw]
    texts = pa.array(distinct, pa.large_string()).take(coded.indices)
    return pd.Series(texts.to_pandas()).astype("str")


def _ragged_message(path: Path, source: SourceSpec) -> str:
    """The rows with another number of cells than the header; only one thread can number them."""
    numbers: list[int] = []
    _csv_table(path, source, (), numbers, threads=False)
    rows = ", ".join(str(number - 1) for number in numbers[:ROWS_NAMED])
    return (
        f"{path}: {len(numbers)} row(s) have more or fewer cells than the header (rows {rows}); "
        "put quotes around cells that hold the delimiter, or correct source.delimiter"
    )
