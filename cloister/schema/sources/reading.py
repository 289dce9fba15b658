"""The declared columns of a table: text from CSV, storage types from Parquet, values from SQL.

No type is inferred from what rows hold: the storage of a cell is that of the file's own schema, or
of the value that the database gives, so that no row changes how another is read.

Messages name files, columns and row numbers, never a cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pandas as pd

from cloister.errors import DataError
from cloister.schema.attributes import Categorical, Ordinal
from cloister.schema.parsing import holds_numbers
from cloister.schema.sources import csv_files, databases, parquet_files, parts, stored_files
from cloister.schema.sources.batches import SourceBatch
from cloister.schema.spec import SourceSpec, Spec

_MOST_TIMES = 10
"""Times the declared rows that a Parquet file may have: the declared number may be a rough figure,
and memory is forecast by it."""


PLACE = "place "
"""Before the name of a place, in the facts of a reading."""


def require_declared_size(spec: Spec, data: Path | None = None) -> None:
    """Check by their footers that Parquet files have not many times the declared rows.

    Footers say nothing of single blocks of growing data.

    Raises:
        StorageError: a file cannot be read.
        DataError: they have, or one is no Parquet file.

    Privacy: whether the number of rows is above the bound is said exactly.
    """
    path, declared = parts.source_path(spec, data), spec.privacy.rows.public
    if path is None or declared is None or spec.blocks:
        return
    with stored_files.guarded_reading(path):
        files = stored_files.files_of(path)
        stored = [
            file
            for file in files
            if stored_files.table_format(file, spec.source.format) == "parquet"
        ]
        rows = sum(map(parquet_files.parquet_rows, stored))
    if rows > _MOST_TIMES * declared:
        raise DataError(
            f"{path} has more than {_MOST_TIMES} times the declared {declared:,} rows; declare "
            "about as many as it has in privacy.rows, or of one of several tables in its rows"
        )


def read_batches(spec: Spec, data: Path | None = None) -> Iterator[SourceBatch]:
    """The rows of a spec's source, or of ``data`` in its place, some at a time and at least one.

    Of growing data those of the spec's blocks, and those that are in none.

    CSV cells stay text (dtype ``str``), the declared missing tokens become missing; Parquet columns
    are in the storage that their schema says, SQL columns hold Python values. Lines of a CSV file
    with more or fewer cells than its header are left out and counted, or refused where
    ``on_invalid`` is ``fail``.

    Raises:
        StorageError: the file or database cannot be read, or changes meanwhile.
        DataError: no rows, no header, columns that are missing, undeclared, doubled or nested,
            ragged rows.

    Privacy: row by row, apart from errors: a file whose lines cannot be separated is refused whole.
        Which rows come together changes nothing of what they are.
    """
    rows = malformed = 0
    with parts.source_parts(spec, data) as whole:
        for part in whole:
            for batch in parts.read_part(part, spec):
                rows += batch.rows
                malformed += batch.malformed
                yield batch
    require_rows(spec, data, rows, malformed)


def require_rows(spec: Spec, data: Path | None, rows: int, malformed: int) -> None:
    """Passes if a source of so many rows, and so many lines that are none, can be used.

    Raises:
        StorageError: a file cannot be read.
        DataError: there is no row; or lines are malformed, which it numbers, under ``fail``.
    """
    path = parts.source_path(spec, data)
    if malformed and path and spec.validation.on_invalid == "fail":
        with stored_files.guarded_reading(path):
            for file in stored_files.files_of(path):
                csv_files.require_even_rows(file, spec.source)
    if not rows:
        raise DataError(f"{path or spec.source.table} has no rows; give a table with rows")


def require_declared_columns(spec: Spec, data: Path | None = None) -> None:
    """Passes if a spec's source, or ``data`` in its place, has the declared columns.

    Raises:
        StorageError: the file or database cannot be read.
        DataError: no header, or columns that are missing, undeclared or doubled.

    Privacy: reads the header of a file, or the schema of a table, and no row.
    """
    path = parts.source_path(spec, data)
    if path is None:
        databases.require_table_columns(spec)
        return
    with stored_files.guarded_reading(path):
        for file in stored_files.files_of(path):
            parts.require_file_columns(file, spec)


def read_frame(spec: Spec, data: Path | None = None) -> pd.DataFrame:
    """The rows of :func:`read_batches` in memory, shape (n, declared columns in order)."""
    batches = list(read_batches(spec, data))
    return pd.DataFrame(
        {
            name: pd.concat([batch.cells[name].values() for batch in batches], ignore_index=True)
            for name in spec.attributes
        }
    )


def reading_of(spec: Spec, data: Path | None = None) -> dict[str, str]:
    """What of a source's bytes decides which rows there are, and of which unit and block each is.

    Facts in words, by name: how rows are told apart, and where the cells of the unit's key, the
    block and the references that lead to the unit stand and how they are read. Of several tables
    the place of each is one of them, and which columns make its rows rows of a unit. Other columns
    may be read in any way.

    Raises:
        StorageError: as of :func:`places_of`.
    """
    facts, deciding = {}, _deciding_columns(spec)
    for name, part in spec.parts.items():
        of_table, text = spec.naming(name, "{}: "), _is_text(part, data)
        if text:
            facts[f"{of_table}rows"] = _rows_read(part.source)
        for column, target in deciding[name].items():
            facts[f"{of_table}{column}"] = _cell_read(part, column, text=text) + target
    for name in spec.tables:
        places = places_of(spec.table(name), data)
        facts |= {PLACE + location: f"as table '{name}'" for location in places}
        facts |= _units_of(spec, name)
    return facts


def _is_text(spec: Spec, data: Path | None) -> bool:
    """Whether a source may be CSV; rows and cells of others are what they are stored as."""
    path = parts.source_path(spec, data)
    if path is None:
        return False
    with stored_files.guarded_reading(path):
        return stored_files.may_be_csv(path, spec.source.format)


def _deciding_columns(spec: Spec) -> dict[str, dict[str, str]]:
    """The columns by which rows are of a unit or a block, by table, each with what it refers to."""
    privacy, leading = spec.privacy, _leading_tables(spec)
    dividing = (privacy.unit_key, privacy.block.column if privacy.block else None)
    columns = {name: dict.fromkeys(filter(None, dividing), "") for name in spec.parts}
    for name, table in spec.tables.items():
        if table.key and name in leading:
            columns[name][table.key] = ""
        for column, reference in table.references.items():
            if reference.table in leading:
                columns[name][column] = f", a row of {reference.table}"
    return columns


def _units_of(spec: Spec, name: str) -> dict[str, str]:
    """By which columns rows of a table are of a unit, and which names those that others refer to.

    The facts of the columns themselves have their names: another column contradicts none of them.
    """
    table, leading = spec.tables[name], _leading_tables(spec)
    of_leading = table.references.items() if name in leading else ()
    leads = sorted(column for column, reference in of_leading if reference.table in leading)
    facts = {f"{name}: units": f"by {', '.join(leads) or 'no column'}"}
    referring = (each for part in leading for each in spec.tables[part].references.values())
    if name in leading and any(reference.table == name for reference in referring):
        facts[f"{name}: key"] = f"is {table.key}"
    return facts


def _leading_tables(spec: Spec) -> set[str]:
    """The tables of which a row is a unit's, or refers to a unit's, directly or through others."""
    unit = spec.privacy.unit_name.removeprefix("table:")
    leading = {unit} & spec.tables.keys() or set(spec.tables)
    while (
        more := {
            name
            for name, table in spec.tables.items()
            if any(reference.table in leading for reference in table.references.values())
        }
        - leading
    ):
        leading |= more
    return leading


def _rows_read(source: SourceSpec) -> str:
    first = "a row" if source.header else "the names of the columns"
    return f"from {source.encoding} separated by {source.delimiter!r}, the first line {first}"


def _cell_read(spec: Spec, column: str, *, text: bool) -> str:
    """Where the cell of a column stands in a row, and what it means."""
    source, attribute = spec.source, spec.attributes[column]
    cell = f"cell {source.header.index(column) + 1}" if source.header else f"column '{column}'"
    numbers = isinstance(attribute, Categorical | Ordinal) and holds_numbers(attribute)
    missing = {*source.missing, *([attribute.missing] if attribute.missing is not None else [])}
    details = {
        "format": getattr(attribute, "format", None),
        "partial": getattr(attribute, "partial", None),
        "decimal": source.decimal if text and source.decimal != "." else None,
        "thousands": source.thousands if text else None,
        "missing": " or ".join(map(repr, sorted(missing))) if text and missing != {""} else None,
    }
    meant = [f"{name} {value}" for name, value in details.items() if value is not None]
    kind = f"{attribute.type} of numbers" if numbers else attribute.type
    return f"from {cell} as {', '.join([kind, *meant])}"


class Read(Protocol):
    """What is read: its places, and the facts of how."""

    @property
    def places(self) -> Sequence[str]:
        """Files, objects and tables, as accounts name them."""

    @property
    def reading(self) -> Mapping[str, str]:
        """Facts in words, by name."""


def bound_reading(now: Read, before: Read) -> dict[str, str]:
    """How something is read now, which also says of facts of before what it says by other names.

    A place has other names by links, and by patterns that fit a file; a table that one spec reads
    alone is one of several in another, which names the table in each fact.
    """
    reading, pinned = now.reading, before.reading
    known = [name.removeprefix(PLACE) for name in pinned if name.startswith(PLACE)]
    bound = {
        PLACE + location: fact
        for name, fact in reading.items()
        if name.startswith(PLACE)
        for location in stored_files.same_places([name.removeprefix(PLACE)], known)
    }
    alone = [location for location in before.places if location not in known]
    prefixes = [(f"{table}: ", "") for table in _tables_at(reading, alone)]
    prefixes += [("", f"{table}: ") for table in _tables_at(pinned, now.places)]
    renamed = [
        (prefix + name.removeprefix(former), fact)
        for former, prefix in prefixes
        for name, fact in reading.items()
        if name.startswith(former) and prefix + name.removeprefix(former) in pinned
    ]
    contradictions_last = sorted(renamed, key=lambda fact: fact[1] != pinned[fact[0]])
    return bound | dict(contradictions_last) | dict(reading)


def _tables_at(reading: Mapping[str, str], places: Sequence[str]) -> Iterator[str]:
    """The tables that a reading finds at some places."""
    for name, fact in reading.items():
        location = name.removeprefix(PLACE)
        if location != name and (
            location in places or stored_files.same_places([location], places)
        ):
            yield fact.removeprefix("as table '").removesuffix("'")


def stored_places(spec: Spec, data: Path | None = None) -> dict[str, str]:
    """Where the data of a spec lies, as the databases say that are asked for it.

    With the fact of which of several tables a place is read as; empty for one alone.

    Raises:
        StorageError: a database cannot be reached, or has no such table.
    """
    return {
        location: spec.naming(name, "as table '{}'")
        for name, part in spec.parts.items()
        if not parts.source_path(part, data)
        for location in databases.stored_identities(part.source.url or "", part.source.table or "")
    }


def stored_facts(stored: Mapping[str, str]) -> dict[str, str]:
    """What a reading says of stored places."""
    return {PLACE + location: fact for location, fact in stored.items() if fact}


def places_of(spec: Spec, data: Path | None = None) -> tuple[str, ...]:
    """Where the data of a spec lies: absolute paths without links, and tables of databases.

    Raises:
        StorageError: a variable that a URL names is not set, or a folder cannot be read.
    """
    places: list[str] = []
    for part in spec.parts.values():
        path = parts.source_path(part, data)
        if path is None:
            places += databases.table_identities(part.source.url or "", part.source.table or "")
            continue
        with stored_files.guarded_reading(path):
            places += stored_files.identities(path)
    return tuple(places)
