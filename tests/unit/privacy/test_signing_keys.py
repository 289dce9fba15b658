"""Keys sign and verify as RFC 8032 says; a file that others could use or replace is no key."""

import multiprocessing
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from signing_keys import SeededSigner, signer

from cloister.errors import CloisterError, InputError, StorageError
from cloister.privacy.signing import FileSigner, PublicKey

PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493

# RFC 8032, 7.1: secret key, public key, message, signature
KNOWN = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701c"
            "f9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0"
            "f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f76098"
            "4dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
]


@pytest.mark.parametrize(("secret", "public", "message", "signature"), KNOWN)
def test_known_answers_of_rfc_8032(secret, public, message, signature):
    key, message, signature = (
        PublicKey(bytes.fromhex(public)),
        *map(bytes.fromhex, (message, signature)),
    )
    known = SeededSigner(bytes.fromhex(secret))
    assert known.key == key and known.sign(message) == signature
    assert key.verify(signature, message)
    assert not key.verify(signature, message + b"\0")
    assert not signer("other").key.verify(signature, message)
    for offset in range(64):
        altered = bytearray(signature)
        altered[offset] ^= 1
        assert not key.verify(bytes(altered), message)


def test_a_signature_has_one_form():
    ada = signer("ada")
    signature = ada.sign(b"text")
    again = int.from_bytes(signature[32:], "little") + ORDER
    malleated = signature[:32] + again.to_bytes(32, "little")
    assert ada.key.verify(signature, b"text")
    assert not ada.key.verify(malleated, b"text")
    for wrong in (b"", signature[:-1], signature + b"\0"):
        assert not ada.key.verify(wrong, b"text")


def test_a_public_key_is_read_from_its_pem_and_has_the_digest_of_its_bytes(tmp_path: Path):
    key = signer("ada").key
    (tmp_path / "ada.pub").write_text(key.pem)
    assert key.pem.startswith("-----BEGIN PUBLIC KEY-----\n")
    assert PublicKey.from_pem(key.pem.encode()) == PublicKey.read(tmp_path / "ada.pub") == key
    assert hash(PublicKey.from_pem(key.pem.encode())) == hash(key)
    # sha256sum of the 32 bytes of the first key of RFC 8032
    known = PublicKey(bytes.fromhex(KNOWN[0][1]))
    assert known.id == "21fe31dfa154a261626bf854046fd2271b7bed4b6abe45aa58877ef47f9721b9"
    with pytest.raises(StorageError, match="cannot be read"):
        PublicKey.read(tmp_path / "no.pub")


def private_pem(key, kind=PrivateFormat.PKCS8, encryption=None) -> bytes:
    return key.private_bytes(Encoding.PEM, kind, encryption or NoEncryption())


def public_pem(key) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


OWN = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CURVE = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\0",
        b"-----BEGIN PUBLIC KEY-----\n",
        public_pem(CURVE),
        public_pem(ed448.Ed448PrivateKey.generate()),
        private_pem(OWN),
        public_pem(OWN)[:-40],
    ],
)
def test_what_is_no_public_key_is_refused_and_the_file_named(tmp_path: Path, text: bytes):
    path = tmp_path / "house.pub"
    path.write_bytes(text)
    with pytest.raises(InputError, match=r"house\.pub is not a public key of Ed25519"):
        PublicKey.read(path)


def low_order() -> list[int]:
    """y of the points whose eightfold is neutral, by the curve's equation: -x² + y² = 1 + dx²y²."""
    d = -121665 * pow(121666, -1, PRIME) % PRIME

    def plus(first, second):
        (a, b), (c, e) = first, second
        product = d * a * b * c * e % PRIME
        x = (a * e + b * c) * pow(1 + product, -1, PRIME)
        y = (b * e + a * c) * pow(1 - product, -1, PRIME)
        return x % PRIME, y % PRIME

    root = pow(2, (PRIME - 1) // 4, PRIME)  # of -1
    for y in range(2, 100):  # the part of a point outside the large subgroup generates the eight
        square = (y * y - 1) * pow(d * y * y + 1, -1, PRIME) % PRIME
        x = pow(square, (PRIME + 3) // 8, PRIME)
        x = x if x * x % PRIME == square else x * root % PRIME
        if x * x % PRIME != square:
            continue
        total, term = (0, 1), (x, y)
        for bit in range(ORDER.bit_length()):
            total = plus(total, term) if ORDER >> bit & 1 else total
            term = plus(term, term)
        multiples = [(0, 1)]
        for _ in range(7):
            multiples.append(plus(multiples[-1], total))
        if len(set(multiples)) == 8:
            return sorted({y for _, y in multiples})
    raise AssertionError


def test_a_key_under_which_anybody_can_sign_is_refused():
    assert len(low_order()) == 5
    for y in low_order():
        for sign in (0, 1 << 255):
            with pytest.raises(InputError, match="anybody could sign"):
                PublicKey((y + sign).to_bytes(32, "little"))


def test_a_key_has_one_form_of_32_bytes():
    for y in range(PRIME, 2**255):
        with pytest.raises(InputError, match="second way"):
            PublicKey(y.to_bytes(32, "little"))
    for length in (0, 31, 33, 64):
        with pytest.raises(InputError, match=f"32 bytes, not {length}"):
            PublicKey(b"\x09" * length)


def test_a_key_is_made_on_first_use_for_its_owner_alone(tmp_path: Path):
    path = tmp_path / "house.pem"
    before = os.umask(0)
    try:
        made = FileSigner.open(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o7777 == 0o600
    assert path.read_text().startswith("-----BEGIN PRIVATE KEY-----\n")
    again = FileSigner.open(path, make=False)
    assert again.key == made.key
    assert made.key.verify(again.sign(b"text"), b"text")
    assert [each.name for each in tmp_path.iterdir()] == ["house.pem"]


def test_no_key_is_made_unless_it_may_be(tmp_path: Path):
    with pytest.raises(StorageError, match="restore it from a backup"):
        FileSigner.open(tmp_path / "house.pem", make=False)
    with pytest.raises(StorageError, match="cannot be read or made"):
        FileSigner.open(tmp_path / "no folder" / "house.pem")
    assert list(tmp_path.iterdir()) == []


def _make(path, barrier, keys):
    barrier.wait()
    keys.put(FileSigner.open(path).key.id)
    os._exit(0)  # without what libraries that other tests loaded do at the end of a process


@pytest.mark.parametrize("turn", range(2))
def test_racing_first_uses_make_one_key(tmp_path: Path, turn: int):
    forks = multiprocessing.get_context("fork")
    barrier, keys = forks.Barrier(8), forks.SimpleQueue()
    racers = [
        forks.Process(target=_make, args=(tmp_path / "house.pem", barrier, keys)) for _ in range(8)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert [racer.exitcode for racer in racers] == [0] * 8
    made = {keys.get() for _ in racers}
    assert made == {FileSigner.open(tmp_path / "house.pem", make=False).key.id}
    assert [each.name for each in tmp_path.iterdir()] == ["house.pem"]


def test_a_key_that_others_can_use_is_refused(tmp_path: Path):
    path = tmp_path / "house.pem"
    FileSigner.open(path)
    for mode in (0o640, 0o604, 0o660, 0o602, 0o610, 0o601):
        path.chmod(mode)
        with pytest.raises(StorageError, match=rf"can be used by others \(mode {mode:04o}\)"):
            FileSigner.open(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_key_of_another_user_is_refused(tmp_path: Path):
    path = tmp_path / "house.pem"
    FileSigner.open(path)
    os.chown(path, 12345, -1)
    with pytest.raises(StorageError, match="belongs to another user"):
        FileSigner.open(path)


@pytest.mark.parametrize("given", ["", "words"])
def test_a_key_with_a_passphrase_is_used_with_that_one_alone(tmp_path: Path, given: str):
    path = tmp_path / "anna.pem"
    made = FileSigner.open(path, passphrase=lambda: "word")
    assert path.read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert FileSigner.open(path, make=False, passphrase=lambda: "word").sign(b"x") == made.sign(
        b"x"
    )
    with pytest.raises(StorageError, match=r"anna\.pem is a key with another passphrase") as raised:
        FileSigner.open(path, passphrase=lambda: given)
    assert "word" not in str(raised.value).replace("passphrase", "")
    FileSigner.open(tmp_path / "ben.pem")
    assert FileSigner.open(tmp_path / "ben.pem", passphrase=lambda: 1 / 0)  # none is asked for


def test_what_is_no_plain_file_is_no_key(tmp_path: Path):
    os.mkfifo(tmp_path / "house.pem", 0o600)
    with pytest.raises(StorageError, match="not a plain file"):
        FileSigner.open(tmp_path / "house.pem")
    (tmp_path / "folder.pem").mkdir(mode=0o700)
    with pytest.raises(StorageError, match=r"folder\.pem"):
        FileSigner.open(tmp_path / "folder.pem")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff" * 100,
        private_pem(OWN)[:-30],
        private_pem(OWN, PrivateFormat.OpenSSH),
        private_pem(CURVE),
        private_pem(CURVE, PrivateFormat.TraditionalOpenSSL),
        public_pem(OWN),
    ],
)
def test_a_file_that_holds_no_such_key_is_refused_without_its_text(tmp_path: Path, text: bytes):
    path = tmp_path / "house.pem"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(StorageError, match=r"house\.pem is not a private key of Ed25519") as raised:
        FileSigner.open(path)
    assert "BEGIN" not in str(raised.value)
    assert path.read_bytes() == text


def test_no_representation_shows_a_private_key(tmp_path: Path):
    made = FileSigner.open(tmp_path / "house.pem")
    secret = (tmp_path / "house.pem").read_text().splitlines()[1]
    assert secret not in repr(made) and "Private" not in repr(made)
    assert isinstance(InputError(), CloisterError)
