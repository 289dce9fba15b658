"""Keys of Ed25519 (RFC 8032): the public half, and what signs: a file, or a token (PKCS#11)."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import parse_qsl

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from cloister.errors import InputError, StorageError
from cloister.files import write_whole
from cloister.privacy.signing.statement import reaching

_KEY_BYTES = 32
"""Bytes of a public key: y of a point of the curve, and the sign of its x as the highest bit."""

_PRIME = 2**255 - 19
"""Coordinates of the curve are numbers below this."""

_EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
"""y of two points of order 8; that of the other two is its negative."""

_LOW_ORDER = frozenset({0, 1, _PRIME - 1, _EIGHTH, _PRIME - _EIGHTH})
"""y of the eight points of order 1, 2, 4 and 8: under them anybody can make valid signatures."""

_LONGEST_FILE = 4096
"""Most bytes read of a key file: thirty times those of any Ed25519 key."""

_OTHERS = 0o077
"""Mode bits of group and others."""

_POINT_PREFIXES = (b"\x04\x20", b"\x03\x21\x00", b"")
"""What tokens write before the 32 bytes of a public key: an octet string (PKCS#11 3.0), a bit
string (its errata), nothing (before 3.0)."""


@dataclass(frozen=True)
class PublicKey:
    """The public half of a key: 32 bytes as RFC 8032 writes them, the only encoding of their point.

    Errors: ``InputError`` for other bytes, and for keys under which anybody can sign.
    """

    raw: bytes = field(repr=False)
    id: str = field(init=False)

    def __post_init__(self) -> None:
        if len(self.raw) != _KEY_BYTES:
            raise InputError(
                f"A public key of Ed25519 has {_KEY_BYTES} bytes, not {len(self.raw)}: export it "
                "again."
            )
        y = int.from_bytes(self.raw, "little") % 2**255
        if y >= _PRIME or y in _LOW_ORDER:
            raise InputError(
                "This public key is of no use: anybody could sign under it, or it is written in a "
                "second way. Make another key."
            )
        object.__setattr__(self, "id", hashlib.sha256(self.raw).hexdigest())

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """The key of a text in hexadecimal. Errors: ``ValueError`` for others, and as of a key."""
        return cls(bytes.fromhex(text))

    @property
    def hex(self) -> str:
        """The key in hexadecimal."""
        return self.raw.hex()

    @classmethod
    def from_pem(cls, text: bytes, name: str = "the public key") -> Self:
        """The key of a PEM text (``BEGIN PUBLIC KEY``); ``name`` names it in messages.

        Raises:
            InputError: it is not such a key.
        """
        try:
            key = load_pem_public_key(text)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise InputError(
                f"{name} is not a public key of Ed25519 in PEM; give the file that begins with "
                "BEGIN PUBLIC KEY"
            )
        return cls(key.public_bytes_raw())

    @classmethod
    def read(cls, path: Path) -> Self:
        """The key of a PEM file.

        Raises:
            StorageError: the file cannot be read.
            InputError: it is not such a key.
        """
        with reaching(path, remedy="correct the path"), path.open("rb") as file:
            text = file.read(_LONGEST_FILE)
        return cls.from_pem(text, str(path))

    @property
    def pem(self) -> str:
        """The key as a PEM text."""
        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Whether the private half signed this message; never raises."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


class Signer(Protocol):
    """The private half of a key, wherever it lies."""

    @property
    def key(self) -> PublicKey:
        """The public half."""

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, 64 bytes.

        Errors: ``StorageError`` if the private half cannot be reached.
        """


@dataclass(frozen=True)
class FileSigner:
    """A private key in a file: PKCS8 in PEM, with a passphrase or without, for its owner alone."""

    path: Path
    key: PublicKey
    _private: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def open(cls, path: Path, *, make: bool = True, passphrase: Callable[[], str] = str) -> Self:
        """The key of a file; of two processes that make it at once, both get the first one's.

        Args:
            make: whether a key is made if there is no file; its folder must be there.
            passphrase: gives that of a key that is made, or has one; by default none.

        Raises:
            StorageError: the file cannot be read or made, is a link, belongs to or is readable by
                others, is not such a key, or has another passphrase.
        """
        remedy = "correct the path, or restore it from a backup"
        with reaching(f"The key {path}", "read or made", remedy):
            if make and not path.exists():
                _make_key(path, passphrase().encode())
            text = _read_private(path)
        encrypted = b"BEGIN ENCRYPTED PRIVATE KEY" in text
        private = _private_key(text, passphrase().encode() if encrypted else b"")
        if private is None:
            raise StorageError(
                f"{path} is a key with another passphrase than was given: set CLOISTER_PASSPHRASE "
                "to the one that it was made with. Nothing was signed"
                if encrypted
                else f"{path} is not a private key of Ed25519 (PKCS8 in PEM); restore it from a "
                "backup"
            )
        return cls(path, PublicKey(private.public_key().public_bytes_raw()), private)

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)


@dataclass(frozen=True)
class TokenSigner:
    """A key pair of Ed25519 in a token, found by the label that both halves bear.

    ``module`` is the library of the token's maker. The key is made by the token's own tools. Each
    signature logs in with the PIN of the user and out again.
    """

    module: Path
    token: str
    label: str
    key: PublicKey
    _pin: str = field(repr=False, compare=False)

    @classmethod
    def open(cls, module: Path, token: str, label: str, pin: str) -> Self:
        """The key of a token; the PIN is tried once, so that a wrong one does not lock the token.

        Raises:
            InputError: the extra ``pkcs11`` is not installed; the key is not one of Ed25519.
            StorageError: the module, the token or the key cannot be used.
        """
        with _session(module, token, label, pin) as session:
            point = _public_point(session, label)
        for prefix in _POINT_PREFIXES:
            if point.startswith(prefix) and len(point) == len(prefix) + 32:
                return cls(module, token, label, PublicKey(point[len(prefix) :]), pin)
        raise InputError(
            f"The key '{label}' of the token '{token}' is not one of Ed25519: make one of the "
            "curve edwards25519"
        )

    def sign(self, message: bytes) -> bytes:
        import pkcs11

        with _session(self.module, self.token, self.label, self._pin) as session:
            private = session.get_key(pkcs11.ObjectClass.PRIVATE_KEY, label=self.label)
            return bytes(private.sign(message, mechanism=pkcs11.Mechanism.EDDSA))


def open_signer(address: str, pin: str = "", passphrase: Callable[[], str] = str) -> Signer:
    """The private half of a key: a file, or a token by a URI of RFC 7512.

    ``pkcs11:token=TOKEN;object=LABEL?module-path=LIBRARY``; the PIN, and the passphrase of a file,
    are given apart, since others can read commands and settings.

    Raises:
        InputError: the URI lacks one of these.
        StorageError: the file or the token cannot be used.
    """
    if not address.startswith("pkcs11:"):
        return FileSigner.open(Path(address), make=False, passphrase=passphrase)
    path, _, query = address.removeprefix("pkcs11:").partition("?")
    parts = dict(parse_qsl(path, separator=";")) | dict(parse_qsl(query))
    try:
        return TokenSigner.open(Path(parts["module-path"]), parts["token"], parts["object"], pin)
    except KeyError as missing:
        raise InputError(
            f"The key's URI has no {missing.args[0]}; give "
            "pkcs11:token=TOKEN;object=LABEL?module-path=LIBRARY"
        ) from None


def _make_key(path: Path, passphrase: bytes) -> None:
    """Write a fresh key; of two that race, the first stays."""
    text = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM,
        PrivateFormat.PKCS8,
        BestAvailableEncryption(passphrase) if passphrase else NoEncryption(),
    )
    with suppress(FileExistsError):
        write_whole(path, lambda part: part.write_bytes(text), replace=False)


def _read_private(path: Path) -> bytes:
    """The bytes of a plain file that others can neither read nor have put there.

    What is checked is what is read: the open file, not its name.
    """
    if path.is_symlink():
        raise StorageError(f"The key {path} is a link; move the file itself there")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StorageError(f"The key {path} is not a plain file; restore it from a backup")
        if status.st_uid != os.geteuid():
            raise StorageError(
                f"The key {path} belongs to another user, who could replace it; make one of your "
                "own"
            )
        if status.st_mode & _OTHERS:
            raise StorageError(
                f"The key {path} can be used by others (mode {stat.S_IMODE(status.st_mode):04o}); "
                "they may have copied it: revoke it, or run chmod 600 if they have not"
            )
        return file.read(_LONGEST_FILE)


def _private_key(text: bytes, passphrase: bytes) -> Ed25519PrivateKey | None:
    try:
        key = load_pem_private_key(text, password=passphrase or None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PrivateKey) else None


def _public_point(session: Any, label: str) -> bytes:
    import pkcs11

    public = session.get_key(
        pkcs11.ObjectClass.PUBLIC_KEY, key_type=pkcs11.KeyType.EC_EDWARDS, label=label
    )
    return bytes(public[pkcs11.Attribute.EC_POINT])


@contextmanager
def _session(module: Path, token: str, label: str, pin: str) -> Iterator[Any]:
    """A session of the token's user; what goes wrong in it is said in words, without the PIN."""
    try:
        import pkcs11
    except ImportError:
        raise InputError(
            "Keys in tokens need a library that is not installed; run pip install "
            "'cloister[pkcs11]'"
        ) from None
    try:
        with pkcs11.lib(str(module)).get_token(token_label=token).open(user_pin=pin) as session:
            yield session
    except pkcs11.exceptions.PKCS11Error as error:
        raise StorageError(
            f"The key '{label}' of the token '{token}' cannot be used through {module} "
            f"({type(error).__name__}); check the module, the labels and the PIN"
        ) from None
