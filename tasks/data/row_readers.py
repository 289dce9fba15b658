"""Rows as a release reads them: in this process, or part by part by workers, who hold them.

Both give the same rows in the same order, and tables of which queries ask the same.

A part that a lost worker held is read again, from a source that is pinned: sums are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from cloister.arrays import Integers
from cloister.errors import StorageError
from cloister.hashing import Words
from cloister.privacy.door.table import (
    bound_contribution,
    first_by_lot,
    hashes_of_cells,
    lots_of_rows,
    person_numbers,
    with_person_codes,
)
from cloister.schema.block_table import BlockStore, BlockTable
from cloister.schema.domain import Domain, Table
from cloister.schema.sources.batches import SourceBatch
from cloister.schema.sources.parts import SourcePart, read_part, source_parts
from cloister.schema.sources.reading import read_batches, require_rows
from cloister.schema.spec import PersonUnit, Spec
from cloister.schema.validation import RowRule, Validation, read_table
from cloister.schema.validation_report import Tally, ValidationReport
from cloister.tasks.data.workers import Workers

_T = TypeVar("_T")

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


class HeldBlocks(BlockStore):
    """Blocks of rows that workers hold, each with what validation found in it."""

    def __init__(
        self, workers: Workers, domain: Domain, blocks: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        self.domain, self.lengths = domain, lengths
        self._workers, self._blocks = workers, blocks

    def each(
        self, names: Sequence[str], function: Callable[..., _T], *arguments: Sequence[Any]
    ) -> Iterator[_T]:
        """What ``function`` makes of some columns of each block, on the worker that holds it."""
        return self._workers.map(partial(_of_block, names, function), self._blocks, *arguments)

    def total(self, names: Sequence[str], kernel: Callable[[Table], Integers]) -> Integers:
        """The sum of what ``kernel`` counts in each block, added up by the workers."""
        return self._workers.total(partial(_of_block, names, kernel), self._blocks)

    def by_unit(self, function: Callable[[Table], Table]) -> HeldBlocks:
        """What ``function`` makes of each block, held where it was made."""
        made = self._workers.hold(partial(_made, function), self._blocks)
        return HeldBlocks.of(self._workers, function(self.empty).domain, made)

    @classmethod
    def of(cls, workers: Workers, domain: Domain, blocks: Sequence[Any]) -> HeldBlocks:
        """Blocks of so many rows as they have."""
        return cls(workers, domain, blocks, list(workers.map(_rows, blocks)))


def _of_block(
    names: Sequence[str],
    function: Callable[..., _T],
    block: tuple[Table, Any],
    *arguments: Any,
) -> _T:
    return function(block[0].select(names), *arguments)


def _made(function: Callable[[Table], Table], block: tuple[Table, Any]) -> tuple[Table, None]:
    return function(block[0]), None


def _rows(block: tuple[Table, Any]) -> int:
    return block[0].rows


@dataclass(frozen=True)
class HeldUnits(BlockTable):
    """A table of blocks that workers hold, each with all rows of its units."""

    def by_unit(self, function: Callable[[Table], Table]) -> HeldUnits:
        """What ``function`` makes of each block, held where it was made."""
        assert isinstance(self.stored.store, HeldBlocks)
        return HeldUnits.over(self.stored.store.by_unit(function))


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
        merge = partial(_bounded, bound)
        longest = max(self.workers.map(_most_rows, shares))
        if longest > max(bound.unit.max_rows, _PART_ROWS // _LONG):
            shares = self._exchanged(partial(_by_cells, bound.key, len(shares)), merge, shares)
        shares = self._exchanged(partial(_by_person, len(shares)), merge, shares)
        named = self.workers.hold(partial(_named, bound.unit.key), shares)
        bounded = HeldUnits.over(HeldBlocks.of(self.workers, source.domain, named))
        return OpenedTable(table, bounded, report)

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

    def _exchanged(
        self,
        divide: Callable[[_Share], Sequence[_Share]],
        merge: Callable[..., _Share],
        shares: Sequence[Any],
    ) -> Sequence[Any]:
        """As many shares of what ``divide`` makes of each, put together by ``merge``."""
        divided = self.workers.hold(divide, shares)
        pieces = [self.workers.hold(itemgetter(number), divided) for number in range(len(shares))]
        return self.workers.hold(merge, *zip(*pieces, strict=True))


def _read_block(source: TableSource, part: SourcePart) -> tuple[Table, Tally]:
    """The rows of a part, on a worker, with what validation found."""
    validation = source.validation()
    return validation.table(read_part(part, source.spec)), validation.tally


class _Share(NamedTuple):
    """Rows on a worker, the number (n,) of the person of each, and their lots (n,) once drawn."""

    table: Table
    people: Integers
    lots: Words | None = None

    def take(self, rows: Integers | slice) -> _Share:
        """Some rows."""
        lots = None if self.lots is None else self.lots[rows]
        return _Share(self.table.take(rows), self.people[rows], lots)

    def divided(self, places: Integers, number: int) -> list[_Share]:
        """The rows of each place (n,) below ``number``."""
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(number + 1))
        rows = self.take(order)
        return [rows.take(slice(*span)) for span in pairwise(ends.tolist())]


def _read_persons(
    source: TableSource, bound: PersonBound, part: SourcePart
) -> tuple[Table, Tally, _Share]:
    """The rows of a part, with what validation found, and with the persons of the rows."""
    validation = source.validation()
    table, people = _with_persons(validation, read_part(part, source.spec), bound)
    return table, validation.tally, _Share(table, people)


def _most_rows(share: _Share) -> int:
    """The most rows of one person."""
    return int(np.unique(share.people, return_counts=True)[1].max(initial=0))


def _by_cells(key: bytes, number: int, share: _Share) -> list[_Share]:
    """Rows by a hash of person and cells, so that equal rows of a person come together."""
    cells = hashes_of_cells(share.people, share.table.stored.values(), key)
    return share.divided((cells % np.uint64(number)).astype(np.int64), number)


def _by_person(number: int, share: _Share) -> list[_Share]:
    """Rows by the range of their person's number: ranges of one length, in their order."""
    begins = np.array([(first << 63) // number for first in range(1, number)], dtype=np.int64)
    return share.divided(np.searchsorted(begins, share.people, side="right"), number)


def _bounded(bound: PersonBound, *shares: _Share) -> _Share:
    """At most so many rows of each person, person by person; lots are drawn if they are not yet."""
    table = Table.concatenate(share.table for share in shares)
    people = np.concatenate([share.people for share in shares])
    drawn = [share.lots for share in shares if share.lots is not None]
    lots = (
        np.concatenate(drawn) if drawn else lots_of_rows(people, table.stored.values(), bound.key)
    )
    return _Share(table, people, lots).take(first_by_lot(people, lots, bound.unit.max_rows))


def _named(person: str, share: _Share) -> tuple[Table, None]:
    return with_person_codes(share.table, share.people, person), None
