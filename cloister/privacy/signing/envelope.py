"""Signed statements: DSSE v1 envelopes.

Signed are the bytes of a statement and their type, not what a reader makes of them: what was read
is never written anew, and a signature is added to the same bytes.

Source: DSSE 1.0.0 (github.com/secure-systems-lab/dsse: protocol.md, envelope.md).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cloister.errors import InputError, StorageError, VerificationError
from cloister.files import write_whole
from cloister.privacy.signing import statement
from cloister.privacy.signing.keys import PublicKey, Signer

PAYLOAD_TYPE = "application/vnd.in-toto+json"
"""The type of the bytes that are signed; it is signed with them."""

_MOST_SIGNATURES = 64
"""Signatures of an envelope at most: each is tried with each key."""


@dataclass(frozen=True)
class Signature:
    """A signature as an envelope holds it; ``keyid`` is a hint that nobody signed."""

    keyid: str
    sig: bytes


@dataclass(frozen=True)
class Envelope:
    """A signed statement: its text as it is stored, and the bytes and signatures in it.

    That it can be read says nothing of its signatures: ask `signers` first, then `read_statement`.
    """

    text: bytes
    payload: bytes
    signatures: tuple[Signature, ...]

    @classmethod
    def parse(cls, text: bytes, name: str = "The envelope") -> Self:
        """The envelope of a text; ``name`` names it in messages.

        Raises:
            VerificationError: it is not one, or could be read in two ways.
        """
        try:
            return cls(text, *_parts(statement.strict_json(text)))
        except statement.Fault as fault:
            raise _unreadable(name, fault) from None

    @property
    def message(self) -> bytes:
        """The bytes that signatures sign."""
        return pae(PAYLOAD_TYPE, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding: lengths keep type and bytes apart."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload: bytes, *signers: Signer) -> Envelope:
    """The envelope of the bytes that `make_statement` made, signed by each of the signers.

    Raises:
        InputError: there is no signer, or the bytes are not a statement that can be read.
        StorageError: a signer cannot sign.
    """
    different = {signer.key.id: signer for signer in signers}.values()
    try:
        statement.parse_statement(payload)
        return _envelope(payload, [_signature(payload, signer) for signer in different])
    except statement.Fault as fault:
        raise InputError(f"The statement {fault}; correct it before it is signed") from None


def add_signature(envelope: Envelope, signer: Signer) -> Envelope:
    """The envelope with one more signature of the same bytes; itself if this key signed already.

    Raises:
        InputError: it holds as many signatures as it may.
        StorageError: the signer cannot sign.
    """
    if signers(envelope, [signer.key]):
        return envelope
    # those that name this key are not by it: stock readers refuse a key that is named twice
    signatures = [
        signature for signature in envelope.signatures if signature.keyid != signer.key.id
    ]
    try:
        return _envelope(envelope.payload, [*signatures, _signature(envelope.payload, signer)])
    except statement.Fault as fault:
        raise InputError(f"The envelope {fault}; remove those of unknown keys") from None


def signers(envelope: Envelope, keys: Iterable[PublicKey]) -> frozenset[str]:
    """The ids of the given keys that signed; invalid and unknown signatures are ignored."""
    return frozenset(signature_digests(envelope, keys))


def signature_digests(envelope: Envelope, keys: Iterable[PublicKey]) -> dict[str, frozenset[str]]:
    """Which of some keys signed, by id, each with the digests of its valid signatures.

    Each signature is tried with each key, since ``keyid`` is only a hint. A digest is the SHA-256
    of key, signature and signed bytes: an entry of the ledger that holds it shows that the
    signature is older than the entry.
    """
    message, digests_by_key = envelope.message, dict[str, frozenset[str]]()
    for key in keys:
        valid = {
            signature.sig for signature in envelope.signatures if key.verify(signature.sig, message)
        }
        if valid:
            digests = (hashlib.sha256(key.raw + sig + message).hexdigest() for sig in valid)
            digests_by_key[key.id] = frozenset(digests)
    return digests_by_key


def read_statement(envelope: Envelope, name: str = "The statement") -> statement.Statement:
    """What an envelope says, whoever signed it; ``name`` names it in messages.

    Raises:
        VerificationError: its bytes are not a statement of ours.
    """
    try:
        return statement.parse_statement(envelope.payload)
    except statement.Fault as fault:
        raise _unreadable(name, fault) from None


def read_envelope(path: Path) -> Envelope:
    """The envelope of a file.

    Raises:
        StorageError: the file cannot be read.
        VerificationError: it is not an envelope.
    """
    if not path.is_file():
        raise StorageError(f"{path} is not a file; correct the path")
    with statement.reaching(path), path.open("rb") as file:
        text = file.read(statement.MOST_BYTES + 1)
    return Envelope.parse(text, str(path))


def write_envelope(path: Path, envelope: Envelope, *, replace: bool = False) -> None:
    """Write an envelope as it is, whole or not at all; ``replace`` one that is there.

    Raises:
        StorageError: a file is there already, or it cannot be written.
    """
    with statement.reaching(path, "written"):
        write_whole(path, lambda part: part.write_bytes(envelope.text), replace=replace)


def _unreadable(name: str, fault: statement.Fault) -> VerificationError:
    return VerificationError(f"{name} {fault}; get the file again from its publisher")


def _signature(payload: bytes, signer: Signer) -> Signature:
    """A signature, verified: one that was computed wrongly can give its key away."""
    message = pae(PAYLOAD_TYPE, payload)
    sig = signer.sign(message)
    if not signer.key.verify(sig, message):
        raise StorageError(
            f"The key {signer.key.id} made a signature that does not verify; check the token that "
            "holds it"
        )
    return Signature(signer.key.id, sig)


def _envelope(payload: bytes, signatures: Sequence[Signature]) -> Envelope:
    content = {
        "payload": base64.b64encode(payload).decode("ascii"),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {"keyid": signature.keyid, "sig": base64.b64encode(signature.sig).decode("ascii")}
            for signature in signatures
        ],
    }
    text = json.dumps(content, indent=2).encode("ascii") + b"\n"
    return Envelope(text, *_parts(statement.strict_json(text)))


def _parts(content: object) -> tuple[bytes, tuple[Signature, ...]]:
    """Payload and signatures of an envelope's JSON."""
    fields = statement.exact_fields(
        content, "an envelope", ("payload", "payloadType", "signatures")
    )
    if fields["payloadType"] != PAYLOAD_TYPE:
        raise statement.Fault(f"does not hold bytes of the type {PAYLOAD_TYPE}")
    listed = fields["signatures"]
    if not isinstance(listed, list) or not 1 <= len(listed) <= _MOST_SIGNATURES:
        raise statement.Fault(f"does not hold 1 to {_MOST_SIGNATURES} signatures")
    return _decoded(fields["payload"]), tuple(map(_read_signature, listed))


def _read_signature(content: object) -> Signature:
    """A signature's JSON; the specification lets ``keyid`` be left out."""
    hinted = isinstance(content, dict) and "keyid" in content
    fields = statement.exact_fields(
        content, "a signature", ("keyid", "sig") if hinted else ("sig",)
    )
    keyid = fields.get("keyid", "")
    if not isinstance(keyid, str):
        raise statement.Fault("holds a 'keyid' that is not text")
    return Signature(keyid, _decoded(fields["sig"]))


def _decoded(text: object) -> bytes:
    """The bytes of base64 in either alphabet, in the one way that each writes them."""
    if isinstance(text, str) and text.isascii():
        for alphabet in (None, b"-_"):
            try:
                decoded = base64.b64decode(text, alphabet, validate=True)
            except ValueError:
                continue
            if base64.b64encode(decoded, alphabet).decode("ascii") == text:
                return decoded
    raise statement.Fault("holds bytes that are not canonical base64")
