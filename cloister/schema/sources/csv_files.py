"""CSV files as text: their header, the rows that have as many cells, and others.

Cells are read as bytes, and decoded one by one, so that no row changes how another is read. UTF-16
is read as the bytes of UTF-8 that CSV readers take, in pieces.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv

from cloister.errors import DataError
from cloister.figures import count_of, listed
from cloister.schema.parsing import declared_unit, has_own_marks, plain_numbers
from cloister.schema.sources import files_and_urls
from cloister.schema.sources.batches import ROWS_NAMED, SourceBatch, SourceCells, require_columns
from cloister.schema.sources.storage_types import text_of_arrow
from cloister.schema.spec import SourceSpec, Spec
from cloister.schema.written_numbers import Unit

_LONGEST = 4
"""Bytes of a letter in UTF-8 at most."""

_BUFFER_BYTES = 1 << 20
"""Bytes that are decoded together."""


@contextmanager
def open_text(path: Path, encoding: str) -> Iterator[TextIOWrapper]:
    """The letters of a file after its byte order mark, unpacked if its ending says so.

    Bytes that are not of the encoding become single surrogates; in UTF-16, whose parts may
    themselves be those, backslash escapes.

    Raises:
        DataError: its byte order mark is that of another encoding.
    """
    errors = "backslashreplace" if files_and_urls.is_wide(encoding) else "surrogateescape"
    with (
        pa.input_stream(str(path), compression="detect") as raw,
        BufferedReader(raw, _BUFFER_BYTES) as file,
    ):
        _skip_mark(file, path, encoding)
        codec = "utf-8-sig" if encoding == files_and_urls.UTF_8 else encoding
        with TextIOWrapper(file, codec, errors, newline="") as text:
            yield text


@contextmanager
def open_as_utf_8(path: Path, encoding: str) -> Iterator[IO[bytes]]:
    """The bytes that a file would have in UTF-8.

    Privacy: row by row. A part of a letter becomes backslash escapes in its own cell.

    Raises:
        DataError: as :func:`open_text`.
    """
    with open_text(path, encoding) as text, BufferedReader(_Recoded(text), _BUFFER_BYTES) as file:
        yield file


class _Recoded(RawIOBase):
    def __init__(self, text: TextIOWrapper) -> None:
        self._text = text

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._text.read(len(buffer) // _LONGEST).encode()
        buffer[: len(piece)] = piece
        return len(piece)


def _skip_mark(file: BufferedReader, path: Path, encoding: str) -> None:
    first = file.peek(2)[:2]
    marked = next((name for name, mark in files_and_urls.MARKS.items() if mark == first), encoding)
    if marked != encoding:
        raise DataError(f"{path} is {marked.upper()} text; declare source.encoding: {marked}")
    if first == files_and_urls.MARKS.get(encoding):
        file.read(len(first))


_BLOCK_BYTES = 16 << 20
"""Bytes of a CSV file that are parsed at a time."""

_MALFORMED = "malformed"
_SURROGATE = re.compile("[\ud800-\udfff]")

_LATIN = "latin-1"
"""The encoding in which each byte is a letter."""


def read_csv(path: Path, spec: Spec) -> Iterator[SourceBatch]:
    """The declared columns of a CSV file as text, some rows at a time.

    Numbers in the marks of the source are written as ``1234.5``. Bytes that are not of the source's
    encoding become backslash escapes. Lines with more or fewer cells than the header are left out.

    Raises:
        DataError: no header, other columns than declared, no text with one line a row, or ragged
            rows under ``on_invalid: fail``.
        OSError: it cannot be read.
    """
    require_csv_columns(path, spec)
    names, source, ragged = list(spec.attributes), spec.source, 0
    readers = {
        name: partial(
            _read_cells,
            source=source,
            unit=declared_unit(attribute) if has_own_marks(attribute, source) else None,
        )
        for name, attribute in spec.attributes.items()
    }
    for piece, malformed in _pieces(path, source, names):
        ragged += malformed
        cells = {name: SourceCells.of_arrow(piece[name], read) for name, read in readers.items()}
        yield SourceBatch(cells, malformed)
    if ragged and spec.validation.on_invalid == "fail":
        raise DataError(_ragged_message(path, source))


def require_csv_columns(path: Path, spec: Spec) -> None:
    """Passes if the first line of a CSV file names the declared columns.

    Raises:
        DataError: no header, or other columns.
        OSError: it cannot be read.
    """
    source = spec.source
    names = [name for name in names_of_columns(path, source) if name not in spec.ignore]
    require_columns(names, list(spec.attributes), str(path), source.delimiter)


def read_text(path: Path, source: SourceSpec, names: Sequence[str]) -> pd.DataFrame:
    """The named columns of a CSV file as text, dtype ``str``, shape (n, columns).

    Bytes that are not of the source's encoding become backslash escapes.

    Raises:
        DataError: ragged rows, or no text with one line a row.
    """
    pieces = list(_pieces(path, source, names))
    if any(malformed for _, malformed in pieces):
        raise DataError(_ragged_message(path, source))
    read = partial(_read_cells, source=source)
    columns = {name: pa.concat_arrays([piece[name] for piece, _ in pieces]) for name in names}
    return pd.DataFrame(
        {name: SourceCells.of_arrow(cells, read).values() for name, cells in columns.items()}
    )


def malformed_rows(frame: pd.DataFrame) -> int:
    """Number of lines left out, since they had more or fewer cells than the header."""
    return int(frame.attrs.get(_MALFORMED, 0))


def mark_malformed(frame: pd.DataFrame, lines: int) -> pd.DataFrame:
    """The frame, which remembers how many lines were left out."""
    frame.attrs[_MALFORMED] = lines
    return frame


def names_of_columns(path: Path, source: SourceSpec) -> list[str]:
    """The names of the columns of a CSV file: those that are declared, or those in its first line.

    Raises:
        DataError: as :func:`csv_header`; or the first line has another number of cells.
    """
    first = csv_header(path, source.delimiter, source.encoding)
    if source.header is None:
        return first
    if len(first) != len(source.header):
        raise DataError(
            f"{path} has {count_of(len(first), 'column')}, and source.header names "
            f"{len(source.header)}; name each, or correct source.delimiter"
        )
    return list(source.header)


def csv_header(path: Path, delimiter: str, encoding: str) -> list[str]:
    """The names in the first line of a CSV file.

    Raises:
        DataError: the file is empty or not in its encoding.
    """
    with open_text(path, encoding) as text:
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


def _pieces(
    path: Path, source: SourceSpec, names: Sequence[str]
) -> Iterator[tuple[Mapping[str, pa.Array], int]]:
    """The named columns as bytes, some rows at a time, with the lines left out since the last.

    There is at least one piece.
    """
    ragged: list[int] = []
    try:
        with _opened(path, source, names, ragged) as pieces:
            for piece in pieces:
                malformed = len(ragged)
                del ragged[:malformed]
                yield {name: piece.column(name) for name in names}, malformed
    except pa.ArrowInvalid:
        raise DataError(
            f"{path} is not text with one line a row; close its quotes, and save it as CSV"
        ) from None
    yield {name: pa.array([], pa.large_binary()) for name in names}, len(ragged)


@contextmanager
def _opened(
    path: Path, source: SourceSpec, names: Sequence[str], ragged: list[int], threads: bool = True
) -> Iterator[pacsv.CSVStreamingReader]:
    """The named columns of a file; the numbers of other lines are added to ``ragged``."""

    def skip(row: pacsv.InvalidRow) -> str:
        ragged.append(row.number or 0)
        return "skip"

    wide = files_and_urls.is_wide(source.encoding)
    with (
        open_as_utf_8(path, source.encoding) if wide else nullcontext(path) as file,
        pacsv.open_csv(
            file,
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
        ) as pieces,
    ):
        yield pieces


def _is_read_as_utf_8(encoding: str) -> bool:
    return encoding == files_and_urls.UTF_8 or files_and_urls.is_wide(encoding)


def _read_options(path: Path, source: SourceSpec, threads: bool) -> pacsv.ReadOptions:
    """Bytes of encodings of one byte are read as the letters of Latin-1, one for each."""
    options = pacsv.ReadOptions(use_threads=threads, block_size=_BLOCK_BYTES)
    if not _is_read_as_utf_8(source.encoding):
        options.encoding = _LATIN
    if source.header is not None or not _is_read_as_utf_8(source.encoding):
        options.column_names = names_of_columns(path, source)
        options.skip_rows_after_names = int(source.header is None)
    return options


def _as_read(text: str, encoding: str) -> str:
    return text if _is_read_as_utf_8(encoding) else text.encode(encoding).decode(_LATIN)


def _read_cells(cells: pa.Array, source: SourceSpec, unit: Unit | None = None) -> pd.Series:
    """Cells of a file as text (n,), or, of numbers in its own marks, as ``1234.5``.

    These have a ``unit``, which may be empty.
    """
    if _is_read_as_utf_8(source.encoding):
        texts = text_of_arrow(pa.chunked_array([cells]))
    else:
        letters = cells.cast(pa.large_string()).to_pylist()
        read = [
            None
            if cell is None
            else files_and_urls.decode_text(cell.encode(_LATIN), source.encoding)
            for cell in letters
        ]
        texts = pd.Series(read, dtype="str")
    return texts if unit is None else plain_numbers(texts, source, unit)


def _ragged_message(path: Path, source: SourceSpec) -> str:
    """The rows with another number of cells than the header; only one thread can number them."""
    numbers: list[int] = []
    first, header = names_of_columns(path, source)[:1], int(source.header is None)
    with _opened(path, source, first, numbers, threads=False) as pieces:
        for _ in pieces:
            pass
    rows = listed("row", [number - header for number in numbers[:ROWS_NAMED]])
    return (
        f"{path}: {count_of(len(numbers), 'row')} with more or fewer cells than the header "
        f"({rows}); put quotes around cells that hold the delimiter, or correct source.delimiter"
    )
