"""Text files as letters, and UTF-16 as the bytes of UTF-8 that CSV readers take, in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from cloister.errors import DataError
from cloister.schema.sources.files.encodings import MARKS, UTF_8, is_wide

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
    errors = "backslashreplace" if is_wide(encoding) else "surrogateescape"
    with (
        pa.input_stream(str(path), compression="detect") as raw,
        BufferedReader(raw, _BUFFER_BYTES) as file,
    ):
        _skip_mark(file, path, encoding)
        codec = "utf-8-sig" if encoding == UTF_8 else encoding
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
    found = next((name for name, mark in MARKS.items() if mark == first), encoding)
    if found != encoding:
        raise DataError(f"{path} is {found.upper()} text; declare source.encoding: {found}")
    if first == MARKS.get(encoding):
        file.read(len(first))
