"""Rows as a release reads them: in this process, or part by part by workers, who hold them.

Both give the same rows in the same order, and tables of which queries ask the same.

A part that a lost worker held is read again, from a source that is pinned: sums are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from cloister.arrays import Integers
from cloister.errors import StorageError
from cloister.privacy.door.table import bound_contribution, person_numbers, with_person_codes
from cloister.schema.block_table import BlockTable
from cloister.schema.domain import Domain, Table
from cloister.schema.relations import Database, require_unique_keys
from cloister.schema.sources.batches import SourceBatch
from cloister.schema.sources.parts import SourcePart, read_part, source_parts
from cloister.schema.sources.reading import read_batches, require_rows
from cloister.schema.spec import PersonUnit, Spec
from cloister.schema.validation import RowRule, Validation, read_table
from cloister.schema.validation_report import Tally, ValidationReport
from cloister.tasks.data.bounding import bound
from cloister.tasks.data.held_databases import divided_by_units
from cloister.tasks.data.held_rows import HeldBlocks, HeldUnits, RowBound, Share, bounded_together
from cloister.tasks.data.workers import Workers

_PART_ROWS = 1 << 20
"""Rows of a part, about: some 14 MB of codes, and a second of reading, so that lost ones are cheap
and what each costs the scheduler, about a millisecond, is little."""


_MOST_PARTS = 256
"""Parts of a source of persons: each has a piece for each block of persons, which at these numbers
takes the scheduler a minute. Of more than 256 million rows parts are larger."""

_LONG = 1 << 10
"""Part of the rows of a part of which one person has more only if it has to be bounded twice."""


@dataclass(frozen=True, repr=False)
class OpenedTable:
    """A table as ``read``, and within the bound of each person, with the findings of validation."""

    read: Table
    bounded: Table
    report: ValidationReport


class PersonBound(NamedTuple):
    """Persons with the most rows of each; the key is for their numbers and lots alone."""

    unit: PersonUnit
    key: bytes


class TableSource(NamedTuple):
    """A table's spec, domain and rules on rows; ``data`` is a file in place of its source."""

    spec: Spec
    domain: Domain
    data: Path | None
    rules: tuple[RowRule, ...]

    def validation(self) -> Validation:
        """A validation that has seen no row."""
        return Validation.of(self.spec, self.domain, self.rules)


class RowReader(Protocol):
    """How rows are read, validated and coded; where they lie is its own affair.

    Raises:
        StorageError: the data cannot be read.
        DataError: it is not as declared; names columns, rules and row numbers.
    """

    def rows(self, source: TableSource) -> OpenedTable:
        """The rows, of which each is of a unit of its own."""
        ...

    def persons(self, source: TableSource, bound: PersonBound) -> OpenedTable:
        """The rows, and those within the bound of each person."""
        ...

    def bound(self, database: Database, key: bytes) -> Database:
        """The rows of tables that refer to each other, as they are read, within their bounds.

        Which rows stay, and in which order, ``key`` decides.
        """
        ...


@dataclass(frozen=True)
class InThisProcess:
    """Rows in the memory of this process, or wherever ``gather`` keeps them; see `RowReader`.

    Rows of persons are in memory.
    """

    gather: Callable[[Iterable[Table]], Table] = Table.concatenate

    def rows(self, source: TableSource) -> OpenedTable:
        """The rows."""
        table, report = read_table(*source, self.gather)
        return OpenedTable(table, table, report)

    def persons(self, source: TableSource, bound: PersonBound) -> OpenedTable:
        """The rows of persons."""
        validation = source.validation()
        batches = read_batches(source.spec, source.data)
        table, people = _with_persons(validation, batches, bound)
        bounded = bound_contribution(table, people, bound.unit, bound.key)
        return OpenedTable(table, bounded, validation.report())

    def bound(self, database: Database, key: bytes) -> Database:
        """The rows within their bounds."""
        require_unique_keys(database)
        return bound(database, key)


def _with_persons(
    validation: Validation, batches: Iterable[SourceBatch], bound: PersonBound
) -> tuple[Table, Integers]:
    """The rows that are kept of all batches, and the number (n,) of the person of each."""
    people = []

    def tables() -> Iterator[Table]:
        for batch in batches:
            rows = validation.check(batch)
            people.append(person_numbers(rows.typed(bound.unit.key), bound.key))
            yield rows.table()

    table = Table.concatenate(tables())
    return table, np.concatenate(people)


@dataclass(frozen=True)
class OnWorkers:
    """Rows that workers read and hold; see :class:`RowReader`.

    Raises:
        StorageError: the source cannot be read, or the cluster was lost.
        DataError: it is not as declared.
    """

    workers: Workers

    def rows(self, source: TableSource) -> OpenedTable:
        """The rows, as parts of the source."""
        blocks = self._blocks(source, _PART_ROWS, partial(_read_block, source))
        table, report = self._opened(blocks, source)
        return OpenedTable(table, table, report)

    def persons(self, source: TableSource, bound: PersonBound) -> OpenedTable:
        """The rows, as parts of the source, and those within bounds, all of a person together.

        Each block has the persons whose numbers are in one range, in the order of ranges: the rows
        are those, and in the order, of a table in memory. Before they meet there, persons with many
        rows are bounded: equal rows of theirs meet first, so that these have the same lots.
        """
        most = max(_PART_ROWS, (source.spec.privacy.rows.public or 0) // _MOST_PARTS)
        blocks = self._blocks(source, most, partial(_read_persons, source, bound))
        table, report = self._opened(blocks, source)
        shares: Sequence[Any] = self.workers.hold(itemgetter(2), blocks)
        long = _PART_ROWS // _LONG
        of_rows = RowBound(bound.unit.max_rows, bound.key, bound.unit.order)
        shares = bounded_together(self.workers, of_rows, shares, long, len(shares))
        named = self.workers.hold(partial(_named, bound.unit.key), shares)
        bounded = HeldUnits.over(HeldBlocks.of(self.workers, source.domain, named))
        return OpenedTable(table, bounded, report)

    def bound(self, database: Database, key: bytes) -> Database:
        """The rows within their bounds, all of a unit together."""
        if not database.schema.keys:
            return database
        blocks = {}
        for name, table in database.tables.items():
            assert isinstance(table, BlockTable)
            assert isinstance(table.stored.store, HeldBlocks)
            blocks[name] = table.stored.store.blocks
        long = _PART_ROWS // _LONG
        return divided_by_units(self.workers, database.schema, blocks, key, long)

    def _blocks(
        self, source: TableSource, rows: int, read: Callable[[SourcePart], Any]
    ) -> Sequence[Any]:
        """What workers read of parts of about so many rows."""
        parts = self.workers.closing.enter_context(source_parts(source.spec, source.data, rows))
        if any(part.pin is None for part in parts):
            raise StorageError(
                "workers read files, and tables of PostgreSQL 14 or later: a part of a view, or of "
                "another database, may be another when it is read again; leave --workers out"
            )
        return self.workers.hold(read, parts)

    def _opened(self, blocks: Sequence[Any], source: TableSource) -> tuple[Table, ValidationReport]:
        """The rows of blocks, and what validation found in all of them."""
        tallies = list(self.workers.map(itemgetter(1), blocks))
        whole = source.validation()
        for tally in tallies:
            whole.tally.add(tally)
        require_rows(source.spec, source.data, whole.tally.rows, whole.tally.malformed)
        lengths = [tally.valid for tally in tallies]
        store = HeldBlocks(self.workers, source.domain, blocks, lengths)
        return BlockTable.over(store), whole.report()


def _read_block(source: TableSource, part: SourcePart) -> tuple[Table, Tally]:
    """The rows of a part, on a worker, with what validation found."""
    validation = source.validation()
    return validation.table(read_part(part, source.spec)), validation.tally


def _read_persons(
    source: TableSource, bound: PersonBound, part: SourcePart
) -> tuple[Table, Tally, Share]:
    """The rows of a part, with what validation found, and with the persons of the rows."""
    validation = source.validation()
    table, people = _with_persons(validation, read_part(part, source.spec), bound)
    return table, validation.tally, Share(table, people)


def _named(person: str, share: Share) -> tuple[Table, None]:
    return with_person_codes(share.table, share.people, person), None
