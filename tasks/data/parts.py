"""Rows drawn to one file in parts, so that an interrupted draw goes on where it ended.

A part is the codes of some chunks, written whole or not at all. A folder beside the file holds the
parts and a note of what is drawn; parts that a draw of the same model, rows, seed and condition
left behind are not drawn again. The file gets a row group of each part while others are drawn; when
it is whole, the folder is removed. So each row is decoded and written as Parquet once, and rows and
row groups are the same however many workers draw, and after an interruption.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path

import pyarrow as pa
from pyarrow import feather

from cloister.errors import SampleError, StorageError
from cloister.models.sampling import drawing
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table
from cloister.tasks.data import tables
from cloister.tasks.home.process import code_version


@dataclass(frozen=True)
class SampleRequest:
    """What is drawn: ``model`` identifies the fitted model, ``seed`` the draw.

    Without a seed an unfinished draw is resumed with its own, and a new one takes a fresh one.
    """

    model: str
    rows: int
    seed: int | None = None
    where: drawing.Where | None = None

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
                "chunks of": drawing.CHUNK_ROWS,
                "codes in parts of": tables.CELLS_OF_GROUP,
                "drawn by": code_version(),  # which may draw the rest otherwise
            },
            sort_keys=True,
        )


def sample_to(
    sampler: drawing.Sampler,
    request: SampleRequest,
    path: Path,
    mapper: drawing.Mapper = drawing.in_threads,
) -> Path:
    """Draw the rows of a request to a Parquet file.

    The same request again resumes an interrupted draw. Memory is that of a few chunks and of one
    part; of a sampler that remembers, that of all codes.

    Raises:
        SampleError: the rows cannot be drawn.
        StorageError: a file cannot be written.
    """
    size = max(tables.rows_of_group(sampler.domain) // sampler.chunk_rows, 1)
    parts = _Parts(path, sampler.domain)
    try:
        request = parts.with_seed(request)
        ready = parts.open(request)
        before = parts.read(ready) if sampler.remembers else ()
        rng = SamplingSource(request.seed)
        chunks = sampler.chunks(request.rows, rng, request.where, ready * size, before, mapper)
        drawn = parts.store(ready, chunks, size)
        _write_whole(path, lambda file: tables.write_rows(file, chain(parts.read(ready), drawn)))
        shutil.rmtree(parts.folder)
    except SampleError:
        parts.remove_if_empty()
        raise
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({os.strerror(error.errno or 0)}); make room"
        ) from None
    return path


def folder_of(path: Path) -> Path:
    """The folder beside a file that has its parts until it is whole."""
    return path.with_name(f"{path.name}.parts")


@dataclass(frozen=True)
class _Parts:
    """The parts of one file, in a folder beside it."""

    path: Path
    domain: Domain

    @property
    def folder(self) -> Path:
        return folder_of(self.path)

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
        return next(number for number in count() if not self._part(number).exists())

    @property
    def _note(self) -> Path:
        return self.folder / "request.json"

    def _left(self) -> str | None:
        return self._note.read_text(encoding="utf-8") if self._note.exists() else None

    def store(self, first: int, chunks: Iterator[Table], size: int) -> Iterator[Table]:
        """Parts of ``size`` chunks each, from number ``first`` on, once they are on the disk."""
        for number in count(first):
            some = list(islice(chunks, size))
            if not some:
                return
            yield self._store(number, Table.concatenate(some))

    def _store(self, number: int, rows: Table) -> Table:
        codes = pa.table(dict(rows.stored))
        _write_whole(
            self._part(number),
            lambda part: feather.write_feather(codes, str(part), compression="zstd"),
        )
        return rows

    def read(self, number: int) -> Iterator[Table]:
        """The first parts."""
        for part in range(number):
            codes = feather.read_table(self._part(part), memory_map=False)
            yield Table(self.domain, {name: codes[name].to_numpy() for name in self.domain.names})

    def remove_if_empty(self) -> None:
        """Remove the folder if no part was drawn."""
        if not self._part(0).exists():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.arrow"


def _write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name, then move it to its place; nothing is left of a part."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        write(unfinished)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
