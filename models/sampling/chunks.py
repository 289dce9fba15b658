"""Chunks of a draw: their rows, their streams of randomness, the keys that rows get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from cloister.errors import SampleError
from cloister.figures import count_of
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.columns import Serial
from cloister.schema.domain import Table

CHUNK_ROWS = 32_768
"""Rows of a chunk; it is part of what makes an unfinished draw the same as another."""


@dataclass(frozen=True)
class Chunk:
    """Rows ``begin`` to ``begin + rows`` of a draw, and what makes them random."""

    begin: int
    rows: int
    stream: SamplingSource


def chunks_of(rows: int, rng: SamplingSource, first: int = 0) -> Iterator[Chunk]:
    """The chunks of a draw from number ``first`` on; a draw of no rows has an empty one."""
    begins = range(0, max(rows, 1), CHUNK_ROWS)
    drawn = zip(begins, rng.spawn(len(begins)), strict=True)
    for begin, stream in islice(drawn, first, None):
        yield Chunk(begin, min(CHUNK_ROWS, rows - begin), stream)


def number_keys(table: Table, first: int, kept: tuple[str, ...] = ()) -> Table:
    """The table with its keys: those of rows ``first``, ``first + 1``, ...; ``kept`` stay.

    Raises:
        SampleError: a key's pattern has fewer keys.
    """
    codes = dict(table.codes)
    for column in table.domain:
        if isinstance(column, Serial) and column.name not in kept:
            if first + table.rows > column.values:
                raise SampleError(
                    f"column '{column.name}': its pattern has only "
                    f"{count_of(column.values, 'key')}; "
                    "widen the pattern"
                )
            numbers = np.arange(first, first + table.rows, dtype=np.int64)
            codes[column.name] = column.fresh(numbers)
    return Table(table.domain, codes)
