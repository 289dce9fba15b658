"""The house: who may act in which role, by which rules, whose keys it trusts, and what goes when.

A person is known by identities: a user of the system, a token, the claims of an identity provider.
A role lets a person write certain kinds of entries (`permissions`). Until a first person is set,
whoever reaches the ledger may write all of them.

Rules say how long each kind of what a home holds of a release stays. An entry that deletes some
names each place, relative to the home, with a keyed digest of what the home's list of the release
said of it: a copy that turns up later is recognised by who holds the key, and nobody without it can
test a guess of what was deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Self, TypeVar

from cloister.errors import InputError
from cloister.identities import identity_of, named, token_end
from cloister.privacy.ledger.entries import Anchor, Entry
from cloister.privacy.ledger.records import Act, Consent, Release, State, require_text
from cloister.privacy.signing import ROLES, PublicKey

DELETED = "deleted"
"""The kind of an entry that deletes some of what a home holds of a release."""

DAYS = {"source": 0, "measures": 0, "journal": 0, "models": 0, "refusals": 30}
"""Days that each kind stays after it is needed, unless rules say otherwise. Why data was refused is
read while the data or its spec is corrected, which takes people days."""

_DECIDED = (State.APPROVED, State.REJECTED, State.WITHDRAWN)

_ENDS: Mapping[str, tuple[State, ...]] = {
    "models": (State.REJECTED, State.WITHDRAWN),
    "refusals": (State.REFUNDED, State.FORFEITED),
}
"""The states from which a kind is needed no more; for the others, those that decide a release."""

_MOST_DAYS = 36_525
"""Days that a kind stays at most: a century."""


@dataclass(frozen=True)
class Deletion:
    """What was deleted of a release: keyed digests by place, by kind.

    ``listed`` is the keyed digest of the list of what stays; releases of version 0.1 have none.
    """

    seq: int
    time: str
    kinds: Mapping[str, Mapping[str, str]]
    listed: str

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """The deletion that an entry records.

        Errors: ``ValueError`` for kinds or places that no ledger writes.
        """
        kinds: dict[str, dict[str, str]] = entry.body["kinds"]
        places = [path for places in kinds.values() for path in places]
        if set(kinds) - set(DAYS) or not places or not all(map(_inside, places)):
            raise ValueError("no kinds or places")
        return cls(entry.seq, entry.time, kinds, str(entry.body.get("listed", "")))

    @property
    def places(self) -> list[str]:
        """All places, whatever their kind."""
        return [path for places in self.kinds.values() for path in places]


def is_deleted(release: Release, path: str) -> bool:
    """Whether an entry records that a path of a release was deleted."""
    return any(path in deletion.places for deletion in release.deletions)


def goes_at(release: Release, kind: str, rules: Rules) -> str | None:
    """When what a home holds of a release may go, by kind; None while it is needed."""
    ends = _ENDS.get(kind, _DECIDED)
    ended = next((step.time for step in release.steps if step.state in ends), None)
    if ended is None:
        return None
    days = timedelta(days=rules.keep.get(kind, DAYS[kind]))
    return (datetime.fromisoformat(ended) + days).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def require_days(keep: Mapping[str, Any]) -> None:
    """Check the days that rules name. Errors: ``InputError`` for kinds or numbers that are none."""
    for kind, days in keep.items():
        if kind not in DAYS or type(days) is not int or not 0 <= days <= _MOST_DAYS:
            raise InputError(f"'keep' is 0 to {_MOST_DAYS} days of {', '.join(DAYS)}.")


def _inside(name: str) -> bool:
    """Whether a name is a path inside a home."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


PERSON, RULES, PROPOSED = "person_set", "rules_set", "proposed"
"""Kinds of entries on the house: a person, rules, and what another officer has yet to confirm."""

APPROVAL_KEY, APPROVAL = "approval_key", "approval"
"""Keys of the person's public key and of their signature's digest in an approval's evidence."""

SIGNATURE = "signature"
"""The key of the digest of the house's signature in a candidate's evidence."""

MATCHED = "matched"
"""What an approval holds that was counted with people matched to roles one to one. Earlier versions
counted each role apart, so that one person met two."""

EVERYWHERE = "*"
"""The account of rules that hold for every account without rules of its own."""

CONFIRMED = "confirmed"
"""Keys of the confirmation in an entry that was proposed: the proposal, by whom, why."""

SUM, FILTER = "sum", "filter"
"""Rules by which a budget admits releases: by the sum of their epsilons, or by a privacy filter."""

_LATER = ("admission", "refusals")
"""Rules that entries of earlier versions lack."""

_MOST_APPROVALS = 20
"""Approvals of a role at most: more people than a review has."""


@dataclass(frozen=True)
class Person:
    """Someone who may act, with roles, identities and public keys (hexadecimal, the last in use).

    Without roles a person may do nothing. Errors: ``InputError`` for what cannot be one of these.
    """

    name: str
    roles: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_text("person", self.name)
        if unknown := set(self.roles) - set(ROLES):
            raise InputError(f"'{min(unknown)}' is no role: choose {', '.join(ROLES)}.")
        for identity in self.identities:
            if require_text("identity", identity) != identity_of(identity):
                raise InputError(f"'{identity}' acts for somebody: give who acts alone.")
        for key in self.keys:
            PublicKey.from_hex(key)

    @property
    def body(self) -> dict[str, Any]:
        """The person as JSON."""
        values = {part.name: list(getattr(self, part.name)) for part in fields(self)[1:]}
        return {"person": self.name, **values}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """The person in ``body``, which may hold more."""
        return cls(body["person"], *(tuple(body[part.name]) for part in fields(cls)[1:]))


@dataclass(frozen=True)
class Rules:
    """What an account requires of releases and budgets, besides fitting.

    ``four_eyes``: nobody decides on what they ran. ``approvals``: how many people of each role must
    approve; one officer or reviewer, if it is empty. ``second_officer``: grants, people and rules
    take effect when another officer confirms them. ``signed_approvals``: whoever approves signs by
    a key of their own. ``purposes``: each release says what it is for. ``keep``: how many days what
    a home holds of a release stays after it is needed, by kind. ``admission``: by which rule a
    budget admits releases, ``sum`` or ``filter``. ``refusals``: from which refusal of data in a
    window on a reservation is not given back. Errors: ``InputError`` for other values.
    """

    four_eyes: bool = False
    approvals: Mapping[str, int] = field(default_factory=dict)
    second_officer: bool = False
    signed_approvals: bool = False
    purposes: bool = False
    keep: Mapping[str, int] = field(default_factory=dict)
    admission: str = SUM
    refusals: int = 5

    def __post_init__(self) -> None:
        for name in ("four_eyes", "second_officer", "signed_approvals", "purposes"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"'{name}' is yes or no.")
        if self.signed_approvals and not sum(self.approvals.values()):
            raise InputError("signed approvals need a number of people: set approvals too.")
        for role, number in self.approvals.items():
            if role not in ("officer", "reviewer") or type(number) is not int:
                raise InputError("'approvals' are of officers and reviewers, each a whole number.")
            if not 0 <= number <= _MOST_APPROVALS:
                raise InputError(f"'approvals' are 0 to {_MOST_APPROVALS} of a role.")
        require_days(self.keep)
        self._require_budgets()

    def _require_budgets(self) -> None:
        if self.admission not in (SUM, FILTER):
            raise InputError(f"'admission' is by {SUM} or by {FILTER}.")
        if type(self.refusals) is not int or self.refusals < 1:
            raise InputError("'refusals' is a whole number from 1 on.")

    @property
    def body(self) -> dict[str, Any]:
        """The rules as JSON; those that an earlier version did not know only where they are set."""
        values = asdict(self)
        unset = {name for name in _LATER if values[name] == getattr(Rules, name)}
        return {name: value for name, value in values.items() if name not in unset}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """The rules in ``body``, which may hold more, or lack those of later versions."""
        return cls(**{part.name: body[part.name] for part in fields(cls) if part.name in body})


@dataclass(frozen=True)
class Proposal(Act):
    """An entry that takes effect once another officer confirms it."""

    kind: str
    body: Mapping[str, Any]


@dataclass
class House:
    """People by name, rules by account, proposals by the number of their entry; keys of the house.

    Those that are trusted, and by what entry others were revoked. ``issued`` holds
    until when a token is valid, by the number of the entry that issued it.
    """

    people: dict[str, Person] = field(default_factory=dict)
    rules: dict[str, Rules] = field(default_factory=dict)
    trusted: set[PublicKey] = field(default_factory=set)
    revoked: dict[PublicKey, Anchor] = field(default_factory=dict)
    proposals: dict[int, Proposal] = field(default_factory=dict)
    issued: dict[int, str] = field(default_factory=dict)

    @property
    def revocations(self) -> dict[str, int]:
        """The number of the entry that revoked each revoked key, by the key's id."""
        return {key.id: anchor.seq for key, anchor in self.revoked.items()}

    def rules_of(self, account: str) -> Rules:
        """The rules of an account, else those of every account."""
        return self.rules.get(account) or self.rules.get(EVERYWHERE) or Rules()

    def needs_second(self, body: Mapping[str, Any]) -> bool:
        """Whether a grant, a person or rules take effect only once another officer confirms them.

        Rules of an account are as hard to change as those of all accounts, and as they are now.
        """
        granted = body.get("dataset")
        accounts = [granted] if granted else [EVERYWHERE, body.get("account", EVERYWHERE)]
        return any(self.rules_of(account).second_officer for account in accounts)

    def person_of(self, by: str) -> Person | None:
        """The person whose identity acts."""
        identity = identity_of(by)
        return next((each for each in self.people.values() if identity in each.identities), None)

    def actor(self, act: Act) -> Person | None:
        """The person who did something: whose identity it was then, whoever has it now."""
        return self.people.get(act.person) or self.person_of(act.by)

    def names(self, act: Act) -> tuple[str, str]:
        """By whose identity something was done: whose it was then, and whose it is now."""
        return act.person, self.name_of(act.by)

    def name_of(self, by: str) -> str:
        """The person who acts, by one name for all their identities."""
        return self.known_as(by) or identity_of(by)

    def known_as(self, by: str) -> str:
        """The name of the person who acts; empty where the identity is nobody's."""
        person = self.person_of(by)
        return person.name if person else ""

    def shown(self, by: str) -> str:
        """Return who acts, for people to read."""
        return named(self.known_as(by), by)

    def owner(self, key: str) -> str:
        """The name of the person whose key, in hexadecimal, it is or was; empty if nobody's."""
        return next((each.name for each in self.people.values() if key in each.keys), "")

    def key_words(self, key: str) -> str:
        """Return what to call a key, which is in hexadecimal: by its id and whose it is."""
        owner = self.owner(key)
        return f"the key {key_id(key)}" + (f" of {owner}" if owner else "")

    def act(self, entry: Entry) -> dict[str, Any]:
        """Who did what an entry records, when and why: the fields of an `Act`."""
        acted = {name: entry.body[name] for name in ("by", "reason")}
        return acted | {"seq": entry.seq, "time": entry.time, "person": self.known_as(acted["by"])}

    def consent_to(self, release: Release, entry: Entry) -> Consent:
        """An approval after which a release waits for others, counted in the role that needs it."""
        by, needed = entry.body["by"], self.rules_of(release.request.dataset).approvals
        people = (*map(self.actor, release.consents), self.person_of(by))
        matched = match_roles(needed, {each: each.roles for each in people if each})
        person = self.person_of(by)
        role = matched.get(person, "") if person else ""
        number = Counter(matched.values())[role]
        return Consent(role, number, needed.get(role, 0), **self.act(entry))

    def set_person(self, entry: Entry) -> None:
        """Post a person as an officer set them."""
        person = Person.from_body(entry.body)
        known = self.people.get(person.name, Person(person.name)).identities
        for identity in person.identities:
            if identity not in known and (end := token_end(identity)):
                self.issued[entry.seq] = end
        self.people[person.name] = person

    def set_rules(self, entry: Entry) -> None:
        """Post the rules of an account."""
        self.rules[entry.body["account"]] = Rules.from_body(entry.body)

    def trust(self, entry: Entry) -> None:
        """Post a key that is trusted."""
        self.trusted.add(PublicKey.from_hex(entry.body["key"]))

    def revoke(self, entry: Entry) -> None:
        """Post that a key was revoked."""
        self.revoked[PublicKey.from_hex(entry.body["key"])] = entry.anchor

    def propose(self, entry: Entry) -> None:
        """Post what another officer has yet to confirm."""
        proposed = entry.body["kind"], entry.body["body"]
        self.proposals[entry.seq] = Proposal(*proposed, **self.act(entry))


P = TypeVar("P", bound=Hashable)


def match_roles(needed: Mapping[str, int], able: Mapping[P, Collection[str]]) -> dict[P, str]:
    """Match people to the roles that need them, each to one, so that as many as possible count.

    Args:
        needed: how many people each role needs.
        able: the roles of each person; whoever comes first keeps their role if another is free.
    """
    places = [(role, number) for role, most in needed.items() for number in range(most)]
    holders: dict[tuple[str, int], P] = {}

    def seat(person: P, tried: set[tuple[str, int]]) -> bool:
        """Give a person a place, where its holder can take another (an augmenting path)."""
        for each in sorted(places, key=holders.__contains__):
            if each[0] in able[person] and each not in tried:
                tried.add(each)
                if each not in holders or seat(holders[each], tried):
                    holders[each] = person
                    return True
        return False

    for person in able:
        seat(person, set())
    return {person: role for (role, _), person in holders.items()}


def key_id(key: str) -> str:
    """Return the start of the id of a key in hexadecimal, by which people call it.

    Of a text that is no key, as a forger may have written, return its own start.
    """
    try:
        return PublicKey.from_hex(key).id[:16]
    except (ValueError, TypeError, InputError):
        return str(key)[:16]
