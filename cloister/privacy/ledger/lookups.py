"""Single entries of a ledger, read without the others: each text must have the hash that it says.

Whether the chain is whole is not checked here, but by whatever writes, and by `verify`.
"""

from __future__ import annotations

from cloister.errors import VerificationError
from cloister.privacy.ledger.books import consent_slot, state_slot
from cloister.privacy.ledger.entries import Anchor, Entry
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.ledger.records import Release


def anchor_at(ledger: Ledger, seq: int) -> Anchor:
    """The entry of a number.

    Errors: ``VerificationError`` if it is not there as it was written.
    """
    with ledger.store.reading() as connection:
        entry = ledger.store.find(connection, "seq", seq)
    if entry is None:
        raise VerificationError(
            f"Entry {seq} of the ledger is not there as it was written: run cloister verify."
        )
    return entry.anchor


def holds(ledger: Ledger, anchor: Anchor) -> bool:
    """Whether an entry is in the ledger as it was written."""
    with ledger.store.reading() as connection:
        entry = ledger.store.find(connection, "seq", anchor.seq)
        return entry is not None and entry.anchor == anchor


def moves_of(ledger: Ledger, release: Release) -> list[Entry]:
    """The entries by which a release was moved, or approved by one of several."""
    slots = [state_slot(release.id, step.state) for step in release.steps]
    slots += [consent_slot(release.id, number) for number in range(len(release.consents))]
    with ledger.store.reading() as connection:
        found = [ledger.store.find(connection, "slot", slot) for slot in slots]
    return [entry for entry in found if entry]
