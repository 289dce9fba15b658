"""The rows of a request, as its session opens them: tables, or raw columns.

Tables are read, validated, encoded and bounded each on its own, then together. The raw columns of a
measurement are only read and bounded. A frame that a program passes is a private file while it is
needed, since flows read files.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from pandas.api import types as pt

from cloister.arrays import Array
from cloister.constraints import presence_rules
from cloister.errors import DataError
from cloister.hashing import Words, derived_key, keyed_rows
from cloister.models.relational.families import catalogue_tables, families_behind_door, unit_tables
from cloister.models.task import AnyPlan, DatabaseTask
from cloister.models.transforms.unit_tables import PERSONS, unit_table
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import (
    PrivateColumns,
    PrivateDatabase,
    person_numbers,
    require_named_persons,
    rows_within_bound,
)
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource, noise_source
from cloister.schema import relations
from cloister.schema.fan_outs import rows_changed
from cloister.schema.parsing import parse
from cloister.schema.scratch import scratch_table
from cloister.schema.sources.reading import read_frame
from cloister.schema.sources.storage_types import texts
from cloister.schema.spec import PersonUnit, Spec
from cloister.tasks.data.row_readers import (
    InThisProcess,
    OnWorkers,
    OpenedTable,
    PersonBound,
    RowReader,
    TableSource,
)
from cloister.tasks.data.session import (
    Digests,
    HashedRows,
    RowSource,
    Session,
    digests_of,
    write_validation,
)
from cloister.tasks.data.tables import write_parquet
from cloister.tasks.data.workers import Workers
from cloister.tasks.home.files import frame_folder
from cloister.tasks.home.home import Home
from cloister.tasks.requests import resolved
from cloister.tasks.requests.measurement import domain_context
from cloister.tasks.requests.plan import is_out_of_core


@contextmanager
def kept_frame(frame: pd.DataFrame, home: Home) -> Iterator[Path]:
    """A file of a frame in the private home, gone afterwards.

    Its name is a keyed digest of the frame: the same frame gets the same name, so that a killed
    release is resumed.

    Raises:
        DataError: the names of the columns are not texts.
        StorageError: the file cannot be written.
    """
    if not all(isinstance(name, str) for name in frame.columns):
        raise DataError("the columns of the frame should be named by texts; rename them")
    plain = frame.apply(_storable).reset_index(drop=True)
    with frame_folder(home) as folder:
        path = folder / f"{_frame_digest(plain, home.key())}.parquet"
        write_parquet(plain, path)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def _storable(column: pd.Series) -> pd.Series:
    """A column as Parquet holds it: objects as their texts, cell by cell."""
    if not pt.is_object_dtype(column.dtype):
        return column
    return column.map(str, na_action="ignore").astype("string")


def _frame_digest(frame: pd.DataFrame, key: bytes) -> str:
    digest = hmac.new(key, b"frame", hashlib.sha256)
    for name in frame.columns:
        hashes = pd.util.hash_pandas_object(frame[name].astype("string"), index=False)
        digest.update(f"{name}\0{frame[name].dtype}\0".encode() + hashes.to_numpy().tobytes())
    return digest.hexdigest()


class TablesSource(RowSource[relations.Database, PrivateDatabase]):
    """The rows of a release: validated, encoded in public domains, behind doors under one plan.

    ``reader`` has them in memory, out of core or with workers: queries have the same answers.
    """

    def __init__(self, reader: RowReader | None = None) -> None:
        self._reader = reader or InThisProcess()

    @classmethod
    def fitting(
        cls, request: resolved.ResolvedRequest, plan: AnyPlan, workers: Workers | None = None
    ) -> Self:
        """The rows with workers, if there are any, or else in memory.

        They are out of core where the plan needs more memory than is free here.
        """
        if workers:
            return cls(OnWorkers(workers))
        if is_out_of_core(request, plan):
            return cls(InThisProcess(scratch_table))
        return cls()

    def context(self, request: resolved.ResolvedRequest) -> resolved.PublicContext:
        """The declared context of a request."""
        return resolved.public_context_of(request)

    def read_rows(
        self, release: str, request: resolved.ResolvedRequest, home: Home
    ) -> tuple[relations.Database, Digests]:
        """The rows and keyed digests of all that were read.

        Findings of validation stay in the home. Of a person no more rows are left than declared.
        Rows with dangling references are left out, and so is a random part of the rows beyond the
        bound that refer to the same row: this bounds the contribution of a row of the first table
        as declared. Keys that others refer to name one row each.
        """
        context = self.context(request)
        opened, spec = self._opened(context, request, home), context.spec
        reports = {name: table.report.to_dict() for name, table in opened.items()}
        write_validation(release, {"tables": reports} if spec.tables else reports[spec.name], home)
        return self._bounded(context, opened, release, home)

    def read_again(
        self, release: str, request: resolved.ResolvedRequest, home: Home
    ) -> tuple[relations.Database, Digests]:
        """As `read_rows`, for internal measures of a release that has read them before.

        Privacy: the rows are behind no door.
        """
        context = self.context(request)
        return self._bounded(context, self._opened(context, request, home), release, home)

    def _opened(
        self, context: resolved.PublicContext, request: resolved.ResolvedRequest, home: Home
    ) -> dict[str, OpenedTable]:
        return {
            name: open_table(table, request.data, home.key(), self._reader)
            for name, table in context.tables.items()
        }

    def _bounded(
        self,
        context: resolved.PublicContext,
        opened: Mapping[str, OpenedTable],
        release: str,
        home: Home,
    ) -> tuple[relations.Database, Digests]:
        """The rows of opened tables, as many of each unit as it may have, and digests of all."""
        digests = digests_of(b"data", _hashed(context.spec, opened), release, home)
        bounded = {name: table.bounded for name, table in opened.items()}
        database = relations.Database(context.task.schema, bounded)
        return self._reader.bound(database, derived_key(home.key(), "references")), digests

    def door(
        self,
        rows: relations.Database,
        task: DatabaseTask,
        planned: Event,
        journal: Journal,
        home: Home,  # noqa: ARG002 - a door to raw columns numbers texts under the home's key
    ) -> PrivateDatabase:
        """The doors of the tables, of those that join them, and of persons with several rows."""
        return private_database(rows, task, planned, journal, noise_source())


def private_database(
    rows: relations.Database,
    task: DatabaseTask,
    planned: Event,
    journal: Journal,
    noise: NoiseSource,
) -> PrivateDatabase:
    """The doors of the bounded rows of tables, all under one plan."""
    if task.lead.persons:
        tables = unit_table(rows.tables[task.schema.lead], task.lead).tables
        alone = {PERSONS: Neighbours(task.neighbours.relation)}
        return PrivateDatabase(tables, alone, planned, journal, noise)
    queried, changed = rows.queried(), rows_changed(rows.schema)
    neighbours = {name: Neighbours(task.neighbours.relation, changed[name]) for name in queried}
    for name, table in task.tables.items():
        neighbours[name] = table.neighbours
    tables = {**queried, **rows.by_unit(partial(unit_tables, task=task))}
    tables |= rows.beside_units(partial(catalogue_tables, task=task))
    for family in families_behind_door(task).values():
        neighbours[family.door] = family.counted.units.neighbours
    return PrivateDatabase(tables, neighbours, planned, journal, noise)


def open_table(
    context: resolved.TableContext, data: Path | None, key: bytes, reader: RowReader
) -> OpenedTable:
    """Read, validate, encode and bound the rows of a table, from a file or from its source.

    Raises:
        StorageError: the data cannot be read.
        DataError: it is not as declared; names columns, rules and row numbers.

    Privacy: persons are numbered, and their rows drawn, by a key that says nothing of ``key``: a
        reader may have other processes do so.
    """
    spec, domain, unit = context.spec, context.task.domain, context.spec.privacy.protected
    rules = tuple(presence_rules(context.task.constraints, domain))
    source = TableSource(spec, domain, data, rules)
    if not isinstance(unit, PersonUnit):
        return reader.rows(source)
    require_named_persons(domain, unit)
    return reader.persons(source, PersonBound(unit, derived_key(key, "persons")))


def _hashed(spec: Spec, opened: Mapping[str, OpenedTable]) -> dict[str, HashedRows]:
    """The tables by name, as digests hold them; an only table has an empty one."""
    return {
        spec.naming(name, "{}"): HashedRows(table.read.domain.names, table.read.keyed_hashes)
        for name, table in opened.items()
    }


ColumnsSession = Session[pd.DataFrame, PrivateColumns]


class ColumnsSource(RowSource[pd.DataFrame, PrivateColumns]):
    """The raw columns of a measurement, whose domains are not known yet, behind their own door."""

    def context(self, request: resolved.ResolvedRequest) -> resolved.PublicContext:
        """The declared context before any domain is known."""
        return domain_context(request)

    def read_rows(
        self, release: str, request: resolved.ResolvedRequest, home: Home
    ) -> tuple[pd.DataFrame, Digests]:
        """The rows, bounded in number for each person, and digests of all that were read.

        Raises:
            StorageError: the data cannot be read.
            DataError: it has other columns than declared, or rows that belong to no person.
        """
        spec, key = self.context(request).spec, home.key()
        frame, unit = read_frame(spec, request.data), spec.privacy.protected
        rows = (
            _bound_contribution(frame, unit, spec, key) if isinstance(unit, PersonUnit) else frame
        )
        hashed = HashedRows(list(map(str, frame.columns)), partial(_keyed_cells, frame))
        return rows, digests_of(b"columns", {"": hashed}, release, home)

    def door(
        self,
        rows: pd.DataFrame,
        task: DatabaseTask,
        planned: Event,
        journal: Journal,
        home: Home,
    ) -> PrivateColumns:
        """The door of raw columns; the journal holds numbers in place of texts."""
        return PrivateColumns(rows, home.key(), task.neighbours, planned, journal, noise_source())


def _bound_contribution(
    frame: pd.DataFrame, unit: PersonUnit, spec: Spec, key: bytes
) -> pd.DataFrame:
    """The rows of a frame with at most ``unit.max_rows`` of each person, person by person.

    Rows without a readable person are left out, or refused where ``on_invalid`` is ``fail``.

    Raises:
        DataError: a row has no person, under ``fail``.
    """
    typed, _ = parse(frame[unit.key], spec.attributes[unit.key])
    known = np.flatnonzero(typed.notna().to_numpy(dtype=bool))
    if len(known) < len(typed) and spec.validation.on_invalid == "fail":
        raise DataError(
            f"column '{unit.key}' identifies persons but lacks values; give every row one, or set "
            "validation.on_invalid to drop"
        )
    people, cells = person_numbers(typed.iloc[known], key), cell_hashes(frame.iloc[known])
    within_bound = rows_within_bound(people, cells, unit.max_rows, key)
    return frame.iloc[known[within_bound]]


def cell_hashes(frame: pd.DataFrame) -> Iterator[Array]:
    """A 64-bit hash (n,) of each cell, column by column."""
    for name in frame.columns:
        yield pd.util.hash_pandas_object(texts(frame[name]), index=False).to_numpy()


def _keyed_cells(frame: pd.DataFrame, key: bytes) -> Words:
    return keyed_rows(cell_hashes(frame), key)
