"""Whether ledger, manifests, certificates and files still are what was recorded; recomputed from the files alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

from cloister.errors import InputError, StorageError, VerificationError
from cloister.privacy.certificate import YAML_NAME, Certificate
from cloister.privacy.ledger import Anchor, Ledger, Release, State, verify_export
from cloister.privacy.manifest import read_manifest, verify_folder
from tasks.books import existing_ledger
from tasks.certificates import read_certificate
from tasks.home import Home
from tasks.references import digest_of

FINISHED = (State.CANDIDATE, State.APPROVED, State.PUBLISHED, State.REJECTED, State.WITHDRAWN)


def verified(home: Home, what: str | None, anchors: Sequence[Anchor] = ()) -> tuple[list[str], list[str]]:
    """What was checked, and everything that is wrong with it: the ledger and all releases, or one of them.

    ``what`` may be a release, its folder, or an exported ledger. The ledger must hold the ``anchors``, and the entries
    that certificates in the home name: so a cut-off tail is found.

    Raises:
        InputError: ``what`` is none of these.
    """
    if what is not None and Path(what).is_file():
        return [what], [f"{what}, {finding}" for finding in verify_export(what, anchors)]
    ledger, anchors = existing_ledger(home), [*anchors, *_vouched(home)]
    if what is not None and Path(what).is_dir():
        return _verified_folder(home, ledger, Path(what), anchors)
    if ledger is None:
        raise InputError(f"there is no ledger at {home.ledger}; give the folder of a release, or set CLOISTER_HOME")
    broken = [f"ledger, {finding}" for finding in ledger.verify(anchors)]
    if broken:
        return ["the ledger"], broken
    chosen = [ledger.release(what)] if what else _kept(ledger, home)
    folders = [(home.release(release.id) / "public", release) for release in chosen]
    findings = [finding for folder, release in folders for finding in _folder_findings(folder, ledger, release)]
    return ["the ledger", *(f"release {release.id}" for release in chosen)], findings


def anchor_of(text: str) -> Anchor:
    """The entry that NUMBER:HASH names.

    Raises:
        InputError: it is not of that form.
    """
    number, _, digest = text.partition(":")
    if not number.isdecimal() or not digest:
        raise InputError(f"'{text}' is no anchor; give NUMBER:HASH, as cloister ledger export prints it")
    return Anchor(int(number), digest)


def folder_findings(home: Home, release: str) -> list[str]:
    """Everything that is wrong with the folder of one release."""
    ledger = existing_ledger(home)
    if ledger is None:
        raise InputError(f"there is no ledger at {home.ledger}; set CLOISTER_HOME")
    return list(_folder_findings(home.release(release) / "public", ledger, ledger.release(release)))


def _kept(ledger: Ledger, home: Home) -> list[Release]:
    """The releases that were finished here; those of another machine have no folder in this home."""
    return [r for r in ledger.releases() if r.state in FINISHED and home.release(r.id).exists()]


def _vouched(home: Home) -> Iterator[Anchor]:
    """The entries that the certificates of a home name."""
    for folder in sorted((home.folder / "releases").glob("*/public")):
        with suppress(StorageError, VerificationError):
            named = read_certificate(folder).ledger
            yield Anchor(named.seq, named.hash)


def _verified_folder(
    home: Home, ledger: Ledger | None, folder: Path, anchors: Sequence[Anchor]
) -> tuple[list[str], list[str]]:
    """A folder that was handed on; against the ledger too, if it is one of this home's releases."""
    named, held = _named_in(folder), _release_in(folder, ledger)
    own = held is not None or (named is not None and home.release(named).exists())
    findings = [f"ledger, {finding}" for finding in ledger.verify(anchors)] if ledger and own else []
    checked = [str(folder), *(["the ledger"] if own else [])]
    return checked, [*findings, *_folder_findings(folder, None if findings else ledger, held)]


def _release_in(folder: Path, ledger: Ledger | None) -> Release | None:
    """The release of this ledger that a folder says it is."""
    named = _named_in(folder)
    try:
        return ledger.release(named) if ledger and named else None
    except InputError:
        return None


def _named_in(folder: Path) -> str | None:
    try:
        return read_manifest(folder).release
    except (StorageError, VerificationError):
        return None


def _folder_findings(folder: Path, ledger: Ledger | None, release: Release | None) -> Iterator[str]:
    expected = release.evidence.get("manifest") if release else None
    if not folder.is_dir():
        yield f"{folder}: is missing"
        return
    yield from (f"{folder / finding.file}: {finding.problem}" for finding in verify_folder(folder, expected))
    if release and release.of_domain:
        return
    try:
        certificate = read_certificate(folder)
    except (StorageError, VerificationError) as error:
        yield f"{folder / YAML_NAME}: {str(error).removeprefix(f'{YAML_NAME} ')}"
        return
    problems = [*_artefact_problems(folder, certificate), *_ledger_problems(certificate, ledger, release)]
    yield from (f"{folder / YAML_NAME}: {problem}" for problem in problems)


def _artefact_problems(folder: Path, certificate: Certificate) -> Iterator[str]:
    for name, digest in certificate.artefacts.items():
        if not (folder / name).is_file():
            yield f"it vouches for {name}, which is missing"
        elif digest_of(folder / name) != digest:
            yield f"it vouches for another {name}"


def _ledger_problems(certificate: Certificate, ledger: Ledger | None, release: Release | None) -> Iterable[str]:
    if ledger is None or release is None:
        return []
    asked, subject = release.request, certificate.subject
    said = (subject.id, subject.dataset, subject.method, subject.spec)
    anchor = Anchor(certificate.ledger.seq, certificate.ledger.hash)
    checks = {
        "it names another release, dataset, method or spec than the ledger": said
        == (release.id, asked.dataset, asked.method, asked.spec_digest),
        "it states another epsilon or delta than the ledger": (
            Fraction(certificate.guarantee.epsilon),
            Fraction(certificate.guarantee.delta),
        )
        == (asked.epsilon, asked.delta),
        "the ledger does not hold the entry that it names": anchor in [entry.anchor for entry in ledger.entries()],
    }
    return [problem for problem, holds in checks.items() if not holds]
