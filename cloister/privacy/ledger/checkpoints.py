"""Checkpoints: the books after an entry, signed, so that only the entries after it are read.

A home keeps one beside its ledger, in a file, and believes it if its own key signed it, this code
wrote it, and the ledger holds that entry: since an entry names the hash of the one before, those
are then the books of all entries up to it. Otherwise all entries are read. `verify` always reads
them all, and compares.

A checkpoint is of one home: others that share its ledger would have to trust its key with all that
the entries before say, and each can make its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from sqlalchemy import Connection

from cloister.errors import CloisterError, StorageError, VerificationError
from cloister.files import write_whole
from cloister.privacy.ledger.books import Books
from cloister.privacy.ledger.checks import require_sound
from cloister.privacy.ledger.compact import Lazy, Shared, dump, load, packed, unpacked
from cloister.privacy.ledger.entries import Anchor, Entry, Finding
from cloister.privacy.ledger.records import Release
from cloister.privacy.ledger.store import Store
from cloister.privacy.signing import PublicKey, Signer, pae

INTERVAL = 250
"""Entries after a checkpoint until the next is written. Each that lies after it costs each command
some 0.1 ms; writing one takes some 0.1 s of a ledger of 10,000 releases, a third of what the 250
entries took to write."""

_TYPE = "application/vnd.cloister.ledger-checkpoint+json"
"""The type of what is signed, which nothing else has."""


@dataclass(frozen=True)
class Checkpoint:
    """The books after an entry."""

    entry: Anchor
    books: Books


@dataclass(frozen=True)
class CheckpointFile:
    """Where a home keeps its checkpoint; ``key`` is that of the home, by which it is believed."""

    path: Path
    key: Callable[[], PublicKey | None]

    def read(self) -> Checkpoint | None:
        """The checkpoint; None if there is none, or other code wrote it.

        Raises:
            VerificationError: it is not as this home wrote it.
            StorageError: it cannot be read.
        """
        try:
            head, _, body = self.path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self.path} cannot be read: correct its permissions.") from error
        try:
            said = load(head.decode("ascii"))
            signature, digest = bytes.fromhex(said.pop("signature")), said["digest"]
            entry, code = Anchor(said["seq"], said["hash"]), said["code"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise VerificationError("was altered") from None
        key = self.key()
        if key is None or not key.verify(signature, _message(said)):
            raise VerificationError("is not signed by the key of this home")
        if hashlib.sha256(body).hexdigest() != digest:
            raise VerificationError("was altered")
        return Checkpoint(entry, _books(body)) if code == _code() else None

    def write(self, entry: Anchor, books: Books, signer: Signer) -> None:
        """Write the checkpoint of an entry in place of the one before.

        The one before stays if this one cannot be written: it is as true.
        """
        body = _body(books)
        digest = hashlib.sha256(body).hexdigest()
        said = {"code": _code(), "digest": digest, "hash": entry.hash, "seq": entry.seq}
        signed = said | {"signature": signer.sign(_message(said)).hex()}
        with suppress(OSError):
            text = dump(signed).encode() + b"\n" + body
            write_whole(self.path, lambda part: part.write_bytes(text))


@dataclass(frozen=True)
class LedgerState:
    """The books of a ledger, and its last entry, None of an empty one.

    ``since`` is the number of the entry whose checkpoint was believed; 0 if none was.
    """

    books: Books
    last: Entry | None
    since: int

    @classmethod
    def read(
        cls, store: Store, connection: Connection, checkpoints: CheckpointFile | None
    ) -> LedgerState:
        """The state that a transaction sees.

        Errors: ``VerificationError`` if the chain is broken, or no ledger could have written it.
        """
        known = None
        with suppress(CloisterError):  # one that is not believed is named by `verify`
            known = checkpoints.read() if checkpoints else None
        rows = store.rows(connection, known.entry.seq) if known else []
        if known and rows and (rows[0].seq, rows[0].hash) == (known.entry.seq, known.entry.hash):
            entries = require_sound(rows, known.entry.seq)
            return cls(known.books.after(entries[1:]), entries[-1], known.entry.seq)
        entries = require_sound(store.rows(connection))
        return cls(Books.of(entries), entries[-1] if entries else None, 0)


def checkpoint_findings(file: CheckpointFile, entries: Sequence[Entry]) -> list[Finding]:
    """How the checkpoint of a home differs from the entries of its ledger, all of which are sound.

    It is believed by no command, or should not have been.
    """
    remedy = "remove it, and the next command that writes makes another"
    try:
        known = file.read()
    except CloisterError as error:
        return [Finding(0, f"the checkpoint {file.path} {error}, and is ignored: {remedy}")]
    if known is None:
        return []
    if known.entry not in [entry.anchor for entry in entries[known.entry.seq - 1 :][:1]]:
        return [
            Finding(
                known.entry.seq,
                f"is not the one of the checkpoint {file.path}, which is ignored: the end of the "
                "ledger was cut off or rewritten, or the checkpoint is of another ledger",
            )
        ]
    if known.books != Books.of(entries[: known.entry.seq]):
        return [
            Finding(
                known.entry.seq,
                f"gives other books than the checkpoint {file.path}, which the key of this home "
                f"signed: {remedy}, and find out who else has that key",
            )
        ]
    return []


def _body(books: Books) -> bytes:
    """Books as text: a line of all but releases, lines of shared values, and one of each release.

    A release that is as it was read is written as it was read.
    """
    earlier = books.releases if isinstance(books.releases, Lazy) else None
    texts, shared = (earlier.texts, earlier.shared) if earlier else ({}, Shared())
    lines = [
        f"{name} {texts.get(name) or dump(packed(Release, books.releases[name], shared))}"
        for name in books.releases
    ]
    rest = dump(packed(Books, replace(books, releases={}), shared))
    head = f"{len(shared.texts)} {rest}"
    return "\n".join([head, *shared.texts, *lines]).encode("ascii")


def _books(body: bytes) -> Books:
    head, *lines = body.decode("ascii").split("\n")
    number, _, rest = head.partition(" ")
    shared = Shared(lines[: int(number)])
    releases = Lazy(Release, dict(line.split(" ", 1) for line in lines[int(number) :]), shared)
    books: Books = unpacked(Books, load(rest), shared)
    return replace(books, releases=releases)


def _message(said: object) -> bytes:
    return pae(_TYPE, dump(said).encode("ascii"))


@cache
def _code() -> str:
    """The digest of the code of the ledger: other code may make other books of the same entries."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
