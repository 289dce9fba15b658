"""Verification of entries: the chain is whole, all moves allowed, all charges within budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from cloister.errors import CloisterError, InputError, StorageError, VerificationError
from cloister.privacy.ledger.books import Books
from cloister.privacy.ledger.budgets import Compose, admit_request, basic_composition
from cloister.privacy.ledger.entries import Anchor, Entry, Finding, check_chain, read_chain
from cloister.privacy.ledger.records import ReservationRequest, State


def verify_chain(
    entries: Sequence[Entry], anchors: Iterable[Anchor] = (), compose: Compose = basic_composition
) -> list[Finding]:
    """What is wrong with ``entries``, by entry number; nothing, for a ledger as it was written.

    ``anchors`` are entries that certificates vouch for: without one, a ledger whose end was cut off
    looks like a shorter one. ``compose`` must be the composition of the ledger. Budgets are audited
    on a whole chain only.
    """
    found = check_chain(entries) + _check_anchors(entries, anchors)
    return found or audit(entries, compose)


def verify_export(
    path: Path | str, anchors: Iterable[Anchor] = (), compose: Compose = basic_composition
) -> list[Finding]:
    """``verify_chain`` on an exported file, to the byte.

    Errors: ``StorageError`` if it cannot be read.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read: correct the path.") from error
    return verify_lines(_lines(content), anchors, compose)


def verify_lines(
    lines: Sequence[bytes], anchors: Iterable[Anchor] = (), compose: Compose = basic_composition
) -> list[Finding]:
    """``verify_chain`` on entries as text, one a line, without line ends."""
    entries, found = read_chain(lines)
    found += _check_anchors(entries, anchors)
    return found or audit(entries, compose)


def audit(entries: Iterable[Entry], compose: Compose) -> list[Finding]:
    """What no ledger would have written: illegal moves, charges over budget, decreasing times."""
    books, found, before = Books(), [], ""
    for entry in entries:
        for check in (
            partial(_require_time, before=before),
            partial(_require_room, books, compose),
            books.post,
        ):
            try:
                check(entry)
            except CloisterError as error:
                found.append(Finding(entry.seq, str(error)))
        before = entry.time
    return found


def _lines(content: bytes) -> list[bytes]:
    """Lines without their ends; what follows the last end is a line too, if there is anything."""
    lines = content.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _require_time(entry: Entry, before: str) -> None:
    try:
        datetime.strptime(entry.time, "%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: DTZ007
    except (TypeError, ValueError):
        raise VerificationError("holds no time as the ledger writes them") from None
    if entry.time < before:
        raise VerificationError("is earlier than the entry before it")


def _require_room(books: Books, compose: Compose, entry: Entry) -> None:
    request = _request(entry)
    if request:
        admit_request(books, request, entry.time, compose)


def _request(entry: Entry) -> ReservationRequest | None:
    """The request of a reservation; one that cannot be read is found when it is posted."""
    try:
        return ReservationRequest.from_body(entry.body) if entry.kind == State.RESERVED else None
    except (KeyError, TypeError, InputError):
        return None


def _check_anchors(entries: Sequence[Entry], anchors: Iterable[Anchor]) -> list[Finding]:
    held = {entry.seq: entry.hash for entry in entries}
    return [
        Finding(anchor.seq, "is missing: a certificate vouches for it")
        if anchor.seq not in held
        else Finding(anchor.seq, "is not the entry that a certificate vouches for")
        for anchor in anchors
        if held.get(anchor.seq) != anchor.hash
    ]
