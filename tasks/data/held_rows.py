"""Rows that workers hold: in blocks of which queries ask, and in shares that they exchange.

An exchange brings together what belongs together: equal rows, or all rows of a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cloister.arrays import Integers
from cloister.hashing import Words
from cloister.privacy.door.table import first_by_lot, hashes_of_cells, lots_of_rows
from cloister.schema.block_table import BlockStore, BlockTable
from cloister.schema.domain import Domain, Table
from cloister.schema.spec import PersonUnit
from cloister.tasks.data.workers import Workers

_T = TypeVar("_T")


class PersonBound(NamedTuple):
    """Persons with the most rows of each; the key is for their numbers and lots alone."""

    unit: PersonUnit
    key: bytes


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


class Share(NamedTuple):
    """Rows on a worker, the number (n,) of the person of each, and their lots (n,) once drawn."""

    table: Table
    people: Integers
    lots: Words | None = None

    def take(self, rows: Integers | slice) -> Share:
        """Some rows."""
        lots = None if self.lots is None else self.lots[rows]
        return Share(self.table.take(rows), self.people[rows], lots)

    def divided(self, places: Integers, number: int) -> list[Share]:
        """The rows of each place (n,) below ``number``."""
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(number + 1))
        rows = self.take(order)
        return [rows.take(slice(*span)) for span in pairwise(ends.tolist())]


def _most_rows(share: Share) -> int:
    """The most rows of one person."""
    return int(np.unique(share.people, return_counts=True)[1].max(initial=0))


def _by_cells(key: bytes, number: int, share: Share) -> list[Share]:
    """Rows by a hash of person and cells, so that equal rows of a person come together."""
    cells = hashes_of_cells(share.people, share.table.stored.values(), key)
    return share.divided((cells % np.uint64(number)).astype(np.int64), number)


def by_number(number: int, share: Share) -> list[Share]:
    """Rows by the range of their person's number: ranges of one length, in their order."""
    begins = np.array([(first << 63) // number for first in range(1, number)], dtype=np.int64)
    return share.divided(np.searchsorted(begins, share.people, side="right"), number)


def within_bound(bound: PersonBound, *shares: Share) -> Share:
    """At most so many rows of each person, person by person; lots are drawn if they are not yet."""
    table = Table.concatenate(share.table for share in shares)
    people = np.concatenate([share.people for share in shares])
    drawn = [share.lots for share in shares if share.lots is not None]
    lots = (
        np.concatenate(drawn) if drawn else lots_of_rows(people, table.stored.values(), bound.key)
    )
    return Share(table, people, lots).take(first_by_lot(people, lots, bound.unit.max_rows))


def bounded_together(
    workers: Workers, bound: PersonBound, shares: Sequence[Any], long: int
) -> Sequence[Any]:
    """The rows within the bound of each person, all of a person together, in ranges of numbers.

    Persons with more than ``long`` rows in a share are bounded before they meet there: equal rows
    of theirs meet first, so that these have the same lots.
    """
    merge = partial(within_bound, bound)
    if max(workers.map(_most_rows, shares)) > max(bound.unit.max_rows, long):
        by_cells = partial(_by_cells, bound.key, len(shares))
        shares = exchanged(workers, by_cells, merge, shares)
    return exchanged(workers, partial(by_number, len(shares)), merge, shares)


def exchanged(
    workers: Workers,
    divide: Callable[[Share], Sequence[Share]],
    merge: Callable[..., Share],
    shares: Sequence[Any],
) -> Sequence[Any]:
    """As many shares of what ``divide`` makes of each, put together by ``merge``."""
    divided = workers.hold(divide, shares)
    pieces = [workers.hold(itemgetter(number), divided) for number in range(len(shares))]
    return workers.hold(merge, *zip(*pieces, strict=True))
