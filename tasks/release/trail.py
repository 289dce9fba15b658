"""The history of a release for an outsider: from its folder, a key and an export.

Whose data it was and whom it protects, which budget it was charged to and what was left, who ran,
approved, published or withdrew it, when and why, and what they were allowed to do then. All of it
is read from the export's entries, once they and the folder are verified by the house's public key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from cloister.errors import InputError
from cloister.identities import known_by
from cloister.privacy import ledger
from cloister.privacy.certificate.manifest import read_manifest
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger.books import (
    CONSENTED,
    GRANTED,
    LOOKED,
    OPENED,
    PLACED,
    READ,
    REREAD,
    LedgerState,
)
from cloister.privacy.ledger.budgets import Budgets
from cloister.privacy.ledger.entries import REVOKED, TRUSTED
from cloister.privacy.ledger.house import (
    APPROVAL_KEY,
    CONFIRMED,
    DELETED,
    EVERYWHERE,
    FILTER,
    PERSON,
    PROPOSED,
    RULES,
    Person,
    Rules,
    key_id,
)
from cloister.privacy.signing import PublicKey
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.budgets import budget_text
from cloister.tasks.release.signing import Worth, folder_unlike_export, folder_worth
from cloister.tasks.release.verify import verify_records

_NUMBERS = ("no", "one", "two", "three", "four", "five")
"""Numbers that a sentence spells out."""


@dataclass(frozen=True)
class Trail:
    """What happened to a release, entry by entry, and what is wrong with the records of it."""

    facts: Mapping[str, str]
    steps: Sequence[Mapping[str, str]]
    findings: Sequence[str]
    worth: Worth | None


def trail_of(home: Home, folder: Path, export: Path, key: Path) -> Trail:
    """The history of the release of a folder.

    Raises:
        InputError: the export does not hold the release.
        StorageError: a file cannot be read.
        VerificationError: the folder has no manifest that can be read.
    """
    public_key = PublicKey.read(key)
    findings = [
        *verify_records(home, str(folder))[1],
        *verify_records(home, str(export), [], public_key)[1],
    ]
    entries, named = (
        ledger.read_chain(ledger.export_lines(export))[0],
        read_manifest(folder).release,
    )
    books, charged, rules = _replayed(entries, named)
    if charged is None:
        raise InputError(f"{export} holds no release '{named}': ask the house for a later export")
    release = books.releases[named]
    findings += folder_unlike_export(folder, books, named, entries, public_key)
    worth = None if findings else folder_worth(home, folder, key, None, export)
    facts = {**_facts(books, release, charged), "rules then": rules}
    return Trail(facts, [*_steps(entries, books, release)], findings, worth)


def _replayed(
    entries: Iterable[ledger.Entry], release: str
) -> tuple[LedgerState, ledger.BudgetStatus | None, str]:
    """The books after all entries; the budget and the rules of a release just after its charge."""
    books, charged, rules = LedgerState(), None, ""
    for entry in entries:
        books.post(entry)
        if entry.kind == ledger.State.RESERVED and entry.body["release"] == release:
            request = books.releases[release].request
            owner = request.dataset, request.unit
            charged = Budgets(books, *owner, entry.time).tightest(request.blocks)
            rules = rules_words(books.house.rules_of(request.dataset))
    return books, charged, rules


def _facts(
    books: LedgerState, release: ledger.Release, charged: ledger.BudgetStatus
) -> dict[str, str]:
    request = release.request
    account = books.accounts.get(request.dataset)
    return {
        "release": release.id,
        "state at the end of the export": release.state.words,
        "account": request.dataset,
        "data": ", ".join(account.places) if account else "of no registered place",
        "protects": f"{request.unit}, under {request.relation}",
        **({"blocks": ", ".join(request.blocks)} if request.blocks else {}),
        "charge": f"epsilon {decimal(request.epsilon)} at delta {decimal(request.delta)}",
        "method": f"{request.method}, by version {request.code_version}",
        "spec": request.spec_digest,
        "budget then": f"{budget_text(charged.budget)}, in window {charged.window}",
        "left after it": f"epsilon {decimal_below(charged.left)}",
        "all charges of the account": f"epsilon {_lifetime(books, release)}",
    }


def _lifetime(books: LedgerState, release: ledger.Release) -> str:
    charged = books.charged(release.request.dataset, release.request.unit)
    return decimal(sum((each.request.epsilon for each in charged), Fraction(0)))


def _steps(
    entries: Sequence[ledger.Entry], books: LedgerState, release: ledger.Release
) -> Iterator[dict[str, str]]:
    """The entries that tell of a release, its account, and of those who acted on it."""
    actors = {
        books.house.name_of(str(entry.body.get("by")))
        for entry in entries
        if entry.body.get("release") == release.id
    }
    then = LedgerState()
    for entry in entries:
        then.post(entry)
        if _tells(entry, release, actors):
            by = str(entry.body.get("by", ""))
            yield {
                "entry": str(entry.seq),
                "time": entry.time[:19] + "Z",
                "what": entry_words(entry, then),
                "by": then.house.shown(by),
                "roles": ", ".join(person.roles) if (person := then.house.person_of(by)) else "",
                "reason": str(entry.body.get("reason", "")),
            }


def _tells(entry: ledger.Entry, release: ledger.Release, actors: set[str]) -> bool:
    body, account = entry.body, release.request.dataset
    if entry.kind == PROPOSED:
        body = body["body"]
    if entry.kind in (TRUSTED, REVOKED) or body.get("release") == release.id:
        return True
    if "person" in body:
        return body["person"] in actors
    return "release" not in body and (
        account in (body.get("dataset"), body.get("account")) or body.get("account") == EVERYWHERE
    )


def _reading_words(body: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {fact}" for name, fact in body["reading"].items())


def entry_words(entry: ledger.Entry, books: LedgerState) -> str:
    """What an entry says happened, by books that hold it."""
    body = entry.body
    words = {
        OPENED: lambda: f"account opened for {', '.join(body['places']) or 'no place'}",
        PLACED: lambda: f"more places: {', '.join(body['places'])}",
        READ: lambda: f"read so: {_reading_words(body)}",
        REREAD: lambda: f"read otherwise from here on: {_reading_words(body)}",
        GRANTED: lambda: f"budget granted: {budget_text(ledger.BudgetGrant.from_body(body))}",
        PERSON: lambda: _person_words(entry, books),
        **dict.fromkeys(
            (CONSENTED, LOOKED),
            lambda: next(
                move.words
                for move in books.releases[body["release"]].moves
                if move.seq == entry.seq
            ),
        ),
        RULES: lambda: _ruled(body["account"], rules_words(Rules.from_body(body))),
        PROPOSED: lambda: f"proposed: {entry_words(_proposed(entry), books)}",
        TRUSTED: lambda: f"{books.house.key_words(body['key'])} trusted",
        DELETED: lambda: f"deleted from the home: {', '.join(body['kinds'])}",
        REVOKED: lambda: f"{books.house.key_words(body['key'])} revoked",
    }
    text = words[entry.kind]() if entry.kind in words else entry.kind.replace("_", " ")
    if key := body.get("evidence", {}).get(APPROVAL_KEY):
        text += f", signed by {books.house.key_words(key)}"
    confirmed = body.get(CONFIRMED)
    if not confirmed:
        return text
    return f"{text}, confirmed by {books.house.shown(confirmed['by'])}"


def _person_words(entry: ledger.Entry, books: LedgerState) -> str:
    """What became of a person: a token was issued, or roles, identities and keys were set."""
    person, until = Person.from_body(entry.body), books.house.issued.get(entry.seq)
    if until:
        return f"{person.name}: token issued (valid until {until})"
    roles = [f"{'a' if role == 'reviewer' else 'an'} {role}" for role in person.roles]
    text = f"{person.name} {'is ' + ' and '.join(roles) if roles else 'has no role'}"
    if person.identities:
        text += f", known by {' and '.join(map(known_by, person.identities))}"
    return f"{text}, signs by the key {key_id(person.keys[-1])}" if person.keys else text


def _proposed(entry: ledger.Entry) -> ledger.Entry:
    """The entry that a proposal becomes once it is confirmed."""
    return replace(entry, kind=entry.body["kind"], body=entry.body["body"])


def _ruled(account: str, rules: str) -> str:
    """What rules ask of an account, or of all that have none of their own."""
    if account == EVERYWHERE:
        return f"all accounts without rules of their own need {rules}"
    return f"{account} needs {rules}"


def _approvals(role: str, number: int) -> str:
    spelt = _NUMBERS[number] if number < len(_NUMBERS) else number
    return f"one {role}'s approval" if number == 1 else f"{spelt} {role}s' approvals"


def rules_words(rules: Rules) -> str:
    """Return what rules ask for, in words: ``two officers' approvals, four eyes``."""
    needed = [_approvals(role, number) for role, number in rules.approvals.items() if number] or [
        "one officer's or reviewer's approval"
    ]
    demands = {
        "four eyes": rules.four_eyes,
        "signatures of those who approve": rules.signed_approvals,
        "a second officer for grants, people and rules": rules.second_officer,
        "a purpose of each release": rules.purposes,
    }
    needed += [text for text, required in demands.items() if required]
    periods = [f"{kind} is kept for {days} days" for kind, days in rules.keep.items()]
    admission = f"budgets admit by {'a privacy filter' if rules.admission == FILTER else 'the sum'}"
    refused = f"from refusal {rules.refusals} of data on a charge stays"
    return "; ".join([", ".join(needed), admission, refused, *periods])
