"""Drawing any number of rows from any sampler: chunks, keys, one file, resumption.

A table is drawn in chunks, so that memory stays flat. A chunk's random numbers depend on the seed
and its number alone, so any chunk can be drawn without those before it, unless rows depend on
earlier ones; then it is given these. Keys are numbered afresh over all chunks.

In a file a chunk is one part, written whole or not at all. A folder beside the file holds the parts
and a note of what is drawn; parts that a draw of the same model, rows, seed and condition left
behind are not drawn again. When all are there they are joined, and the folder is removed.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cloister.errors import SampleError, StorageError
from cloister.figures import count_of
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.columns import Serial
from cloister.schema.domain import Domain, Table

CHUNK_ROWS = 32_768
"""Most rows of a chunk; an unfinished draw can only be resumed with the same number."""

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
    ) -> Iterator[Table]:
        """The rows in chunks, keys numbered, from number ``first`` on, given those ``before``.

        A chunk depends on the seed and its number; if the sampler remembers, also on those before
        it. SampleError if they cannot be drawn.
        """
        sampler = self.prepared(rows, rng, where or {})
        chunks = split_rows(rows, sampler.chunk_rows, rng)[first:]
        drawn = _one_by_one if sampler.remembers else _ahead
        tables = drawn(sampler, chunks, Given(where or {}, tuple(before)))
        for chunk, table in zip(chunks, tables, strict=True):
            yield number_keys(table, chunk.begin, sampler.drawn_keys)

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows in one table; SampleError if they cannot be drawn."""
        return Table.concatenate(chunk.narrow() for chunk in self.chunks(rows, rng, where))


def _one_by_one(sampler: Sampler, chunks: Sequence[Chunk], given: Given) -> Iterator[Table]:
    """Chunks, each given those before."""
    known = [*given.before]
    for chunk in chunks:
        table = sampler.draw(
            chunk.rows, chunk.stream, replace(given, before=known, first=chunk.begin)
        )
        known.append(table.narrow())
        yield table


def _ahead(sampler: Sampler, chunks: Sequence[Chunk], given: Given) -> Iterator[Table]:
    """Chunks in order, drawn in a thread per processor: numpy releases the lock."""

    def draw(chunk: Chunk) -> Table:
        return sampler.draw(chunk.rows, chunk.stream, replace(given, first=chunk.begin))

    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        for begin in range(0, len(chunks), workers):
            yield from pool.map(draw, chunks[begin : begin + workers])


def number_keys(table: Table, first: int, preset: tuple[str, ...] = ()) -> Table:
    """The table with its keys: those of rows ``first``, ``first + 1``, ...; ``preset`` ones stay.

    Raises:
        SampleError: a key's pattern has fewer keys.
    """
    codes = dict(table.codes)
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


@dataclass(frozen=True)
class SampleRequest:
    """What is drawn: ``model`` identifies the fitted model, ``seed`` the draw.

    Without a seed an unfinished draw is resumed with its own, and a new one takes a fresh one.
    """

    model: str
    rows: int
    seed: int | None = None
    where: Where | None = None

    @property
    def note(self) -> str:
        """The request as text, equal for equal requests."""
        where = {
            name: None if value is None else str(value)
            for name, value in (self.where or {}).items()
        }
        return json.dumps(
            {
                "model": self.model,
                "rows": self.rows,
                "seed": self.seed,
                "where": where,
                "chunks of": CHUNK_ROWS,
            },
            sort_keys=True,
        )


def sample_to(sampler: Sampler, request: SampleRequest, path: Path) -> Path:
    """Draw the rows of a request to a Parquet file.

    The same request again resumes an interrupted draw.

    Raises:
        SampleError: the rows cannot be drawn.
        StorageError: a file cannot be written.
    """
    parts = _PartFiles(path, sampler.domain)
    try:
        request = parts.with_seed(request)
        first = parts.open(request)
        before = parts.tables(first) if sampler.remembers else ()
        rng = SamplingSource(request.seed)
        chunks = sampler.chunks(request.rows, rng, request.where, first, before)
        for number, chunk in enumerate(chunks, start=first):
            parts.write(number, chunk)
        parts.join()
    except SampleError:
        parts.remove_if_empty()
        raise
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({os.strerror(error.errno or 0)}); make room"
        ) from None
    return path


@dataclass(frozen=True)
class _PartFiles:
    """The parts of one file, in a folder beside it."""

    path: Path
    domain: Domain

    @property
    def folder(self) -> Path:
        return self.path.with_name(f"{self.path.name}.parts")

    def with_seed(self, request: SampleRequest) -> SampleRequest:
        """The request with its own seed, that of the same unfinished draw, or a fresh one."""
        if request.seed is not None:
            return request
        left = self._left()
        seed = json.loads(left)["seed"] if left else None
        same = seed is not None and replace(request, seed=seed).note == left
        return replace(request, seed=seed if same else SamplingSource().seed)

    def open(self, request: SampleRequest) -> int:
        """How many parts the same request has left behind, from the first on.

        Parts of another are removed.
        """
        if self.folder.exists() and self._left() != request.note:
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_whole(self._note, lambda part: part.write_text(request.note, encoding="utf-8"))
        return len(list(self._finished()))

    @property
    def _note(self) -> Path:
        return self.folder / "request.json"

    def _left(self) -> str | None:
        return self._note.read_text(encoding="utf-8") if self._note.exists() else None

    def write(self, number: int, chunk: Table) -> None:
        rows = pa.Table.from_pandas(chunk.frame(), preserve_index=False)
        _write_whole(self._part(number), lambda part: pq.write_table(rows, part))

    def tables(self, count: int) -> Iterator[Table]:
        for number in range(count):
            yield self.domain.encode(pd.read_parquet(self._part(number)))

    def join(self) -> None:
        _write_whole(self.path, self._joined)
        shutil.rmtree(self.folder)

    def remove_if_empty(self) -> None:
        """Remove the folder if no part was drawn."""
        if not self._part(0).exists():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _joined(self, path: Path) -> None:
        with pq.ParquetWriter(path, pq.read_schema(self._part(0))) as writer:
            for part in self._finished():
                writer.write_table(pq.read_table(part))

    def _finished(self) -> Iterator[Path]:
        number = 0
        while self._part(number).exists():
            yield self._part(number)
            number += 1

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.parquet"


def _write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name, then move it to its place."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    write(unfinished)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)
