"""Drawn rows: as many as requested, no hard constraint violated, written in the data's dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from cloister.constraints import DenialConstraint, ViolationReport, violation_reports
from cloister.errors import SampleError
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table
from cloister.schema.sources.reading import read_native
from cloister.schema.spec import SourceSpec
from models.protocol import AnyModel, Task
from tasks.runtime.files import replace_file


def draw_tables(model: AnyModel, rows: int, seed: int | None, dataset: str) -> dict[str, Table]:
    """Exactly ``rows`` rows, of several tables in the first.

    A single table has the name of the ``dataset``.

    Raises:
        SampleError: the model gave another number of rows, or its capacity is smaller.
    """
    require_capacity(model, rows)
    drawn = model.sample(rows, SamplingSource(seed))
    tables = {dataset: drawn} if isinstance(drawn, Table) else dict(drawn.tables)
    found = next(iter(tables.values())).rows
    if found != rows:
        raise SampleError(f"{rows} rows were asked but {found} could be drawn; ask for fewer rows")
    return tables


def require_capacity(model: AnyModel, rows: int) -> None:
    """Check that the capacity of a model holds ``rows`` rows.

    Raises:
        SampleError: it gives fewer.
    """
    if model.capacity is not None and rows > model.capacity:
        raise SampleError(
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


def write_csv(frame: pd.DataFrame, path: Path, source: SourceSpec) -> None:
    """Write a table as the source writes CSV: its delimiter, its first token for missing values.

    Raises:
        StorageError: it cannot be written.
    """
    replace_file(path, lambda part: frame.to_csv(part, **_dialect(source)))


def _dialect(source: SourceSpec) -> dict[str, Any]:
    return {"index": False, "sep": source.delimiter, "na_rep": (*source.missing, "")[0]}


def convert_to_csv(parquet: Path, path: Path, source: SourceSpec) -> None:
    """Turn a Parquet file into a CSV file as :func:`write_csv` would, piece by piece.

    The Parquet file is removed.

    Raises:
        StorageError: it cannot be written.
    """
    written = _dialect(source)

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="") as file:
            for number, piece in enumerate(pq.ParquetFile(parquet).iter_batches()):
                piece.to_pandas().to_csv(file, header=number == 0, **written)

    replace_file(path, write)
    parquet.unlink()
