"""People, tokens and rules of the house, as commands set them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cloister.errors import InputError
from cloister.privacy.ledger import Person, Proposal
from cloister.privacy.ledger.governance import set_person, set_rules
from cloister.privacy.ledger.house import EVERYWHERE, House
from cloister.privacy.ledger.tokens import new_token, token_identity
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger, open_ledger


def house_of(home: Home) -> House:
    """People, rules and open proposals; none where there is no ledger."""
    ledger = existing_ledger(home)
    return ledger.house() if ledger else House()


def set_roles(
    home: Home, name: str, roles: tuple[str, ...], identities: tuple[str, ...], by: str, reason: str
) -> Proposal | None:
    """Set a person's roles, and add identities; a proposal, where a second officer confirms it.

    Raises:
        InputError: there is no such role, or an identity is of another person.
        NotPermitted: ``by`` may not, or no officer would be left.
    """
    known = house_of(home).people.get(name, Person(name))
    added = tuple(dict.fromkeys((*known.identities, *identities)))
    return set_person(open_ledger(home), replace(known, roles=roles, identities=added), by, reason)


def withdraw(home: Home, name: str, by: str, reason: str) -> Proposal | None:
    """Take roles and identities from a person.

    Raises:
        InputError: there is no such person.
        NotPermitted: ``by`` may not, or no officer would be left.
    """
    person = replace(_known(home, name), roles=(), identities=())
    return set_person(open_ledger(home), person, by, reason)


def issue_token(
    home: Home, name: str, days: int, by: str, reason: str
) -> tuple[str, Proposal | None]:
    """A new token of a person, valid for some days; the ledger holds its digest alone.

    Raises:
        InputError: there is no such person.
        NotPermitted: ``by`` may not.
    """
    person = _known(home, name)
    token = new_token(name, (datetime.now(UTC) + timedelta(days=days)).date())
    identities = (*person.identities, token_identity(token))
    return token, set_person(open_ledger(home), replace(person, identities=identities), by, reason)


def change_rules_of(
    home: Home, account: str, changes: Mapping[str, Any], by: str, reason: str
) -> Proposal | None:
    """Change some rules of an account, or of all that have none of their own (``*``).

    Raises:
        InputError: there is no such account, or a rule has another form.
        NotPermitted: ``by`` may not.
    """
    ledger = open_ledger(home)
    if account != EVERYWHERE and account not in {each.name for each in ledger.accounts()}:
        raise InputError(f"there is no account '{account}'; see cloister dataset list")
    changed = dict(changes)
    if "approvals" in changed:
        changed["approvals"] = dict(map(_approvals, changed["approvals"]))
    rules = replace(ledger.house().rules_of(account), **changed)
    return set_rules(ledger, account, rules, by, reason)


def _approvals(text: str) -> tuple[str, int]:
    role, _, number = text.partition("=")
    if not number.isdecimal():
        raise InputError(f"'{text}' is no ROLE=NUMBER, as officer=2")
    return role, int(number)


def _known(home: Home, name: str) -> Person:
    people = house_of(home).people
    if name not in people:
        raise InputError(f"there is no person '{name}'; see cloister people list")
    return people[name]
