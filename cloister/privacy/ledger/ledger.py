"""The ledger: the only authority on what was spent on which unit, and who approved it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from cloister.errors import InputError, StorageError
from cloister.privacy.exact import Amount, ratio
from cloister.privacy.ledger import checks, leases, records
from cloister.privacy.ledger.accounts import Account, BudgetGrant, Opening
from cloister.privacy.ledger.books import DELIVERED, RUN, SEALED, SIGNED, LedgerState
from cloister.privacy.ledger.budgets import Budgets, BudgetStatus
from cloister.privacy.ledger.checkpoints import (
    INTERVAL,
    CheckpointFile,
    LedgerSnapshot,
    checkpoint_findings,
)
from cloister.privacy.ledger.composition import Compose, basic_composition
from cloister.privacy.ledger.entries import Anchor, Entry, Finding, read_chain
from cloister.privacy.ledger.house import Proposal
from cloister.privacy.ledger.store import Store, write_export
from cloister.privacy.ledger.transactions import Transaction, marked
from cloister.privacy.signing import Signer


@dataclass(frozen=True)
class Ledger:
    """Budgets and releases on an append-only, hash-chained store.

    ``compose`` is the composition of budgets; a ledger must be verified with the same one. Each
    operation is one transaction: it happens as a whole or not at all, and a broken chain is neither
    read nor extended. Times come from ``clock`` but never decrease: an entry is at least as late as
    the one before it. A clock set ahead opens the next budget window early, and that window then
    lasts until the real one ends. ``written`` is called with the last entry of each transaction
    that added one, after it was committed. ``before`` checks the ledger in a transaction
    that has written nothing yet; nothing is added to a ledger whose guards were changed.
    ``signer`` gives the key that signs each new entry. Where there are ``checkpoints``, only the
    entries after the last one are read.
    """

    store: Store
    compose: Compose = basic_composition
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    written: Callable[[Anchor], None] = lambda _: None
    before: Callable[[Transaction], None] = lambda _: None
    signer: Callable[[], Signer | None] = lambda: None
    checkpoints: CheckpointFile | None = None

    @classmethod
    def open(
        cls, address: str | Path, compose: Compose = basic_composition, timeout: float = 60.0
    ) -> Self:
        """The ledger at a path, ``sqlite:///FILE`` or ``postgresql://...``; made if there is none.

        ``timeout`` is how long an operation waits for another, in seconds.
        Errors: ``StorageError`` if it cannot be reached, read or made.
        """
        return cls(Store.open(address, timeout), compose)

    def grant(
        self,
        dataset: str,
        unit: str,
        epsilon: Amount,
        delta: Amount,
        period: str,
        by: str,
        reason: str,
    ) -> BudgetStatus | Proposal:
        """Grant a budget; it replaces the one before, and gives back nothing that was spent.

        Where the rules ask for a second officer, it is a proposal. Errors: ``InputError`` for
        amounts, periods or names that cannot be used.
        """
        budget = BudgetGrant.of(dataset, unit, epsilon, delta, period)
        with self.writing() as transaction:
            proposal = transaction.grant(budget, records.signed(by, reason))
            books, now = transaction.books, transaction.time
            return proposal or Budgets(books, dataset, unit, now, self.compose).tightest()

    def open_account(self, account: Account, by: str, reason: str) -> Account:
        """Register a data set, or further places of one; each place is of one account.

        Errors: ``InputError`` if the account is of another unit or relation, or a place is
        registered to another.
        """
        with self.writing() as transaction:
            return transaction.open(account, records.signed(by, reason))

    def reread_account(self, account: Account, by: str, reason: str) -> Account:
        """Move an account to another reading of its sources; ``reason`` says what it ends.

        Errors: ``InputError`` as of :meth:`open_account`, or if it is read so already.
        """
        with self.writing() as transaction:
            return transaction.reread(account, records.signed(by, reason))

    def reserve(
        self,
        request: records.ReservationRequest,
        by: str,
        opening: Opening | None = None,
        purpose: str = "",
    ) -> records.Reservation:
        """Reserve the price of a release before a row is read, or find its pending release.

        ``opening`` is the account of the release, which its first one opens with the budget of its
        spec, in the same transaction: of two first releases, one does. ``purpose`` is what it is
        for.

        A release with the same ``spend_id`` that is reserved or spent, or a candidate that was
        never delivered, is returned unchanged and nothing is charged. Otherwise this is a new
        release, also where another version of the code reserved it with another plan and never
        spent it: that reservation is given back. Errors: ``BudgetExceeded`` if it does not fit;
        ``InputError`` if the ``spend_id`` was used for another request, or for another plan by
        another version.
        """
        records.require_text("by", by)
        if purpose:
            records.require_text("purpose", purpose)
        with self.writing() as transaction:
            pending = transaction.books.pending(request.spend_id)
            if pending and checks.is_replanned(pending, request):
                replanned = {"by": by, "reason": records.REPLANNED, "evidence": {}}
                transaction.move(pending, records.State.REFUNDED, replanned)
            elif pending:
                checks.require_same_run(pending, request)
                return records.Reservation(pending, resumed=True)
            if request.release in transaction.books.releases:
                raise InputError(
                    f"Release {request.release} exists already: let the ledger choose a name."
                )
            if opening:
                declared = {"by": by, "reason": opening.reason}
                account = transaction.open(opening.account, declared)
                if (account.name, account.unit) not in transaction.books.grants:
                    transaction.grant(opening.budget, declared)
            owner, now = (request.dataset, request.unit), transaction.time
            composed = Budgets(transaction.books, *owner, now, self.compose).admit(request)
            signature = {"by": by, "reason": purpose, "evidence": {}, "composed": ratio(composed)}
            transaction.write(records.State.RESERVED.value, request.body | signature)
            return records.Reservation(transaction.books.releases[request.release], resumed=False)

    def spend(
        self, release: str, by: str, journal: str, data: str, fingerprint: str = ""
    ) -> records.Release:
        """Record that the data is about to be opened: from here on the charge is final.

        ``journal`` is the id of the run's journal, ``data`` a keyed digest of the data,
        ``fingerprint`` one that is encrypted. A release that is already spent is resumed with the
        same journal and data only, so that answers that were lost are never drawn again for free.
        Errors: ``JournalMismatch`` for others; ``InputError`` if its state does not allow it.
        """
        evidence = {"data": data, "journal": journal}
        sealed = {"fingerprint": fingerprint} if fingerprint else {}
        for name, text in (evidence | sealed).items():
            records.identifier(name, text)
        signature = {"by": records.require_text("by", by), "reason": ""}
        with self.writing() as transaction:
            current = checks.find_release(transaction.books, release)
            if current.state is records.State.SPENT:
                checks.require_same_evidence(current, evidence)
                return current
            return transaction.move(
                current, records.State.SPENT, signature | {"evidence": evidence | sealed}
            )

    def begin_run(
        self, release: str, by: str, journal: records.JournalState, owner: leases.Owner
    ) -> leases.Lease:
        """Register where a run of a spent release begins, and lease the release to it.

        ``journal`` must hold all that the ledger knows of the release's journal: where the last run
        began, the last answer that was used, the seal. A sealed journal begins no run: its answers
        are read again.

        Raises:
            JournalMismatch: it does not; it is an older copy.
            StorageError: another process runs the release.
            InputError: the release is not spent.
        """
        began = time.monotonic()
        with self.writing() as transaction:
            current = checks.find_release(transaction.books, release)
            lease = leases.held_lease(self.store, transaction.connection, release)
            if lease.live and lease.left > leases.LEASE_SECONDS:
                leases.shorten(self.store, transaction.connection, release)
            if not lease.live:
                checks.require_whole_journal(current, lease, journal)
                if not journal.sealed:
                    transaction.write(RUN, marked(release, by, journal.mark))
                leases.take(self.store, transaction.connection, release, owner)
        if lease.live:
            raise StorageError(
                f"Release {release} is being run by {lease.owner}: wait for it or end it."
            )
        return leases.Lease(self.store, release, owner, began)

    def is_running(self, release: str) -> bool:
        """Whether a process holds the lease of a release, and may still be running."""
        with self.store.reading() as connection:
            return leases.held_lease(self.store, connection, release).live

    def seal(self, release: str, by: str, mark: records.Mark) -> records.Release:
        """Record where the journal of a release ends: nothing is drawn after.

        Recording it again changes nothing.

        Raises:
            JournalMismatch: it was sealed elsewhere.
        """
        with self.writing() as transaction:
            current = checks.find_release(transaction.books, release)
            if current.seal is None:
                transaction.write(SEALED, marked(release, by, mark))
            elif current.seal != mark:
                raise checks.stale_journal(release)
            return transaction.books.releases[release]

    def deliver(self, release: str, by: str) -> records.Release:
        """Record that a finished release was reported: the same request is then a new release."""
        with self.writing() as transaction:
            current = checks.find_release(transaction.books, release)
            if not current.delivered:
                body = {"release": release, "by": records.require_text("by", by)}
                transaction.write(DELIVERED, body)
            return transaction.books.releases[release]

    def sign(self, release: str, by: str, signature: str) -> records.Release:
        """Record the digest of a signature, which shows that it is older than later entries."""
        with self.writing() as transaction:
            signer = {"release": release, "by": records.require_text("by", by)}
            checks.find_release(transaction.books, release)
            transaction.write(SIGNED, signer | {"signature": signature})
            return transaction.books.releases[release]

    def advance(
        self,
        release: str,
        to: records.State,
        by: str,
        reason: str,
        evidence: Mapping[str, str] | None = None,
    ) -> records.Release:
        """Move a release to another state.

        ``evidence`` are digests of its documents (certificate, manifest).

        Errors: ``InputError`` if there is no such release, or its state does not allow the move.
        """
        signature = records.signed(by, reason)
        if to is records.State.SPENT:
            raise InputError("A release is spent by its run, with a journal: start the run again.")
        with self.writing() as transaction:
            current = checks.find_release(transaction.books, release)
            moved = transaction.move(current, to, signature | {"evidence": dict(evidence or {})})
            if to is records.State.WITHDRAWN:
                leases.end(transaction.connection, release)
            return moved

    def budget(self, dataset: str, unit: str, blocks: Sequence[str] = ()) -> BudgetStatus:
        """The budget of a dataset and privacy unit, now; of blocks of growing data the tightest.

        Errors: ``BudgetExceeded`` if none was granted.
        """
        books, now = self._books()
        return Budgets(books, dataset, unit, now, self.compose).tightest(blocks)

    def budgets(self) -> list[BudgetStatus]:
        """All budgets, now; of growing data those of the blocks that were read."""
        books, now = self._books()
        return [
            status
            for owner in books.grants
            for status in Budgets(books, *owner, now, self.compose).statuses()
        ]

    def books(self) -> LedgerState:
        """All that the entries say."""
        return self._books()[0]

    def release(self, release: str) -> records.Release:
        """One release.

        Errors: ``InputError`` if there is none of this name.
        """
        return checks.find_release(self._books()[0], release)

    def releases(self, dataset: str | None = None) -> list[records.Release]:
        """All releases, or those of one dataset, oldest first."""
        releases = self._books()[0].releases.values()
        return [release for release in releases if dataset in (None, release.request.dataset)]

    def entries(self) -> list[Entry]:
        """All entries, oldest first.

        Errors: ``VerificationError`` if the chain is broken.
        """
        with self.store.reading() as connection:
            return checks.require_sound(self.store.rows(connection))

    def anchor(self) -> Anchor | None:
        """The last entry, for a certificate to vouch for; None while the ledger is empty."""
        last = self._state().last
        return last.anchor if last else None

    def export(self, path: Path | str) -> Anchor | None:
        """Write all entries to a file, one a line, for ``verify_export``; the last one's anchor.

        Errors: ``StorageError`` if the file cannot be written, or something other than an earlier
            export is there.
        """
        entries = self.entries()
        write_export(Path(path), "".join(entry.line + "\n" for entry in entries).encode("ascii"))
        return entries[-1].anchor if entries else None

    def verify(self, anchors: Iterable[Anchor] = ()) -> list[Finding]:
        """Everything that is wrong with the ledger: guards, rows, chain, moves, budgets.

        Nothing, if it is sound.
        """
        with self.store.reading() as connection:
            rows = self.store.rows(connection)
        damages = [Finding(0, damage) for damage in self.store.damages()]
        entries, broken = read_chain(checks.entry_lines(rows))
        copies = [] if broken else checks.check_copies(rows, entries)
        findings = damages + copies + checks.verify_read(entries, broken, anchors, self.compose)
        checked = self.checkpoints if not findings else None
        return findings + (checkpoint_findings(checked, entries) if checked else [])

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that adds entries: all of them, or none where it ends by an error."""
        with self.store.writing() as connection:
            state = LedgerSnapshot.read(self.store, connection, self.checkpoints)
            checks.require_guarded(self.store.changed_guards(connection))
            time = self._time(state.last)
            transaction = Transaction(self.store, connection, state.last, state.books, time)
            self.before(transaction)
            transaction.signer = self.signer()
            yield transaction
        last, signer = transaction.last, transaction.signer
        if last and last is not state.last:
            self.written(last.anchor)
            if self.checkpoints and signer and last.seq >= state.since + INTERVAL:
                self.checkpoints.write(last.anchor, transaction.books, signer)

    def _state(self) -> LedgerSnapshot:
        with self.store.reading() as connection:
            return LedgerSnapshot.read(self.store, connection, self.checkpoints)

    def _books(self) -> tuple[LedgerState, str]:
        state = self._state()
        return state.books, self._time(state.last)

    def _time(self, last: Entry | None) -> str:
        now = self.clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return max(now, last.time) if last else now
