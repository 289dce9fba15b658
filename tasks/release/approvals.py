"""Approvals by people's own keys: one statement on a release that each of them signs.

``approval.dsse.json`` names the files and says nothing of who and when, so that all sign the same
bytes; the ledger's entries hold who, when, why, and the digest of each signature. The house's key
never signs it. A reader needs the house's public key alone: the trust statements that lie beside it
say whose keys count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloister.errors import CloisterError, InputError
from cloister.privacy.certificate.manifest import APPROVAL_NAME, STATEMENTS, TRUST_NAME
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.ledger import Entry, Release
from cloister.privacy.ledger.house import APPROVAL, APPROVAL_KEY
from cloister.privacy.signing import (
    PublicKey,
    Signer,
    add_signature,
    compare_folder,
    folder_digests,
    make_statement,
    read_envelope,
    read_statement,
    sign,
    signature_digests,
    standing,
    write_envelope,
)
from cloister.tasks.ledger.keys import followed_trust

APPROVAL_TYPE = "urn:cloister:approval"
"""The type of what people sign when they approve a release."""


def sign_approval(public: Path, release: Release, signer: Signer) -> dict[str, str]:
    """Add a person's signature to the approval of a release; what the ledger holds of it.

    Raises:
        StorageError: the key cannot sign, or the statement cannot be written.
        VerificationError: the statement that is there is of other files.
    """
    payload = make_statement(folder_digests(public, STATEMENTS), APPROVAL_TYPE, _facts(release))
    path = public / APPROVAL_NAME
    before = read_envelope(path) if path.exists() else None
    if before and before.payload == payload:
        envelope = add_signature(before, signer)
    else:
        envelope = sign(payload, signer)
    write_envelope(path, envelope, replace=True)
    (digest,) = signature_digests(envelope, [signer.key])[signer.key.id]
    return {APPROVAL_KEY: signer.key.raw.hex(), APPROVAL: digest}


def _facts(release: Release) -> dict[str, Any]:
    asked = release.request
    return {
        "release": release.id,
        "dataset": asked.dataset,
        "unit": asked.unit,
        "relation": asked.relation,
        "method": asked.method,
        "epsilon": exact_text(asked.epsilon),
        "delta": exact_text(asked.delta),
        "spec": asked.spec_digest,
    }


def approval_problems(
    folder: Path, facts: Mapping[str, Any], keys: Iterable[PublicKey], entries: Iterable[Entry]
) -> Iterator[str]:
    """What is wrong with the approval that a signed decision rests on.

    ``facts`` are those of the decision, ``keys`` the house's; ``entries`` of the ledger show which
    signatures are older than the revocation of their keys.
    """
    trusts = followed_trust(folder / TRUST_NAME, keys)
    try:
        envelope = read_envelope(folder / APPROVAL_NAME)
        statement = read_statement(envelope, APPROVAL_NAME)
    except CloisterError as error:
        yield str(error)
        return
    said = statement.facts(APPROVAL_TYPE)
    if any(said[name] != facts[name] for name in said):
        yield f"{APPROVAL_NAME}: is of another release than the decision"
    yield from str(compare_folder(statement, folder, STATEMENTS)).splitlines()
    then = next((each for each in trusts if each.version == facts["trust"]), None)
    if then is None:
        yield f"{TRUST_NAME}: vouches for no version {facts['trust']}, under which it was approved"
        return
    judged = replace(then, revoked=trusts[-1].revoked)
    dated = {
        entry.body["evidence"][APPROVAL]: entry
        for entry in entries
        if APPROVAL in (entry.body.get("evidence") or ())
    }
    for name, number in facts["approvals"].items():
        try:
            role = replace(judged.role(name), threshold=number)
            counted = standing(envelope, judged.with_role(role), name, dated)
        except InputError as error:
            yield f"{APPROVAL_NAME}: {error}"
            continue
        if not counted.complete:
            yield f"{APPROVAL_NAME}: {counted}"
