"""Entries of the ledger: canonical text, and a chain of SHA-256 digests.

The text of an entry is canonical JSON: ASCII, keys sorted, no spaces, no floats (amounts are
``p/q``, times ISO 8601 in UTC). Its ``hash`` is the SHA-256 of that text, which holds the hash of
the entry before it, so no entry can be altered, removed, inserted or moved without every later hash
changing. Order is by ``seq``, never by the clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from cloister.errors import InputError, VerificationError

GENESIS = "0" * 64
"""What the first entry holds as the hash before it."""


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
        return _dump(
            {
                "seq": self.seq,
                "time": self.time,
                "kind": self.kind,
                "slot": self.slot,
                "body": self.body,
                "previous": self.previous,
            }
        )

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
        """What a certificate records of this entry."""
        return Anchor(self.seq, self.hash)


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
    """What breaks the chain of ``entries``: nothing, for the ledger as it was written."""
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
            self.findings += [
                Finding(seq, "is missing") for seq in _first_few(self._seq, entry.seq)
            ]
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


def _first_few(start: int, stop: int) -> range:
    return range(start, min(stop, start + 10))
