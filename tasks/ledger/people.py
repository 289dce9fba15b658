"""People, tokens, rules and keys of the house, as commands set them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloister.errors import InputError
from cloister.identities import new_token, token_identity
from cloister.privacy.certificate.manifest import TRUST_NAME
from cloister.privacy.ledger import Person, Proposal, Rules, permissions
from cloister.privacy.ledger.checks import find_release
from cloister.privacy.ledger.governance import change_person, change_rules, trust
from cloister.privacy.ledger.house import House
from cloister.privacy.signing import FileSigner, PublicKey, Trust
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.ledger.access import existing_ledger, open_ledger
from cloister.tasks.ledger.keys import NEXT_NAME, house_signer, newest_trust, update_trust


def house_of(home: Home) -> House:
    """People, rules and open proposals; none where there is no ledger."""
    ledger = existing_ledger(home)
    return ledger.books().house if ledger else House()


def looking_problem(home: Home, by: str) -> str | None:
    """Why somebody may not see attacks by the data, or its exact figures; None if they may."""
    return permissions.looking_problem(house_of(home), by, datetime.now(UTC).isoformat())


def approvals_missing(home: Home, release: str) -> str:
    """Who has yet to approve a release, in words.

    Raises:
        InputError: there is none of this name.
    """
    books = open_ledger(home).books()
    return permissions.missing_of(books, find_release(books, release))


def set_roles(
    home: Home,
    name: str,
    roles: Sequence[str],
    identities: Sequence[str],
    key: Path | None,
    by: str,
    reason: str,
) -> Proposal | None:
    """Set a person's roles, if any are given, and add identities and a key.

    The proposal, where the rules ask for a second officer.

    Raises:
        InputError: there is no such role, or an identity is of another person.
        NotPermitted: ``by`` may not, or no officer would be left.
    """
    added = [PublicKey.read(key).hex] if key else []

    def change(person: Person) -> Person:
        known = tuple(dict.fromkeys((*person.identities, *identities)))
        keys = tuple(dict.fromkeys((*person.keys, *added)))
        return replace(person, roles=tuple(roles) or person.roles, identities=known, keys=keys)

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
        return replace(person, identities=(*_known(person).identities, token_identity(token)))

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
        changed["approvals"] = _numbers(changed["approvals"], "ROLE=NUMBER, as officer=2")
    keep = _numbers(changed.pop("keep", ()), "KIND=DAYS, as journal=365")

    def change(rules: Rules) -> Rules:
        return replace(rules, **changed, keep={**rules.keep, **keep})

    return change_rules(open_ledger(home), account, change, by, reason)


def _numbers(texts: Sequence[str], form: str) -> dict[str, int]:
    """Whole numbers by name, from texts of the form NAME=NUMBER."""
    numbers = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not (number.isascii() and number.isdecimal()):
            raise InputError(f"'{text}' is no {form}")
        numbers[name] = int(number)
    return numbers


def _known(person: Person) -> Person:
    if person == Person(person.name):
        raise InputError(f"there is no person '{person.name}'; see cloister people list")
    return person


def rotate_house_key(home: Home, by: str, reason: str) -> PublicKey:
    """Change the house's key for another, which the old one vouches for; the new one.

    The new one vouches for the old one too: readers who have either half follow. A change that was
    killed is finished by the next.

    Raises:
        InputError: the key is not in the home's folder: its own tools change it.
        NotPermitted: ``by`` may not.
    """
    if home.house_key:
        raise InputError(
            "the house's key is not a file of the home: make another where it lies, and name it in "
            "CLOISTER_HOUSE_KEY after cloister keys trust"
        )
    folder = private_folder(home.folder / "signing")
    signer, following = FileSigner.open(folder / "house.pem"), FileSigner.open(folder / NEXT_NAME)
    ledger = open_ledger(home)
    trust(ledger, following.key, by, reason)
    trust(replace(ledger, signer=lambda: following), signer.key, by, reason)
    if (newest_trust(home) or Trust(signer.key)).house == signer.key:
        update_trust(home, ledger.books().house, signer, following)
    (folder / "house.pub").unlink(missing_ok=True)
    (folder / NEXT_NAME).replace(folder / "house.pem")
    home.checkpoint.unlink(missing_ok=True)
    house_signer(home)
    return following.key


def refresh_trust(home: Home) -> Path | None:
    """The file of the trust statements, with one on what the ledger says of keys now.

    None while there is none.

    Raises:
        StorageError: the statement cannot be signed or written.
    """
    path, ledger = home.folder / "signing" / TRUST_NAME, existing_ledger(home)
    if not path.exists() or ledger is None:
        return None
    if not home.read_only:
        update_trust(home, ledger.books().house, house_signer(home))
    return path
