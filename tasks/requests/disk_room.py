"""Room on disk that a release or a draw takes, from public inputs alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cloister.models.task import DatabaseTask
from cloister.schema.columns import Column, Serial
from cloister.schema.domain import Domain, code_type
from cloister.tasks.home.home import Home
from cloister.tasks.requests import plan_report
from cloister.tasks.requests.plan import is_out_of_core, plan_of
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest

_COPIES = 3
"""Copies of the synthetic files in a home at most: as they were drawn, in the repository of
versions, and in the cache from which it sends them."""

_SPARE_BYTES = 32 << 20
"""Bytes that a release writes to a folder whatever its size: ledger, stores, certificate, plots."""

_DICTIONARY_BYTES = 1 << 20
"""Bytes of a column's dictionary in a row group at most, as Arrow writes it; of more, each value is
written."""

_NUMBER_BYTES, _NUMBER_LETTERS = 8, 32
"""Bytes of a number, day or moment, and letters with the offset of a zone, at most."""

_LENGTH_BYTES = 4
"""Bytes of the length of a text in a Parquet file."""


def file_bytes(domain: Domain, rows: int) -> int:
    """Bytes of a Parquet file of so many rows at most, as if nothing could be compressed; public.

    Of 10^6 rows of 14 columns of a coded census it is 14 MB, and the file takes 5.4.
    """
    group = min(max(plan_report.BATCH_CELLS // len(domain.names), 1), max(rows, 1))
    return round(rows * sum(_cell_bytes(column, group) for column in domain))


def text_bytes(domain: Domain, rows: int) -> int:
    """Bytes of a CSV file of so many rows at most; public."""
    return rows * sum(_longest_text(column) + 1 for column in domain)


def draw_bytes(domain: Domain, rows: int) -> int:
    """Bytes on disk at most while so many rows are drawn: the file, and the codes of its parts."""
    return file_bytes(domain, rows) + plan_report.code_bytes(domain, rows)


def tables_bytes(task: DatabaseTask, units: int, csv: bool) -> int:
    """Bytes of the files of tables that are drawn with so many units, at most; public.

    The other tables are taken to have as many rows for each unit as in a release.
    """
    needed = 0
    for table in task.tables.values():
        rows = -(-table.output_rows * units // task.output_rows)
        needed += file_bytes(table.domain, rows) + csv * text_bytes(table.domain, rows)
    return needed


def _cell_bytes(column: Column, group: int) -> float:
    """Bytes of a cell at most, with its share of the dictionary of a row group of so many rows."""
    width = _NUMBER_BYTES
    if column.kind != "numeric":
        width = max(width, _LENGTH_BYTES + _longest_text(column))
    dictionary = min(column.values, group) * width
    if dictionary > _DICTIONARY_BYTES:
        return width + _DICTIONARY_BYTES / group
    return code_type(column).itemsize + dictionary / group


def _longest_text(column: Column) -> int:
    """Bytes of the longest text of a column at most."""
    if isinstance(column, Serial):
        return len(f"{column.prefix}{column.last:0{column.width}}{column.suffix}".encode())
    if column.labels is None:
        return _NUMBER_LETTERS
    return max((len(label.encode()) for label in column.labels), default=0)


def room_needed(request: ResolvedRequest, context: PublicContext, home: Home) -> Mapping[Path, int]:
    """Bytes that a release writes at most into its home, its remote and its output; public.

    Rows out of core are in the home until the release ends.
    """
    tasks = context.task.tables.values()
    written = sum(file_bytes(task.domain, task.output_rows) for task in tasks)
    drawn = sum(draw_bytes(task.domain, task.output_rows) for task in tasks)
    if request.csv:
        written += sum(text_bytes(task.domain, task.output_rows) for task in tasks)
    scratch = 0
    if is_out_of_core(request, plan_of(request)):
        scratch = plan_report.code_bytes(context.task.lead.domain, context.task.lead.data_rows)
    needed = {home.folder: max(_COPIES * written, drawn) + scratch}
    if "://" not in home.remote:
        needed[home.versions / home.remote] = written
    if request.out_path:
        needed[request.out_path] = written
    return {folder: size + _SPARE_BYTES for folder, size in needed.items()}
