"""Anchors outside: the newest entry of the ledger, signed, in append-only stores elsewhere.

CLOISTER_ANCHORS names the stores, separated by spaces and quoted as in a shell::

    /mnt/worm/anchors.jsonl            a file: a line of JSON for each anchor
    git+ssh://host/anchors.git         a Git remote: a commit of the branch ``anchors`` for each
    s3://BUCKET/PREFIX                 a bucket: an object for each

An anchor is a statement on the entry's hash in a DSSE envelope. It is sent once the entry is
committed: an anchor that a store does not take waits in the home and is sent with the next one, and
no move fails because of it. A store belongs to one home.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from cloister.errors import CloisterError, InputError, StorageError, VerificationError
from cloister.figures import count_of
from cloister.files import write_whole
from cloister.privacy import signing
from cloister.privacy.ledger import Anchor, Entry, revocations
from cloister.tasks.home.files import exclusive
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.ledger.append_only import AnchorStore, LineFile, anchor_store_of
from cloister.tasks.ledger.keys import house_signer, house_trust

ANCHOR_TYPE = "urn:cloister:anchor"
"""The type of what a statement says of an entry of the ledger."""


def anchor_stores(home: Home) -> list[AnchorStore]:
    """The stores that CLOISTER_ANCHORS names; none of them is contacted.

    Raises:
        InputError: one cannot be a store, or needs what is not installed.
    """
    try:
        places = [anchor_store_of(name) for name in shlex.split(home.anchors)]
    except ValueError:
        raise InputError(
            "CLOISTER_ANCHORS has an opening quote without a closing one. Nothing was charged."
        ) from None
    for store in places:
        inside = Path(store.name).resolve().is_relative_to(home.folder.resolve())
        if isinstance(store, LineFile) and inside:
            raise InputError(
                f"CLOISTER_ANCHORS names {store.name}, which is in the home that it should vouch "
                "for; give a place that others keep. Nothing was charged."
            )
    return places


def send_anchor(home: Home, anchor: Anchor) -> None:
    """Send an entry that was just committed to all anchor stores of a home.

    Failures are reported on standard error: the move has happened, and does not fail.
    """
    for store in anchor_stores(home):
        waiting = _waiting(home, store)
        try:
            private_folder(waiting.parent)
            with exclusive(waiting.with_suffix(".lock")):
                _send(store, waiting, [*_lines(waiting), _signed(home, anchor)])
        except (CloisterError, OSError) as error:
            sys.stderr.write(
                f"warning: entry {anchor.seq} is in the ledger, and its anchor could not be sent "
                f"to {store.name} ({error}); it waits in the home and is sent with the next one\n"
            )


def _send(store: AnchorStore, waiting: Path, lines: Sequence[str]) -> None:
    """Send anchors, which wait on the disk until they are sent, and then note the newest."""
    text = "".join(f"{line}\n" for line in lines)
    write_whole(waiting, lambda part: part.write_text(text, encoding="ascii"))
    store.send(lines)
    sent = waiting.with_suffix(".sent")
    known = [*_readable([*_lines(sent), *lines])]
    newest = max(known, key=lambda pair: pair[1].seq)[0]
    write_whole(sent, lambda part: part.write_bytes(newest.text))
    waiting.unlink()


def _waiting(home: Home, store: AnchorStore) -> Path:
    """The file of the anchors that a store has not taken yet."""
    return home.folder / "anchors" / f"{sha256(store.name.encode()).hexdigest()[:16]}.waiting"


def _lines(path: Path) -> list[str]:
    return path.read_text("ascii", "replace").splitlines() if path.exists() else []


def _signed(home: Home, anchor: Anchor) -> str:
    facts = {**asdict(anchor), "time": datetime.now(UTC).isoformat()}
    payload = signing.make_statement({f"entry-{anchor.seq}": anchor.hash}, ANCHOR_TYPE, facts)
    return json.dumps(json.loads(signing.sign(payload, house_signer(home)).text))


def _read(line: str) -> tuple[signing.Envelope, Anchor]:
    """An anchor as a store holds it, whoever signed it.

    Raises:
        VerificationError: it is not an anchor.
    """
    envelope = signing.Envelope.parse(line.encode())
    facts = signing.read_statement(envelope).facts(ANCHOR_TYPE)
    try:
        return envelope, Anchor(int(facts["seq"]), str(facts["hash"]))
    except (KeyError, TypeError, ValueError):
        raise VerificationError("The anchor names no entry") from None


@dataclass(frozen=True)
class Comparison:
    """What an anchor store holds of a ledger, in words, and what is wrong with either."""

    words: str
    findings: list[str]


def compare_stores(
    home: Home, entries: Sequence[Entry], key: signing.PublicKey | None, *, whole: bool = True
) -> list[Comparison]:
    """Compare a ledger with the anchors in the stores of its home.

    Args:
        key: that of the house which signed them; by default this home's own.
        whole: the entries are the whole ledger; else a store may hold later ones.
    """
    house = signing.Trust(key) if key else None
    with suppress(CloisterError):  # one that cannot be read is reported by itself
        house = house or house_trust(home)
    return [_compare(home, store, entries, house, whole) for store in anchor_stores(home)]


def _compare(
    home: Home,
    store: AnchorStore,
    entries: Sequence[Entry],
    house: signing.Trust | None,
    whole: bool,
) -> Comparison:
    try:
        lines = store.lines()
    except StorageError as error:
        return Comparison(store.name, [f"{store.name}: cannot be read ({error}); try again"])
    read = [*_readable(lines)]
    findings = [*_unlike(store, read, entries, house, whole)]
    waiting = _waiting(home, store)
    newest = max((anchor.seq for _, anchor in read), default=0)
    findings += _unlike_sent(store, waiting, bool(read), entries, house) if whole and house else []
    sent = [anchor for _, anchor in _readable(_lines(waiting.with_suffix(".sent")))]
    if whole and any(anchor not in [recorded for _, recorded in read] for anchor in sent):
        findings.append(
            f"{store.name}: lacks the anchor of entry {sent[0].seq}, which was sent there: it was "
            "cut off or replaced; restore it, and find out who can write there"
        )
    words = f"{store.name} ({count_of(len(read), 'anchor')}, up to entry {newest}"
    words += f"; {len(_lines(waiting))} wait to be sent" if _lines(waiting) else ""
    unread = len(lines) - len(read)
    words += f"; {count_of(unread, 'line')} that cannot be read" if unread else ""
    return Comparison(f"{words})", findings)


def _unlike_sent(
    store: AnchorStore,
    waiting: Path,
    filled: bool,
    entries: Sequence[Entry],
    house: signing.Trust,
) -> Iterator[str]:
    """What is wrong with a home's own note of what it sent to a ``filled`` store or has to send."""
    sent, revoked = waiting.with_suffix(".sent"), revocations(entries)
    for path in (sent, waiting):
        ours = [pair for pair in _readable(_lines(path)) if _counts(*pair, house, revoked)]
        if len(ours) < len(_lines(path)):
            yield (
                f"{path}: was altered; compare {store.name} with the ledger and delete it: the "
                "next entry writes it anew"
            )
    if filled and waiting.with_suffix(".lock").exists() and not _lines(sent) + _lines(waiting):
        yield (
            f"{sent}: is missing, so that nothing shows what {store.name} lost at its end; the "
            "next entry writes it anew"
        )


def _readable(lines: Sequence[str]) -> Iterator[tuple[signing.Envelope, Anchor]]:
    """The anchors among lines; a line that a full disk cut off is left out."""
    for line in lines:
        with suppress(VerificationError):
            yield _read(line)


def _unlike(
    store: AnchorStore,
    read: Sequence[tuple[signing.Envelope, Anchor]],
    entries: Sequence[Entry],
    house: signing.Trust | None,
    whole: bool,
) -> Iterator[str]:
    """How the anchors of a store differ from a ledger; the first of each kind of difference."""
    revoked = revocations(entries)
    foreign = [anchor.seq for signed, anchor in read if not _counts(signed, anchor, house, revoked)]
    if foreign:
        yield (
            f"{store.name}: the anchor of entry {min(foreign)} is not signed by "
            + (f"the key {house.house.id[:16]}" if house else "a known key; give --key")
            + f" ({len(foreign)} of {len(read)}): the house's key was replaced, or others send it"
        )
    beyond = [anchor.seq for _, anchor in read if anchor.seq > len(entries)]
    if beyond and whole:
        yield (
            f"the ledger's end was cut off: {store.name} holds entry {max(beyond)}, and the ledger "
            f"ends with {len(entries)}; restore it from a backup or an export"
        )
    rewritten = [
        anchor.seq
        for _, anchor in read
        if anchor.seq <= len(entries) and entries[anchor.seq - 1].anchor != anchor
    ]
    if rewritten:
        yield (
            f"the ledger was rewritten: entry {min(rewritten)} is not the one that {store.name} "
            "holds; restore it from a backup or an export that agrees"
        )


def _counts(
    envelope: signing.Envelope,
    anchor: Anchor,
    house: signing.Trust | None,
    revoked: Mapping[str, int],
) -> bool:
    """Whether a key of the house signed an anchor, and was not revoked at or before its entry."""
    keys = signing.signers(envelope, house.role(signing.HOUSE).keys) if house else frozenset()
    return any(anchor.seq < revoked.get(key, anchor.seq + 1) for key in keys)


def held_anchors(home: Home) -> list[Anchor]:
    """The entries that the anchor stores of a home hold under its keys, oldest first.

    Raises:
        StorageError: a store cannot be read.
    """
    house = house_trust(home)
    revoked = {each.key: each.seq for each in house.revoked} if house else {}
    read = [signed for store in anchor_stores(home) for signed in _readable(store.lines())]
    ours = [anchor for envelope, anchor in read if _counts(envelope, anchor, house, revoked)]
    return sorted(ours, key=lambda anchor: anchor.seq)
