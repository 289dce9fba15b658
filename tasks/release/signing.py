"""Signed statements of a release: what it is, and each decision on it; and what they are worth.

The house's key signs the candidate, unattended, and each move that a person makes. A statement lies
beside the files that it names, as ``STATE.dsse.json``; the ledger holds the digest of its
signature. A reader needs the files and the house's public key, not the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloister.errors import CloisterError, StorageError, VerificationError
from cloister.identities import named
from cloister.privacy import signing
from cloister.privacy.certificate import manifest
from cloister.privacy.ledger import (
    Anchor,
    Entry,
    Ledger,
    Release,
    ReleaseStep,
    State,
    export_lines,
    read_chain,
)
from cloister.privacy.ledger.books import LedgerState
from cloister.privacy.ledger.house import MATCHED, SIGNATURE
from cloister.privacy.ledger.lookups import anchor_at, moves_of
from cloister.privacy.ledger.records import Consent, Look
from cloister.tasks.home.files import replace_file
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import existing_ledger, open_ledger
from cloister.tasks.ledger.keys import house_key, house_signer, house_trust, update_trust
from cloister.tasks.release.approvals import (
    approval_problems,
    approvals_lacking,
    charged_facts,
    consent_findings,
)
from cloister.tasks.release.kept_files import is_earlier

SOUND, ALTERED, UNSIGNED, NOT_APPROVED = 0, 1, 3, 4
"""Exit codes: signed and approved; altered; by no known key; withdrawn or not approved."""


def sign_candidate(public: Path, entry: Release, anchor: Anchor, by: str, home: Home) -> str:
    """Sign the folder of a release that is about to be a candidate; the digest of the signature.

    ``anchor`` is the entry that made its charge final.
    """
    move = _Move(State.CANDIDATE, by, "the release flow ended", datetime.now(UTC).isoformat())
    return _signed(public, entry, move, anchor, home)


def sign_moves(home: Home, release: str, by: str) -> list[State]:
    """Sign the moves of a release that the house's key has not signed, and record it; their states.

    That is the last move, if a run was killed after it, all moves of a release of an earlier
    version, and those that a former key of the house signed: the present key adds its signature to
    the same statement. A statement that a killed run wrote but did not record is recorded now.
    """
    ledger, public = open_ledger(home), home.release(release) / "public"
    entry, signer = ledger.release(release), house_signer(home)
    if not (public / manifest.MANIFEST_NAME).exists():
        return []
    house, record = house_trust(home) or signing.Trust(signer.key), ledger.books().record(entry)
    signed = []
    for step in entry.steps:
        path = public / manifest.statement_name(step.state)
        if step.state not in manifest.SIGNED:
            continue
        envelope = signing.read_envelope(path) if path.exists() else None
        if envelope is None or _is_unrecorded(envelope, public, step.state, house, record):
            move = _Move(step.state, step.by, step.reason, step.time)
            digest = _signed(public, entry, move, anchor_at(ledger, step.seq), home)
        elif _is_by_former_keys(envelope, public, step.state, house, record):
            digest = _countersigned(path, envelope, signer)
            _put_trust(home, public)
        else:
            continue
        ledger.sign(release, by, digest)
        signed.append(step.state)
    return signed


def _is_unrecorded(
    envelope: signing.Envelope,
    public: Path,
    state: State,
    house: signing.Trust,
    record: signing.Record,
) -> bool:
    """Whether the ledger does not know a sound statement of the house's present key.

    Signing is deterministic, so signing again gives the same statement.
    """
    present = signing.Trust(house.house)
    known = signing.standing(envelope, present, signing.HOUSE, record)
    return bool(known.unrecorded) and not [*_problems(public, state, envelope, house, None)]


def _is_by_former_keys(
    envelope: signing.Envelope,
    public: Path,
    state: State,
    house: signing.Trust,
    record: signing.Record,
) -> bool:
    """Whether former keys of the house alone signed a sound statement."""
    by_house = signing.standing(envelope, house, signing.HOUSE, record)
    return (
        by_house.complete
        and house.house.id not in by_house.signed
        and not [*_problems(public, state, envelope, house, record)]
    )


def _countersigned(path: Path, envelope: signing.Envelope, signer: signing.Signer) -> str:
    """Add a signature of the house's present key to a statement; the digest of the signature."""
    envelope = signing.add_signature(envelope, signer)
    signing.write_envelope(path, envelope, replace=True)
    return _digest(envelope, signer.key)


def _digest(envelope: signing.Envelope, key: signing.PublicKey) -> str:
    """The digest of the only signature of a key."""
    (digest,) = signing.signature_digests(envelope, [key])[key.id]
    return digest


@dataclass(frozen=True)
class _Move:
    """What was decided, by whom, why and when."""

    state: State
    by: str
    reason: str
    time: str


def _signed(public: Path, release: Release, move: _Move, anchor: Anchor, home: Home) -> str:
    """Write the statement of a move; the digest of its signature."""
    signer = house_signer(home)
    facts = {
        **charged_facts(release),
        **asdict(move),
        "entry": asdict(anchor),
    }
    if move.state is State.APPROVED:
        facts |= _approved_by(public, release, home)
    files = signing.folder_digests(public, manifest.STATEMENTS)
    envelope = signing.sign(signing.make_statement(files, manifest.RELEASE_TYPE, facts), signer)
    signing.write_envelope(public / manifest.statement_name(move.state), envelope, replace=True)
    return _digest(envelope, signer.key)


def _approved_by(public: Path, release: Release, home: Home) -> dict[str, Any]:
    """How many people of each role signed, and which trust statement, put beside it, names them.

    Nothing, where the rules ask for no signatures of people.
    """
    house = open_ledger(home).books().house
    rules = house.rules_of(release.request.dataset)
    if not (rules.signed_approvals and (public / manifest.APPROVAL_NAME).exists()):
        return {}
    trust = update_trust(home, house, house_signer(home))
    if trust is None:
        return {}
    _put_trust(home, public)
    return {"approvals": dict(rules.approvals), "trust": trust.version, MATCHED: True}


def _put_trust(home: Home, public: Path) -> None:
    """Put the trust statements of a home beside what they vouch for."""
    statements = (home.folder / "signing" / manifest.TRUST_NAME).read_bytes()
    replace_file(public / manifest.TRUST_NAME, lambda part: part.write_bytes(statements))


def decisions_on(release: Release, public: Path) -> list[dict[str, str]]:
    """What people decided on a release, or looked at before, by the ledger: who, when, why.

    And the signed statement on it.

    Raises:
        StorageError: a statement is missing.
    """
    return [
        {
            "decision": move.words,
            "time": move.time[:19] + "Z",
            "by": move.who,
            "reason": move.reason,
            "statement": _statement_of(release, public, move),
        }
        for move in release.moves
        if not isinstance(move, ReleaseStep | Look)
        or (isinstance(move, Look) and not move.page)
        or (
            isinstance(move, ReleaseStep)
            and move.state in manifest.SIGNED
            and move.state is not State.CANDIDATE
        )
    ]


def _statement_of(release: Release, public: Path, move: ReleaseStep | Consent | Look) -> str:
    """The file of the house's statement on a decision; empty if there needs to be none."""
    if not isinstance(move, ReleaseStep) or not _is_signed(release, public):
        return ""
    name = manifest.statement_name(move.state)
    if not (public / name).is_file():
        raise StorageError(_missing(public / name, release))
    return name


def _is_signed(release: Release, public: Path) -> bool:
    """Whether the house signs a release: versions before 0.3 did not, until somebody countersigns.

    Then each decision on it has a statement.
    """
    stated = (public / manifest.statement_name(state) for state in manifest.SIGNED)
    return SIGNATURE in release.evidence or any(path.exists() for path in stated)


def _missing(path: Path, release: Release) -> str:
    return f"{path}: is missing; sign it with cloister review countersign {release.id}"


def statements_of(home: Home, release: str) -> list[Path]:
    """What shows somebody without the home how a release was decided: the house's statements on it.

    And those on its keys, if it had others.
    """
    public = home.release(release) / "public"
    files = [public / manifest.statement_name(state) for state in manifest.SIGNED]
    return [
        path for path in (*files, home.folder / "signing" / manifest.TRUST_NAME) if path.is_file()
    ]


@dataclass(frozen=True)
class Worth:
    """What the signatures of a folder prove to its holder: in words, and as an exit code."""

    words: str
    code: int


def worth_of(
    folder: Path,
    key: signing.PublicKey | None,
    known: State | None,
    oldest: timedelta | None,
    record: signing.Record | None = None,
) -> Worth:
    """What the statements of a folder show under a public key; ``known`` is the ledger's state.

    ``oldest`` is how old the last statement may be. The ``record`` of the ledger, where available,
    shows which signatures predate the revocation of their keys.
    """
    paths = {state: folder / manifest.statement_name(state) for state in State}
    envelopes = {
        state: signing.read_envelope(path) for state, path in paths.items() if path.is_file()
    }
    if not envelopes:
        return Worth("unsigned: only consistent with itself", UNSIGNED)
    if key is None:
        return Worth("signed by a key that nobody vouched for: give --key", UNSIGNED)
    house = signing.house_by(folder / manifest.TRUST_NAME, key)
    first = envelopes.get(State.CANDIDATE, next(iter(envelopes.values())))
    if not signing.signers(first, house.role(signing.HOUSE).keys):
        return Worth(f"not signed by the key {key.id[:16]}", UNSIGNED)
    for state, envelope in envelopes.items():
        if problems := [*_problems(folder, state, envelope, house, record)]:
            return Worth("; ".join(problems), ALTERED)
        if lacking := _lacking(folder, envelope, house, record):
            return Worth(f"not approved: {'; '.join(lacking)}", NOT_APPROVED)
    return _state_of(envelopes, house, known, oldest, record)


def _problems(
    folder: Path,
    state: State,
    envelope: signing.Envelope,
    house: signing.Trust,
    record: signing.Record | None,
) -> Iterator[str]:
    """How a statement of a folder was altered, by the keys of the house."""
    name = manifest.statement_name(state)
    by_house = signing.standing(envelope, house, signing.HOUSE, record)
    if not by_house.complete:
        yield f"{name}: {_why_unsigned(by_house, house)}"
        return
    statement = signing.read_statement(envelope, name)
    facts = statement.facts(manifest.RELEASE_TYPE)
    if facts.get("state") != state.value:
        yield f"{name}: is of another state"
    yield from str(signing.compare_folder(statement, folder, manifest.STATEMENTS)).splitlines()
    if "approvals" in facts:
        yield from approval_problems(folder, facts, house)


def _why_unsigned(by_house: signing.Standing, house: signing.Trust) -> str:
    """Why no signature of the house counts."""
    if by_house.undated:
        return (
            f"is signed by the key {min(by_house.undated)[:16]}, which the house revoked, and "
            "nothing shows that it signed before"
        )
    if by_house.unrecorded:
        return "holds no signature that the ledger recorded"
    return f"is not signed by the key {house.house.id[:16]}"


def _lacking(
    folder: Path,
    envelope: signing.Envelope,
    house: signing.Trust,
    record: signing.Record | None,
) -> list[str]:
    """What people's signatures a decision lacks."""
    facts = signing.read_statement(envelope).facts(manifest.RELEASE_TYPE)
    return approvals_lacking(folder, facts, house, record) if "approvals" in facts else []


def _state_of(
    envelopes: dict[State, signing.Envelope],
    house: signing.Trust,
    known: State | None,
    oldest: timedelta | None,
    record: signing.Record | None,
) -> Worth:
    facts = {
        state: signing.read_statement(envelope).facts(manifest.RELEASE_TYPE)
        for state, envelope in envelopes.items()
    }
    if len({statement["release"] for statement in facts.values()}) > 1:
        return Worth("holds statements of several releases", ALTERED)
    last = max(facts, key=lambda state: str(facts[state]["time"]))
    by_house = signing.standing(envelopes[last], house, signing.HOUSE, record)
    state, signed = known or last, f"signed by {min(by_house.current or by_house.former)[:16]}"
    if not by_house.current:
        return Worth(
            f"{signed}, a former key of the house: whether it signed before it was changed or "
            "stolen, a ledger alone shows: give --ledger EXPORT, or have the house sign again with "
            "cloister review countersign",
            UNSIGNED,
        )
    if state is State.CANDIDATE:
        unknown = "" if known else ", as far as this folder shows: it holds no decision"
        return Worth(f"{signed}, not approved{unknown}", NOT_APPROVED)
    if state not in facts:
        decided = f"{signed}; {state.words}, as the ledger says"
    else:
        about = facts[state]
        decided = f"{signed}; {state.words} as of {about['time']} by {named('', str(about['by']))}"
    if state not in (State.APPROVED, State.PUBLISHED):
        return Worth(decided, NOT_APPROVED)
    age = datetime.now(UTC) - datetime.fromisoformat(str(facts[last]["time"]))
    if known is None and oldest is not None and age > oldest:
        return Worth(f"{decided}, which is longer ago than {oldest.days} days", NOT_APPROVED)
    later = "" if known else "; a later withdrawal does not show here: --ledger EXPORT, --max-age"
    return Worth(decided + later, SOUND)


def statement_findings(home: Home, ledger: Ledger, release: Release) -> Iterator[str]:
    """What is wrong with the statements of a release in its home.

    Releases of versions before 0.3 are unsigned until somebody signs them again.
    """
    public = home.release(release.id) / "public"
    moves = {step.state: step for step in release.steps if step.state in manifest.SIGNED}
    stated = [
        state for state in manifest.SIGNED if (public / manifest.statement_name(state)).exists()
    ]
    if not _is_signed(release, public):
        return
    try:
        house = house_trust(home)
    except CloisterError as error:
        yield str(error)
        return
    if house is None:
        yield f"{home.folder / 'signing' / 'house.pub'}: is missing; restore it from a backup"
        return
    entries, record = moves_of(ledger, release), ledger.books().record(release)
    yield from consent_findings(public, entries)
    yield from _trust_findings(home, public, house)
    for state in [*moves, *(state for state in stated if state not in moves)]:
        path = public / manifest.statement_name(state)
        try:
            problems = _unlike_ledger(path, moves.get(state), entries, house, record)
            yield from (f"{public / problem}" for problem in problems)
        except StorageError:
            yield _missing(path, release)
        except VerificationError as error:
            yield str(error)


def _trust_findings(home: Home, public: Path, house: signing.Trust) -> Iterator[str]:
    """Statements on keys beside a release that are not this home's, or that readers lack."""
    path, ours = public / manifest.TRUST_NAME, home.folder / "signing" / manifest.TRUST_NAME
    if path.exists():
        sound = ours.is_file() and is_earlier(path.read_bytes(), ours.read_bytes())
    else:
        sound = not any(_signed_by(public, state, house.former) for state in manifest.SIGNED)
    if not sound:
        yield f"{path}: is not what {ours} says; copy that there"


def _signed_by(public: Path, state: State, keys: Sequence[signing.PublicKey]) -> bool:
    """Whether one of some keys signed a statement; one that cannot be read is named by itself."""
    with suppress(CloisterError):
        envelope = signing.read_envelope(public / manifest.statement_name(state))
        return bool(signing.signers(envelope, keys))
    return False


def folder_unlike_export(
    folder: Path, books: LedgerState, release: str, entries: Sequence[Entry], key: signing.PublicKey
) -> Iterator[str]:
    """How the statements of a folder differ from an export that holds their release.

    The export may hold later moves, of which the folder has no statement.
    """
    house = signing.house_by(folder / manifest.TRUST_NAME, key)
    charged = books.releases[release]
    moves = {step.state: step for step in charged.steps}
    for state in manifest.SIGNED:
        path = folder / manifest.statement_name(state)
        if path.is_file():
            record = books.record(charged)
            yield from _unlike_ledger(path, moves.get(state), entries, house, record)


def _unlike_ledger(
    path: Path,
    step: ReleaseStep | None,
    entries: Sequence[Entry],
    house: signing.Trust,
    record: signing.Record,
) -> Iterator[str]:
    """How a statement differs from what the ledger says of a move."""
    envelope = signing.read_envelope(path)
    if step is None:
        yield f"{path.name}: the ledger holds no such move: its end was cut off or rewritten"
        return
    altered = [*_problems(path.parent, step.state, envelope, house, record)]
    yield from altered or _lacking(path.parent, envelope, house, record)
    facts = signing.read_statement(envelope, path.name).facts(manifest.RELEASE_TYPE)
    if facts.get("entry") not in [asdict(entry.anchor) for entry in entries]:
        yield f"{path.name}: the ledger does not hold the entry that was signed: it was rewritten"
    if (facts.get("by"), facts.get("reason")) != (step.by, step.reason):
        yield f"{path.name}: the ledger names another person or reason than was signed"


def folder_worth(
    home: Home, folder: Path, key: Path | None, days: int | None, export: Path | None = None
) -> Worth:
    """What a folder of public files shows, under a given key, else under this home's own.

    The state is the ledger's: that of an export, or this home's where it made the release.

    Raises:
        StorageError: the key cannot be read.
    """
    public_key = signing.PublicKey.read(key) if key else None
    oldest = timedelta(days=days) if days is not None else None
    if export:
        books = LedgerState.of(read_chain(export_lines(export))[0])
        release = books.releases.get(manifest.read_manifest(folder).release)
    else:
        release = _release_of(home, folder)
        ledger = existing_ledger(home) if release else None
        books = ledger.books() if ledger else LedgerState()
        public_key = public_key or (house_key(home) if release else None)
    if release is None:
        return worth_of(folder, public_key, None, oldest)
    return worth_of(folder, public_key, release.state, oldest, books.record(release))


def _release_of(home: Home, folder: Path) -> Release | None:
    """The release of this home that a folder says it is."""
    try:
        named, ledger = manifest.read_manifest(folder).release, existing_ledger(home)
        return ledger.release(named) if ledger else None
    except CloisterError:
        return None
