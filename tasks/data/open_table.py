"""The rows of a release as its session opens them: read, validated, encoded, bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cloister.constraints import presence_rules
from cloister.models.persons.parts import neighbours_of_tables, person_tables
from cloister.models.task import AnyTask, Task
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PrivateDatabase, PrivateTable
from cloister.privacy.events import Event
from cloister.privacy.mechanisms.randomness import NoiseSource, noise_source
from cloister.schema.domain import Table
from cloister.schema.sources.reading import read_batches
from cloister.schema.spec import PersonUnit
from cloister.schema.validation import Validation, read_table
from cloister.schema.validation_report import ValidationReport
from cloister.tasks.data.contribution_bound import (
    bound_contribution,
    person_numbers,
    require_named_persons,
)
from cloister.tasks.data.refusals import write_validation
from cloister.tasks.data.session import RowSource, keyed_digest
from cloister.tasks.requests.public_context import PublicContext, public_context_of
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home


@dataclass(frozen=True, repr=False)
class SensitiveRows:
    """The rows of a release, and a keyed digest of all that were read."""

    table: Table
    digest: str


class TableSource(RowSource[Table, PrivateTable | PrivateDatabase]):
    """The rows of a release: validated, encoded in public domains, behind the door of a table."""

    def context(self, request: ResolvedRequest) -> PublicContext:
        """The declared context of a request."""
        return public_context_of(request)

    def read_rows(self, release: str, request: ResolvedRequest, home: Home) -> tuple[Table, str]:
        """The rows and their digest; the findings of validation stay in the home."""
        opened, report = open_data(release, request, self.context(request), home)
        write_validation(release, report.to_dict(), home)
        return opened.table, opened.digest

    def door(
        self,
        rows: Table,
        task: AnyTask,
        planned: Event,
        journal: Journal,
        home: Home,  # noqa: ARG002 - a door to raw columns numbers texts under the home's key
    ) -> PrivateTable | PrivateDatabase:
        """The door of a table; of persons with several rows, the doors of both tables."""
        if isinstance(task, Task) and task.persons:
            return person_door(rows, task, planned, journal, noise_source())
        return PrivateTable(rows, task.neighbours, planned, journal, noise_source())


def person_door(
    rows: Table, task: Task, planned: Event, journal: Journal, noise: NoiseSource
) -> PrivateDatabase:
    """The doors of the table of persons and of their bounded rows, under one plan."""
    tables, most = person_tables(rows, task), neighbours_of_tables(task)
    return PrivateDatabase(tables, most, planned, journal, noise)


def open_data(
    release: str, request: ResolvedRequest, context: PublicContext, home: Home
) -> tuple[SensitiveRows, ValidationReport]:
    """Read, validate, encode and bound the rows of a release.

    Raises:
        StorageError: the data cannot be read.
        DataError: it is not as declared; names columns, rules and row numbers.
    """
    spec, domain, unit = context.spec, context.one.domain, context.spec.privacy.unit
    rules = presence_rules(context.one.constraints, domain)
    if not isinstance(unit, PersonUnit):
        table, report = read_table(spec, domain, request.data, rules)
        return SensitiveRows(table, _digest(table, release, home)), report
    require_named_persons(domain, unit)
    validation, people = Validation.of(spec, domain, rules), []

    def tables() -> Iterator[Table]:
        for batch in read_batches(spec, request.data):
            rows = validation.check(batch)
            people.append(person_numbers(rows.typed(unit.key), home.key()))
            yield rows.table()

    table = Table.concatenate(tables())
    report, digest = validation.report(), _digest(table, release, home)
    return SensitiveRows(
        bound_contribution(table, np.concatenate(people), unit, home.key()), digest
    ), report


def _digest(table: Table, release: str, home: Home) -> str:
    return keyed_digest(b"data", {"": table.stored.items()}, release, home.key())
