"""The public files of a release, restored from the DVC remote and checked against the ledger."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cloister.errors import InputError, VerificationError
from cloister.models.storage import load_saved
from cloister.privacy.certificate.certificate import (
    PAGE_NAME,
    YAML_NAME,
    Certificate,
    read_certificate,
)
from cloister.privacy.certificate.manifest import MANIFEST_NAME
from cloister.privacy.certificate.page import page
from cloister.privacy.ledger import Release
from cloister.tasks.ledger.queries import release_of
from cloister.tasks.runtime.files import replace_file
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.places import copy_whole
from cloister.tasks.runtime.references import digest_of
from cloister.tasks.runtime.tables import write_csv
from cloister.tasks.runtime.temporary import temporary_files
from cloister.tasks.stores.dvc_store import Versions, pointer_of

PARQUET, CSV = ".parquet", ".csv"


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
    held, public = release_of(home, release), home.release(release) / "public"
    with temporary_files(home), tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        names = _fetched(home, held, folder)
        if out:
            _copy(public / MANIFEST_NAME, folder)
            copy_whole(folder, out, release)
            return out
        for name in names:
            _copy(folder / name, public)
    return public


def _fetched(home: Home, held: Release, folder: Path) -> list[str]:
    """Write the files of a release into a folder; their names."""
    recorded = held.evidence.get("certificate")
    if recorded is None:
        raise InputError(
            f"release {held.id} is {held.state.words}, and has no certificate; there is nothing to "
            "fetch"
        )
    versions = Versions(home.versions, home.remote)
    wanted = {"certificate": folder / YAML_NAME}
    versions.fetch(held.id, wanted)
    _require(digest_of(folder / YAML_NAME) == recorded, YAML_NAME, held.id)
    certificate = read_certificate(folder)
    tables = [name for name in certificate.artefacts if name.endswith(PARQUET)]
    versions.fetch(held.id, {name.removesuffix(PARQUET): folder / name for name in tables})
    others = [name for name in certificate.artefacts if not name.endswith((PARQUET, CSV))]
    versions.fetch(held.id, {pointer_of(name): folder / name for name in others})
    (folder / PAGE_NAME).write_text(page(certificate), encoding="utf-8")
    for name in certificate.artefacts:
        if name.endswith(CSV):
            _write_csv(home, held, folder / name)
    _require_artefacts(certificate, folder)
    return [YAML_NAME, PAGE_NAME, *certificate.artefacts]


def _write_csv(home: Home, held: Release, path: Path) -> None:
    """Write a table as CSV again, which the remote does not hold."""
    spec = load_saved(home.release(held.id) / "model").spec
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
