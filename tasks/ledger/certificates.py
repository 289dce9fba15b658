"""Certificates in release folders."""

from __future__ import annotations

from pathlib import Path

from cloister.errors import StorageError, VerificationError
from cloister.privacy.certificate.certificate import YAML_NAME, Certificate
from cloister.privacy.ledger import Release
from cloister.tasks.runtime.references import digest_of


def read_certificate(folder: Path) -> Certificate:
    """The certificate in a folder.

    Raises:
        StorageError: it cannot be read.
        VerificationError: it was altered.
    """
    path = folder / YAML_NAME
    try:
        return Certificate.from_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read ({error.strerror}); give the folder of a release"
        ) from None
    except UnicodeDecodeError:
        raise VerificationError(f"{YAML_NAME} was altered: it is not UTF-8 text") from None


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
