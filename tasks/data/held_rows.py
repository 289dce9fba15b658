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

from cloister import devices
from cloister.arrays import Array, Integers
from cloister.errors import StorageError
from cloister.hashing import Words
from cloister.privacy.door.table import first_by_lot, hashes_of_cells, lots_of_rows
from cloister.schema.block_table import BlockStore, BlockTable
from cloister.schema.domain import Domain, Table, order_of_rows
from cloister.tasks.data.workers import Workers

_T = TypeVar("_T")


class RowBound(NamedTuple):
    """The most rows of each person, or of whatever else rows belong to; the key is for lots.

    With an ``order`` those that stay follow each other by that attribute.
    """

    most: int
    key: bytes
    order: str | None = None


class HeldBlocks(BlockStore):
    """Blocks of rows that workers hold, each with what validation found in it."""

    def __init__(
        self, workers: Workers, domain: Domain, blocks: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        self.domain, self.lengths = domain, lengths
        self.workers, self.blocks = workers, blocks

    def each(
        self, names: Sequence[str], function: Callable[..., _T], *arguments: Sequence[Any]
    ) -> Iterator[_T]:
        """What ``function`` makes of some columns of each block, on the worker that holds it."""
        return self.workers.map(partial(_of_block, names, function), self.blocks, *arguments)

    def total(self, names: Sequence[str], kernel: Callable[[Table], Integers]) -> Integers:
        """The sum of what ``kernel`` counts in each block, added up by the workers."""
        return self.workers.total(partial(_of_block, names, kernel), self.blocks)

    def summed(self, kernel: Callable[[Array], Integers], pieces: Sequence[Array]) -> Integers:
        """The sum of what ``kernel`` counts in each piece, added up by the workers.

        It may compute with floating point: where workers would differ, this process computes.
        """
        arithmetic = self.workers.arithmetic
        if arithmetic is None:
            return super().summed(kernel, pieces)
        return self.workers.total(partial(_alike, arithmetic, kernel), pieces)

    def by_unit(self, function: Callable[[Table], Table]) -> HeldBlocks:
        """What ``function`` makes of each block, held where it was made."""
        made = self.workers.hold(partial(_made, function), self.blocks)
        return HeldBlocks.of(self.workers, function(self.empty).domain, made)

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


def _alike(arithmetic: str, kernel: Callable[[Array], Integers], piece: Array) -> Integers:
    """What a kernel counts, if this worker computes as those do that were asked before.

    Raises:
        StorageError: it joined late, with another processor or library.
    """
    if devices.arithmetic() != arithmetic:
        raise StorageError(
            "a worker that joined the cluster rounds otherwise than the others; end it, and run "
            "the same command again"
        )
    return kernel(piece)


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
    """Rows by the range of their person's number."""
    return share.divided(ranges(share.people, number), number)


def ranges(numbers: Integers, number: int) -> Integers:
    """The range (n,) that each number of 63 bits is in: of one length, in their order."""
    begins = np.array([(first << 63) // number for first in range(1, number)], dtype=np.int64)
    return np.searchsorted(begins, numbers, side="right")


def put_together(*shares: Share) -> Share:
    """The rows of several shares, one after the other."""
    lots = [share.lots for share in shares if share.lots is not None]
    return Share(
        Table.concatenate(share.table for share in shares),
        np.concatenate([share.people for share in shares]),
        np.concatenate(lots) if lots else None,
    )


def within_bound(bound: RowBound, *shares: Share) -> Share:
    """At most so many rows of each person, person by person; lots are drawn if they are not yet."""
    table, people, lots = put_together(*shares)
    if lots is None:
        lots = lots_of_rows(people, table.stored.values(), bound.key)
    order = order_of_rows(table, bound.order)
    return Share(table, people, lots).take(first_by_lot(people, lots, bound.most, order))


def bounded_together(
    workers: Workers, bound: RowBound, shares: Sequence[Any], long: int, number: int
) -> Sequence[Any]:
    """The rows within the bound of each person, all of a person in one of ``number`` ranges.

    Persons with more than ``long`` rows in a share are bounded before they meet there: equal rows
    of theirs meet first, so that these have the same lots. Not where rows have an order: which of
    them follow each other is known only where all of a person are.
    """
    merge = partial(within_bound, bound)
    if bound.order is None and max(workers.map(_most_rows, shares)) > max(bound.most, long):
        by_cells = partial(_by_cells, bound.key, number)
        shares = exchanged(workers, by_cells, merge, shares, number)
    return exchanged(workers, partial(by_number, number), merge, shares, number)


def exchanged(
    workers: Workers,
    divide: Callable[[Any], Sequence[Share]],
    merge: Callable[..., Any],
    shares: Sequence[Any],
    number: int,
) -> Sequence[Any]:
    """What ``merge`` makes of each of the ``number`` pieces that ``divide`` makes of shares."""
    divided = workers.hold(divide, shares)
    pieces = [workers.hold(itemgetter(piece), divided) for piece in range(number)]
    return workers.hold(merge, *zip(*pieces, strict=True))
