"""Keys that are the same in each run, and statements signed by them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cloister.privacy.ledger import Anchor
from cloister.privacy.signing import PublicKey, Revocation, Role, Trust, make_statement

CERTIFICATE = "https://example.org/certificate"

FILES = {
    "certificate.yaml": hashlib.sha256(b"certificate: 1\n").hexdigest(),
    "tables/ünïcode name.csv": hashlib.sha256(b"a,b\n1,2\n").hexdigest(),
}

FACTS = {"epsilon": "1/2", "releases": [1, 2], "account": {"name": "clinic", "open": True}}


@dataclass(frozen=True)
class SeededSigner:
    """A signer whose key is made of a seed of 32 bytes."""

    seed: bytes

    @property
    def key(self) -> PublicKey:
        return PublicKey(self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)

    @property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)


def signer(name: str) -> SeededSigner:
    """The signer of a person or a house."""
    return SeededSigner(hashlib.sha256(name.encode()).digest())


def payload(facts: object = FACTS) -> bytes:
    """The bytes of a statement over two files."""
    return make_statement(FILES, CERTIFICATE, facts)


def role(name: str, keys: Sequence[PublicKey], threshold: int = 1) -> Role:
    """A role of people with one key each."""
    return Role(name, tuple((key,) for key in keys), threshold)


def revoking(trust: Trust, key: PublicKey, since: Anchor) -> Trust:
    """The next version, where a key's signatures count only before an entry of the ledger."""
    revoked = (*trust.revoked, Revocation(key.id, since.seq, since.hash))
    return replace(trust, revoked=revoked, version=trust.version + 1)
