"""People, tokens and rules of the house, as commands set them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cloister.errors import InputError
from cloister.privacy.ledger import Person, Proposal
from cloister.privacy.ledger.checks import find_release
from cloister.privacy.ledger.governance import change_person, change_rules
from cloister.privacy.ledger.house import House
from cloister.privacy.ledger.permissions import missing_of
from cloister.privacy.ledger.tokens import new_token, token_identity
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger, open_ledger


def house_of(home: Home) -> House:
    """People, rules and open proposals; none where there is no ledger."""
    ledger = existing_ledger(home)
    return ledger.books().house if ledger else House()


def approvals_missing(home: Home, release: str) -> str:
    """Who has yet to approve a release, in words.

    Raises:
        InputError: there is none of this name.
    """
    books = open_ledger(home).books()
    return missing_of(books, find_release(books, release))


def set_roles(
    home: Home,
    name: str,
    roles: Sequence[str],
    identities: Sequence[str],
    by: str,
    reason: str,
) -> Proposal | None:
    """Set a person's roles, if any are given, and add identities; the proposal, if it is one.

    Raises:
        InputError: there is no such role, or an identity is of another person.
        NotPermitted: ``by`` may not, or no officer would be left.
    """

    def change(person: Person) -> Person:
        known = tuple(dict.fromkeys((*person.identities, *identities)))
        return replace(person, roles=tuple(roles) or person.roles, identities=known)

    return change_person(open_ledger(home), name, change, by, reason)


def withdraw(home: Home, name: str, by: str, reason: str) -> Proposal | None:
    """Take roles and identities from a person.

    Raises:
        InputError: there is no such person.
        NotPermitted: ``by`` may not, or no officer would be left.
    """

    def change(person: Person) -> Person:
        return replace(_known(person), roles=(), identities=())

    return change_person(open_ledger(home), name, change, by, reason)


def issue_token(
    home: Home, name: str, days: int, by: str, reason: str
) -> tuple[str, Proposal | None]:
    """A new token of a person, valid for some days; the ledger holds its digest alone.

    Raises:
        InputError: there is no such person.
        NotPermitted: ``by`` may not.
    """
    token = new_token(name, (datetime.now(UTC) + timedelta(days=days)).date())

    def change(person: Person) -> Person:
        identities = (*_known(person).identities, token_identity(token))
        return replace(person, identities=identities)

    return token, change_person(open_ledger(home), name, change, by, reason)


def set_rules(
    home: Home, account: str, changes: Mapping[str, Any], by: str, reason: str
) -> Proposal | None:
    """Change some rules of an account, or of all that have none of their own (``*``).

    Raises:
        InputError: there is no such account, or a rule has another form.
        NotPermitted: ``by`` may not, or there are too few people for the rules.
    """
    changed = dict(changes)
    if "approvals" in changed:
        changed["approvals"] = dict(map(_approvals, changed["approvals"]))
    return change_rules(
        open_ledger(home), account, lambda rules: replace(rules, **changed), by, reason
    )


def _approvals(text: str) -> tuple[str, int]:
    role, _, number = text.partition("=")
    if not number.isdecimal():
        raise InputError(f"'{text}' is no ROLE=NUMBER, as officer=2")
    return role, int(number)


def _known(person: Person) -> Person:
    if person == Person(person.name):
        raise InputError(f"there is no person '{person.name}'; see cloister people list")
    return person
