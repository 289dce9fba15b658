"""A ledger read in part: single entries, and what is new since it was read.

Of a single entry the text must have the hash that it says. Whether the chain is whole is not
checked then, but by whatever writes, and by `verify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from sqlalchemy import text

from cloister.errors import VerificationError
from cloister.privacy.ledger.books import DECLINED, LedgerState
from cloister.privacy.ledger.checkpoints import LedgerSnapshot
from cloister.privacy.ledger.checks import require_sound
from cloister.privacy.ledger.entries import Anchor, Entry
from cloister.privacy.ledger.guards import TABLE
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.ledger.records import Release


def anchor_at(ledger: Ledger, seq: int) -> Anchor:
    """The entry of a number.

    Errors: ``VerificationError`` if it is not there as it was written.
    """
    with ledger.store.reading() as connection:
        entry = ledger.store.find(connection, seq)
    if entry is None:
        raise VerificationError(
            f"Entry {seq} of the ledger is not there as it was written: run cloister verify."
        )
    return entry.anchor


def holds(ledger: Ledger, anchor: Anchor) -> bool:
    """Whether an entry is in the ledger as it was written."""
    with ledger.store.reading() as connection:
        entry = ledger.store.find(connection, anchor.seq)
        return entry is not None and entry.anchor == anchor


def moves_of(ledger: Ledger, release: Release) -> list[Entry]:
    """The entries by which a release was moved, or approved by one of several."""
    acts = (*release.steps, *release.consents)
    with ledger.store.reading() as connection:
        entries = [ledger.store.find(connection, act.seq) for act in acts]
    return [entry for entry in entries if entry]


def declined(ledger: Ledger, dataset: str | None = None) -> list[Entry]:
    """Return the requests that were declined, oldest first: of a dataset, or all."""
    query = text(f"SELECT seq FROM {TABLE} WHERE slot LIKE :slots ORDER BY seq")
    with ledger.store.reading() as connection:
        rows = connection.execute(query, {"slots": f"{DECLINED}/%"}).all()
        entries = [ledger.store.find(connection, row.seq) for row in rows]
    return [each for each in entries if each and dataset in (None, each.body["dataset"])]


@dataclass
class Follower:
    """The books of a ledger, for a process that asks again and again: only new entries are read.

    Safe to use from several threads.
    """

    ledger: Ledger
    _state: LedgerSnapshot | None = None
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def reading(self) -> Iterator[tuple[LedgerState, Entry | None]]:
        """The books as they are now, and the last entry, for a block that must not change them.

        Nobody else reads meanwhile: lists are to be made inside the block.

        Errors: ``StorageError`` if the ledger cannot be read; ``VerificationError`` if its chain is
            broken.
        """
        with self._lock:
            self._state = self._now()
            yield self._state.books, self._state.last

    def _now(self) -> LedgerSnapshot:
        store, known = self.ledger.store, self._state
        with store.reading() as connection:
            if known is None or known.last is None:
                return LedgerSnapshot.read(store, connection, self.ledger.checkpoints)
            rows, self._state = store.rows(connection, known.last.seq), None
            if not rows or rows[0].hash != known.last.hash:  # what was read is there no more
                return LedgerSnapshot.read(store, connection, self.ledger.checkpoints)
            entries = require_sound(rows, known.last.seq)
        return LedgerSnapshot(known.books.after(entries[1:]), entries[-1], known.since)
