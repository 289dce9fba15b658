"""Approvals by people's own keys: one statement on a release that each of them signs.

``approval.dsse.json`` names the files but not who signs or when, so that everybody signs the same
bytes; the ledger's entries record who, when, why, and the digest of each signature. The house's key
never signs it. A reader needs the house's public key alone: the trust statements beside it say
whose keys count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloister.errors import CloisterError, InputError
from cloister.privacy import signing
from cloister.privacy.certificate.manifest import APPROVAL_NAME, STATEMENTS, TRUST_NAME
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.ledger import Entry, Release
from cloister.privacy.ledger.house import APPROVAL, APPROVAL_KEY, MATCHED, match_roles

APPROVAL_TYPE = "urn:cloister:approval"
"""The type of what people sign when they approve a release."""


def sign_approval(public: Path, release: Release, signer: signing.Signer) -> dict[str, str]:
    """Add a person's signature to the approval of a release; the evidence for the ledger.

    Raises:
        StorageError: the key cannot sign, or the statement cannot be written.
        VerificationError: the existing statement is of other files.
    """
    payload = signing.make_statement(
        signing.folder_digests(public, STATEMENTS), APPROVAL_TYPE, charged_facts(release)
    )
    path = public / APPROVAL_NAME
    before = signing.read_envelope(path) if path.exists() else None
    if before and before.payload == payload:
        envelope = signing.add_signature(before, signer)
    else:
        envelope = signing.sign(payload, signer)
    signing.write_envelope(path, envelope, replace=True)
    (digest,) = signing.signature_digests(envelope, [signer.key])[signer.key.id]
    return {APPROVAL_KEY: signer.key.raw.hex(), APPROVAL: digest}


def charged_facts(release: Release) -> dict[str, Any]:
    """What statements say of a release: whom it protects, and what was charged."""
    request = release.request
    return {
        "release": release.id,
        "dataset": request.dataset,
        "unit": request.unit,
        "relation": request.relation,
        "method": request.method,
        "epsilon": exact_text(request.epsilon),
        "delta": exact_text(request.delta),
        "spec": request.spec_digest,
        **({"blocks": list(request.blocks)} if request.blocks else {}),
    }


def consent_findings(public: Path, entries: Sequence[Entry]) -> Iterator[str]:
    """The approval in a folder lacks a signature of a person that the ledger's entries recorded."""
    evidence = [entry.body.get("evidence", {}) for entry in entries]
    digests = {signed[APPROVAL]: signed[APPROVAL_KEY] for signed in evidence if APPROVAL in signed}
    if not digests:
        return
    path, keys = public / APPROVAL_NAME, map(signing.PublicKey.from_hex, digests.values())
    try:
        present = signing.signature_digests(signing.read_envelope(path), keys)
    except CloisterError as error:
        yield str(error)
        return
    if digests.keys() - frozenset().union(*present.values()):
        yield f"{path}: lacks a signature that the ledger recorded; restore it from a backup"


def approval_problems(
    folder: Path, facts: Mapping[str, Any], house: signing.Trust
) -> Iterator[str]:
    """How the approval that a signed decision rests on was altered.

    ``facts`` are those of the decision.
    """
    try:
        statement = signing.read_statement(
            signing.read_envelope(folder / APPROVAL_NAME), APPROVAL_NAME
        )
        stated = statement.facts(APPROVAL_TYPE)
    except CloisterError as error:
        yield str(error)
        return
    if any(stated[name] != facts[name] for name in stated):
        yield f"{APPROVAL_NAME}: is of another release than the decision"
    yield from str(signing.compare_folder(statement, folder, STATEMENTS)).splitlines()
    if _trust(folder, facts, house) is None:
        yield (
            f"{TRUST_NAME}: the house's key vouches for no version {facts['trust']} in it, under "
            "which the release was approved"
        )


def approvals_lacking(
    folder: Path, facts: Mapping[str, Any], house: signing.Trust, record: signing.Record | None
) -> list[str]:
    """What an unaltered approval lacks, by role; ``record`` is a ledger's, if there is one."""
    trust = _trust(folder, facts, house)
    if trust is None:
        return []
    envelope = signing.read_envelope(folder / APPROVAL_NAME)
    problems, standings = [], {}
    for name, number in facts["approvals"].items():
        try:
            role = replace(trust.role(name), threshold=number)
        except InputError as error:
            problems.append(str(error))
            continue
        standings[name] = signing.standing(envelope, trust.with_role(role), name, record)
    if facts.get(MATCHED):
        standings = _matched(trust, facts["approvals"], standings)
    return problems + [str(each) for each in standings.values() if not each.complete]


def _matched(
    trust: signing.Trust, needed: Mapping[str, int], standings: Mapping[str, signing.Standing]
) -> dict[str, signing.Standing]:
    """The standings of roles where each person who signed counts in one of them."""
    able: dict[tuple[signing.PublicKey, ...], list[str]] = {}
    for name, standing in standings.items():
        for keys in trust.role(name).people:
            if any(key.id in standing.signed for key in keys):
                able.setdefault(keys, []).append(name)
    counted = Counter(match_roles(needed, able).values())
    return {
        name: replace(standing, missing=needed[name] - counted[name])
        for name, standing in standings.items()
    }


def _trust(folder: Path, facts: Mapping[str, Any], house: signing.Trust) -> signing.Trust | None:
    """Whose keys counted when a release was approved, and which of them were revoked since."""
    trusts = signing.followed_trust(folder / TRUST_NAME, *house.role(signing.HOUSE).keys)
    at_approval = next((trust for trust in trusts if trust.version == facts["trust"]), None)
    if at_approval is None:
        return None
    return replace(at_approval, revoked=max(trusts[-1], house, key=_version).revoked)


def _version(trust: signing.Trust) -> int:
    return trust.version
