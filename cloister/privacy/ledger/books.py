"""The state of a ledger: budgets and releases, computed from the entries alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from cloister.errors import InputError, VerificationError
from cloister.privacy.ledger import records
from cloister.privacy.ledger.accounts import Account, BudgetGrant, Granted, Period, ReadingMove
from cloister.privacy.ledger.composition import CHARGED, Key, Sum, Sums
from cloister.privacy.ledger.entries import REVOKED, TRUSTED, Entry
from cloister.privacy.ledger.house import (
    APPROVAL,
    CONFIRMED,
    DELETED,
    MATCHED,
    PERSON,
    PROPOSED,
    RULES,
    SIGNATURE,
    Deletion,
    House,
)
from cloister.privacy.ledger.records import Release, State
from cloister.privacy.signing import PublicKey, Record

OPENED, PLACED, GRANTED = "account_opened", "places_added", "budget_granted"
READ, REREAD = "reading_pinned", "reading_moved"
"""Kinds of entries on accounts: one was opened, has more places, or has another budget; how its
sources are read was recorded, or an officer moved it to another reading."""

RUN, SEALED, DELIVERED, SIGNED = "run_begun", "journal_sealed", "delivered", "signed"
"""Kinds of entries on releases: a run begins at a place in its journal; the journal ends; the
release was reported to its requester; its state was signed."""

REFUSAL = "refusal"
"""What an entry holds by which refused data gives a reservation back, or forfeits it: which refusal
of its window it is. Those of earlier versions do not."""

ALLOWED = "run_allowed"
"""The kind of an entry by which an officer allows runs after a reservation was forfeited."""

DECLINED = "declined"
"""The kind of an entry on a request that its budget does not hold; nothing was reserved."""

CONSENTED, LOOKED = "consented", "looked"
"""Kinds of entries on a candidate: one of several approves it; somebody attacks it by its data.
Every other kind is a ``State``, or on the house."""

_SLOTS: Mapping[str, str] = {
    OPENED: "account/{account}",
    PLACED: "places/{seq}",
    GRANTED: "grant/{seq}",
    **dict.fromkeys((READ, REREAD), "reading/{seq}"),
    **dict.fromkeys((PERSON, RULES, PROPOSED, ALLOWED), "{kind}/{seq}"),
    TRUSTED: "trust/{key}",
    REVOKED: "revoke/{key}",
    DECLINED: "declined/{seq}",
    State.RESERVED: "spend/{spend_id}/{number}",
    RUN: "run/{release}/{number}",
    CONSENTED: "consent/{release}/{number}",
    LOOKED: "look/{release}/{number}",
    DELETED: "deletion/{release}/{number}",
    SEALED: "seal/{release}",
    DELIVERED: "delivery/{release}",
    SIGNED: "signature/{seq}",
}
"""Slots by kind of entry: what may happen again has the number of its entry, or of those before it;
what happens once has neither. Every other kind is a state, which a release enters once."""

_TEXTS: Mapping[str, tuple[str, ...]] = {
    GRANTED: (),
    DECLINED: ("dataset", "unit", "method", "epsilon", "delta", "by"),
    **dict.fromkeys((RULES, ALLOWED), ("account", "by", "reason")),
    **dict.fromkeys((REREAD, CONSENTED, LOOKED, DELETED), ("by", "reason")),
    **dict.fromkeys((PERSON, PROPOSED, TRUSTED, REVOKED), ("by", "reason")),
}
"""Texts that an entry must hold, by its kind; one of any other kind says by whom it is."""

_STATES: Mapping[str, Iterable[State]] = {
    **dict.fromkeys((RUN, SEALED), (State.SPENT,)),
    **dict.fromkeys((CONSENTED, LOOKED), (State.CANDIDATE,)),
    DELIVERED: {*State} - {State.RESERVED, State.SPENT, State.REFUNDED, State.FORFEITED},
}
"""States of a release in which an entry of a kind may be written; any, of every other kind."""

_COUNTED = {RUN: "runs", CONSENTED: "consents", LOOKED: "looks", DELETED: "deletions"}
"""What a release holds of the earlier entries of a kind, which number the next."""


@dataclass
class LedgerState:
    """Accounts by name, grants by dataset and unit, releases by id, in the order of the entries.

    And the house: its people, rules and trusted keys; running sums of what is charged; the releases
    of each ``spend_id`` and of each dataset; those of a dataset that were forfeited, and the last
    entry by which an officer allowed runs after one was.

    Ledgers of versions before 0.3 have datasets without accounts, with a budget for each unit.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    grants: dict[tuple[str, str], list[Granted]] = field(default_factory=dict)
    releases: MutableMapping[str, Release] = field(default_factory=dict)
    house: House = field(default_factory=House)
    counted_refusals: bool = False
    matched: bool = False
    sums: Sums = field(default_factory=Sums)
    runs: dict[str, list[str]] = field(default_factory=dict)
    reservations: dict[str, list[str]] = field(default_factory=dict)
    forfeits: dict[str, list[str]] = field(default_factory=dict)
    allowed: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """The books after ``entries``.

        Errors: ``VerificationError`` naming an entry that no ledger could have written.
        """
        return cls().after(entries)

    def after(self, entries: Iterable[Entry]) -> Self:
        """These books after further entries.

        Errors: ``VerificationError`` naming an entry that no ledger could have written.
        """
        for entry in entries:
            try:
                self.post(entry)
            except VerificationError as error:
                raise VerificationError(
                    f"Entry {entry.seq} of the ledger {error}: run cloister verify."
                ) from error
        return self

    def post(self, entry: Entry) -> None:
        """Post one entry.

        Errors: ``VerificationError`` if no ledger could have written it here.
        """
        try:
            self._post(entry)
        except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
            raise VerificationError("holds what no ledger writes at this place") from error

    def record(self, release: Release) -> Record:
        """What the ledger shows of the signatures on a release, and of revoked keys."""
        return Record(release.signatures, self.house.revocations)

    def account_at(self, location: str) -> Account | None:
        """The account to which a location is registered."""
        return next(
            (account for account in self.accounts.values() if account.holds(location)), None
        )

    def reserved(self, dataset: str, unit: str, block: str | None = None) -> list[Release]:
        """The releases reserved against a budget, oldest first: of an account, or of a block."""
        return [
            release
            for release in map(self.releases.__getitem__, self.reservations.get(dataset, []))
            if (dataset in self.accounts or release.request.unit == unit)
            and release.request.reads(block)
        ]

    def blocks(self, dataset: str) -> list[str]:
        """The blocks of an account that releases have read, in order."""
        parts = self.sums.parts.get((dataset, Period.EVER), {})
        return sorted({key.block for key in parts if key.block and key.standing in CHARGED})

    def charged(self, dataset: str, unit: str) -> list[Release]:
        """Those that count against a budget."""
        return [release for release in self.reserved(dataset, unit) if release.state.charged]

    def forfeited(self, dataset: str, unit: str) -> Release | None:
        """The last release that was forfeited and after which no officer allowed another run."""
        since = self.allowed.get(dataset, 0)
        forfeited = [self.releases[release] for release in reversed(self.forfeits.get(dataset, []))]
        return next(
            (
                release
                for release in forfeited
                if release.steps[-1].seq > since
                and (dataset in self.accounts or release.request.unit == unit)
            ),
            None,
        )

    def sums_of(
        self, dataset: str, unit: str, window: str, block: str | None = None
    ) -> Iterator[tuple[Key, Sum]]:
        """What the releases of ``reserved`` hold in a window, by what they are."""
        blocks = (None,) if block is None else ("", block)
        for key, part in self.sums.parts.get((dataset, window), {}).items():
            if (dataset in self.accounts or key.unit == unit) and key.block in blocks:
                yield key, part

    def pending(self, spend_id: str) -> Release | None:
        """The release that a run with ``spend_id`` resumes."""
        last = self.runs.get(spend_id, [None])[-1]
        release = self.releases[last] if last else None
        return release if release and release.pending else None

    def slot(self, kind: str, body: Mapping[str, Any], seq: int) -> str:
        """The slot of an entry, if it is the next: no two of one slot can be written."""
        names = {**body, "kind": kind, "seq": seq}
        if kind in (TRUSTED, REVOKED):
            names["key"] = PublicKey.from_hex(body["key"]).id
        if kind == State.RESERVED:
            names["number"] = len(self.runs.get(body["spend_id"], []))
        if kind in _COUNTED:
            names["number"] = len(getattr(self.releases[body["release"]], _COUNTED[kind]))
        return _SLOTS.get(kind, "move/{release}/{kind}").format_map(names)

    def _post(self, entry: Entry) -> None:
        if entry.slot != self.slot(entry.kind, entry.body, entry.seq):
            raise ValueError("another slot")
        for name in _TEXTS.get(entry.kind, ("by",)):
            records.require_text(name, entry.body[name])
        kinds = {
            OPENED: self._open,
            PLACED: self._add_places,
            READ: self._read,
            REREAD: self._reread,
            GRANTED: self._grant,
            State.RESERVED.value: self._reserve,
            ALLOWED: self._allow,
            DECLINED: lambda _: None,
            PERSON: self.house.set_person,
            RULES: self.house.set_rules,
            PROPOSED: self.house.propose,
            TRUSTED: self.house.trust,
            REVOKED: self.house.revoke,
        }
        kinds.get(entry.kind, self._change)(entry)
        self.matched |= MATCHED in entry.body
        if CONFIRMED in entry.body:  # it takes the place of its proposal
            del self.house.proposals[entry.body[CONFIRMED]["proposal"]]

    def _open(self, entry: Entry) -> None:
        account = Account.from_body(entry.body)
        self._require_free(account.name, account.places)
        if account.name in self.accounts:
            raise ValueError("opened twice")
        self.accounts[account.name] = account

    def _add_places(self, entry: Entry) -> None:
        account, places = self.accounts[entry.body["account"]], tuple(entry.body["places"])
        self._require_free(account.name, places)
        self.accounts[account.name] = replace(account, places=(*account.places, *places))

    def _read(self, entry: Entry) -> None:
        account, reading = self.accounts[entry.body["account"]], entry.body["reading"]
        if account.contradictions(reading):
            raise ValueError("another reading")
        pinned = replace(account, reading={**account.reading, **reading})
        self.accounts[account.name] = pinned

    def _reread(self, entry: Entry) -> None:
        account, body = self.accounts[entry.body["account"]], entry.body
        moved = (*account.moves, ReadingMove(entry.time, body["by"], body["reason"]))
        reading = {**account.reading, **body["reading"]}
        self.accounts[account.name] = replace(account, reading=reading, moves=moved)

    def _require_free(self, name: str, places: Sequence[str]) -> None:
        owners = {account.name for location in places if (account := self.account_at(location))}
        if owners - {name}:
            raise ValueError("places of another account")

    def _grant(self, entry: Entry) -> None:
        body = entry.body
        budget = BudgetGrant.from_body(body)
        _require_of_account(self.accounts.get(budget.dataset), budget.unit)
        confirmed = body.get(CONFIRMED, {}).get("by", "")
        granted = Granted(budget, entry.seq, entry.time, body["by"], body["reason"], confirmed)
        self.grants.setdefault((budget.dataset, budget.unit), []).append(granted)

    def _reserve(self, entry: Entry) -> None:
        request = records.ReservationRequest.from_body(entry.body)
        account = self.accounts.get(request.dataset)
        _require_of_account(account, request.unit, request.relation)
        if not (account.divided_into(request.blocks) if account else not request.blocks):
            raise ValueError("other blocks than the account's")
        if request.release in self.releases or self.pending(request.spend_id):
            raise ValueError("reserved twice")
        rule = self.house.rules_of(request.dataset).admission
        release = Release(request, (self._step(entry),), admission=rule)
        self.releases[request.release] = release
        self.sums.move(None, release)
        self.runs.setdefault(request.spend_id, []).append(request.release)
        self.reservations.setdefault(request.dataset, []).append(request.release)

    def _allow(self, entry: Entry) -> None:
        self.allowed[entry.body["account"]] = entry.seq

    def _change(self, entry: Entry) -> None:
        """Post an entry on a release, in place of the release before it."""
        release = self.releases[entry.body["release"]]
        if release.state not in _STATES.get(entry.kind, State):
            raise ValueError("not in this state")
        changes = {
            RUN: _begun,
            SEALED: _sealed,
            DELIVERED: _delivered,
            SIGNED: _signed,
            CONSENTED: self._consented,
            LOOKED: self._looked,
            DELETED: _deleted,
        }
        changed = changes.get(entry.kind, self._moved)(release, entry)
        self.releases[release.id] = changed
        self.sums.move(release, changed)

    def _moved(self, release: Release, entry: Entry) -> Release:
        step, signatures = self._step(entry), _signatures(release, entry)
        if step.state not in release.state.next:
            raise ValueError("not allowed from this state")
        if step.state is State.FORFEITED:
            self.forfeits.setdefault(release.request.dataset, []).append(release.id)
        self.counted_refusals |= REFUSAL in entry.body
        return replace(release, steps=(*release.steps, step), signatures=signatures)

    def _consented(self, release: Release, entry: Entry) -> Release:
        consents = (*release.consents, self.house.consent_to(release, entry))
        return replace(release, consents=consents, signatures=_signatures(release, entry))

    def _looked(self, release: Release, entry: Entry) -> Release:
        page = str(entry.body.get("page", ""))
        return replace(release, looks=(*release.looks, records.Look(page, **self.house.act(entry))))

    def _step(self, entry: Entry) -> records.ReleaseStep:
        digests = entry.body["evidence"].items()
        evidence = {key: records.require_text(key, digest) for key, digest in digests}
        return records.ReleaseStep(State(entry.kind), evidence, **self.house.act(entry))


def _begun(release: Release, entry: Entry) -> Release:
    mark = _place(release, entry)
    records.identifier("nonce", mark.nonce)
    if release.seal:
        raise ValueError("no run begins here")
    return replace(release, runs=(*release.runs, mark))


def _sealed(release: Release, entry: Entry) -> Release:
    return replace(release, seal=_place(release, entry))


def _place(release: Release, entry: Entry) -> records.Mark:
    """The place in a journal that an entry records, not before the one where the last run began."""
    mark = records.Mark.from_body(entry.body)
    if release.runs and mark.position < release.runs[-1].position:
        raise ValueError("before the last run")
    return mark


def _delivered(release: Release, _: Entry) -> Release:
    return replace(release, delivered=True)


def _signed(release: Release, entry: Entry) -> Release:
    records.identifier("signature", entry.body["signature"])
    return replace(release, signatures=_signatures(release, entry))


def _deleted(release: Release, entry: Entry) -> Release:
    return replace(release, deletions=(*release.deletions, Deletion.of(entry)))


def _signatures(release: Release, entry: Entry) -> dict[str, int]:
    """Digests of the signatures on a release after an entry, each with its first entry."""
    evidence = entry.body.get("evidence", {})
    digests = (entry.body.get("signature"), evidence.get(SIGNATURE), evidence.get(APPROVAL))
    return {digest: entry.seq for digest in digests if digest} | dict(release.signatures)


def _require_of_account(account: Account | None, unit: str, relation: str | None = None) -> None:
    if account and (unit != account.unit or relation not in (None, account.relation)):
        raise ValueError("another unit or relation than the account's")
