"""Drawn rows: as many as requested, no hard constraint violated, written in the data's dialect."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cloister.constraints import DenialConstraint
from cloister.constraints.counting import ViolationReport, violation_reports
from cloister.errors import InputError, SampleError
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table
from cloister.schema.sources.reading import frame_of_arrow, read_native
from cloister.schema.sources.writing import write_csv_rows
from cloister.schema.spec import Spec
from models.protocol import AnyModel
from models.task import Task
from tasks.runtime.files import replace_file

_ROWS_WRITTEN = 100_000
"""Rows that are written at a time: few, so that their texts take little memory."""


def draw_tables(model: AnyModel, rows: int, seed: int | None, dataset: str) -> dict[str, Table]:
    """Exactly ``rows`` rows, of several tables in the first.

    A single table has the name of the ``dataset``.

    Raises:
        SampleError: the model gave another number of rows, or has fewer.
    """
    drawn = model.sample(rows, SamplingSource(seed))
    tables = {dataset: drawn} if isinstance(drawn, Table) else dict(drawn.tables)
    found = next(iter(tables.values())).rows
    if found != rows:
        raise SampleError(f"{rows} rows were asked but {found} could be drawn; ask for fewer rows")
    return tables


def require_capacity(model: AnyModel, rows: int) -> None:
    """Check that the capacity of a model holds ``rows`` rows.

    Raises:
        InputError: it gives fewer.
    """
    if model.capacity is not None and rows > model.capacity:
        raise InputError(
            f"{rows} rows were asked, but the model gives at most {model.capacity}: they are what "
            "was paid for; ask for fewer rows"
        )


def require_hard_constraints(reports: tuple[ViolationReport, ...]) -> None:
    """Check that no hard constraint is violated.

    Raises:
        SampleError: names those that are, and by how many rows or pairs of the synthetic table.
    """
    broken = [
        f"'{report.name}' ({report.violations})"
        for report in reports
        if report.hard and report.violations
    ]
    if broken:
        raise SampleError(
            f"the rows that were drawn violate the hard constraint(s) {', '.join(broken)}; they "
            "are not published: run the same command again, make the constraint soft, or report "
            "this"
        )


def violations_in(path: Path, task: Task) -> tuple[ViolationReport, ...]:
    """Violations of each hard constraint by the rows of a Parquet file.

    Memory is that of a constraint's columns.

    Raises:
        DataError: the rows do not fit the domain.
    """
    return tuple(
        report
        for rule in task.hard
        for report in violation_reports([rule], _columns_of(path, rule, task))
    )


def _columns_of(path: Path, rule: DenialConstraint, task: Task) -> Table:
    domain = Domain(tuple(task.domain[name] for name in rule.attributes))
    return domain.encode(read_native(path, domain.names))


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
    replace_file(path, lambda part: frame.to_parquet(part, index=False))


def write_csv(frame: pd.DataFrame, path: Path, spec: Spec) -> None:
    """Write a table as the source of its spec writes CSV.

    Raises:
        StorageError: it cannot be written.
    """
    starts = range(0, max(len(frame), 1), _ROWS_WRITTEN)
    _write_pieces((frame.iloc[at : at + _ROWS_WRITTEN] for at in starts), path, spec)


def convert_to_csv(parquet: Path, path: Path, spec: Spec) -> None:
    """Turn a Parquet file into a CSV file as :func:`write_csv` would, piece by piece.

    The Parquet file is removed.

    Raises:
        StorageError: it cannot be written.
    """
    pieces = pq.ParquetFile(parquet).iter_batches(_ROWS_WRITTEN)
    _write_pieces((frame_of_arrow(pa.Table.from_batches([piece])) for piece in pieces), path, spec)
    parquet.unlink()


def _write_pieces(pieces: Iterable[pd.DataFrame], path: Path, spec: Spec) -> None:
    def write(part: Path) -> None:
        with part.open("w", encoding=spec.source.encoding, newline="") as file:
            for number, piece in enumerate(pieces):
                write_csv_rows(piece, file, spec, header=number == 0)

    replace_file(path, write)
