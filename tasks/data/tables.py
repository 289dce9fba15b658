"""Drawn rows: checked, written in the data's dialect, and loaded into a database.

They are as many as requested and violate no hard constraint; the checks of their receivers are made
before delivery. The tables of a database are made, with their keys, and filled in one transaction.
The data of the built-in demo is made on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cloister.constraints import key_attributes
from cloister.constraints.counting import violation_reports
from cloister.constraints.denial import ViolationReport
from cloister.constraints.schema_file import PublishedSchema, PublishedTable, broken_rules
from cloister.demo import civic_registry
from cloister.errors import InputError, SampleError, StorageError
from cloister.figures import count_of, listed
from cloister.models.protocol import DatabaseModel
from cloister.models.task import DatabaseTask, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.block_table import BlockStore, BlockTable
from cloister.schema.domain import Domain, ResultT, Table
from cloister.schema.relations import Database, ForeignKey
from cloister.schema.sinks import LoadTarget, SyntheticTable, load_tables, require_loadable
from cloister.schema.sources import parquet_files, stored_files
from cloister.schema.sources.csv_writing import write_csv_rows
from cloister.schema.sources.files_and_urls import HIDE_IT, holds_password
from cloister.schema.spec import Spec
from cloister.schema.validation import Validation
from cloister.tasks.home.files import replace_file
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.home.process import PACKAGE
from cloister.tasks.requests.plan_report import BATCH_CELLS
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest, public_context_of

CELLS_OF_GROUP = BATCH_CELLS
"""Cells of a row group that is written: few, so that their texts take little memory."""


def draw_tables(model: DatabaseModel, rows: int, seed: int | None) -> Database:
    """Tables with exactly ``rows`` rows in that of the units.

    Raises:
        SampleError: the model gave another number of rows, or has fewer.
    """
    drawn = model.sample(rows, SamplingSource(seed))
    number = drawn.rows[drawn.schema.lead]
    if number != rows:
        raise SampleError(
            f"only {number:,} of {count_of(rows, 'row')} could be drawn; request fewer"
        )
    return drawn


def require_capacity(model: DatabaseModel, rows: int) -> None:
    """Check that the capacity of a model holds ``rows`` rows.

    Raises:
        InputError: it gives fewer.
    """
    if model.capacity is not None and rows > model.capacity:
        raise InputError(
            f"{rows} rows were requested, but the model gives at most {model.capacity}: no more "
            "were paid for; request fewer rows"
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
            f"the rows that were drawn violate the {listed('hard constraint', broken)}; they "
            "are not published: run the same command again, make the constraint soft, or report "
            "this"
        )


def require_references(database: Database) -> tuple[tuple[ForeignKey, int], ...]:
    """Check that each reference of synthetic tables names a row; the keys, with none broken.

    Raises:
        SampleError: some name none; says by which columns.
    """
    dangling = tuple(database.dangling())
    broken = [f"{key.table}.{key.column}" for key, rows in dangling if rows]
    if broken:
        raise SampleError(
            f"rows of {', '.join(broken)} refer to none that was drawn; they are not published: "
            "run the same command again, or report this"
        )
    return dangling


def count_all_violations(task: DatabaseTask, database: Database) -> tuple[ViolationReport, ...]:
    """The violations of all constraints of synthetic tables, those across foreign keys last."""
    return (
        *(
            report
            for name, part in task.tables.items()
            for report in violation_reports(part.constraints, database.tables[name])
        ),
        *(rule.report(database) for rule in task.across),
    )


def violations_in(path: Path, task: Task) -> tuple[ViolationReport, ...]:
    """Violations of each hard constraint by the rows of a Parquet file.

    Memory is that of a row group, and of the different tuples that a constraint compares.

    Raises:
        DataError: the rows do not fit the domain.
    """
    return violation_reports(task.hard, read_in_blocks(path, task))


def read_synthetic(path: Path, task: Task) -> Table:
    """The synthetic table in a Parquet file, as codes.

    Raises:
        DataError: it does not fit the domain.
    """
    return _table_of(path, task.domain, pq.read_metadata(path))


def read_in_blocks(path: Path, task: Task) -> Table:
    """The synthetic table in a Parquet file, of which a row group is in memory at a time.

    Each use reads the columns that it needs again; the rows of an only row group are in memory.

    Raises:
        DataError: it does not fit the domain, here or where it is used.
    """
    groups = _RowGroups(path, task.domain)
    return BlockTable.over(groups) if len(groups.lengths) > 1 else read_synthetic(path, task)


class _RowGroups(BlockStore):
    """The row groups of a synthetic file, each read where it is used."""

    def __init__(self, path: Path, domain: Domain) -> None:
        footer = pq.read_metadata(path)
        groups = (footer.row_group(number) for number in range(footer.num_row_groups))
        self._path, self._footer, self.domain = path, footer, domain
        self.lengths = [group.num_rows for group in groups]

    def each(
        self, names: Sequence[str], function: Callable[..., ResultT], *arguments: Sequence[Any]
    ) -> Iterator[ResultT]:
        """What ``function`` makes of each row group, one of which is in memory at a time."""
        domain = Domain(tuple(self.domain[name] for name in names))
        spans = ((number, number + 1) for number in range(len(self.lengths)))
        groups = (_table_of(self._path, domain, self._footer, span) for span in spans)
        return map(function, groups, *arguments)


def _table_of(
    path: Path,
    domain: Domain,
    footer: pq.FileMetaData,
    span: stored_files.Span = stored_files.WHOLE,
) -> Table:
    """The rows of a synthetic file; rules across foreign keys may have left none."""
    if footer.num_rows == 0:
        return Table(domain, {name: np.zeros(0, dtype=np.int64) for name in domain.names})
    validation = Validation(domain, "fail")
    table = validation.table(parquet_files.read_columns(path, domain.names, span, footer))
    validation.report()
    return table


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a table whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    replace_file(path, lambda part: frame.to_parquet(part, index=False))


def write_table(table: Table, path: Path) -> None:
    """Write the values of a table to a Parquet file, whole or not at all.

    Values are in memory for some rows at a time.

    Raises:
        StorageError: it cannot be written.
    """
    rows = rows_of_group(table.domain)
    groups = (
        table.take(slice(first, first + rows)) for first in range(0, max(table.rows, 1), rows)
    )
    replace_file(path, lambda part: write_rows(part, groups))


def write_rows(path: Path, groups: Iterator[Table]) -> None:
    """Write the values of tables, one at least, to a Parquet file: row groups.

    Raises:
        OSError: it cannot be written.
    """
    pieces = (pa.Table.from_pandas(group.frame(), preserve_index=False) for group in groups)
    first = next(pieces)
    with pq.ParquetWriter(path, first.schema) as file:
        for piece in chain([first], pieces):
            file.write_table(piece)


def rows_of_group(domain: Domain) -> int:
    """Rows of a row group that is written."""
    return max(CELLS_OF_GROUP // len(domain.names), 1)


def write_csv(parquet: Path, path: Path, spec: Spec) -> None:
    """Write the rows of a Parquet file as the source of its spec writes CSV, piece by piece.

    Raises:
        StorageError: it cannot be written.
    """
    names = list(spec.attributes)
    rows = max(CELLS_OF_GROUP // len(names), 1)

    def write(part: Path) -> None:
        with (
            part.open("w", encoding=spec.source.encoding, newline="") as file,
            pq.ParquetFile(parquet) as source,
        ):
            header = pa.RecordBatch.from_pylist([], schema=source.schema_arrow)
            for number, piece in enumerate(chain([header], source.iter_batches(rows))):
                frame = parquet_files.frame_of_arrow(pa.Table.from_batches([piece]).select(names))
                write_csv_rows(frame, file, spec, header=number == 0)

    replace_file(path, write)


def published_schema(context: PublicContext) -> PublishedSchema:
    """What is declared of the synthetic tables, by the names of their files."""
    task, spec = context.task, context.spec
    keys = {name: table.key for name, table in spec.tables.items()}
    tables = {
        context.files[name]: PublishedTable(part.domain, part.constraints, keys.get(name))
        for name, part in task.tables.items()
    }
    return PublishedSchema(spec.name, tables, task.schema.keys, task.across)


def require_published_schema(context: PublicContext, files: Mapping[str, Path]) -> None:
    """Check the Parquet files of synthetic tables, by table, as their receivers can.

    Raises:
        SampleError: names the columns and constraints that are broken.
    """
    if broken := _broken_rules(context, files):
        raise SampleError(
            f"the rows that were drawn break their published schema ({', '.join(broken)}); they "
            "are not published: run the same command again, or report this"
        )


def schema_warnings(context: PublicContext, places: Mapping[str, str]) -> tuple[str, ...]:
    """What to say of synthetic tables, by table, that their receivers will find broken.

    Nothing of CSV files and databases, which do not keep the types.
    """
    files = {name: Path(path) for name, path in places.items() if path.endswith(".parquet")}
    if len(files) < len(places) or not (broken := _broken_rules(context, files)):
        return ()
    return (f"the synthetic rows break their published schema: {', '.join(broken)}",)


def _broken_rules(context: PublicContext, files: Mapping[str, Path]) -> tuple[str, ...]:
    placed = {context.files[name]: file for name, file in files.items()}
    return broken_rules(published_schema(context), placed)


def require_database(
    request: ResolvedRequest, url: str, context: PublicContext, release: str | None
) -> None:
    """Check that the tables of a release can be made in a database, before anything is charged.

    Those of ``release``, an unfinished one of the same request, may be there.

    Raises:
        InputError: a password stands in the URL.
        StorageError: they cannot be made.
    """
    require_no_password(url)
    unwritten = dict.fromkeys(context.tables, Path())
    require_loadable(
        LoadTarget(url, release or "", context.spec.name, request.replace),
        synthetic_tables(context.task, unwritten),
    )


def require_no_password(url: str) -> None:
    """Check that no password stands in the URL of a database.

    Raises:
        InputError: one does.
    """
    if holds_password(url):
        raise InputError(f"--out: the URL {HIDE_IT}")


def load_release(request: ResolvedRequest, url: str, release: str, folder: Path) -> None:
    """Load the synthetic tables in a folder into a database; done once for each release.

    Raises:
        StorageError: they cannot be written; none is.
    """
    context = public_context_of(request)
    files = {name: folder / f"{stem}.parquet" for name, stem in context.files.items()}
    target = LoadTarget(url, release, context.spec.name, request.replace)
    load_tables(target, synthetic_tables(context.task, files))


def synthetic_tables(task: DatabaseTask, files: Mapping[str, Path]) -> list[SyntheticTable]:
    """The synthetic tables of a task as they are to be in a database, parents first.

    ``files`` are their Parquet files by name.
    """
    keys = {key.parent: key.key for key in task.schema.keys}
    return [
        _synthetic(name, part, files[name], task.schema.parents_of(name), keys.get(name))
        for name, part in task.tables.items()
    ]


def _synthetic(
    name: str, task: Task, file: Path, references: tuple[ForeignKey, ...], key: str | None
) -> SyntheticTable:
    primary = key or _only_key(task, {reference.column for reference in references})
    unique = [
        names for rule in task.hard if (names := key_attributes(rule)) and names != (primary,)
    ]
    return SyntheticTable(name, task.domain, file, primary, references, unique)


def _only_key(task: Task, references: set[str]) -> str | None:
    """The only column that numbers rows afresh; None if there are several, or none."""
    names = [
        column.name
        for column in task.domain
        if column.kind == "key"
        and column.null_code is None
        and column.name not in references | task.person_keys
    ]
    return names[0] if len(names) == 1 else None


_DEMO_SPEC = PACKAGE.parent / "data" / "specs" / "demo.yaml"


def demo_spec() -> Path:
    """The spec of the demo data.

    Raises:
        StorageError: it is not part of this installation.
    """
    if not _DEMO_SPEC.exists():
        raise StorageError(
            f"{_DEMO_SPEC} does not exist; run the demo from a checkout of the project"
        )
    return _DEMO_SPEC


def demo_data(home: Home) -> Path:
    """The demo data as CSV, in a home.

    Raises:
        StorageError: it cannot be written.
    """
    path = private_folder(home.folder / "demo") / "demo.csv"
    if not path.exists():
        replace_file(path, lambda part: civic_registry().to_csv(part, index=False))
    return path
