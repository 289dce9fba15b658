"""Drawn rows: exactly as many as asked, no hard constraint violated, written as the data was written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from cloister.constraints import ViolationReport
from cloister.errors import SampleError, StorageError
from cloister.privacy.randomness import SamplingSource
from cloister.schema.domain import Table
from cloister.schema.reading import read_native
from cloister.schema.spec import Source
from models.protocol import Model, Task


def drawn(model: Model, rows: int, seed: int | None) -> Table:
    """Exactly ``rows`` rows.

    Raises:
        SampleError: the model gave another number, or cannot give so many.
    """
    table = model.sample(rows, SamplingSource(seed))
    if table.rows != rows:
        raise SampleError(f"{rows} rows were asked but {table.rows} could be drawn; ask for fewer rows")
    return table


def require_kept(reports: tuple[ViolationReport, ...]) -> None:
    """Check that no hard constraint is violated.

    Raises:
        SampleError: names those that are, and by how many rows or pairs of the synthetic table.
    """
    broken = [f"'{report.name}' ({report.violations})" for report in reports if report.hard and report.violations]
    if broken:
        raise SampleError(
            f"the rows that were drawn violate the hard constraint(s) {', '.join(broken)}; they are not published: run "
            "the same command again, make the constraint soft, or report this"
        )


def read_synthetic(path: Path, task: Task) -> Table:
    """The synthetic table in a Parquet file, as codes.

    Raises:
        DataError: it does not fit the domain.
    """
    return task.domain.encode(read_native(path, task.domain.names))


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a table whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    replaced(path, lambda part: frame.to_parquet(part, index=False))


def write_csv(frame: pd.DataFrame, path: Path, source: Source) -> None:
    """Write a table as the source writes CSV: its delimiter, its first token for missing values.

    Raises:
        StorageError: it cannot be written.
    """
    delimiter, missing = source.delimiter, (*source.missing, "")[0]
    replaced(path, lambda part: frame.to_csv(part, index=False, sep=delimiter, na_rep=missing))


def replaced(path: Path, write: Callable[[Path], object]) -> None:
    """Have a file written beside ``path`` and moved there when it is whole.

    Raises:
        StorageError: it cannot be written.
    """
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(part)
        _sync(part)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StorageError(f"{path} cannot be written ({os.strerror(error.errno or 0)}); make room") from None


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
