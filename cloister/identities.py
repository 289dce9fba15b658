"""Identities: who acts, in words that say how it was shown; and tokens, which show a person.

The ledger holds what names a token and cannot be used in its place: the start of its SHA-256.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import date

from cloister.errors import InputError

BEHALF = " on behalf of "
"""What stands between the identity of who acts and whom they act for."""

_SECRET_BYTES = 32
"""Random bytes of a token: beyond any guessing."""

_DIGEST = 32
"""Hexadecimal digits of a token's digest that name it: 128 bits, which no other token has."""

_IDENTITY = re.compile(r"(.+) \(token [0-9a-f]{32} until (\d{4}-\d\d-\d\d)\)", re.DOTALL)


def identity_of(by: str) -> str:
    """The identity of who acts, without whom they act for."""
    return by.partition(BEHALF)[0]


def named(person: str, by: str) -> str:
    """Return who acts, for people to read: the person's name, else the identity of nobody known.

    A token's digest and end are left out: a token names the person that it was issued to.
    """
    identity, of, principal = by.partition(BEHALF)
    token = _IDENTITY.fullmatch(identity)
    return (person or (token[1] if token else identity)) + of + principal


def known_by(identity: str) -> str:
    """Return what a person is known by, for lists of people: a token by its last day alone."""
    end = token_end(identity)
    return f"token until {end}" if end else identity


def token_end(identity: str) -> str | None:
    """The last day on which a token is valid; None of an identity that is no token's."""
    token = _IDENTITY.fullmatch(identity)
    return token[2] if token else None


def new_token(name: str, until: date) -> str:
    """A token of a person, valid up to and with a day (UTC)."""
    return f"{name}:{until.isoformat()}:{secrets.token_urlsafe(_SECRET_BYTES)}"


def token_identity(token: str) -> str:
    """The identity that a token gives whoever holds it.

    Errors: ``InputError`` for a text that is no token.
    """
    name, until, secret = (*token.rsplit(":", 2), "", "")[:3]
    digest = hashlib.sha256(token.encode()).hexdigest()[:_DIGEST]
    identity = f"{name} (token {digest} until {until})"
    if not secret or not _IDENTITY.fullmatch(identity):
        raise InputError(
            "this is no token of Cloister: give it as cloister people token printed it."
        )
    return identity


def token_problem(identity: str, time: str, *, known: bool) -> str | None:
    """Why an identity cannot act at a time, if it is that of a token; None if it can."""
    token = _IDENTITY.fullmatch(identity)
    if token is None:
        return None
    if not known:
        return "nobody has this token: it was withdrawn, or is of another ledger"
    if time[:10] > token[2]:
        return f"this token was valid until {token[2]}: ask an officer for another"
    return None
