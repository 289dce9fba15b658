"""Where records of a CSV file begin, so that parts of it can be read apart from each other.

A line end in quotes ends no record, and a quote opens a cell only as its first letter, so that
counting quotes does not tell: ``5" pipe`` has one that opens nothing. The rules are those of Arrow,
which reads the records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from cloister.arrays import Array, Integers
from cloister.schema.sources import files_and_urls, stored_files
from cloister.schema.spec import SourceSpec

_BLOCK_BYTES = 16 << 20
"""Bytes that are read at a time, as when the records are parsed."""

_QUOTE, _LINE_ENDS = ord('"'), tuple(b"\r\n")
_MARK = tuple(b"\xef\xbb\xbf")
"""The byte order mark of UTF-8, which readers skip where a file, or a part of it, begins."""

_RECORD, _CELL, _CLOSED, _PLAIN, _QUOTED = range(5)
"""Where a byte stands: at the beginning of a record or of a cell, after a quote that closes one,
inside a cell, inside quotes. A quote opens at the first three; after a closing one it is its twin.
"""


def record_spans(
    file: str | Path, source: SourceSpec, rows_per_part: int
) -> Sequence[stored_files.Span]:
    """The bytes of a CSV file, in order, in spans of so many records, the header among them.

    A file that is packed, or of two bytes a letter, is one span. The end of the last is None.

    Raises:
        OSError: it cannot be read.
    """
    begins, state, offset = [0], np.array([_RECORD, 0]), 0
    with stored_files.open_stream(file) as opened:
        if files_and_urls.is_wide(source.encoding) or isinstance(opened, pa.CompressedInputStream):
            return [stored_files.WHOLE]
        while block := opened.read(_BLOCK_BYTES):
            marked = (
                offset == 0
                and source.encoding == files_and_urls.UTF_8
                and block.startswith(bytes(_MARK))
            )
            skipped = len(_MARK) if marked else 0
            letters = np.frombuffer(block, np.uint8)[skipped:]
            starts = np.empty(len(letters) // rows_per_part + 1, np.int64)
            count = _compiled()(letters, ord(source.delimiter), rows_per_part, state, starts)
            begins.extend(int(start) + skipped + offset for start in starts[:count])
            offset += len(block)
    return stored_files.spans_from(begins)


@cache
def _compiled() -> Callable[[Array, int, int, Integers, Integers], int]:
    """`_find_starts`, compiled when a file is first divided."""
    import numba

    return numba.njit(cache=True, nogil=True)(_find_starts)


def _find_starts(block: Array, delimiter: int, rows: int, state: Integers, starts: Integers) -> int:
    """Fill ``starts`` with where parts of ``rows`` records begin in a block; their number.

    ``state`` is where the block begins, and the records of the present part; that of the next block
    after it. No part begins with what could be a byte order mark.
    """
    count, where, records = 0, state[0], state[1]
    for offset, byte in enumerate(block):
        if where == _QUOTED:
            where = _CLOSED if byte == _QUOTE else _QUOTED
            continue
        if byte in _LINE_ENDS:
            records += where != _RECORD  # an empty line is no record
            where = _RECORD
            continue
        marked = byte == _MARK[0] and (
            offset + 2 >= len(block)
            or (block[offset + 1] == _MARK[1] and block[offset + 2] == _MARK[2])
        )
        if where == _RECORD and records >= rows and not marked:
            starts[count] = offset
            count, records = count + 1, 0
        if byte == delimiter:
            where = _CELL
        elif byte == _QUOTE and where <= _CLOSED:
            where = _QUOTED
        else:
            where = _PLAIN
    state[:] = where, records
    return count
