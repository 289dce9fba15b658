"""Whose signatures count: the house's key and the keys of roles, as a signed statement.

A house signs who may sign: roles with their keys and thresholds. Each change is a new statement,
one version on, signed by the house; a change of the house's key is signed by the old and the new.
A reader starts from a public key that the house gave by another way, never from what lies beside
the files, since whoever forges those forges it too.

Source of roles, thresholds and versions: The Update Framework (theupdateframework.io).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter

from cloister.errors import InputError, StorageError, VerificationError
from cloister.privacy.signing.envelope import (
    Envelope,
    read_statement,
    sign,
    signature_digests,
    signers,
)
from cloister.privacy.signing.keys import PublicKey, Signer
from cloister.privacy.signing.statement import make_statement, reaching

TRUST_TYPE = "urn:cloister:trust"
"""The type of what a trust statement says."""

HOUSE = "house"
"""The role of the house's own key, which signs candidates unattended and never approves."""

ROLES = ("engineer", "officer", "reviewer", "auditor")
"""The roles of people."""

_MOST_KEYS = 100
"""Keys of a role at most: each is tried with each signature."""

_Key = Annotated[
    PublicKey, PlainValidator(PublicKey.from_hex), PlainSerializer(lambda key: key.hex)
]
_Count = Annotated[int, Field(ge=1)]
_Text = Annotated[str, Field(min_length=1)]
"""How a trust statement holds keys, in hexadecimal, and what numbers and texts it may hold."""


@dataclass(frozen=True)
class Role:
    """Some people, each with one key or more over time, of whom a threshold must sign.

    Errors: ``InputError`` for a threshold that cannot be met, and for a key twice.
    """

    name: str
    people: tuple[tuple[_Key, ...], ...]
    threshold: _Count = 1

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= len(self.people) or len(self.keys) > _MOST_KEYS:
            raise InputError(
                f"The role '{self.name}' has {len(self.people)} people, of whom {self.threshold} "
                f"must sign: give it 1 to {_MOST_KEYS} keys and a threshold from 1 to their number."
            )
        if len(set(self.keys)) < len(self.keys):
            raise InputError(f"The role '{self.name}' has a key twice: name each once.")

    @property
    def keys(self) -> tuple[PublicKey, ...]:
        """All their keys."""
        return tuple(key for keys in self.people for key in keys)

    def signers(self, keys: Collection[str]) -> int:
        """How many of the people have one of some keys, given by their ids."""
        return sum(any(key.id in keys for key in person_keys) for person_keys in self.people)


@dataclass(frozen=True)
class Revocation:
    """A key whose signatures count only if the ledger held them before this entry."""

    key: _Text
    seq: _Count
    hash: _Text


@dataclass(frozen=True)
class Trust:
    """Whose signatures count, at one version.

    ``former`` are the house's keys before this one: what they signed stays signed unless they are
    revoked. The house's keys have no role of people. Errors: ``InputError`` for a contradiction.
    """

    house: _Key
    roles: tuple[Role, ...] = ()
    former: tuple[_Key, ...] = ()
    revoked: tuple[Revocation, ...] = ()
    version: _Count = 1

    def __post_init__(self) -> None:
        names = [role.name for role in self.roles]
        if len(set(names)) < len(names) or not set(names) <= set(ROLES):
            raise InputError(
                f"Roles are {', '.join(ROLES)}, each once: correct {', '.join(names)}."
            )
        houses = self.role(HOUSE).keys
        if any(key in houses for role in self.roles for key in role.keys):
            raise InputError("The house's key has a role of people: give the person another key.")
        if any(revocation.key == self.house.id for revocation in self.revoked):
            raise InputError("The house's key is revoked: change it for another first.")

    def role(self, name: str) -> Role:
        """The role of this name; the house's needs one of its keys.

        Errors: ``InputError`` if nobody has it.
        """
        if name == HOUSE:
            return Role(HOUSE, ((self.house, *self.former),))
        for role in self.roles:
            if role.name == name:
                return role
        raise InputError(f"Nobody has the role '{name}': give it keys in the trust statement.")

    def with_role(self, role: Role) -> Self:
        """The next version, with this role instead of the one of its name."""
        roles = (role_before for role_before in self.roles if role_before.name != role.name)
        return replace(self, roles=(*roles, role), version=self.version + 1)

    def with_house(self, key: PublicKey) -> Self:
        """The next version, with another key of the house: both must sign it."""
        former = (*self.former, self.house)
        return replace(self, house=key, former=former, version=self.version + 1)

    def revoked_since(self, key: str) -> Revocation | None:
        """The earliest revocation of a key, by its id."""
        of_key = [revocation for revocation in self.revoked if revocation.key == key]
        return min(of_key, key=lambda revocation: revocation.seq, default=None)


@dataclass(frozen=True)
class Record:
    """What a ledger shows of signatures, by numbers of its entries.

    ``signatures`` maps digests (`signature_digests`) to the first entry that holds them,
    ``revoked`` ids of keys to the entry that revoked them. It is of a ledger that was verified.
    """

    signatures: Mapping[str, int]
    revoked: Mapping[str, int]


@dataclass(frozen=True)
class Standing:
    """Whose signatures of a role count on an envelope, by ids of keys, and how many are missing.

    Those of two kinds of keys do not count: ``undated`` are revoked, and nothing shows that they
    signed before; ``unrecorded`` are signatures that the reader's ledger does not hold. Of those
    that count, ``former`` are keys that the house has changed for others, where no ledger can show
    whether they were revoked.
    """

    role: str
    signed: frozenset[str]
    undated: frozenset[str]
    unrecorded: frozenset[str]
    former: frozenset[str]
    missing: int

    @property
    def complete(self) -> bool:
        """Whether the threshold of the role is met."""
        return not self.missing

    @property
    def current(self) -> frozenset[str]:
        """The keys whose signatures count whatever a ledger would show."""
        return self.signed - self.former

    def __str__(self) -> str:
        clauses = [f"signed by {len(self.signed)} of the role '{self.role}'"]
        if self.undated:
            clauses.append(f"{len(self.undated)} revoked since, and not shown to be older")
        if self.unrecorded:
            clauses.append(f"{len(self.unrecorded)} not in the ledger")
        if self.missing:
            clauses.append(
                f"missing: {'one' if self.missing == 1 else self.missing} more {self.role}"
            )
        return "; ".join(clauses)


def sign_trust(trust: Trust, *by: Signer) -> Envelope:
    """The trust statement, signed: by the house's key, and by the key before it if it is new.

    Raises:
        InputError: there is no signer.
        StorageError: a signer cannot sign.
    """
    return sign(make_statement({HOUSE: trust.house.id}, TRUST_TYPE, _written(trust)), *by)


def follow_trust(envelopes: Sequence[Envelope], *keys: PublicKey) -> list[Trust]:
    """Each version of a house's trust statement that one of some public keys of it vouches for.

    That is the first version of a key and all that follow, and those before it which its house's
    former keys signed. The last is the newest that is there: that there is none newer is for the
    reader to know. What was signed under an older version is judged by its roles and by the newest
    revocations.

    Raises:
        VerificationError: no version is of a key, or one does not follow from the one before.
    """
    first = next(
        (
            number
            for number, envelope in enumerate(envelopes)
            if any(_is_of(envelope, key) for key in keys)
        ),
        None,
    )
    if first is None:
        named = " or ".join(key.id for key in keys)
        raise VerificationError(
            f"No trust statement is of the key {named}; ask the house for its public key, by "
            "another way than these files"
        )
    trusts = [_read(envelopes[first])]
    for envelope in envelopes[first + 1 :]:
        trusts.append(_next(envelope, trusts[-1]))
    for envelope in reversed(envelopes[:first]):
        before = _read(envelope)
        if not _precedes(envelope, before, trusts[0]):
            break
        trusts.insert(0, before)
    return trusts


def read_trust(path: Path) -> list[Envelope]:
    """The trust statements of a file.

    Raises:
        StorageError: it cannot be read.
        VerificationError: it holds something else.
    """
    with reaching(path, remedy="restore it from a backup"):
        lines = path.read_bytes().splitlines()
    return [Envelope.parse(line, str(path)) for line in lines]


def house_by(path: Path, key: PublicKey) -> Trust:
    """The newest trust statement of a file that a public key vouches for; else the key alone."""
    trusts = followed_trust(path, key)
    return trusts[-1] if trusts else Trust(key)


def followed_trust(path: Path, *keys: PublicKey) -> list[Trust]:
    """The trust statements of a file that one of some keys of a house vouches for.

    None if the file is missing, or no such key vouches for what it holds.
    """
    with suppress(StorageError, VerificationError):
        return follow_trust(read_trust(path), *keys)
    return []


def standing(envelope: Envelope, trust: Trust, role: str, record: Record | None = None) -> Standing:
    """Return whose signatures of a role count on an envelope, and how many are missing.

    The one answer to "who signed this?": of people, of the house, of what they signed before their
    keys were changed or revoked. With the ``record`` of a ledger a signature counts only if the
    ledger holds it, and did so before an entry that revoked its key. Without one, revocations are
    those of the trust statement, after which nothing by the key counts.

    Errors: ``InputError`` if nobody has the role.
    """
    wanted = trust.role(role)
    digests_by_key = signature_digests(envelope, wanted.keys)
    undated, unrecorded = set(), set()
    for key, digests in digests_by_key.items():
        known = record.signatures if record else {}
        recorded = min((known[digest] for digest in digests if digest in known), default=None)
        revoked = _revoked_at(key, trust, record)
        if revoked is not None and (recorded is None or recorded >= revoked):
            undated.add(key)
        elif record and recorded is None:
            unrecorded.add(key)
    signed = frozenset(digests_by_key.keys() - undated - unrecorded)
    former = signed & {key.id for key in trust.former} if record is None else frozenset[str]()
    missing = max(0, wanted.threshold - wanted.signers(signed))
    return Standing(role, signed, frozenset(undated), frozenset(unrecorded), former, missing)


def _revoked_at(key: str, trust: Trust, record: Record | None) -> int | None:
    """The first entry known to have revoked a key."""
    stated = trust.revoked_since(key)
    known = [stated.seq] if stated else []
    known += [record.revoked[key]] if record and key in record.revoked else []
    return min(known, default=None)


def _is_of(envelope: Envelope, key: PublicKey) -> bool:
    """Whether a key signed a trust statement in which it is the house's."""
    return bool(signers(envelope, [key])) and _read(envelope).house == key


def _next(envelope: Envelope, before: Trust) -> Trust:
    """The version after another; its text is believed once the house's key before it signed."""
    _require_signed(envelope, before.house, before)
    after = _read(envelope)
    _require_signed(envelope, after.house, before)
    _require_follows(before, after)
    return after


def _precedes(envelope: Envelope, trust: Trust, after: Trust) -> bool:
    """Whether a version is the one before another, by the key that was then the house's."""
    if not signers(envelope, [trust.house]):
        return False
    try:
        _require_follows(trust, after)
    except VerificationError:
        return False
    return True


def _require_signed(envelope: Envelope, key: PublicKey, before: Trust) -> None:
    if not signers(envelope, [key]):
        raise VerificationError(
            f"The trust statement after version {before.version} is not signed by the house's key "
            f"{key.id}; get it again from the house"
        )


def _require_follows(before: Trust, after: Trust) -> None:
    """A version must be the next, and forget neither a key of the house nor a revocation."""
    former = before.former if before.house == after.house else (*before.former, before.house)
    if after.version != before.version + 1:
        problem = f"does not follow version {before.version}"
    elif after.former != former:
        problem = "does not name the house's former keys"
    elif after.revoked[: len(before.revoked)] != before.revoked:
        problem = "takes a revocation back"
    else:
        return
    raise VerificationError(
        f"Version {after.version} of the trust statement {problem}; get all versions again from "
        "the house"
    )


_FORM = TypeAdapter(Trust)


def _written(trust: Trust) -> dict[str, Any]:
    content: dict[str, Any] = _FORM.dump_python(trust, mode="json")
    return content


def _read(envelope: Envelope) -> Trust:
    """The trust that a statement says, which must be written as `sign_trust` writes it."""
    statement = read_statement(envelope, "The trust statement")
    content = statement.facts(TRUST_TYPE)
    try:
        trust = _FORM.validate_json(json.dumps(content), strict=True)
    except InputError as error:
        raise VerificationError(f"The trust statement contradicts itself. {error}") from None
    except (TypeError, ValueError):
        raise _not_ours() from None
    same = json.dumps(_written(trust), sort_keys=True) == json.dumps(content, sort_keys=True)
    if not same or statement.subjects != {HOUSE: trust.house.id}:
        raise _not_ours()
    return trust


def _not_ours() -> VerificationError:
    return VerificationError(
        "The trust statement is not as Cloister writes it; get it again from the house"
    )
