"""What officers set: people and their roles, rules of accounts, trusted keys; and confirmations.

And what is deleted by their rules, what becomes of refused data, and which requests were declined.
Each is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cloister.errors import InputError
from cloister.privacy.exact import ratio
from cloister.privacy.ledger import house, records
from cloister.privacy.ledger.books import ALLOWED, DECLINED, LOOKED, REFUSAL
from cloister.privacy.ledger.budgets import Budgets
from cloister.privacy.ledger.checks import export_lines, find_release, refusal_of
from cloister.privacy.ledger.entries import REVOKED, TRUSTED, Anchor, Entry, read_chain
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.signing import PublicKey


def change_person(
    ledger: Ledger, name: str, change: Callable[[house.Person], house.Person], by: str, reason: str
) -> house.Proposal | None:
    """Change who a person is and what they may do; one who is new begins with nothing.

    The proposal, where the rules ask for a second officer. Errors: ``NotPermitted`` if no officer
    would be left.
    """
    with ledger.writing() as transaction:
        person = change(transaction.books.house.people.get(name, house.Person(name)))
        return transaction.govern(house.PERSON, person.body | records.signed(by, reason))


def change_rules(
    ledger: Ledger, account: str, change: Callable[[house.Rules], house.Rules], by: str, reason: str
) -> house.Proposal | None:
    """Change the rules of an account, or of every account that has none of its own (``*``).

    The proposal, where the rules ask for a second officer. Errors: ``InputError`` if there is no
    such account; ``NotPermitted`` if there are too few people for them.
    """
    with ledger.writing() as transaction:
        books = transaction.books
        if account != house.EVERYWHERE and account not in books.accounts:
            raise InputError(f"there is no account '{account}'; see cloister dataset list")
        rules = change(books.house.rules_of(account))
        return transaction.govern(
            house.RULES, {"account": account} | rules.body | records.signed(by, reason)
        )


def confirm(ledger: Ledger, proposal: int, by: str, reason: str) -> Entry:
    """Confirm what another officer proposed, by the number of its entry.

    Errors: ``InputError`` if there is no such proposal; ``NotPermitted`` for who proposed it.
    """
    with ledger.writing() as transaction:
        return transaction.confirm(proposal, records.signed(by, reason))


def refuse(ledger: Ledger, release: str, by: str) -> records.Release:
    """Record that the data of a reserved release was refused: it is given back, or forfeited.

    A release in another state stays as it is.
    """
    with ledger.writing() as transaction:
        reserved = find_release(transaction.books, release)
        if reserved.state is not records.State.RESERVED:
            return reserved
        number, to = refusal_of(transaction.books, reserved, transaction.time)
        signature = {"by": by, "reason": records.REFUSED, "evidence": {}, REFUSAL: number}
        return transaction.move(reserved, to, signature)


def decline(ledger: Ledger, request: records.ReservationRequest, by: str, purpose: str) -> Entry:
    """Record that a request exceeds its budget, and what that has left; nothing was reserved.

    Errors: ``NotPermitted`` if ``by`` may not reserve at all.
    """
    subject = {name: getattr(request, name) for name in ("dataset", "unit", "method")}
    price = {"epsilon": ratio(request.epsilon), "delta": ratio(request.delta)}
    with ledger.writing() as transaction:
        owner = request.dataset, request.unit
        if owner in transaction.books.grants:
            budgets = Budgets(transaction.books, *owner, transaction.time, ledger.compose)
            price["left"] = ratio(budgets.tightest(request.blocks).left)
        body = subject | price | {"by": records.require_text("by", by), "reason": purpose}
        return transaction.write(DECLINED, body)


def allow_run(ledger: Ledger, account: str, by: str, reason: str) -> Entry:
    """Allow an account to reserve again, after a reservation was forfeited.

    Errors: ``InputError`` if none was, or runs were allowed since.
    """
    with ledger.writing() as transaction:
        books = transaction.books
        units = {release.request.unit for release in books.releases.values()}
        if not any(books.forfeited(account, unit) for unit in units):
            raise InputError(f"Nothing keeps account '{account}' from its next run.")
        return transaction.write(ALLOWED, {"account": account} | records.signed(by, reason))


def record_look(ledger: Ledger, release: str, by: str, reason: str, page: str = "") -> Entry:
    """Record that somebody is about to attack a candidate by its data; or the ``page`` of it.

    Errors: ``InputError`` if it is no candidate; ``NotPermitted`` if ``by`` may not decide on it.
    """
    with ledger.writing() as transaction:
        candidate = find_release(transaction.books, release)
        if candidate.state is not records.State.CANDIDATE:
            raise InputError(
                f"Release {release} is {candidate.state.words}: only a candidate is attacked by "
                "its data, before it is decided."
            )
        body = {"release": release} | records.signed(by, reason) | ({"page": page} if page else {})
        return transaction.write(LOOKED, body)


def trust(ledger: Ledger, key: PublicKey, by: str, reason: str) -> None:
    """Trust the key of another home of the house; doing it again changes nothing."""
    with ledger.writing() as transaction:
        if key not in transaction.books.house.trusted:
            body = {"key": key.hex} | records.signed(by, reason)
            transaction.write(TRUSTED, body)


def record_deletions(
    ledger: Ledger, deletions: Mapping[str, Mapping[str, Any]], by: str, reason: str
) -> None:
    """Record what is about to be deleted: by release, its ``kinds`` and what stays ``listed``.

    Errors: ``NotPermitted`` for what is needed, or stays for longer by the rules.
    """
    with ledger.writing() as transaction:
        for release, body in deletions.items():
            find_release(transaction.books, release)
            signed = {"release": release, **body, **records.signed(by, reason)}
            transaction.write(house.DELETED, signed)


def revoke(ledger: Ledger, key: PublicKey, by: str, reason: str) -> None:
    """Revoke a key: what it signed counts only if the ledger held it before; again changes nothing.

    Errors: ``InputError`` if the key signs this very entry.
    """
    with ledger.writing() as transaction:
        if transaction.signer and transaction.signer.key == key:
            raise InputError(
                "the house's own key signs this: change it first, with cloister keys rotate"
            )
        if key not in transaction.books.house.revoked:
            body = {"key": key.hex} | records.signed(by, reason)
            transaction.write(REVOKED, body)


def restore(address: str | Path, export: Path) -> Anchor:
    """Write the entries of a sound export into a new ledger; the anchor of the last.

    Errors: ``StorageError`` if there is a ledger with entries, or the export has none.
    """
    entries, _ = read_chain(export_lines(export))
    with Ledger.open(address).writing() as transaction:
        transaction.restore(entries)
        return entries[-1].anchor
