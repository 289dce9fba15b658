"""Whether a model may be sampled, by the signed statements beside it.

A model that left its home shows by itself that it was approved: its release's certificate names its
digest, and the house's statement ``approved.dsse.json`` names the certificate's. Nothing that lies
there can show that the release was not withdrawn since; only its home knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloister.errors import VerificationError
from cloister.privacy import signing
from cloister.privacy.certificate.certificate import YAML_NAME, Certificate, read_certificate
from cloister.privacy.certificate.manifest import RELEASE_TYPE, TRUST_NAME, statement_name
from cloister.privacy.ledger import State

HOUSE_KEY = "house_key"
"""Name under which a registry keeps the house's public key, in PEM, beside a model."""

_ENDED = (State.REJECTED, State.WITHDRAWN)
"""States whose statements end an approval."""


def require_approved(folder: Path, model: str, key: signing.PublicKey) -> Mapping[str, Any]:
    """The approval of a model's release in the house's statement: by whom, when, why.

    Args:
        folder: holds the certificate, the statement, and trust statements if the house's key was
            changed since ``key``.
        model: the digest of the model.
        key: that of the house.

    Raises:
        VerificationError: the release is not approved, as far as the folder shows, or was
            withdrawn; or a file is not what was signed.
        StorageError: the certificate cannot be read.
    """
    certificate = read_certificate(folder)
    release = certificate.subject.id
    if certificate.model != model:
        raise VerificationError(
            f"{folder / YAML_NAME} is the certificate of another model: register release {release} "
            "again, or restore the model from a backup"
        )
    for state in _ENDED:
        if (folder / statement_name(state)).exists():
            raise VerificationError(
                f"release {release} was {state.words}, by the {statement_name(state)} beside the "
                "model, which gives no rows: choose another release"
            )
    path = folder / statement_name(State.APPROVED)
    if not path.is_file():
        raise VerificationError(
            f"no {path.name} lies beside the model: release {release} is not approved, as far as "
            f"this copy shows, and the model gives no rows. cloister review approve {release} puts "
            "the statement beside the registered model; then load that one. Whether a release was "
            "withdrawn since is known where its home is alone: cloister ledger show"
        )
    return _approval(path, certificate, key)


def _approval(path: Path, certificate: Certificate, key: signing.PublicKey) -> Mapping[str, Any]:
    """What a statement says, if it is the house's and of the files of a certificate."""
    envelope = signing.read_envelope(path)
    house = signing.house_by(path.with_name(TRUST_NAME), key)
    by_house = signing.standing(envelope, house, signing.HOUSE)
    if not by_house.signed:
        raise VerificationError(
            f"{path} is not signed by the house's key {key.id[:16]}, and the model gives no rows: "
            "load the model from the house's own registry, or give the house's key as its "
            f"configuration {HOUSE_KEY}"
        )
    if not by_house.current:
        raise VerificationError(
            f"{path} is signed by {min(by_house.former)[:16]} alone, a former key of the house "
            "that may be stolen, and the model gives no rows: cloister review countersign "
            f"{certificate.subject.id} adds a signature by the present key"
        )
    statement = signing.read_statement(envelope, str(path))
    facts = statement.facts(RELEASE_TYPE)
    written = path.with_name(YAML_NAME).read_bytes()
    named = {
        "release": facts.get("release") == certificate.subject.id,
        "state": facts.get("state") == State.APPROVED.value,
        "certificate": statement.subjects.get(YAML_NAME) == hashlib.sha256(written).hexdigest(),
    }
    if wrong := [name for name, same in named.items() if not same]:
        raise VerificationError(
            f"{path} is of another {wrong[0]} than the model: put the statement of release "
            f"{certificate.subject.id} there"
        )
    return facts
