"""A table in blocks of rows, which lie where a store has them: on disk, or with other processes.

What is made of rows is made block by block, so memory does not grow with them. Sums of whole
numbers, and rows by number, are the same for any blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from cloister.arrays import Array, Booleans, Integers
from cloister.hashing import Words
from cloister.schema.domain import Domain, ResultT, Table, empty_table, summed_here


class BlockStore(ABC):
    """The blocks of a table over ``domain``, which have so many rows as ``lengths`` says."""

    domain: Domain
    lengths: Sequence[int]

    @property
    def empty(self) -> Table:
        """A block without rows."""
        return empty_table(self.domain)

    @abstractmethod
    def each(
        self, names: Sequence[str], function: Callable[..., ResultT], *arguments: Sequence[Any]
    ) -> Iterator[ResultT]:
        """What ``function`` makes of some columns of each block, in order.

        Of each of the ``arguments`` a block gets the one in its place.
        """

    def total(self, names: Sequence[str], kernel: Callable[[Table], Integers]) -> Integers:
        """The sum of what ``kernel`` counts in some columns of each block."""
        first, *rest = self.each(names, kernel)
        return sum(rest, first)

    def summed(self, kernel: Callable[[Array], Integers], pieces: Sequence[Array]) -> Integers:
        """The sum of what ``kernel`` counts in each of some pieces of rows that were taken."""
        return summed_here(kernel, pieces)


def unchanged(table: Table) -> Table:
    """The table itself."""
    return table


@dataclass(frozen=True)
class Blocks(Mapping[str, Array]):
    """Columns of a table by name, put together of blocks each time that one is looked up.

    They are columns of what ``derive`` makes of the rows of a store, each row of one row alone.
    """

    store: BlockStore
    domain: Domain
    derive: Callable[[Table], Table] = unchanged

    def __getitem__(self, name: str) -> Array:
        column = Blocks(self.store, Domain((self.domain[name],)), self.derive)
        return np.concatenate([block.stored[name] for block in column.each(unchanged)])

    def __iter__(self) -> Iterator[str]:
        return iter(self.domain.names)

    def __len__(self) -> int:
        return len(self.domain.names)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns of the store that are read."""
        return self.domain.names if self.derive is unchanged else self.store.domain.names

    def each(
        self, function: Callable[..., ResultT], *arguments: Sequence[Any]
    ) -> Iterator[ResultT]:
        """What ``function`` makes of each block, in order, with arguments of its own."""
        return self.store.each(self.read, self.of_stored(function), *arguments)

    def of_stored(self, function: Callable[..., ResultT]) -> Callable[..., ResultT]:
        """What ``function`` makes of these columns, as a function of those that are read."""
        return partial(_of_derived, self.derive, self.domain.names, function)


def _of_derived(
    derive: Callable[[Table], Table],
    names: Sequence[str],
    function: Callable[..., ResultT],
    block: Table,
    *arguments: Any,
) -> ResultT:
    return function(derive(block).select(names), *arguments)


def _hashed(key: bytes, block: Table) -> Words:
    return block.keyed_hashes(key)


@dataclass(frozen=True)
class BlockTable(Table):
    """A table of blocks: a column is put together each time that it is looked up.

    Memory of a total is that of a block's columns, and of rows by number that of these rows.
    """

    stored: Blocks

    @classmethod
    def over(cls, store: BlockStore) -> Self:
        """The rows of a store."""
        return cls(store.domain, Blocks(store, store.domain))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.stored.store.lengths)

    @property
    def in_memory(self) -> bool:
        """False: a column is read each time that it is looked up."""
        return False

    def take(self, rows: Integers | Booleans | slice) -> Table:
        """The table of some rows, in memory."""
        if isinstance(rows, slice) or rows.dtype == bool:
            rows = np.arange(self.rows)[rows]
        chosen = np.asarray(rows, dtype=np.int64)
        order = np.argsort(chosen, kind="stable")
        ends = np.cumsum(self.stored.store.lengths)
        pieces = np.split(chosen[order], np.searchsorted(chosen, ends[:-1], sorter=order))
        within = [piece - begin for piece, begin in zip(pieces, [0, *ends[:-1]], strict=True)]
        taken = Table.concatenate(self.stored.each(Table.take, within))
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return taken.take(places)

    def select(self, names: Iterable[str]) -> BlockTable:
        """The table of some columns; the others are not read."""
        domain = Domain(tuple(self.domain[name] for name in dict.fromkeys(names)))
        return BlockTable(domain, Blocks(self.stored.store, domain, self.stored.derive))

    def total(self, kernel: Callable[[Table], Integers]) -> Integers:
        """The sum of what ``kernel`` counts in each block."""
        return self.stored.store.total(self.stored.read, self.stored.of_stored(kernel))

    def summed(self, kernel: Callable[[Array], Integers], pieces: Sequence[Array]) -> Integers:
        """The sum of what ``kernel`` counts in each piece, by whoever holds the rows."""
        return self.stored.store.summed(kernel, pieces)

    def each(self, function: Callable[[Table], ResultT]) -> Iterator[ResultT]:
        """What ``function`` makes of each block of the rows, in order."""
        return self.stored.each(function)

    def keyed_hashes(self, key: bytes) -> Words:
        """Numbers of 64 bits (n,), equal for equal rows, that nobody knows without the key.

        Memory is that of the numbers and of some blocks.
        """
        hashes, begin = np.empty(self.rows, dtype=np.uint64), 0
        for block in self.stored.each(partial(_hashed, key)):
            hashes[begin : begin + len(block)] = block
            begin += len(block)
        return hashes

    def mapped(self, function: Callable[[Table], Table]) -> BlockTable:
        """What ``function`` makes of the rows, block by block, each time that one is read."""
        derive = self.stored.of_stored(function)
        store = self.stored.store
        domain = derive(store.empty).domain
        return BlockTable(domain, Blocks(store, domain, derive))
