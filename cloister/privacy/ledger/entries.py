"""Entries of the ledger: canonical text, a chain of SHA-256 digests, and whose key signed each.

The text of an entry is canonical JSON: ASCII, keys sorted, no spaces, no floats (amounts are
``p/q``, times ISO 8601 in UTC). Its ``hash`` is the SHA-256 of that text, which holds the hash of
the entry before it, so no entry can be altered, removed, inserted or moved without every later hash
changing. Order is by ``seq``, never by the clock.

A signed entry holds in its body, as ``signed``, a public key and its signature of the entry without
that field. What is signed names the hash of the entry before, and so vouches for all before it: who
rewrites the chain and every note of its end cannot sign it again.

Keys are Ed25519; signed is the line of the entry in the pre-authentication encoding of DSSE. Other
keys of the house, of its other homes, are trusted by entries that a trusted key signed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import dropwhile
from typing import Any, Self

from cloister.errors import InputError, VerificationError
from cloister.figures import count_of
from cloister.privacy.signing import PublicKey, Signer, pae

GENESIS = "0" * 64
"""The previous hash in the first entry."""


def canonical(value: object) -> str:
    """``value`` as canonical JSON.

    Errors: ``InputError`` for floats, keys that are no text, and whatever JSON does not know.
    """
    return _dump(exact_json(value))


def _refuse_float(_: str) -> object:
    raise ValueError("the ledger holds no floats")


_dump = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
).encode
_load = json.JSONDecoder(parse_float=_refuse_float, parse_constant=_refuse_float).decode


def exact_json(value: object) -> object:
    """``value`` as JSON holds it: plain lists, and maps by text.

    Errors: ``InputError`` as of ``canonical``.
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: exact_json(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [exact_json(item) for item in value]
    raise InputError(
        f"The ledger cannot hold a {type(value).__name__}: write numbers as 'p/q' text, and text "
        "as keys."
    )


@dataclass(frozen=True)
class Anchor:
    """Number and hash of an entry, stored elsewhere (a certificate): the chain must hold it."""

    seq: int
    hash: str


@dataclass(frozen=True)
class Entry:
    """One line of the ledger.

    ``slot`` names what may happen only once; the database keeps it unique.
    """

    seq: int
    time: str
    kind: str
    slot: str
    body: Mapping[str, Any]
    previous: str
    hash: str

    @classmethod
    def after(
        cls, last: Entry | None, time: str, kind: str, slot: str, body: Mapping[str, Any]
    ) -> Self:
        """The entry that follows ``last`` (None: the first)."""
        seq, previous = (last.seq + 1, last.hash) if last else (1, GENESIS)
        unhashed = cls(seq, time, kind, slot, body, previous, "")
        return replace(unhashed, hash=unhashed.digest)

    @classmethod
    def parse(cls, line: str) -> Self:
        """The entry written as ``line``, which must be canonical to the byte.

        Its hash is not checked here.
        """
        try:
            entry = cls(**_load(line))
            texts = (entry.time, entry.kind, entry.slot, entry.previous, entry.hash)
            typed = (
                type(entry.seq) is int
                and isinstance(entry.body, dict)
                and all(isinstance(t, str) for t in texts)
            )
            if typed and entry.line == line:
                return entry
        except (ValueError, TypeError, RecursionError):
            pass
        raise VerificationError("is not an entry as the ledger writes them")

    @cached_property
    def _unhashed(self) -> str:
        """The entry as canonical JSON, without its hash."""
        return _dump({name: getattr(self, name) for name in _UNHASHED})

    @cached_property
    def digest(self) -> str:
        """What ``hash`` must be."""
        return hashlib.sha256(self._unhashed.encode("ascii")).hexdigest()

    @property
    def line(self) -> str:
        """The entry as one line of canonical JSON, hash included."""
        before, kind, after = self._unhashed.rpartition('"kind":')
        return f'{before}"hash":{_dump(self.hash)},{kind}{after}'

    @property
    def anchor(self) -> Anchor:
        """The part of this entry that a certificate records."""
        return Anchor(self.seq, self.hash)


_UNHASHED = [part.name for part in fields(Entry) if part.name != "hash"]


@dataclass(frozen=True)
class Finding:
    """A fault that ``verify`` found: the entry's number (0: the whole ledger), and the problem."""

    entry: int
    problem: str

    def __str__(self) -> str:
        return f"entry {self.entry}: {self.problem}" if self.entry else f"ledger: {self.problem}"


def read_chain(lines: Sequence[bytes], first: int = 1) -> tuple[list[Entry], list[Finding]]:
    """The readable entries of ``lines`` (one each), and what breaks the chain.

    ``first`` is the number of the first: what one after others follows is not known here.
    """
    walk = _Walk(first)
    for line in lines:
        try:
            walk.step(Entry.parse(line.decode("ascii")))
        except (VerificationError, UnicodeDecodeError):
            walk.unreadable()
    return walk.entries, walk.findings


def check_chain(entries: Sequence[Entry]) -> list[Finding]:
    """Findings that break the chain of ``entries``; none for an intact ledger."""
    walk = _Walk(1)
    for entry in entries:
        walk.step(entry)
    return walk.findings


class _Walk:
    """A pass over a chain.

    It knows the number and the previous hash of the next entry; None after an altered one.
    """

    def __init__(self, first: int) -> None:
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self._seq = first
        self._previous: str | None = GENESIS if first == 1 else None

    def unreadable(self) -> None:
        self._altered("was altered: it is not an entry as the ledger writes them")

    def step(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.digest != entry.hash:
            self._altered("was altered: its text and its hash do not agree")
        elif entry.seq < self._seq:
            self.findings.append(Finding(entry.seq, "is in the wrong place, or there twice"))
        else:
            self._link(entry)

    def _link(self, entry: Entry) -> None:
        if entry.seq > self._seq:
            first_few = range(self._seq, min(entry.seq, self._seq + 10))
            self.findings += [Finding(seq, "is missing") for seq in first_few]
        elif self._previous not in (None, entry.previous):
            self.findings.append(
                Finding(
                    entry.seq, "does not follow the entry before it: one of the two was replaced"
                )
            )
        self._seq, self._previous = entry.seq + 1, entry.hash

    def _altered(self, problem: str) -> None:
        self.findings.append(Finding(self._seq, problem))
        self._seq, self._previous = self._seq + 1, None


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
    signed = {"key": signer.key.hex, "signature": signature.hex()}
    return {**unsigned.body, _SIGNED: signed}


def signature_findings(entries: Sequence[Entry], keys: Iterable[PublicKey]) -> list[Finding]:
    """What is wrong with the signatures of entries, by the keys that a reader knows.

    Entries before the first signed one are of versions before 0.3.
    """
    known = {key.hex for key in keys}
    trusted = known | _trusted(entries, known)
    revoked = _revoked(entries, trusted)
    findings, unknown = [], dict[str, list[int]]()
    for entry in dropwhile(lambda entry: _SIGNED not in entry.body, entries):
        key = _signer(entry)
        if _SIGNED not in entry.body:
            problem = "is not signed, as entries before it are: an older version or other means"
            findings.append(Finding(entry.seq, f"{problem} wrote it"))
        elif key is None:
            findings.append(Finding(entry.seq, "was altered: its signature does not verify"))
        elif key not in trusted:
            unknown.setdefault(key, []).append(entry.seq)
        elif entry.seq > revoked.get(key, entry.seq):
            problem = f"is signed by a key that entry {revoked[key]} revoked"
            findings.append(Finding(entry.seq, problem))
    return findings + [_of_unknown_key(key, numbers) for key, numbers in unknown.items()]


def revocations(entries: Iterable[Entry]) -> dict[str, int]:
    """The number of the entry that revoked each revoked key, by the key's id."""
    revoked = [entry for entry in entries if entry.kind == REVOKED]
    return {PublicKey.from_hex(entry.body["key"]).id: entry.seq for entry in revoked}


def signed_by(entries: Iterable[Entry], key: PublicKey) -> int:
    """How many of some entries a key signed."""
    return sum(_signer(entry) == key.hex for entry in entries)


def _trusted(entries: Sequence[Entry], known: set[str]) -> set[str]:
    """The keys that known keys trust, that these trust, and so on."""
    grants = [
        (_signer(entry), str(entry.body.get("key"))) for entry in entries if entry.kind == TRUSTED
    ]
    trusted = set(known)
    while more := {key for by, key in grants if by in trusted} - trusted:
        trusted |= more
    return trusted


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
        key = PublicKey.from_hex(signed["key"])
        signature = bytes.fromhex(signed["signature"])
    except (InputError, ValueError, TypeError):
        return None
    body = {name: value for name, value in entry.body.items() if name != _SIGNED}
    return key.hex if key.verify(signature, _message(replace(entry, body=body))) else None


def _message(entry: Entry) -> bytes:
    return pae(TYPE, replace(entry, hash=entry.digest).line.encode("ascii"))


def _of_unknown_key(key: str, numbers: Sequence[int]) -> Finding:
    number = count_of(len(numbers), "entry", "entries")
    return Finding(
        numbers[0],
        f"{number} from here on {'is' if len(numbers) == 1 else 'are'} signed by the key "
        f"{PublicKey.from_hex(key).id[:16]}, which the house does not trust: forged, or of "
        "another home of yours, whose public key is trusted by cloister keys trust FILE",
    )
