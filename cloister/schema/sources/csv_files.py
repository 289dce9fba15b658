"""CSV files as text: their header, the rows that have as many cells, and others.

Cells are read as bytes, and decoded one by one, so that no row changes how another is read. UTF-16
is read as the bytes of UTF-8 that CSV readers take, in pieces.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from cloister.schema.sources import files_and_urls, stored_files
from cloister.schema.sources.batches import ROWS_NAMED, SourceBatch, SourceCells, require_columns
from cloister.schema.sources.storage_types import text_of_arrow
from cloister.schema.spec import SourceSpec, Spec
from cloister.schema.written_numbers import Unit

_LONGEST = 4
"""Bytes of a letter in UTF-8 at most."""

_BUFFER_BYTES = 1 << 20
"""Bytes that are decoded together."""


@contextmanager
def open_text(path: str | Path, encoding: str) -> Iterator[TextIOWrapper]:
    """The letters of a file after its byte order mark, unpacked if its ending says so.

    Bytes that are not of the encoding become single surrogates; in UTF-16, whose parts may
    themselves be those, backslash escapes.

    Raises:
        DataError: its byte order mark is that of another encoding.
    """
    errors = "backslashreplace" if files_and_urls.is_wide(encoding) else "surrogateescape"
    with (
        stored_files.open_stream(path) as raw,
        BufferedReader(raw, _BUFFER_BYTES) as file,
    ):
        _skip_mark(file, path, encoding)
        codec = "utf-8-sig" if encoding == files_and_urls.UTF_8 else encoding
        with TextIOWrapper(file, codec, errors, newline="") as text:
            yield text


@contextmanager
def open_as_utf_8(path: str | Path, encoding: str) -> Iterator[IO[bytes]]:
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


def _skip_mark(file: BufferedReader, path: str | Path, encoding: str) -> None:
    first = file.peek(2)[:2]
    marked = next((name for name, mark in files_and_urls.MARKS.items() if mark == first), encoding)
    if marked != encoding:
        raise DataError(f"{path} is {marked.upper()} text; declare source.encoding: {marked}")
    if first == files_and_urls.MARKS.get(encoding):
        file.read(len(first))


_BLOCK_BYTES = 16 << 20
"""Bytes of a CSV file that are parsed at a time."""

_SURROGATE = re.compile("[\ud800-\udfff]")

_LATIN = "latin-1"
"""The encoding in which each byte is a letter."""


def read_csv(
    path: str | Path, spec: Spec, span: stored_files.Span = stored_files.WHOLE
) -> Iterator[SourceBatch]:
    """The declared columns of a CSV file as text, some rows at a time: those of a span of bytes.

    A span begins and ends where records do. Numbers in the marks of the source are written as
    ``1234.5``. Bytes that are not of the source's encoding become backslash escapes. Lines with
    more or fewer cells than the header are left out.

    Raises:
        DataError: no header, or no text with one line a row.
        OSError: it cannot be read.
    """
    names, source = list(spec.attributes), spec.source
    readers = {
        name: partial(
            _read_cells,
            source=source,
            unit=declared_unit(attribute) if has_own_marks(attribute, source) else None,
        )
        for name, attribute in spec.attributes.items()
    }
    for piece, malformed in _pieces(path, source, names, span):
        cells = {name: SourceCells.of_arrow(piece[name], read) for name, read in readers.items()}
        yield SourceBatch(cells, malformed)


def require_csv_columns(path: str | Path, spec: Spec) -> None:
    """Passes if the first line of a CSV file names the declared columns.

    Raises:
        DataError: no header, or other columns.
        OSError: it cannot be read.
    """
    source = spec.source
    names = [name for name in names_of_columns(path, source) if name not in spec.ignore]
    require_columns(names, list(spec.attributes), str(path), source.delimiter)


def read_text(path: str | Path, source: SourceSpec, names: Sequence[str]) -> pd.DataFrame:
    """The named columns of a CSV file as text, dtype ``str``, shape (n, columns).

    Bytes that are not of the source's encoding become backslash escapes.

    Raises:
        DataError: ragged rows, or no text with one line a row.
    """
    pieces = list(_pieces(path, source, names))
    if any(malformed for _, malformed in pieces):
        require_even_rows(path, source)
    read = partial(_read_cells, source=source)
    columns = {name: pa.concat_arrays([piece[name] for piece, _ in pieces]) for name in names}
    return pd.DataFrame(
        {name: SourceCells.of_arrow(cells, read).values() for name, cells in columns.items()}
    )


def names_of_columns(path: str | Path, source: SourceSpec) -> list[str]:
    """The names of the columns of a CSV file: those that are declared, or those in its first line.

    Raises:
        DataError: as :func:`csv_header`; or the first line has another number of cells than names
            are declared, or holds these names.

    Privacy: of a first line that is a row, its number of cells and whether it consists of the
        declared names are said exactly.
    """
    first = csv_header(path, source.delimiter, source.encoding)
    if source.header is None:
        return first
    if len(first) != len(source.header):
        raise DataError(
            f"{path} has {count_of(len(first), 'column')}, and source.header names "
            f"{len(source.header)}; name each, or correct source.delimiter"
        )
    if {*source.header} <= {name.strip() for name in first}:
        raise DataError(
            f"the first line of {path} holds the names that source.header declares, so it is no "
            "row; leave source.header out, and the columns have the names of the file"
        )
    return list(source.header)


def csv_header(path: str | Path, delimiter: str, encoding: str) -> list[str]:
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
    path: str | Path,
    source: SourceSpec,
    names: Sequence[str],
    span: stored_files.Span = stored_files.WHOLE,
) -> Iterator[tuple[Mapping[str, pa.Array], int]]:
    """The named columns of a span of a file as bytes, some rows at a time.

    Each with the lines left out since the last. There is at least one piece.
    """
    ragged: list[int] = []
    try:
        with _opened(path, source, names, span, ragged) as pieces:
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
    path: str | Path,
    source: SourceSpec,
    names: Sequence[str],
    span: stored_files.Span,
    ragged: list[int],
    threads: bool = True,
) -> Iterator[pacsv.CSVStreamingReader]:
    """The named columns of a span of a file; the numbers of other lines are added to ``ragged``."""

    def skip(row: pacsv.InvalidRow) -> str:
        ragged.append(row.number or 0)
        return "skip"

    with (
        _open_span(path, source.encoding, span) as file,
        pacsv.open_csv(
            file,
            _read_options(path, source, span, threads),
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


@contextmanager
def _open_span(
    path: str | Path, encoding: str, span: stored_files.Span
) -> Iterator[IO[bytes] | pa.NativeFile]:
    """Some bytes of a file, or all as they are unpacked and in UTF-8.

    Bytes that are not of UTF-8 become backslash escapes: Arrow decodes an uneven line for the
    handler that may skip it, and where that fails Python prints the byte, and the file is refused.
    """
    begin, end = span
    if files_and_urls.is_wide(encoding):
        with open_as_utf_8(path, encoding) as file:
            yield file
        return
    opened = stored_files.open_stream if span == stored_files.WHOLE else stored_files.open_file
    with opened(path) as file:
        whole = span == stored_files.WHOLE
        length = None if whole else (file.size() if end is None else end) - begin
        some = file if whole else file.get_stream(begin, length)
        yield _escaped(some) if encoding == files_and_urls.UTF_8 else some


def _escaped(file: pa.NativeFile) -> pa.NativeFile:
    """The bytes of a file, those that are not of UTF-8 as backslash escapes."""
    decoder = codecs.getincrementaldecoder(files_and_urls.UTF_8)("backslashreplace")
    return pa.TransformInputStream(file, lambda some: decoder.decode(some, final=not some).encode())


def _read_options(
    path: str | Path, source: SourceSpec, span: stored_files.Span, threads: bool
) -> pacsv.ReadOptions:
    """Bytes of encodings of one byte are read as the letters of Latin-1, one for each."""
    has_header = span[0] == 0 and source.header is None
    options = pacsv.ReadOptions(use_threads=threads, block_size=_BLOCK_BYTES)
    options.column_names = names_of_columns(path, source)
    options.skip_rows_after_names = int(has_header)
    if not _is_read_as_utf_8(source.encoding):
        options.encoding = _LATIN
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


def require_even_rows(path: str | Path, source: SourceSpec) -> None:
    """Passes if all rows of a file have as many cells as its header.

    Raises:
        DataError: some have more or fewer; names them, as only one thread can that reads the file.
        OSError: it cannot be read.
    """
    numbers: list[int] = []
    first, header = names_of_columns(path, source)[:1], int(source.header is None)
    with _opened(path, source, first, stored_files.WHOLE, numbers, threads=False) as pieces:
        for _ in pieces:
            pass
    if not numbers:
        return
    rows = listed("row", [number - header for number in numbers[:ROWS_NAMED]])
    raise DataError(
        f"{path}: {count_of(len(numbers), 'row')} with more or fewer cells than the header "
        f"({rows}); put quotes around cells that hold the delimiter, or correct source.delimiter"
    )
