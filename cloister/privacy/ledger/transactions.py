"""A writing transaction of the ledger: the books so far, and the entries that it adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Connection

from cloister.errors import InputError, StorageError
from cloister.privacy.ledger import permissions
from cloister.privacy.ledger.accounts import Account, BudgetGrant
from cloister.privacy.ledger.books import (
    CONSENTED,
    GRANTED,
    OPENED,
    PLACED,
    READ,
    REREAD,
    LedgerState,
)
from cloister.privacy.ledger.checks import require_account, require_counted, require_unit
from cloister.privacy.ledger.entries import Anchor, Entry, signed_body
from cloister.privacy.ledger.house import CONFIRMED, MATCHED, PROPOSED, Proposal
from cloister.privacy.ledger.records import Mark, Release, State, require_text
from cloister.privacy.ledger.store import Store
from cloister.privacy.signing import Signer


@dataclass
class Transaction:
    """One writing transaction: the last entry, the books after it, and the time of new entries.

    The time never decreases.
    """

    store: Store
    connection: Connection
    last: Entry | None
    books: LedgerState
    time: str
    signer: Signer | None = None

    def next(self, kind: str, body: Mapping[str, Any]) -> Entry:
        """The entry of a kind that would follow, unsigned."""
        slot = self.books.slot(kind, body, self.last.seq + 1 if self.last else 1)
        return Entry.after(self.last, self.time, kind, slot, body)

    def write(self, kind: str, body: Mapping[str, Any]) -> Entry:
        """Add an entry, signed if there is a signer.

        Errors: ``NotPermitted`` if who writes it may not.
        """
        entry = self.next(kind, body)
        permissions.require_permitted(self.books, entry)
        permissions.require_keepable(self.books, entry)
        require_counted(self.books, entry)
        if self.signer:
            entry = self.next(kind, signed_body(entry, self.signer))
        self.append(entry)
        return entry

    def append(self, entry: Entry) -> None:
        """Add an entry as it was written."""
        self.books.post(entry)
        self.store.append(self.connection, entry)
        self.last = entry

    def holds(self, anchor: Anchor) -> bool:
        """Whether the ledger holds an entry, as it was written."""
        entry = self.store.find(self.connection, anchor.seq)
        return entry is not None and entry.anchor == anchor

    def restore(self, entries: Sequence[Entry]) -> None:
        """Add entries as they were written, to a ledger that has none.

        Errors: ``StorageError`` if it has some, or there are none to add.
        """
        if self.last or not entries:
            state = "holds entries" if self.last else "would hold none"
            raise StorageError(
                f"The ledger {self.store.name} {state}: only one that is gone is restored."
            )
        for entry in entries:
            self.append(entry)

    def govern(self, kind: str, body: Mapping[str, Any]) -> Proposal | None:
        """Set a person, rules or a budget; where the rules ask for a second officer, propose it.

        The proposal, if it is one.
        """
        if not self.books.house.needs_second(body):
            self.write(kind, body)
            return None
        proposed = {"kind": kind, "body": dict(body), "by": body["by"], "reason": body["reason"]}
        entry = self.write(PROPOSED, proposed)
        return self.books.house.proposals[entry.seq]

    def confirm(self, proposal: int, signature: Mapping[str, str]) -> Entry:
        """Write what an officer proposed, as another one confirms it.

        Errors: ``InputError`` if there is no such proposal.
        """
        proposed = self.books.house.proposals.get(proposal)
        if proposed is None:
            raise InputError(f"Entry {proposal} proposes nothing, or was confirmed already.")
        confirmed = {CONFIRMED: {"proposal": proposal} | dict(signature)}
        return self.write(proposed.kind, dict(proposed.body) | confirmed)

    def grant(self, budget: BudgetGrant, signature: Mapping[str, str]) -> Proposal | None:
        """Grant a budget, or propose it; the proposal.

        Errors: ``InputError`` if its account is of another unit.
        """
        require_unit(self.books, budget.dataset, budget.unit)
        return self.govern(GRANTED, budget.body | dict(signature))

    def open(self, account: Account, signature: Mapping[str, str]) -> Account:
        """Open an account, or add the locations that it lacks.

        Errors: ``InputError`` if it was opened otherwise, or a place is of another account.
        """
        require_account(self.books, account)
        opened = self.books.accounts.get(account.name)
        if opened is None:
            self.write(OPENED, account.body | dict(signature))
            return self.books.accounts[account.name]
        if places := [location for location in account.places if location not in opened.places]:
            added = {"account": account.name, "places": places}
            self.write(PLACED, added | dict(signature))
        new = {name: fact for name, fact in account.reading.items() if name not in opened.reading}
        if new:
            pinned = {"account": account.name, "reading": new}
            self.write(READ, pinned | dict(signature))
        return self.books.accounts[account.name]

    def reread(self, account: Account, signature: Mapping[str, str]) -> Account:
        """Move an account to another reading of its sources.

        Errors: ``InputError`` if there is no such account, or it is read so already.
        """
        opened = self.books.accounts.get(account.name)
        if opened is None or not opened.contradictions(account.reading):
            why = "is read so already" if opened else "is not open"
            raise InputError(f"account '{account.name}' {why}. Nothing was changed.")
        require_account(self.books, replace(account, reading={}))
        moved = {"account": account.name, "reading": dict(account.reading)}
        self.write(REREAD, moved | dict(signature))
        return self.books.accounts[account.name]

    def move(self, release: Release, to: State, signature: Mapping[str, Any]) -> Release:
        """Move a release to another state; approved by too few, it stays a candidate.

        Errors: ``InputError`` if its state does not allow the move.
        """
        if to not in release.state.next:
            allowed = " or ".join(state.words for state in release.state.next)
            remedy = f"it can only become {allowed}" if allowed else "that state is final"
            raise InputError(
                f"Release {release.id} is {release.state.words} and cannot become {to.words}: "
                f"{remedy}."
            )
        body = {"release": release.id} | dict(signature)
        if to is State.APPROVED:
            body |= {MATCHED: True}
        if to is State.APPROVED and permissions.missing_approvals(self.books, release, body["by"]):
            self.write(CONSENTED, body)
        else:
            self.write(to.value, body)
        return self.books.releases[release.id]


def marked(release: str, by: str, mark: Mark) -> dict[str, Any]:
    """The body of an entry on a place in a journal."""
    return {"release": release, "by": require_text("by", by), **asdict(mark)}
