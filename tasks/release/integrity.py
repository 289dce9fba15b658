"""Whether a release is what was recorded: its folder, certificate, model, journal and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

from cloister.errors import CloisterError, StorageError, VerificationError
from cloister.files import is_link
from cloister.models.storage import ARRAYS_NAME, model_digest
from cloister.privacy.certificate.certificate import YAML_NAME, Certificate, read_certificate
from cloister.privacy.certificate.manifest import (
    MANIFEST_NAME,
    Manifest,
    read_manifest,
    verify_folder,
)
from cloister.privacy.door.journal_format import JOURNAL_NAME, read_journal
from cloister.privacy.ledger import Anchor, Ledger, Release, State
from cloister.privacy.ledger.house import is_deleted
from cloister.privacy.ledger.lookups import holds
from cloister.tasks.data.session import validation_findings
from cloister.tasks.home.files import abandoned_frames, digest_of
from cloister.tasks.home.home import Home
from cloister.tasks.release.kept_files import (
    ATTACKS_NAME,
    deletion_findings,
    kept_findings,
    keyed_page_digest,
    logged,
)
from cloister.tasks.release.kept_request import request_findings
from cloister.tasks.release.signing import statement_findings
from cloister.tasks.stores.kept_records import object_findings, tracking_findings


def release_findings(home: Home, ledger: Ledger, release: Release) -> Iterator[str]:
    """Everything that is wrong with a release in this home."""
    yield from deletion_findings(home, release)
    yield from _journal_findings(home, release)
    if not _finished(release):
        yield from _unfinished_findings(home, ledger, release)
        if release.state.resumable:
            yield from request_findings(home, release)
            yield from validation_findings(release, home)
        return
    folder = home.release(release.id) / "public"
    yield from folder_findings(folder, ledger, release)
    try:
        manifest = released_manifest(home, release)
    except (StorageError, VerificationError):
        return  # named above
    yield from statement_findings(home, ledger, release)
    yield from _store_findings(home, release)
    yield from _model_findings(home, release, manifest)
    if manifest.lineage.kept:
        page = home.release(release.id) / "internal" / ATTACKS_NAME
        unsealed = [page.relative_to(home.folder).as_posix()] if release.looks else []
        kept = manifest.lineage.kept
        yield from kept_findings(home, release.id, kept, release.deletions, unsealed)
        yield from _page_findings(page, release, home)


def _page_findings(page: Path, release: Release, home: Home) -> Iterator[str]:
    """A page of attacks other than the last one that the ledger recorded."""
    shown = [look.page for look in release.looks if look.page]
    deleted = any("measures" in deletion.kinds for deletion in release.deletions)
    if page.is_file() and not is_link(page):
        altered = keyed_page_digest(page.read_bytes(), release.id, home) not in shown[-1:]
    else:
        altered = bool(shown) and not deleted
    if altered and release.looks:
        yield (
            f"{page}: is not the page of attacks that the ledger recorded; restore it from a "
            "backup, or, before the decision, make it anew with cloister review attack "
            f"{release.id}"
        )


def frame_findings(home: Home) -> Iterator[str]:
    """The frames that killed processes left in a home."""
    with abandoned_frames(home) as frames:
        yield from (
            f"{path}: is a copy of data that a killed process left; cloister retention run "
            "deletes it"
            for path in frames
        )


def _store_findings(home: Home, release: Release) -> Iterator[str]:
    """What the stores lack that the ledger, or the list of what stays in the home, speaks of."""
    if run := release.evidence.get("tracking_run"):
        runs, models = logged(home.release(release.id))
        yield from tracking_findings(home, release.id, list(dict.fromkeys([run, *runs])), models)
    yield from object_findings(home, release)


def folder_findings(folder: Path, ledger: Ledger | None, release: Release | None) -> Iterator[str]:
    """Everything that is wrong with a folder of public files."""
    expected = release.evidence.get("manifest") if release else None
    if not folder.is_dir():
        yield f"{folder}: is missing"
        return
    yield from (
        f"{folder / finding.file}: {finding.problem}" for finding in verify_folder(folder, expected)
    )
    if (release and release.of_domain) or not _certified(folder):
        return
    try:
        certificate = read_certificate(folder)
    except (StorageError, VerificationError) as error:
        yield f"{folder / YAML_NAME}: {str(error).removeprefix(f'{YAML_NAME} ')}"
        return
    problems = [
        *_artefact_problems(folder, certificate),
        *_ledger_problems(certificate, ledger, release),
    ]
    yield from (f"{folder / YAML_NAME}: {problem}" for problem in problems)


def released_manifest(home: Home, release: Release) -> Manifest:
    """The manifest that the ledger recorded when a release was finished.

    Raises:
        StorageError: it cannot be read.
        VerificationError: it was altered or replaced.
    """
    folder = home.release(release.id) / "public"
    manifest = read_manifest(folder)
    if manifest.digest != release.evidence.get("manifest") or manifest.release != release.id:
        raise VerificationError(
            f"{folder / MANIFEST_NAME} is not the one that the ledger recorded; see cloister "
            f"verify {release.id}"
        )
    return manifest


def recorded_certificate(folder: Path, release: Release) -> Certificate:
    """The certificate in the folder of a release, checked against the ledger.

    Raises:
        StorageError: it cannot be read.
        VerificationError: it was altered, or is that of another release.
    """
    certificate = read_certificate(folder)
    recorded = release.evidence.get("certificate")
    if certificate.subject.id != release.id or recorded not in (
        None,
        digest_of(folder / YAML_NAME),
    ):
        raise VerificationError(
            f"{folder / YAML_NAME} is not the one that the ledger recorded; see cloister verify "
            f"{release.id}"
        )
    return certificate


def _finished(release: Release) -> bool:
    return any(step.state is State.CANDIDATE for step in release.steps)


def _certified(folder: Path) -> bool:
    """Whether a folder holds a certificate, or should; that of a measurement holds a spec."""
    try:
        return any(record.path == YAML_NAME for record in read_manifest(folder).files)
    except (StorageError, VerificationError):
        return True


def _unfinished_findings(home: Home, ledger: Ledger, release: Release) -> Iterator[str]:
    """An unknown manifest shows that the end of the ledger is missing, unless the release runs.

    The manifest is written just before its entry.
    """
    path = home.release(release.id) / "public" / MANIFEST_NAME
    if not path.exists() or ledger.is_running(release.id):
        return
    if ledger.release(release.id).state is State.SPENT:  # still: a run may have ended meanwhile
        yield (
            f"{path}: the release is finished, and the ledger does not say so: its last entries "
            "were cut off, or the run was killed before it wrote them; run the same command again"
        )


def _journal_findings(home: Home, release: Release) -> Iterator[str]:
    """A final charge has a journal with the id, data, spec and code that the ledger recorded."""
    recorded, request = release.evidence, release.request
    if "journal" not in recorded or is_deleted(release, f"journals/{release.id}"):
        return
    path = home.journal(release.id) / JOURNAL_NAME
    if not path.is_file():
        yield f"{path}: is missing"
        return
    try:
        journal = read_journal(path.parent)
    except (StorageError, VerificationError) as error:
        yield f"{path}: {str(error).removeprefix(f'{path} ')}"
        return
    fingerprint = {
        "data": recorded["data"],
        "spec": request.spec_digest,
        "code": request.code_version,
    }
    if journal.id != recorded["journal"] or fingerprint != {
        name: journal.fingerprint.get(name) for name in fingerprint
    }:
        yield f"{path}: is not the journal that the ledger recorded"
    elif _finished(release) and not journal.sealed:
        yield f"{path}: its end is missing"


def _model_findings(home: Home, release: Release, manifest: Manifest) -> Iterator[str]:
    arrays = f"releases/{release.id}/model/{ARRAYS_NAME}"
    if release.of_domain or is_deleted(release, arrays):
        return
    folder = home.release(release.id) / "model"
    try:
        if model_digest(folder) != (manifest.lineage.model or model_digest(folder)):
            yield f"{folder}: is not the model that was released"
    except CloisterError as error:
        yield f"{folder}: {error}"


def _artefact_problems(folder: Path, certificate: Certificate) -> Iterator[str]:
    for name, digest in certificate.artefacts.items():
        if not (folder / name).is_file():
            yield f"it vouches for {name}, which is missing"
        elif digest_of(folder / name) != digest:
            yield f"it vouches for another {name}"


def _ledger_problems(
    certificate: Certificate, ledger: Ledger | None, release: Release | None
) -> Iterable[str]:
    if ledger is None or release is None:
        return []
    request, subject = release.request, certificate.subject
    stated = (subject.id, subject.dataset, subject.method, subject.spec)
    anchor = Anchor(certificate.ledger.seq, certificate.ledger.hash)
    checks = {
        "it names another release, dataset, method or spec than the ledger": stated
        == (release.id, request.dataset, request.method, request.spec_digest),
        "it states another epsilon or delta than the ledger": (
            Fraction(certificate.guarantee.epsilon),
            Fraction(certificate.guarantee.delta),
        )
        == (request.epsilon, request.delta),
        "it names other data than the ledger": subject.input == release.evidence.get("data"),
        "the ledger does not hold the entry that it names": holds(ledger, anchor),
    }
    return [problem for problem, holds in checks.items() if not holds]
