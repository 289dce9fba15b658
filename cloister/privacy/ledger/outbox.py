"""What is reported about releases: the entries of the ledger are the outbox.

An event is its entry, so that both are written by one transaction, on either database, and no copy
can differ from the ledger or be lost without it. Who sends events keeps the number of the last
entry that it has seen, and asks for what came after.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloister.privacy.ledger.books import DECLINED, LedgerState
from cloister.privacy.ledger.checks import require_sound
from cloister.privacy.ledger.entries import Entry
from cloister.privacy.ledger.guards import TABLE
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.ledger.records import State

EVENTS = (
    State.CANDIDATE.value,
    State.APPROVED.value,
    State.PUBLISHED.value,
    State.REJECTED.value,
    State.WITHDRAWN.value,
    DECLINED,
)
"""Kinds of entries that are reported."""


@dataclass(frozen=True)
class ReleaseEvent:
    """What happened to a release, or to a request that became none: then ``release`` is empty.

    ``seq`` and ``hash`` are those of its entry. It holds no text that people wrote but their names,
    and no value of the data.
    """

    seq: int
    hash: str
    kind: str
    time: str
    by: str
    dataset: str
    release: str

    @property
    def id(self) -> str:
        """The same however often it is sent."""
        return f"{self.seq}-{self.hash[:32]}"


def events_after(ledger: Ledger, seq: int) -> tuple[list[ReleaseEvent], int]:
    """The events of the entries after a number, oldest first, and the number of the last entry.

    In a ledger that was restored from before the number there are none. Errors:
    ``VerificationError`` if these entries are not as they were written.
    """
    with ledger.store.reading() as connection:
        last = connection.exec_driver_sql(f"SELECT max(seq) FROM {TABLE}").scalar() or 0
        if last <= seq:
            return [], last
        entries = require_sound(ledger.store.rows(connection, seq + 1), seq + 1)
    reported = [entry for entry in entries if entry.kind in EVENTS]
    books = ledger.books() if reported else LedgerState()
    return [_event(entry, books) for entry in reported], entries[-1].seq


def _event(entry: Entry, books: LedgerState) -> ReleaseEvent:
    body = entry.body
    release = str(body.get("release", ""))
    dataset = books.releases[release].request.dataset if release else str(body["dataset"])
    by = books.house.shown(body["by"])
    return ReleaseEvent(entry.seq, entry.hash, entry.kind, entry.time, by, dataset, release)
