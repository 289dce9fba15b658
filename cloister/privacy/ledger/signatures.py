"""Signatures of entries: by whose key each was written.

A signed entry holds in its body, as ``signed``, a public key and its signature of the entry without
that field. What is signed names the hash of the entry before, and so vouches for all before it: who
rewrites the chain and every note of its end cannot sign it again.

Keys are Ed25519; signed is the line of the entry in the pre-authentication encoding of DSSE. Other
keys of the house, of its other homes, are trusted by entries that a trusted key signed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile
from typing import Any

from cloister.errors import InputError
from cloister.figures import count_of
from cloister.privacy.ledger.entries import Entry, Finding
from cloister.privacy.signing import PublicKey, Signer, pae

TYPE = "application/vnd.cloister.ledger-entry+json"
"""The type of what is signed, which no statement has."""

TRUSTED, REVOKED = "key_trusted", "key_revoked"
"""Kinds of entries that trust a key, or let its later signatures count no more."""

_SIGNED = "signed"


def signed_body(unsigned: Entry, signer: Signer) -> dict[str, Any]:
    """The body of an entry, with a signature of the entry.

    Raises:
        StorageError: the private half of the key cannot be reached.
    """
    signature = signer.sign(_message(unsigned))
    signed = {"key": signer.key.raw.hex(), "signature": signature.hex()}
    return {**unsigned.body, _SIGNED: signed}


def signature_findings(entries: Sequence[Entry], keys: Iterable[PublicKey]) -> list[Finding]:
    """What is wrong with the signatures of entries, by the keys that a reader knows.

    Entries before the first signed one are of versions before 0.3.
    """
    known = {key.raw.hex() for key in keys}
    trusted = known | _trusted(entries, known)
    revoked = _revoked(entries, trusted)
    found, unknown = [], dict[str, list[int]]()
    for entry in dropwhile(lambda entry: _SIGNED not in entry.body, entries):
        key = _signer(entry)
        if _SIGNED not in entry.body:
            problem = "is not signed, as entries before it are: an older version or other means"
            found.append(Finding(entry.seq, f"{problem} wrote it"))
        elif key is None:
            found.append(Finding(entry.seq, "was altered: its signature does not verify"))
        elif key not in trusted:
            unknown.setdefault(key, []).append(entry.seq)
        elif entry.seq > revoked.get(key, entry.seq):
            problem = f"is signed by a key that entry {revoked[key]} revoked"
            found.append(Finding(entry.seq, problem))
    return found + [_of_unknown_key(key, numbers) for key, numbers in unknown.items()]


def signed_by(entries: Iterable[Entry], key: PublicKey) -> int:
    """How many of some entries a key signed."""
    return sum(_signer(entry) == key.raw.hex() for entry in entries)


def _trusted(entries: Sequence[Entry], known: set[str]) -> set[str]:
    """The keys that known keys trust, that these trust, and so on."""
    given = [
        (_signer(entry), str(entry.body.get("key"))) for entry in entries if entry.kind == TRUSTED
    ]
    found = set(known)
    while more := {key for by, key in given if by in found} - found:
        found |= more
    return found


def _revoked(entries: Sequence[Entry], trusted: set[str]) -> dict[str, int]:
    """By which entry keys were revoked, of those that another trusted key signed."""
    return {
        str(entry.body.get("key")): entry.seq
        for entry in reversed(entries)
        if entry.kind == REVOKED and _signer(entry) in trusted - {entry.body.get("key")}
    }


def _signer(entry: Entry) -> str | None:
    """The key that signed an entry; None if none did."""
    signed = entry.body.get(_SIGNED)
    if not isinstance(signed, Mapping) or signed.keys() != {"key", "signature"}:
        return None
    try:
        key = PublicKey(bytes.fromhex(signed["key"]))
        signature = bytes.fromhex(signed["signature"])
    except (InputError, ValueError, TypeError):
        return None
    body = {name: value for name, value in entry.body.items() if name != _SIGNED}
    return key.raw.hex() if key.verify(signature, _message(replace(entry, body=body))) else None


def _message(entry: Entry) -> bytes:
    unsigned = replace(entry, hash=entry.digest)
    return pae(TYPE, unsigned.line.encode("ascii"))


def _of_unknown_key(key: str, numbers: Sequence[int]) -> Finding:
    number = count_of(len(numbers), "entry", "entries")
    return Finding(
        numbers[0],
        f"{number} from here on {'is' if len(numbers) == 1 else 'are'} signed by the key "
        f"{PublicKey(bytes.fromhex(key)).id[:16]}, which the house does not trust: forged, or of "
        "another home of yours, whose public key is trusted by cloister keys trust FILE",
    )
