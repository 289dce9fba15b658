"""Whether who writes an entry may: roles, four eyes, approvals, a second officer.

Checked inside the transaction that writes the entry, and of every entry by `verify`. Once a release
is reserved, the entries that its run writes ask for no role: what was charged is delivered.

Roles bind who writes through Cloister. Whoever holds the database and the house's key can write
other entries; docs/audit-trail.md says how these are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from shlex import quote

from cloister.errors import InputError, NotPermitted
from cloister.figures import count_of
from cloister.identities import identity_of, token_problem
from cloister.privacy.ledger.books import (
    ALLOWED,
    CONSENTED,
    DECLINED,
    GRANTED,
    LOOKED,
    OPENED,
    PLACED,
    READ,
    REREAD,
    LedgerState,
)
from cloister.privacy.ledger.entries import REVOKED, TRUSTED, Entry
from cloister.privacy.ledger.house import (
    APPROVAL,
    APPROVAL_KEY,
    CONFIRMED,
    DELETED,
    EVERYWHERE,
    MATCHED,
    PERSON,
    PROPOSED,
    RULES,
    House,
    Person,
    Rules,
    goes_at,
    key_id,
    match_roles,
)
from cloister.privacy.ledger.records import Release, State
from cloister.privacy.signing import PublicKey

SECONDED = (GRANTED, PERSON, RULES)
"""Kinds of entries that another officer confirms, where the rules ask for a second one."""

_DECIDERS = ("officer", "reviewer")

_ENDED = (State.REFUNDED, State.FORFEITED)
"""States in which a reservation ends whose data was never queried."""

_ROLES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((State.RESERVED, DECLINED), ("engineer",)),
    **dict.fromkeys((PLACED, READ), ("engineer", "officer")),
    **dict.fromkeys((State.WITHDRAWN, *_ENDED, DELETED), ("engineer", *_DECIDERS)),
    **dict.fromkeys(
        (CONSENTED, LOOKED, State.APPROVED, State.REJECTED, State.PUBLISHED), _DECIDERS
    ),
    **dict.fromkeys((OPENED, REREAD, ALLOWED, PROPOSED, TRUSTED, REVOKED, *SECONDED), ("officer",)),
}
"""Roles that may write an entry, by its kind; anyone may write those of other kinds."""


def require_permitted(books: LedgerState, entry: Entry) -> None:
    """Check that who writes an entry may, before it is posted.

    Raises:
        NotPermitted: they lack the role, or the rules ask for another person.
    """
    house = books.house
    _require_role(books, entry)
    if entry.kind in SECONDED:
        _require_second(house, entry)
    if entry.kind == PERSON:
        _require_person(house, entry)
    if entry.kind == State.RESERVED and house.rules_of(entry.body["dataset"]).purposes:
        _require_purpose(entry)
    release = books.releases.get(str(entry.body.get("release")))
    if release and entry.kind in (CONSENTED, State.APPROVED, State.PUBLISHED):
        _require_decider(books, release, entry)
    if release and entry.kind == DELETED:
        _require_due(house, release, entry)


def _require_decider(books: LedgerState, release: Release, entry: Entry) -> None:
    """Check who approves or publishes a release, and that enough others do."""
    house, by = books.house, str(entry.body["by"])
    _require_other_eyes(house, release, by)
    if entry.kind == State.PUBLISHED:
        return
    _require_own_key(house, release, entry)
    if entry.kind == CONSENTED:
        _require_new_voice(house, release, by)
        return
    matched = books.matched or MATCHED in entry.body
    if missing := missing_approvals(books, release, by, matched=matched):
        raise _refusal(f"release {release.id} still needs {_wanted(missing)} to approve it")


def missing_of(books: LedgerState, release: Release) -> str:
    """Who has yet to approve a release, in words."""
    return _wanted(missing_approvals(books, release))


def missing_approvals(
    books: LedgerState, release: Release, *by: str, matched: bool = True
) -> dict[str, int]:
    """How many people of each role have yet to approve a release, once those of ``by`` do too."""
    house = books.house
    required = house.rules_of(release.request.dataset).approvals
    people = [*map(house.actor, release.consents), *map(house.person_of, by)]
    return _missing(required, people, matched=matched)


def _missing(
    required: Mapping[str, int], people: Iterable[Person | None], *, matched: bool = True
) -> dict[str, int]:
    """How many people of each role are missing from some; None is nobody.

    A person counts in one role; not ``matched``, as earlier versions counted, in each of theirs.
    """
    able = {person: person.roles for person in people if person}
    met = match_roles(required, able).values() if matched else chain.from_iterable(able.values())
    counted = Counter(met)
    return {
        role: number - counted[role] for role, number in required.items() if number > counted[role]
    }


def require_keepable(books: LedgerState, entry: Entry) -> None:
    """Check that people could keep the rules once an entry, written or proposed now, holds.

    Nor does one key count as two people. `verify` does not ask this of entries, since earlier
    versions wrote rules that nobody can keep.

    Raises:
        NotPermitted: too few people are left besides whoever runs a release, or a key is another's.
    """
    house = books.house
    kind, body = entry.kind, entry.body
    if kind == PROPOSED:
        kind, body = body["kind"], body["body"]
    if kind == RULES and (lacking := _lacking(house, Rules.from_body(body), house.people)):
        raise _refusal(f"these rules need {lacking}: set people first, {_HOW_TO_SET}")
    if kind == PERSON:
        person = Person.from_body(body)
        for key in person.keys:
            if house.owner(key) not in ("", person.name):
                raise _refusal(f"{house.key_words(key)} is no key of {person.name}: give another")
        _require_rules_kept(house, person)


def _require_rules_kept(house: House, person: Person) -> None:
    """Check that a person as they will be leaves rules that can be kept so; others stay so."""
    after = {**house.people, person.name: person}
    for account, rules in house.rules.items():
        lacking = _lacking(house, rules, after)
        if lacking and not _lacking(house, rules, house.people):
            of = "" if account == EVERYWHERE else f" of account {account}"
            raise _refusal(
                f"with {person.name} so, the rules{of} would need {lacking}: set another person "
                f"first, {_HOW_TO_SET}, or change the rules, with cloister rules set"
            )


def _lacking(house: House, rules: Rules, people: Mapping[str, Person]) -> str:
    """Who is lacking so that somebody's release can be approved, in words; empty if nobody is.

    Where no people are set, whoever reaches the ledger may approve, in no role.
    """
    able = [person for person in people.values() if person.identities]
    if not able and not sum(rules.approvals.values()):
        return ""
    if able and rules.second_officer and (few := _missing({"officer": 2}, able)):
        return f"{_wanted(few)} more"
    runners = [person for person in able if "engineer" in person.roles] if rules.four_eyes else []
    signers = [each for each in able if not rules.signed_approvals or _signs(house, each)]
    besides = [[person for person in signers if person is not runner] for runner in runners]
    shortages = [_missing_to_approve(rules, approvers) for approvers in besides or [signers]]
    if not all(shortages):
        return ""
    names = " or ".join(sorted(person.name for person in runners))
    return f"{shortages[0]}" + (f", besides {names}, who runs releases" if names else "")


def _missing_to_approve(rules: Rules, people: Iterable[Person]) -> str:
    """Who is missing from some people for an approval, in words; empty if nobody is."""
    if sum(rules.approvals.values()):
        missing = _wanted(_missing(rules.approvals, people))
        signing = ", who signs by a key set with --key" if rules.signed_approvals else ""
        return f"{missing} more{signing}" if missing else ""
    able = any(role in person.roles for person in people for role in _DECIDERS)
    return "" if able else "1 officer or reviewer more"


def _signs(house: House, person: Person) -> bool:
    """Whether a person has a key to approve by, and it is not revoked."""
    return bool(person.keys) and PublicKey.from_hex(person.keys[-1]) not in house.revoked


_HOW_TO_SET = "with cloister people set NAME --role ROLE --identity WHO"


_OPENING = (
    "account '{account}' is not open, which an officer does before its first run, with cloister "
    "dataset add and cloister budget grant"
)


def _require_role(books: LedgerState, entry: Entry) -> None:
    roles, house = _ROLES.get(entry.kind), books.house
    if roles is None or _ends_own_run(books, entry):
        return
    remedy = _OPENING.format(account=entry.body.get("account")) if entry.kind == OPENED else _TO_SET
    if problem := _role_problem(house, roles, str(entry.body.get("by")), entry.time, remedy):
        raise _refusal(problem)


def looking_problem(house: House, by: str, time: str) -> str | None:
    """Why somebody may not see attacks by the data, or its exact figures; None if they may.

    Whoever may make an attack may: with no people set, whoever reaches the home.
    """
    return _role_problem(house, _ROLES[LOOKED], by, time, _TO_SET)


_TO_SET = "an officer sets it with cloister people set"


def _role_problem(
    house: House, roles: Iterable[str], by: str, time: str, remedy: str
) -> str | None:
    """Why somebody may not do at a time what needs one of some roles; None if they may."""
    person = house.person_of(by)
    if problem := token_problem(identity_of(by), time, known=person is not None):
        return problem
    if not house.people or (person and not set(person.roles).isdisjoint(roles)):
        return None
    has = f"has {' and '.join(person.roles) or 'none'}" if person else "is nobody's identity"
    return f"this needs the role {' or '.join(roles)}, and {house.name_of(by)} {has}: {remedy}"


def _ends_own_run(books: LedgerState, entry: Entry) -> bool:
    """Whether a reservation is ended by whoever made it, whatever their role is now."""
    if entry.kind not in _ENDED:
        return False
    reserved = books.releases[entry.body["release"]].steps[0]
    return books.house.name_of(entry.body["by"]) in books.house.names(reserved)


def _require_second(house: House, entry: Entry) -> None:
    """Check that an entry of an officer was confirmed by another, where rules ask for it."""
    confirmed = entry.body.get(CONFIRMED)
    if confirmed is None:
        if house.needs_second(entry.body):
            raise _refusal("the rules ask for a second officer, and none confirmed this")
        return
    proposal = house.proposals.get(confirmed["proposal"])
    body = {key: value for key, value in entry.body.items() if key not in (CONFIRMED, "signed")}
    if proposal is None or (proposal.kind, dict(proposal.body)) != (entry.kind, body):
        raise _refusal(f"entry {confirmed['proposal']} proposes nothing that is to be confirmed")
    second = house.name_of(confirmed["by"])
    if second in house.names(proposal):
        raise _refusal(f"{second} proposed this, and another officer confirms it")
    person = house.person_of(confirmed["by"])
    if house.people and not (person and "officer" in person.roles):
        raise _refusal(f"{second} is no officer, and an officer confirms it")


def _require_person(house: House, entry: Entry) -> None:
    """Check that identities are of one person, and that officers remain who can act.

    The first person is who sets it.
    """
    person = Person.from_body(entry.body)
    known = (each for each in house.people.values() if each.name != person.name)
    if shared := set(person.identities) & {one for each in known for one in each.identities}:
        raise InputError(f"{min(shared)} is the identity of another person. Nothing was changed.")
    if not house.people:
        _require_first(person, entry)
    after = {**house.people, person.name: person}.values()
    left = [each for each in after if "officer" in each.roles and each.identities]
    needed = 2 if house.people and house.rules_of(EVERYWHERE).second_officer else 1
    if len(left) < needed:
        nameless = "officer" in person.roles and not person.identities
        remedy = f": {person.name} is known by nothing, give --identity WHO" if nameless else ""
        raise _refusal(f"without {person.name} there are too few officers who can act{remedy}")


def _require_first(person: Person, entry: Entry) -> None:
    """Check that the first person is an officer, and whoever sets it."""
    identity = identity_of(entry.body["by"])
    if "officer" in person.roles and identity in person.identities:
        return
    known = "" if person.identities else ", and --identity says by what you are known"
    raise _refusal(
        f"the first person that is set is an officer, and is you{known}: cloister people set NAME "
        f"--role officer --identity {quote(identity)}; then set the others"
    )


def _require_purpose(entry: Entry) -> None:
    if not entry.body["reason"].strip():
        raise _refusal("the rules ask what a release is for: say it with --purpose")


def _require_other_eyes(house: House, release: Release, by: str) -> None:
    if not house.rules_of(release.request.dataset).four_eyes:
        return
    ran, decider = [step for step in release.steps if step.state in _RUN], house.name_of(by)
    if any(decider in house.names(step) for step in ran):
        raise _refusal(f"{decider} ran release {release.id}, and the rules ask for somebody else")


def _require_own_key(house: House, release: Release, entry: Entry) -> None:
    """Check that who approves has signed by a key of their own, where rules ask for it."""
    if not house.rules_of(release.request.dataset).signed_approvals:
        return
    person, evidence = house.person_of(str(entry.body["by"])), entry.body["evidence"]
    if not (person and person.keys):
        raise _refusal("who approves signs by a key of their own: cloister people set --key")
    key = evidence.get(APPROVAL_KEY)
    if not (key and evidence.get(APPROVAL)):
        raise _refusal(f"{person.name} approves by their own key: give it with --sign")
    if key != person.keys[-1]:
        raise _refusal(
            f"{house.key_words(key)} signed, and {person.name} acts, whose key is "
            f"{key_id(person.keys[-1])}: give that one with --sign"
        )
    if not _signs(house, person):
        raise _refusal(f"the key of {person.name} is revoked: set another")


def _require_new_voice(house: House, release: Release, by: str) -> None:
    if any(house.name_of(by) in house.names(each) for each in release.consents):
        raise _refusal(f"{house.name_of(by)} approved it before, and others have yet to")


def _require_due(house: House, release: Release, entry: Entry) -> None:
    rules = house.rules_of(release.request.dataset)
    for kind in entry.body["kinds"]:
        due = goes_at(release, kind, rules)
        if due is None or entry.time < due:
            stays = f"stays until {due}" if due else "is needed"
            raise _refusal(f"what is held of release {release.id} ({kind}) {stays}")


_RUN = (State.RESERVED, State.SPENT, State.CANDIDATE)
"""States that whoever runs a release brings it to."""


def _wanted(missing: dict[str, int]) -> str:
    return " and ".join(count_of(number, role) for role, number in sorted(missing.items()))


def _refusal(problem: str) -> NotPermitted:
    return NotPermitted(f"{problem[0].upper()}{problem[1:]}. Nothing was changed or charged.")
