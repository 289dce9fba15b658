"""Rows drawn to one file in parts, so that an interrupted draw goes on where it ended.

A chunk is one part, written whole or not at all. A folder beside the file holds the parts and a
note of what is drawn; parts that a draw of the same model, rows, seed and condition left behind are
not drawn again. When all are there they are joined, and the folder is removed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cloister.errors import SampleError, StorageError
from cloister.models.sampling import drawing
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table


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
            },
            sort_keys=True,
        )


def sample_to(sampler: drawing.Sampler, request: SampleRequest, path: Path) -> Path:
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
