"""The rows of several tables, as a session opens them: each as one table, then bounded together."""

from __future__ import annotations

from functools import partial

import numpy as np

from cloister.constraints import presence_rules
from cloister.errors import DataError
from cloister.models.task import AnyTask, DatabaseTask
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PrivateDatabase
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import noise_source
from cloister.schema.domain import Table
from cloister.schema.relations import (
    UNLINKED,
    Database,
    ForeignKey,
    is_refused,
    is_truncated,
    joined_tables,
    require_unique_keys,
    row_tables,
    rows_changed,
)
from cloister.schema.validation import read_table
from cloister.tasks.data.contribution_bound import rows_first_in_line, rows_within_bound
from cloister.tasks.data.refusals import write_validation
from cloister.tasks.data.session import RowSource, keyed_digest
from cloister.tasks.requests.public_context import PublicContext, public_context_of
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home


class DatabaseSource(RowSource[Database, PrivateDatabase]):
    """The rows of several tables, behind doors that share one plan and one journal."""

    def context(self, request: ResolvedRequest) -> PublicContext:
        """The declared context of a request."""
        return public_context_of(request)

    def read_rows(self, release: str, request: ResolvedRequest, home: Home) -> tuple[Database, str]:
        """The rows and a keyed digest of all that were read.

        Rows that refer to none that is there are left out, and of many that refer to the same all
        but a random part: what a row of the first table brings is bounded as declared. Keys that
        others refer to name one row each.
        """
        context = self.context(request)
        assert isinstance(context.task, DatabaseTask)
        tables, reports = {}, {}
        for name, part in context.tables.items():
            rules = presence_rules(part.one.constraints, part.one.domain)
            tables[name], report = read_table(part.spec, part.one.domain, rules=rules)
            reports[name] = report.to_dict()
        write_validation(release, {"tables": reports}, home)
        stored = {name: table.stored.items() for name, table in tables.items()}
        digest = keyed_digest(b"data", stored, release, home.key())
        whole = Database(context.task.schema, tables)
        require_unique_keys(whole)
        return bound(whole, home.key()), digest

    def door(
        self,
        rows: Database,
        task: AnyTask,
        planned: Event,
        journal: Journal,
        home: Home,  # noqa: ARG002 - of raw columns alone
    ) -> PrivateDatabase:
        """The doors of the tables, and of those that join them."""
        changed = rows_changed(rows.schema)
        tables = {**row_tables(rows), **joined_tables(rows)}
        most = {name: Neighbours(task.neighbours.relation, changed[name]) for name in tables}
        return PrivateDatabase(
            Database(rows.schema, tables), most, planned, journal, noise_source()
        )


def bound(database: Database, key: bytes) -> Database:
    """The rows that refer to one that is there, at most as many to the same as declared.

    A reference that may be missing is unlinked instead of its row left out.

    Privacy: whether a row stays depends on the rows that refer to the same parent alone, and on
        whether that stays; :func:`cloister.schema.relations.is_truncated` says where.

    Raises:
        DataError: more rows refer to the same one than declared, and none may be left out.
    """
    schema, tables = database.schema, dict(database.tables)
    for name in schema.tables:
        required = [own for own in schema.parents_of(name) if not own.optional]
        for reference in required:
            tables[name] = tables[name].take(Database(schema, tables).referring(reference))
        for reference in filter(partial(is_truncated, schema), required):
            tables[name] = _bounded(tables[name], reference, key)
    as_read = dict(tables)
    for reference in schema.keys:
        found = Database(schema, tables)
        if reference.optional:
            tables[reference.table] = _linked(found, reference, as_read[reference.table], key)
        if is_refused(schema, reference):
            _require_bound(found, reference)
    return Database(schema, tables)


def _linked(database: Database, reference: ForeignKey, as_read: Table, key: bytes) -> Table:
    """The table with references unlinked that lead to no row, or beyond the bound of a parent.

    Privacy: lots are of rows ``as_read``. What became of another reference may depend on other
        units: by it, a row that goes would exchange links of rows that stay.
    """
    table, domain = database.tables[reference.table], database.schema.tables[reference.table]
    codes = table.codes[reference.column].astype(np.int64)
    stay = np.flatnonzero(database.referring(reference))
    if is_truncated(database.schema, reference):
        own = key + reference.table.encode() + reference.column.encode()
        stay = stay[rows_first_in_line(codes[stay], as_read.take(stay), reference.max_rows, own)]
    linked = codes == domain[reference.column].null_code
    linked[stay] = True
    return Table(table.domain, {**table.codes, reference.column: np.where(linked, codes, UNLINKED)})


def _require_bound(database: Database, reference: ForeignKey) -> None:
    codes = database.tables[reference.table].codes[reference.column]
    if len(codes) and np.unique(codes, return_counts=True)[1].max() > reference.max_rows:
        raise DataError(
            f"table '{reference.table}', column '{reference.column}': more than "
            f"{reference.max_rows} rows refer to the same row of '{reference.parent}'; raise "
            "max_rows, or leave rows out at the source: to do it here would not be private, since "
            "rows of both sides are protected"
        )


def _bounded(table: Table, reference: ForeignKey, key: bytes) -> Table:
    parents, own = table.codes[reference.column], key + reference.table.encode()
    stay = rows_within_bound(parents, table.stored.values(), reference.max_rows, own)
    return table.take(np.sort(stay))
