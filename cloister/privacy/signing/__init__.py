"""Signatures that outlive the house: keys, signed statements, and whose signatures count."""

from cloister.privacy.signing.keys import FileSigner, PublicKey, Signer, TokenSigner

__all__ = [
    "FileSigner",
    "PublicKey",
    "Signer",
    "TokenSigner",
]
