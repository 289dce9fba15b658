"""A table out of core: its codes lie block by block in a file without a name, encrypted.

The file is made in the folder of temporary files, mode 0600, and has no name there, so that the
system takes it back when the process ends, however it ends. Each column of a block is encrypted by
AES-256-GCM under a random key that is in the memory of this process alone, and decrypted each time
that it is read: a disk, or a copy of one, shows how many rows there are, and nothing of them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cloister.errors import StorageError
from cloister.schema.block_table import BlockStore, BlockTable
from cloister.schema.domain import Domain, ResultT, Table, code_type

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


class _EncryptedBlocks(BlockStore):
    """Blocks whose columns are pieces of a file; those that are read are decrypted."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self._pieces, self.lengths = _EncryptedPieces(), list[int]()
        for table in tables:
            self.domain = table.domain
            self.lengths.append(table.rows)
            for column in table.domain:
                self._pieces.append(table.stored[column.name].astype(code_type(column)).tobytes())

    def each(
        self, names: Sequence[str], function: Callable[..., ResultT], *arguments: Sequence[Any]
    ) -> Iterator[ResultT]:
        """What ``function`` makes of each block, one of which is in memory at a time."""
        tables = (self._read(number, names) for number in range(len(self.lengths)))
        return map(function, tables, *arguments)

    def _read(self, number: int, names: Sequence[str]) -> Table:
        first, places = number * len(self.domain.names), self.domain.names.index
        domain = Domain(tuple(self.domain[name] for name in names))
        codes = {
            column.name: np.frombuffer(
                self._pieces.read(first + places(column.name)), code_type(column)
            )
            for column in domain
        }
        return Table(domain, codes)


def scratch_table(tables: Iterable[Table]) -> BlockTable:
    """The rows of some tables over one domain, at least one, each stored as a block.

    Raises:
        StorageError: they cannot be written; nothing of them stays.
    """
    return BlockTable.over(_EncryptedBlocks(tables))
