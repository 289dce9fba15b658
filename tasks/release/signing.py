"""Signed statements of a release: what it is, and each decision on it; and what they are worth.

The house's key signs the candidate, unattended, and each move that a person makes. A statement lies
beside the files that it names, as ``STATE.dsse.json``; the ledger holds the digest of its
signature. A reader needs the files and the house's public key, not the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cloister.errors import CloisterError, StorageError, VerificationError
from cloister.privacy.certificate.manifest import MANIFEST_NAME, SIGNED, STATEMENTS, read_manifest
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.ledger import Anchor, Ledger, Release, ReleaseStep, State
from cloister.privacy.signing import (
    Envelope,
    PublicKey,
    compare_folder,
    folder_digests,
    make_statement,
    read_envelope,
    read_statement,
    sign,
    signature_digests,
    write_envelope,
)
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger, open_ledger
from cloister.tasks.ledger.keys import house_key, house_signer

RELEASE_TYPE = "urn:cloister:release"
"""The type of what a statement says of a release."""

SIGNATURE = "signature"
"""What the digest of a candidate's signature is called in the ledger."""

SOUND, ALTERED, UNSIGNED, NOT_APPROVED = 0, 1, 3, 4
"""Exit codes: signed and approved; altered; by no known key; withdrawn or not approved."""


def sign_candidate(public: Path, entry: Release, anchor: Anchor, by: str, home: Home) -> str:
    """Sign the folder of a release that is about to be a candidate; the digest of the signature.

    ``anchor`` is the entry that made its charge final.
    """
    move = _Move(State.CANDIDATE, by, "the release flow ended", datetime.now(UTC).isoformat())
    return _signed(public, entry, move, anchor, home)


def sign_moves(home: Home, release: str, by: str) -> list[State]:
    """Sign the moves of a release that have no statement, and record the signatures; their states.

    Those are the last, where a run was killed after it, and all of a release of an earlier version.
    A statement that was written, and not recorded when a run was killed, is recorded now.
    """
    ledger, public = open_ledger(home), home.release(release) / "public"
    held, entries = ledger.release(release), ledger.entries()
    steps = [
        step
        for step in held.steps
        if step.state in SIGNED
        and (public / MANIFEST_NAME).exists()
        and _unrecorded(public, step.state, held, house_signer(home).key)
    ]
    for step in steps:
        move = _Move(step.state, step.by, step.reason, step.time)
        digest = _signed(public, held, move, entries[step.seq - 1].anchor, home)
        ledger.sign(release, by, digest)
    return [step.state for step in steps]


def _unrecorded(public: Path, state: State, release: Release, key: PublicKey) -> bool:
    """Whether a state has no statement, or a sound one that the ledger does not know.

    The same key signs the same words in the same way, so that the second is made again as it is.
    """
    path = public / statement_name(state)
    if not path.exists():
        return True
    envelope = read_envelope(path)
    digests = signature_digests(envelope, [key]).get(key.id, frozenset())
    return not digests & _recorded(release) and not [*_problems(public, state, envelope, key)]


def _recorded(release: Release) -> set[str | None]:
    """The digests of signatures of a release that the ledger holds."""
    return {release.evidence.get(SIGNATURE), *release.signatures}


@dataclass(frozen=True)
class _Move:
    """What was decided, by whom, why and when."""

    state: State
    by: str
    reason: str
    time: str


def _signed(public: Path, release: Release, move: _Move, anchor: Anchor, home: Home) -> str:
    """Write the statement of a move; the digest of its signature."""
    signer, asked = house_signer(home), release.request
    facts = {
        "release": release.id,
        **asdict(move),
        "dataset": asked.dataset,
        "unit": asked.unit,
        "relation": asked.relation,
        "method": asked.method,
        "epsilon": exact_text(asked.epsilon),
        "delta": exact_text(asked.delta),
        "spec": asked.spec_digest,
        "entry": asdict(anchor),
    }
    files = folder_digests(public, STATEMENTS)
    envelope = sign(make_statement(files, RELEASE_TYPE, facts), signer)
    write_envelope(public / statement_name(move.state), envelope, replace=True)
    (digest,) = signature_digests(envelope, [signer.key])[signer.key.id]
    return digest


def statement_name(state: State) -> str:
    """The file of the statement that a release has a state."""
    return f"{state.value}.dsse.json"


@dataclass(frozen=True)
class Worth:
    """What the signatures of a folder are worth to its holder: in words, and as an exit code."""

    words: str
    code: int


def worth_of(
    folder: Path, key: PublicKey | None, known: State | None, oldest: timedelta | None
) -> Worth:
    """What the statements of a folder show under a public key; ``known`` is the ledger's state.

    ``oldest`` is how old the last statement may be.
    """
    envelopes = {state: folder / statement_name(state) for state in State}
    held = {state: read_envelope(path) for state, path in envelopes.items() if path.is_file()}
    if not held:
        return Worth("unsigned: only consistent with itself", UNSIGNED)
    if key is None:
        return Worth("signed by a key that nobody vouched for: give --key", UNSIGNED)
    if not signature_digests(held.get(State.CANDIDATE, next(iter(held.values()))), [key]):
        return Worth(f"not signed by the key {key.id[:16]}", UNSIGNED)
    for state, envelope in held.items():
        if problems := [*_problems(folder, state, envelope, key)]:
            return Worth("; ".join(problems), ALTERED)
    return _state_of(held, key, known, oldest)


def _problems(folder: Path, state: State, envelope: Envelope, key: PublicKey) -> Iterator[str]:
    """What is wrong with a statement of a folder."""
    name = statement_name(state)
    if not signature_digests(envelope, [key]):
        yield f"{name}: is not signed by the key {key.id[:16]}"
        return
    statement = read_statement(envelope, name)
    if statement.facts(RELEASE_TYPE).get("state") != state.value:
        yield f"{name}: is of another state"
    yield from str(compare_folder(statement, folder, STATEMENTS)).splitlines()


def _state_of(
    held: dict[State, Envelope], key: PublicKey, known: State | None, oldest: timedelta | None
) -> Worth:
    facts = {
        state: read_statement(envelope).facts(RELEASE_TYPE) for state, envelope in held.items()
    }
    if len({each["release"] for each in facts.values()}) > 1:
        return Worth("holds statements of several releases", ALTERED)
    last = max(facts, key=lambda each: str(facts[each]["time"]))
    state, signed = known or last, f"signed by {key.id[:16]}"
    if state is State.CANDIDATE:
        unknown = "" if known else ", as far as this folder shows: it holds no decision"
        return Worth(f"{signed}, not approved{unknown}", NOT_APPROVED)
    if state not in facts:
        decided = f"{signed}; {state.words}, as the ledger of this home says"
    else:
        about = facts[state]
        decided = f"{signed}; {state.words} as of {about['time']} by {about['by']}"
    if state not in (State.APPROVED, State.PUBLISHED):
        return Worth(decided, NOT_APPROVED)
    age = datetime.now(UTC) - datetime.fromisoformat(str(facts[last]["time"]))
    if known is None and oldest is not None and age > oldest:
        return Worth(f"{decided}, which is longer ago than {oldest.days} days", NOT_APPROVED)
    return Worth(decided, SOUND)


def statement_findings(home: Home, ledger: Ledger, release: Release) -> Iterator[str]:
    """What is wrong with the statements of a release in its home.

    Releases of versions before 0.3 are unsigned until somebody signs them again.
    """
    public = home.release(release.id) / "public"
    moves = {step.state: step for step in release.steps if step.state in SIGNED}
    held = [state for state in SIGNED if (public / statement_name(state)).exists()]
    if SIGNATURE not in release.evidence and not held:
        return
    try:
        key = house_key(home)
    except CloisterError as error:
        yield str(error)
        return
    if key is None:
        yield f"{home.folder / 'signing' / 'house.pub'}: is missing; restore it from a backup"
        return
    for state in [*moves, *(state for state in held if state not in moves)]:
        path = public / statement_name(state)
        try:
            found = _unlike_ledger(path, moves.get(state), release, ledger, key)
            yield from (f"{public / problem}" for problem in found)
        except StorageError:
            yield f"{path}: is missing; sign it with cloister review countersign {release.id}"
        except VerificationError as error:
            yield str(error)


def _unlike_ledger(
    path: Path, step: ReleaseStep | None, release: Release, ledger: Ledger, key: PublicKey
) -> Iterator[str]:
    """How a statement differs from what the ledger says of a move."""
    envelope = read_envelope(path)
    if step is None:
        yield f"{path.name}: the ledger holds no such move: its end was cut off or rewritten"
        return
    yield from _problems(path.parent, step.state, envelope, key)
    digests = signature_digests(envelope, [key]).get(key.id, frozenset())
    if not digests & _recorded(release):
        yield f"{path.name}: holds no signature that the ledger recorded"
    facts = read_statement(envelope, path.name).facts(RELEASE_TYPE)
    seq, entries = facts["entry"]["seq"], ledger.entries()
    if not 0 < seq <= len(entries) or asdict(entries[seq - 1].anchor) != facts["entry"]:
        yield f"{path.name}: the ledger does not hold the entry that was signed: it was rewritten"
    if (facts["by"], facts["reason"]) != (step.by, step.reason):
        yield f"{path.name}: the ledger names another person or reason than was signed"


def folder_worth(home: Home, folder: Path, key: Path | None, days: int | None) -> Worth:
    """What a folder of public files shows, under a given key, else under this home's own.

    The ledger's state counts where this home made the release.

    Raises:
        StorageError: the key cannot be read.
    """
    release = _release_of(home, folder)
    own = house_key(home) if release else None
    given = PublicKey.read(key) if key else own
    oldest = timedelta(days=days) if days is not None else None
    return worth_of(folder, given, release.state if release else None, oldest)


def _release_of(home: Home, folder: Path) -> Release | None:
    """The release of this home that a folder says it is."""
    try:
        named, ledger = read_manifest(folder).release, existing_ledger(home)
        return ledger.release(named) if ledger else None
    except CloisterError:
        return None
