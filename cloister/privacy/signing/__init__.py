"""Signatures that outlive the house: keys, signed statements, and whose signatures count."""

from cloister.privacy.signing.envelope import (
    Envelope,
    Signature,
    add_signature,
    pae,
    read_envelope,
    read_statement,
    sign,
    signature_digests,
    signers,
    write_envelope,
)
from cloister.privacy.signing.keys import FileSigner, PublicKey, Signer, TokenSigner
from cloister.privacy.signing.statement import (
    Differences,
    Statement,
    compare_folder,
    folder_digests,
    make_statement,
)

__all__ = [
    "Differences",
    "Envelope",
    "FileSigner",
    "PublicKey",
    "Signature",
    "Signer",
    "Statement",
    "TokenSigner",
    "add_signature",
    "compare_folder",
    "folder_digests",
    "make_statement",
    "pae",
    "read_envelope",
    "read_statement",
    "sign",
    "signature_digests",
    "signers",
    "write_envelope",
]
