"""Whether ledger, home and releases are still what was recorded, recomputed from the files alone.

For a whole home, its modes, its key and the stores of the tools in it are checked too. Public files
restored from the DVC remote are checked against the ledger.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from itertools import islice
from pathlib import Path

from cloister.errors import CloisterError, InputError, StorageError, VerificationError
from cloister.files import LINKED, database_to_read
from cloister.models.storage import saved_spec
from cloister.privacy.certificate.certificate import (
    PAGE_NAME,
    YAML_NAME,
    Certificate,
    read_certificate,
)
from cloister.privacy.certificate.manifest import MANIFEST_NAME, STATEMENTS, read_manifest
from cloister.privacy.certificate.page import page
from cloister.privacy.ledger import (
    Anchor,
    Entry,
    Finding,
    Ledger,
    Release,
    State,
    export_lines,
    read_chain,
    signature_findings,
    signed_by,
    verify_export,
)
from cloister.privacy.signing import PublicKey
from cloister.tasks.data.tables import write_csv
from cloister.tasks.home.files import (
    copy_whole,
    digest_of,
    exclusive,
    replace_file,
    sealed_findings,
)
from cloister.tasks.home.home import Home, open_to_others, temporary_files
from cloister.tasks.ledger.access import anchor_of, existing_ledger, release_of, vouched
from cloister.tasks.ledger.anchors import Comparison, compare_stores
from cloister.tasks.ledger.fingerprints import FINGERPRINT, key_name
from cloister.tasks.ledger.keys import house_keys, signing_findings
from cloister.tasks.ledger.people import refresh_trust
from cloister.tasks.release.integrity import folder_findings, frame_findings, release_findings
from cloister.tasks.release.kept_files import FILE_NAME
from cloister.tasks.stores.dvc_store import CSV, PARQUET, Versions, sent_files
from cloister.tasks.stores.kept_records import remote_findings

_NAMED = 3
"""Findings on modes at most: the first ones show where to look."""


def mode_findings(home: Home) -> list[str]:
    """Files and folders that others may use.

    Call this before the home is used, since use closes them. It waits for objects that DVC is about
    to send: DVC opens them, and they are closed when it ends.
    """
    if not home.folder.is_dir() or home.is_copy:
        return []
    lock = home.versions / "lock"
    with exclusive(lock) if lock.exists() and not home.read_only else nullcontext():
        paths = list(islice(open_to_others(home.folder), _NAMED))
    done = "close it" if home.read_only else "it is closed now"
    return [
        f"{path}: others could use it (mode {path.lstat().st_mode & 0o777:o}); {done}"
        for path in paths
    ]


_OWN_FILES = (
    "key",
    "fingerprint.key",
    "end",
    "ledger.db",
    "signing/house.pem",
    "signing/house.pub",
    "signing/trust.jsonl",
)


def _link_findings(home: Home) -> Iterator[str]:
    for path in (home.folder / name for name in _OWN_FILES):
        if path.is_symlink():
            yield f"{path}: {LINKED}"


def home_findings(home: Home) -> Iterator[str]:
    """Problems of the keys, the tools' databases, left copies of data, and the DVC remote."""
    yield from _link_findings(home)
    if (home.folder / "key").exists() or (home.folder / "releases").exists():
        yield from _key_findings(home)
    if not (home.folder / "signing" / "house.pem").is_symlink():
        yield from signing_findings(home)
    for path in sorted(home.folder.glob("*/**/*.db")):
        yield from _database_findings(path)
    yield from sealed_findings(home)
    yield from frame_findings(home)
    yield from remote_findings(home)


def _key_findings(home: Home) -> Iterator[str]:
    if not (home.folder / "key").exists():
        yield f"{home.folder / 'key'}: is missing; restore it from a backup"
        return
    try:
        home.key()
        if (home.folder / "fingerprint.key").exists():
            home.fingerprint_key()
    except StorageError as error:
        yield str(error)


def _database_findings(path: Path) -> Iterator[str]:
    """What SQLite itself finds."""
    try:
        with closing(sqlite3.connect(database_to_read(path), uri=True)) as database:
            ((verdict,),) = database.execute("PRAGMA integrity_check(1)").fetchall()
            schema = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.Error, ValueError) as error:
        verdict, schema = type(error).__name__, ()
    if verdict != "ok" or not schema:
        yield f"{path}: is damaged ({str(verdict).splitlines()[0]}); restore a copy"


_KEPT_STATES = (
    State.RESERVED,
    State.SPENT,
    State.CANDIDATE,
    State.APPROVED,
    State.PUBLISHED,
    State.REJECTED,
    State.WITHDRAWN,
)


def verify_records(
    home: Home, what: str | None, anchors: Sequence[Anchor] = (), key: PublicKey | None = None
) -> tuple[list[str], list[str]]:
    """What was checked, and all problems of it: the ledger and the whole home, or one release.

    ``what`` may be a release, its folder, or an exported ledger. The ledger must hold the
    ``anchors``, and the entries that the home, its certificates and its places of anchors name,
    which reveals a cut-off end. Those places may hold entries later than an export. Anchors and
    entries must be signed by the house's ``key``, by default this home's own.

    Raises:
        InputError: ``what`` is none of these.
    """
    if what is not None and Path(what).is_file():
        broken = [f"{what}, {finding}" for finding in verify_export(what, anchors)]
        entries = [] if broken else read_chain(export_lines(what))[0]
        signed = [f"{what}, {finding}" for finding in _unsigned(home, entries, key)]
        compared = compare_stores(home, entries, key, whole=False) if entries else []
        return [what, *_words(compared)], [*broken, *signed, *_findings_of(compared)]
    modes = mode_findings(home)
    ledger = existing_ledger(home)
    anchors = [*anchors, *vouched(home)]
    if what is not None and Path(what).is_dir():
        return _verified_folder(home, ledger, Path(what), anchors)
    if ledger is None:
        raise InputError(
            f"there is no ledger at {home.ledger}; give the folder of a release, or set "
            "CLOISTER_HOME"
        )
    broken = [f"ledger, {finding}" for finding in ledger.verify(anchors)]
    compared = [] if broken else compare_stores(home, ledger.entries(), key)
    signed = (
        []
        if broken
        else [f"ledger, {finding}" for finding in _unsigned(home, ledger.entries(), key)]
    )
    ended = list(_end_findings(home, ledger))
    if what is not None:
        checked, findings = _verified_release(home, ledger, what, [*ended, *broken, *signed])
    else:
        known = [*modes, *ended, *broken, *signed, *home_findings(home)]
        checked, findings = _verified_home(home, ledger if not broken else None, known)
    return [*checked, *_words(compared)], [*_findings_of(compared), *findings]


def _words(compared: Sequence[Comparison]) -> list[str]:
    return [comparison.words for comparison in compared]


def _findings_of(compared: Sequence[Comparison]) -> list[str]:
    return [finding for comparison in compared for finding in comparison.findings]


def _unsigned(home: Home, entries: Sequence[Entry], key: PublicKey | None) -> list[Finding]:
    """What is wrong with the signatures of sound entries, by a given key or this home's own."""
    try:
        known = [key] if key else house_keys(home)
    except CloisterError:
        return []  # the key is reported by itself
    if key and entries and not signed_by(entries, key):
        return [Finding(0, f"none of its entries is signed by the key {key.id[:16]}")]
    return signature_findings(entries, known) if known else []


def release_problems(home: Home, release: str) -> list[str]:
    """Everything that is wrong with one release in this home."""
    ledger = existing_ledger(home)
    if ledger is None:
        raise InputError(f"there is no ledger at {home.ledger}; set CLOISTER_HOME")
    return list(release_findings(home, ledger, ledger.release(release)))


def _verified_release(
    home: Home, ledger: Ledger, what: str, broken: list[str]
) -> tuple[list[str], list[str]]:
    if broken:
        return ["the ledger"], broken
    return ["the ledger", f"release {what}"], list(
        release_findings(home, ledger, ledger.release(what))
    )


def _verified_home(
    home: Home, ledger: Ledger | None, findings: list[str]
) -> tuple[list[str], list[str]]:
    """All releases of a home, against the ledger if that is sound, else each folder on its own."""
    if ledger is None:
        folders = sorted((home.folder / "releases").glob("*/public"))
        problems = [
            finding for folder in folders for finding in folder_findings(folder, None, None)
        ]
        return ["the ledger", *map(str, folders)], findings + problems
    present = [
        *home.traces(),
        *home.versions.glob("releases/*"),
    ]  # before the ledger is read: a release may begin meanwhile
    known = ledger.releases()
    chosen = [
        release
        for release in known
        if (release.state in _KEPT_STATES or release.deletions) and _is_here(release, home)
    ]
    problems = [
        finding for release in chosen for finding in release_findings(home, ledger, release)
    ]
    ids = {release.id for release in known}
    findings = [*findings, *_fingerprint_findings(home, known)]
    unknown = [
        f"{path}: the ledger holds no such release; entries were cut off or replaced"
        for path in present
        if path.name not in ids
    ]
    return [
        "the ledger",
        str(home.folder),
        *(f"release {release.id}" for release in chosen),
    ], list(dict.fromkeys(findings + unknown + problems))


def _fingerprint_findings(home: Home, known: Sequence[Release]) -> Iterator[str]:
    """A key other than that of the last fingerprint of this home: equal data would look different.

    The first release after a key was copied from another home makes that the right one.
    """
    path = home.folder / "fingerprint.key"
    sealed = [
        (step.seq, step.evidence[FINGERPRINT].partition(":")[0], release.id)
        for release in known
        for step in release.steps
        if FINGERPRINT in step.evidence and home.release(release.id).is_dir()
    ]
    if not sealed:
        return
    _, name, last = max(sealed)
    if not path.exists():
        yield f"{path}: is missing; restore it from a backup"
        return
    with suppress(StorageError):  # one that was altered is reported by itself
        if key_name(home.fingerprint_key()) != name:
            yield (
                f"{path}: is not the key under which release {last} was read, so that equal data "
                "of others is not found; restore it from a backup, or, if it was copied here from "
                "another home, go on: the next release uses it"
            )


def _is_here(release: Release, home: Home) -> bool:
    """Whether a release belongs to this home: several machines may share a ledger elsewhere."""
    local = "://" not in home.ledger and Path(home.ledger).absolute().is_relative_to(home.folder)
    return local or home.release(release.id).exists() or home.journal(release.id).exists()


def _end_findings(home: Home, ledger: Ledger) -> Iterator[str]:
    """What is wrong with a home's own note of the last entry, or with the ledger by it."""
    try:
        last = anchor_of(home.end.read_text(encoding="ascii").removesuffix("\n"))
        if last not in [entry.anchor for entry in ledger.entries()]:
            yield (
                f"{home.end}: the ledger does not hold the entry it names: its end was cut off, or "
                "one was altered"
            )
    except (InputError, UnicodeDecodeError):
        yield f"{home.end}: was altered"
    except VerificationError:
        return  # reported by the check of the ledger
    except OSError:
        if [*(home.folder / "releases").glob(f"*/{FILE_NAME}")]:
            yield f"{home.end}: is missing"


def _verified_folder(
    home: Home, ledger: Ledger | None, folder: Path, anchors: Sequence[Anchor]
) -> tuple[list[str], list[str]]:
    """A folder of public files; against the ledger too, if it is one of this home's releases."""
    named, release = _named_in(folder), _release_in(folder, ledger)
    known = release is not None or (named is not None and home.release(named).exists())
    findings = (
        [f"ledger, {finding}" for finding in ledger.verify(anchors)] if ledger and known else []
    )
    checked = [str(folder), *(["the ledger"] if known else [])]
    return checked, [*findings, *folder_findings(folder, None if findings else ledger, release)]


def _release_in(folder: Path, ledger: Ledger | None) -> Release | None:
    """The release of this ledger that a folder says it is."""
    named = _named_in(folder)
    try:
        return ledger.release(named) if ledger and named else None
    except (InputError, VerificationError):
        return None


def _named_in(folder: Path) -> str | None:
    try:
        return read_manifest(folder).release
    except (StorageError, VerificationError):
        return None


def fetch_release(home: Home, release: str, out: Path | None) -> Path:
    """Restore table, certificate and page of a release in the home or a new folder; that folder.

    The manifest is in the home alone, since it seals internal files too; a new folder gets a copy
    of it.

    Raises:
        InputError: there is no such release, it was not finished, or it has no pointers.
        StorageError: the remote does not hold it, or the files cannot be written.
        VerificationError: the remote holds something else than the ledger recorded; nothing is
            written.
    """
    entry, public = release_of(home, release), home.release(release) / "public"
    with temporary_files(home), tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        names = _fetched(home, entry, folder)
        if out:
            for name in (MANIFEST_NAME, *STATEMENTS):
                _copy(public / name, folder)
            if statements := refresh_trust(home):
                _copy(statements, folder)
            copy_whole(folder, out, release)
            return out
        for name in names:
            _copy(folder / name, public)
    return public


def _fetched(home: Home, release: Release, folder: Path) -> list[str]:
    """Write the files of a release into a folder; their names."""
    recorded = release.evidence.get("certificate")
    if recorded is None:
        raise InputError(
            f"release {release.id} is {release.state.words}, and has no certificate; there is "
            "nothing to fetch"
        )
    versions = Versions(home.versions, home.remote)
    try:
        versions.fetch(release.id, sent_files([YAML_NAME], folder))
    except StorageError as error:
        if release.state.shareable:
            raise
        raise StorageError(
            f"{error}; release {release.id} is {release.state.words}, and only approved ones are "
            "sent to the remote: restore the files from a backup of the home"
        ) from None
    _require(digest_of(folder / YAML_NAME) == recorded, YAML_NAME, release.id)
    certificate = read_certificate(folder)
    versions.fetch(release.id, sent_files(certificate.artefacts, folder))
    (folder / PAGE_NAME).write_text(page(certificate), encoding="utf-8")
    for name in certificate.artefacts:
        if name.endswith(CSV):
            _write_csv(home, release, folder / name)
    _require_artefacts(certificate, folder)
    return [YAML_NAME, PAGE_NAME, *certificate.artefacts]


def _write_csv(home: Home, release: Release, path: Path) -> None:
    """Write a table as CSV again, which the remote does not hold."""
    spec = saved_spec(home.release(release.id) / "model")
    declared = spec.parts.get(path.stem, spec)
    write_csv(path.with_suffix(PARQUET), path, declared)


def _require_artefacts(certificate: Certificate, folder: Path) -> None:
    for name, digest in certificate.artefacts.items():
        _require(digest_of(folder / name) == digest, name, certificate.subject.id)


def _require(same: bool, name: str, release: str) -> None:
    if not same:
        raise VerificationError(
            f"the remote holds another {name} than the ledger recorded for release {release}; see "
            "cloister verify"
        )


def _copy(file: Path, folder: Path) -> None:
    """Put a file, if it exists, into a folder, whole or not at all.

    The same content is not written again.
    """
    target = folder / file.name
    if file.is_file() and not (target.is_file() and digest_of(target) == digest_of(file)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(target, lambda part: part.write_bytes(file.read_bytes()))
