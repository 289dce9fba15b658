"""Certificates in release folders."""

from __future__ import annotations

from pathlib import Path

from cloister.errors import StorageError, VerificationError
from cloister.privacy.certificate import YAML_NAME, Certificate


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
        raise StorageError(f"{path} cannot be read ({error.strerror}); give the folder of a release") from None
    except UnicodeDecodeError:
        raise VerificationError(f"{YAML_NAME} was altered: it is not UTF-8 text") from None
