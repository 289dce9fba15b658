"""Fingerprints of data, which tell an officer that two accounts hold equal data.

A fingerprint is a keyed digest of all rows that a release read, the same for equal rows. The ledger
holds it encrypted (AES-256-GCM) under a fresh nonce, so that without the key nobody sees whether
two releases read the same. The key is in the home, and in no ledger and no export: homes on one
ledger that should compare their data have copies of it.

Privacy: docs/privacy.md, "Equal data of two accounts".
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import permutations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cloister.errors import InputError, NotPermitted
from cloister.privacy.ledger import Ledger, Release
from cloister.privacy.ledger.house import House
from cloister.tasks.home.home import Home
from cloister.tasks.home.identity import identity
from cloister.tasks.ledger.access import existing_ledger

FINGERPRINT = "fingerprint"
"""The evidence of a spent release that holds its sealed fingerprint."""

_NONCE_BYTES = 12
"""Bytes of a nonce of AES-GCM: a fresh one for each of far fewer than 2^32 releases."""

_KEPT = 32
"""Hexadecimal digits of a fingerprint that are kept: of 10^6 two agree by chance once in 10^26."""


def seal_fingerprint(fingerprint: str, key: bytes) -> str:
    """A fingerprint as the ledger holds it: the name of the key, and the encrypted digest."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = AESGCM(_derived(key, b"seal")).encrypt(nonce, bytes.fromhex(fingerprint[:_KEPT]), None)
    return f"{key_name(key)}:{(nonce + sealed).hex()}"


def equal_data(home: Home) -> dict[str, list[str]]:
    """For each account, notices to officers on others: which read the same data, and where last.

    Nobody else gets them. Data read under another key than this home's is only said to be not
    compared.
    """
    ledger = existing_ledger(home)
    if ledger is None or not is_officer(ledger.books().house, identity()):
        return {}
    notices = defaultdict[str, list[str]](list)
    opened, unknown = _fingerprints(ledger, home.fingerprint_key())
    for account in unknown:
        notices[account] = ["read under another fingerprint.key, and not compared with others"]
    for account, twin in permutations(opened, 2):
        if both := opened[account].keys() & opened[twin].keys():
            entry = max(opened[twin][fingerprint] for fingerprint in both)
            notices[account].append(f"the same data as {twin} (entry {entry})")
    return dict(notices)


def accounts_of_same_data(home: Home, release: Release, by: str) -> Mapping[str, int]:
    """The other accounts that read the rows of a release, each with the entry of the last time.

    None for who is no officer, and for data read under another key than this home's.
    """
    ledger = existing_ledger(home)
    sealed = [step.evidence[FINGERPRINT] for step in release.steps if FINGERPRINT in step.evidence]
    if not sealed or ledger is None or not is_officer(ledger.books().house, by):
        return {}
    key = home.fingerprint_key()
    mine = {fingerprint for each in sealed if (fingerprint := _opened(each, key))}
    return {
        account: max(entries)
        for account, opened in _fingerprints(ledger, key)[0].items()
        if account != release.request.dataset
        and (entries := [opened[fingerprint] for fingerprint in mine & opened.keys()])
    }


def require_seen(home: Home, release: Release, by: str, seen: Collection[str]) -> None:
    """Check that an officer who approves a release knows which other accounts read its rows.

    Others are not told, so they are not asked. Neither is a run: its refusal would tell whoever
    runs it an exact fact about the data, at no charge.

    Raises:
        NotPermitted: an account that read the same rows is not among those ``seen``.
        InputError: one of those ``seen`` is not known to have read them.
    """
    equal = accounts_of_same_data(home, release, by)
    if strangers := sorted({*seen} - equal.keys()):
        raise InputError(
            f"account '{strangers[0]}' is not known to hold the data of release {release.id}; "
            f"leave --same-data {strangers[0]} out. Nothing was changed."
        )
    if unseen := sorted(equal.keys() - {*seen}):
        named = " and ".join(f"'{account}' (entry {equal[account]})" for account in unseen)
        options = " ".join(f"--same-data {account}" for account in sorted(equal))
        raise NotPermitted(
            f"release {release.id} read the same rows as account {named}, and each account has a "
            "budget of its own, so that what both reveal of these rows adds up; to approve it all "
            f"the same, say that you know with {options}. Nothing was changed."
        )


def is_officer(house: House, by: str) -> bool:
    """Whether somebody is an officer; with no people set, everybody is."""
    person = house.person_of(by)
    return not house.people or (person is not None and "officer" in person.roles)


def _fingerprints(ledger: Ledger, key: bytes) -> tuple[dict[str, dict[str, int]], set[str]]:
    """The entry at which each account last read rows of each fingerprint.

    And the accounts with some under another key.
    """
    opened, unknown = defaultdict[str, dict[str, int]](dict), set[str]()
    for account, entry, sealed in _sealed(ledger.releases()):
        if fingerprint := _opened(sealed, key):
            opened[account][fingerprint] = entry
        else:
            unknown.add(account)
    return opened, unknown


def _sealed(releases: list[Release]) -> Iterator[tuple[str, int, str]]:
    """Account, entry and sealed fingerprint of each release that has one."""
    for release in releases:
        for step in release.steps:
            if FINGERPRINT in step.evidence:
                yield release.request.dataset, step.seq, step.evidence[FINGERPRINT]


def _opened(sealed: str, key: bytes) -> str | None:
    """The fingerprint; None if it is under another key."""
    name, _, text = sealed.partition(":")
    if name != key_name(key):
        return None
    whole = bytes.fromhex(text)
    nonce, encrypted = whole[:_NONCE_BYTES], whole[_NONCE_BYTES:]
    with suppress(InvalidTag):
        return AESGCM(_derived(key, b"seal")).decrypt(nonce, encrypted, None).hex()
    return None


def key_name(key: bytes) -> str:
    """Return what a sealed fingerprint calls its key."""
    return _derived(key, b"name").hex()[:16]


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.new(key, purpose, hashlib.sha256).digest()
