"""Drawing any number of rows from any sampler: chunks, and keys.

A table is drawn in chunks, so that memory stays flat. A chunk's random numbers depend on the seed
and its number alone, so any chunk can be drawn without those before it, unless rows depend on
earlier ones; then it is given these. Keys are numbered afresh over all chunks. What draws a chunk
is a function that can be pickled, so that other processes and machines can draw chunks as well.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from cloister.arrays import Array, Integers
from cloister.errors import SampleError
from cloister.figures import count_of
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.columns import Serial
from cloister.schema.domain import Domain, Table

CHUNK_ROWS = 32_768
"""Most rows of a chunk; an unfinished draw can only be resumed with the same number."""

_REDRAWN = 40
"""Times that codes which occur before are drawn anew, inside their bounds and then anywhere."""

A = TypeVar("A")
B = TypeVar("B")


class Mapper(Protocol):
    """What a function makes of items, in their order; a few of them are made ahead.

    Function and items can be pickled, and the function is the same for all items.
    """

    def __call__(self, function: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]:
        """The values, one for each item."""
        ...


def in_threads(function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """A `Mapper` by a thread per processor: numpy, numba and Arrow release the lock."""
    workers = os.cpu_count() or 1
    pool, waiting = ThreadPoolExecutor(workers), deque[Future[B]]()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


Where = Mapping[str, object]
"""Columns, and the value that all rows have in each."""


@dataclass(frozen=True)
class Given:
    """What rows are drawn under.

    All have the values of ``where``; if the sampler remembers, they fit the rows ``before`` them.
    ``first`` is the number of the first of them in its draw.
    """

    where: Where = field(default_factory=dict)
    before: Sequence[Table] = ()
    first: int = 0


ANYTHING = Given()
"""No condition, and no rows before."""


@dataclass(frozen=True)
class Chunk:
    """Rows ``begin`` to ``begin + rows`` of a draw, and what makes them random."""

    begin: int
    rows: int
    stream: SamplingSource


def split_rows(rows: int, most: int, rng: SamplingSource) -> list[Chunk]:
    """Chunks of ``most`` rows, but for the last; one chunk if there are no rows.

    So a full chunk does not depend on how many rows are requested.
    """
    begins = range(0, max(rows, 1), most)
    return [
        Chunk(begin, min(most, rows - begin), stream)
        for begin, stream in zip(begins, rng.spawn(len(begins)), strict=True)
    ]


@dataclass(frozen=True)
class Patience:
    """When a source of rows is given up of which too few are kept.

    That is after ``idle`` rows in succession of which none is kept, or after ``tries`` rows for
    each that is wanted, beyond these. If so many may be needed, ``least`` rows are drawn at a time.
    """

    idle: int = 20_000
    tries: int = 300
    least: int = 2_048

    def rows_to_draw(self, missing: int, accepted: int, drawn: int) -> int:
        """Rows to draw so that about ``missing`` are kept, if ``kept`` of ``drawn`` were before."""
        likely = int(1.1 * missing * drawn / max(accepted, 1)) + 16
        return min(max(4 * missing, self.least), likely)


def draw_until_kept(
    wanted: int,
    sources: Iterable[Callable[[int, int], Table]],
    failure: Callable[[int], SampleError],
    spare: bool = False,
    patience: Patience = Patience(),
) -> list[Table]:
    """Tables of ``wanted`` rows in all: those kept of what sources draw, one after the other.

    Args:
        sources: each draws so many rows and gives those it keeps, at most as many as are missing.
        failure: the error, by the number of rows that were kept.
        spare: whether a source draws some more rows than are missing at first.
        patience: when a source is given up and the next one drawn from.
    """
    batches: list[Table] = []
    missing = wanted
    for source in sources:
        requested, drawn, idle = missing, 0, 0
        while (
            missing
            and idle <= patience.idle
            and drawn <= patience.idle + patience.tries * requested
        ):
            rows = missing + (missing // 8 + 16) * spare
            if drawn:
                rows = patience.rows_to_draw(missing, requested - missing, drawn)
            batches.append(source(rows, missing))
            missing, drawn = missing - batches[-1].rows, drawn + rows
            idle = 0 if batches[-1].rows else idle + rows
        if not missing:
            return batches
    raise failure(wanted - missing)


class Sampler(ABC):
    """Draws rows.

    A method says how some rows are drawn in one piece; :meth:`chunks` and :meth:`sample` make
    tables of any size of them.
    """

    if TYPE_CHECKING:  # at run time a frozen dataclass could not have it as a field

        @property
        def domain(self) -> Domain:
            """The columns of the rows."""

    @abstractmethod
    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """Exactly ``rows`` rows in one piece, keys left unset.

        SampleError if they cannot be drawn.
        """

    @property
    def remembers(self) -> bool:
        """Whether rows depend on those before them."""
        return False

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk at most."""
        return CHUNK_ROWS

    @property
    def drawn_keys(self) -> tuple[str, ...]:
        """The keys that :meth:`draw` sets."""
        return ()

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> Sampler:  # noqa: ARG002
        """The sampler of the chunks of one draw of ``rows`` rows, with all that they share."""
        return self

    def chunks(
        self,
        rows: int,
        rng: SamplingSource,
        where: Where | None = None,
        first: int = 0,
        before: Iterable[Table] = (),
        mapper: Mapper = in_threads,
    ) -> Iterator[Table]:
        """The rows in chunks, keys numbered, from number ``first`` on, given those ``before``.

        A chunk depends on the seed and its number; if the sampler remembers, also on those before
        it, and ``mapper`` has no part. Codes are narrow. SampleError if they cannot be drawn.
        """
        sampler = self.prepared(rows, rng, where or {})
        chunks = split_rows(rows, sampler.chunk_rows, rng)[first:]
        given = Given(where or {}, tuple(before))
        if sampler.remembers:
            drawn = _one_by_one(sampler, chunks, given)
        else:
            drawn = mapper(_ChunkDraw(sampler, given), chunks)
        for chunk, codes in zip(chunks, drawn, strict=True):
            table = Table(sampler.domain, codes)
            yield number_keys(table, chunk.begin, sampler.drawn_keys)

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows in one table; SampleError if they cannot be drawn."""
        return Table.concatenate(self.chunks(rows, rng, where))


@dataclass(frozen=True)
class _ChunkDraw:
    """Draws any chunk by itself: its narrow codes by column."""

    sampler: Sampler
    given: Given

    def __call__(self, chunk: Chunk) -> Mapping[str, Array]:
        given = replace(self.given, first=chunk.begin)
        return self.sampler.draw(chunk.rows, chunk.stream, given).narrow().stored


def _one_by_one(
    sampler: Sampler, chunks: Sequence[Chunk], given: Given
) -> Iterator[Mapping[str, Array]]:
    """The narrow codes of chunks, each given those before."""
    known = [*given.before]
    for chunk in chunks:
        given = replace(given, before=known, first=chunk.begin)
        known.append(sampler.draw(chunk.rows, chunk.stream, given).narrow())
        yield known[-1].stored


def number_keys(table: Table, first: int, preset: tuple[str, ...] = ()) -> Table:
    """The table with its keys: those of rows ``first``, ``first + 1``, ...; ``preset`` ones stay.

    Raises:
        SampleError: a key's pattern has fewer keys.
    """
    codes = dict(table.stored)
    for column in table.domain:
        if isinstance(column, Serial) and column.name not in preset:
            if first + table.rows > column.values:
                raise SampleError(
                    f"column '{column.name}': its pattern has only "
                    f"{count_of(column.values, 'key')}; "
                    "widen the pattern"
                )
            numbers = np.arange(first, first + table.rows, dtype=np.int64)
            codes[column.name] = column.fresh(numbers)
    return Table(table.domain, codes)


def without_repetition(
    codes: Integers, start: Integers, stop: Integers, size: int, rng: np.random.Generator
) -> Integers:
    """Codes (n,) below a size, those that occur before drawn anew, as long as there are any left.

    From ``start`` (n,) to before ``stop`` (n,), or anywhere where these are too few.
    """
    codes = codes.copy()
    for attempt in range(2 * _REDRAWN):
        again = np.ones(len(codes), dtype=bool)
        again[np.unique(codes, return_index=True)[1]] = False
        low, width = start[again], (stop - start)[again]
        if attempt >= _REDRAWN:
            low, width = 0 * low, 0 * width + size
        codes[again] = low + (rng.random(len(low)) * width).astype(np.int64)
        if not len(low):
            return codes
    return rng.choice(size, len(codes), replace=False)
