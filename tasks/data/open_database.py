"""The rows of several tables, as a session opens them: each as one table, then bounded together."""

from __future__ import annotations

import numpy as np

from cloister.arrays import Integers
from cloister.privacy.door.database import PrivateDatabase
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.schema.database import Database, ForeignKey
from cloister.schema.domain import Table
from cloister.schema.joins import degree_table, joined_table, joined_tables, require_unique_keys
from cloister.schema.validation import read_table
from models.task import AnyTask, DatabaseTask
from tasks.data.contribution_bound import rows_within_bound
from tasks.data.open_table import noise_source
from tasks.data.refusals import write_validation
from tasks.data.session import RowSource, keyed_digest
from tasks.requests.resolved import PublicContext, ResolvedRequest, public_context_of
from tasks.runtime.home import Home


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
            tables[name], report = read_table(part.spec, part.one.domain)
            reports[name] = report.to_dict()
        write_validation(release, {"tables": reports}, home)
        columns = (
            (f"{name}.{column}", codes)
            for name, table in tables.items()
            for column, codes in table.stored.items()
        )
        digest = keyed_digest(b"data", columns, release, home.key())
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
        most = {
            name: Neighbours(task.neighbours.relation, rows_of_unit)
            for name, rows_of_unit in rows.schema.rows_of_unit.items()
        }
        for key in rows.schema.keys:
            most[degree_table(key)] = most[key.parent]
            most[joined_table(key)] = most[key.table]
        tables = {**rows.tables, **joined_tables(rows)}
        return PrivateDatabase(
            Database(rows.schema, tables), most, planned, journal, noise_source()
        )


def bound(database: Database, key: bytes) -> Database:
    """The rows that refer to one that is there, at most as many to the same as declared.

    Privacy: whether a row stays depends on the rows that refer to the same parent alone, and on
        whether that stays: a row of the first table changes the rows below it, and no others.
    """
    tables: dict[str, Table] = {}
    for name, table in database.tables.items():
        found = Database(database.schema, tables | {name: table})
        stay = np.arange(table.rows)
        for reference in database.schema.parents_of(name):
            stay = stay[found.referring(reference)[stay]]
            stay = stay[_bounded(table.codes[reference.column][stay], reference, key)]
        tables[name] = table.take(np.sort(stay))
    return Database(database.schema, tables)


def _bounded(parents: Integers, reference: ForeignKey, key: bytes) -> Integers:
    return rows_within_bound(parents, reference.max_rows, key + reference.table.encode())
