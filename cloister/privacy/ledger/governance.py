"""What officers set: people and their roles, rules of accounts, trusted keys; and confirmations.

Each is one transaction.
"""

from __future__ import annotations

from cloister.privacy.ledger.entries import Entry
from cloister.privacy.ledger.house import PERSON, RULES, Person, Proposal, Rules, trust_slot
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.ledger.records import require_text
from cloister.privacy.ledger.signatures import TRUSTED
from cloister.privacy.signing import PublicKey


def set_person(ledger: Ledger, person: Person, by: str, reason: str) -> Proposal | None:
    """Set who a person is and may do, in place of what was set before.

    The proposal, where the rules ask for a second officer. Errors: ``NotPermitted`` if no officer
    would be left.
    """
    with ledger.writing() as transaction:
        return transaction.govern(PERSON, person.body | _signature(by, reason))


def set_rules(ledger: Ledger, account: str, rules: Rules, by: str, reason: str) -> Proposal | None:
    """Set the rules of an account, or of every account that has none of its own.

    The proposal, where the rules ask for a second officer.
    """
    with ledger.writing() as transaction:
        body = {"account": require_text("account", account)} | rules.body
        return transaction.govern(RULES, body | _signature(by, reason))


def confirm(ledger: Ledger, proposal: int, by: str, reason: str) -> Entry:
    """Confirm what another officer proposed, by the number of its entry.

    Errors: ``InputError`` if there is no such proposal; ``NotPermitted`` for who proposed it.
    """
    with ledger.writing() as transaction:
        return transaction.confirm(proposal, _signature(by, reason))


def trust(ledger: Ledger, key: PublicKey, by: str, reason: str) -> None:
    """Trust the key of another home of the house; doing it again changes nothing."""
    with ledger.writing() as transaction:
        if key not in transaction.books.house.trusted:
            body = {"key": key.raw.hex()} | _signature(by, reason)
            transaction.write(TRUSTED, trust_slot(key), body)


def _signature(by: str, reason: str) -> dict[str, str]:
    return {"by": require_text("by", by), "reason": require_text("reason", reason)}
