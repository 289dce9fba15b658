"""A table out of core: its codes lie block by block in a file without a name, encrypted.

The file is made in the folder of temporary files, mode 0600, and has no name there, so that the
system takes it back when the process ends, however it ends. Each column of a block is encrypted by
AES-256-GCM under a random key that is in the memory of this process alone, and decrypted each time
that it is read: a disk, or a copy of one, shows how many rows there are, and nothing of them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cloister.arrays import Array, Integers
from cloister.errors import StorageError
from cloister.schema.domain import Domain, Table, code_type

_KEY_BITS = 256
"""Bits of the key, as of the noise source's."""

_NONCE_BYTES = 12
"""Bytes of a nonce, which is the number of a piece: each key encrypts each number once."""


class _EncryptedPieces:
    """Pieces of bytes in a file without a name, by number; only this process can read them."""

    def __init__(self) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(_KEY_BITS))
        self._ends = [0]
        try:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the table
        except OSError as error:
            raise _unwritable(error) from None

    def append(self, piece: bytes) -> None:
        """Store a piece; StorageError if it cannot be written."""
        sealed = memoryview(self._cipher.encrypt(self._nonce(len(self._ends) - 1), piece, None))
        self._ends.append(self._ends[-1] + len(sealed))
        try:
            while sealed:
                sealed = sealed[self._file.write(sealed) :]
        except OSError as error:
            raise _unwritable(error) from None

    def read(self, number: int) -> bytes:
        """A piece; StorageError if the file cannot be read or is not what was written."""
        begin, end = self._ends[number : number + 2]
        try:
            sealed = os.pread(self._file.fileno(), end - begin, begin)
            return self._cipher.decrypt(self._nonce(number), sealed, None)
        except (OSError, InvalidTag):
            raise StorageError(
                "the file of the rows out of core was altered or cut while the release ran; check "
                "the disk of the home and run the same command again"
            ) from None

    def _nonce(self, number: int) -> bytes:
        return number.to_bytes(_NONCE_BYTES)


def _unwritable(error: OSError) -> StorageError:
    return StorageError(
        f"the rows do not fit into memory and cannot be stored in {tempfile.gettempdir()} "
        f"({os.strerror(error.errno or 0)}); make room in the home, or free memory, and run the "
        "same command again"
    )


@dataclass(frozen=True)
class Blocks(Mapping[str, Array]):
    """Columns of a table by name, put together of blocks each time that one is looked up.

    ``read(number, domain)`` gives some columns of a block, whose rows ``lengths`` has.
    """

    domain: Domain
    lengths: Sequence[int]
    read: Callable[[int, Domain], Table]

    def __getitem__(self, name: str) -> Array:
        column = Domain((self.domain[name],))
        pieces = [block.stored[name] for block in self.tables(column)]
        return np.concatenate([np.zeros(0, code_type(self.domain[name])), *pieces])

    def __iter__(self) -> Iterator[str]:
        return iter(self.domain.names)

    def __len__(self) -> int:
        return len(self.domain.names)

    def tables(self, domain: Domain) -> Iterator[Table]:
        """Some columns, block by block."""
        return (self.read(number, domain) for number in range(len(self.lengths)))


@dataclass(frozen=True)
class ScratchTable(Table):
    """A table of blocks: ``stored`` decrypts a column at each look-up.

    Memory of a total is that of a block's columns, and of rows by number that of one column.
    """

    stored: Blocks

    @classmethod
    def of(cls, tables: Iterable[Table]) -> ScratchTable:
        """The rows of some tables over one domain, at least one, each stored as a block.

        Raises:
            StorageError: they cannot be written; nothing of them stays.
        """
        pieces, lengths, places = _EncryptedPieces(), list[int](), dict[str, int]()
        for table in tables:
            domain = table.domain
            places = places or {name: place for place, name in enumerate(domain.names)}
            lengths.append(table.rows)
            for column in domain:
                pieces.append(table.stored[column.name].astype(code_type(column)).tobytes())

        def read(number: int, some: Domain) -> Table:
            first = number * len(places)
            codes = {
                c.name: np.frombuffer(pieces.read(first + places[c.name]), code_type(c))
                for c in some
            }
            return Table(some, codes)

        return cls(domain, Blocks(domain, lengths, read))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.stored.lengths)

    @property
    def in_memory(self) -> bool:
        """False: a column is read each time that it is looked up."""
        return False

    def select(self, names: Iterable[str]) -> ScratchTable:
        """The table of some columns; the others are not read."""
        domain = Domain(tuple(self.domain[name] for name in dict.fromkeys(names)))
        return ScratchTable(domain, Blocks(domain, self.stored.lengths, self.stored.read))

    def total(self, kernel: Callable[[Table], Integers]) -> Integers:
        """The sum of what ``kernel`` counts in each block: one block is in memory at a time."""
        total = kernel(self._empty)
        for block in self.stored.tables(self.domain):
            total = total + kernel(block)
        return total

    def mapped(self, function: Callable[[Table], Table]) -> ScratchTable:
        """What ``function`` makes of the rows, block by block, each time that one is read."""

        def read(number: int, some: Domain) -> Table:
            return function(self.stored.read(number, self.domain)).select(some.names)

        domain = function(self._empty).domain
        return ScratchTable(domain, Blocks(domain, self.stored.lengths, read))

    @property
    def _empty(self) -> Table:
        return Table(self.domain, {c.name: np.zeros(0, code_type(c)) for c in self.domain})
