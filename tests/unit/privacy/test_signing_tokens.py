"""A key in a token signs, and nothing of its PIN is said.

The token is SoftHSM's: ``apt-get install softhsm2``, the library is the extra ``pkcs11``.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from signing_keys import payload

from cloister.errors import InputError, StorageError
from cloister.privacy import signing

MODULE = next(
    (
        path
        for path in (
            Path("/usr/lib/softhsm/libsofthsm2.so"),
            Path("/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so"),
        )
        if path.exists()
    ),
    None,
)
PIN = "20261123"

needs_token = pytest.mark.skipif(
    MODULE is None, reason="SoftHSM is not installed: apt-get install softhsm2"
)


@pytest.fixture(scope="module")
def token(tmp_path_factory) -> str:
    """A token with two keys of Ed25519, and one of another curve, in a process's own store."""
    pkcs11 = pytest.importorskip("pkcs11", reason="the extra pkcs11 is not installed")
    from pkcs11.util.ec import encode_named_curve_parameters

    store = tmp_path_factory.mktemp("softhsm")
    (store / "tokens").mkdir()
    (store / "softhsm2.conf").write_text(
        f"directories.tokendir = {store / 'tokens'}\nobjectstore.backend = file\n"
    )
    os.environ["SOFTHSM2_CONF"] = str(store / "softhsm2.conf")
    label = f"cloister-{os.getpid()}"
    subprocess.run(
        ["softhsm2-util", "--init-token", "--free", "--label", label]
        + ["--pin", PIN, "--so-pin", "87654321"],
        check=True,
        capture_output=True,
    )
    edwards, weierstrass = pkcs11.KeyType.EC_EDWARDS, pkcs11.KeyType.EC
    made = [
        ("house", edwards, bytes.fromhex("06032b6570")),
        ("officer", edwards, b"\x13\x0cedwards25519"),
        ("goldilocks", edwards, bytes.fromhex("06032b6571")),
        ("curve", weierstrass, encode_named_curve_parameters("secp256r1")),
    ]
    generate = {edwards: pkcs11.Mechanism.EC_EDWARDS_KEY_PAIR_GEN, weierstrass: None}
    with (
        pkcs11.lib(str(MODULE)).get_token(token_label=label).open(rw=True, user_pin=PIN) as session
    ):
        for name, kind, curve in made:
            parameters = session.create_domain_parameters(
                kind, {pkcs11.Attribute.EC_PARAMS: curve}, local=True
            )
            parameters.generate_keypair(mechanism=generate[kind], store=True, label=name)
    yield label
    del os.environ["SOFTHSM2_CONF"]


@needs_token
def test_a_token_signs_and_its_public_key_verifies(token):
    house = signing.TokenSigner.open(MODULE, token, "house", PIN)
    signature = house.sign(b"text")
    assert len(signature) == 64
    assert house.key.verify(signature, b"text")
    assert not house.key.verify(signature, b"other")
    assert signing.TokenSigner.open(MODULE, token, "house", PIN) == house
    assert PIN not in repr(house)


@needs_token
def test_two_keys_of_a_token_sign_one_statement(token):
    house, officer = (
        signing.TokenSigner.open(MODULE, token, each, PIN) for each in ("house", "officer")
    )
    envelope = signing.add_signature(signing.sign(payload(), house), officer)
    assert signing.signers(envelope, [house.key, officer.key]) == {house.key.id, officer.key.id}
    assert house.key != officer.key


@needs_token
def test_what_is_wrong_with_a_token_is_said_without_its_pin(token):
    for label, pin, problem in (
        ("nobody", PIN, "NoSuchKey"),
        ("curve", PIN, "NoSuchKey"),
        ("house", "00000000", "PinIncorrect"),
        ("house", "", "Pin"),
    ):
        said = f"'{label}' of the token '{token}'.*{problem}"
        with pytest.raises(StorageError, match=said) as raised:
            signing.TokenSigner.open(MODULE, token, label, pin)
        assert not pin or pin not in str(raised.value)
    with pytest.raises(InputError, match="not one of Ed25519"):
        signing.TokenSigner.open(MODULE, token, "goldilocks", PIN)
    with pytest.raises(StorageError, match="NoSuchToken"):
        signing.TokenSigner.open(MODULE, "other", "house", PIN)
    with pytest.raises(StorageError, match=r"/no/module\.so"):
        signing.TokenSigner.open(Path("/no/module.so"), token, "house", PIN)


@needs_token
def test_a_uri_names_a_key_and_says_no_pin(token):
    uri = f"pkcs11:token={token};object=officer?module-path={MODULE}"
    assert signing.open_signer(uri, PIN) == signing.TokenSigner.open(MODULE, token, "officer", PIN)
    spaced = f"pkcs11:token={token.replace('-', '%2D')};object=officer?module-path={MODULE}"
    assert signing.open_signer(spaced, PIN).key == signing.open_signer(uri, PIN).key


@pytest.mark.parametrize("missing", ["token", "object", "module-path"])
def test_a_uri_that_lacks_a_part_is_refused(missing):
    uri = "pkcs11:token=T;object=L?module-path=/m"
    part = {"token": "token=T;", "object": ";object=L", "module-path": "?module-path=/m"}[missing]
    with pytest.raises(InputError, match=f"has no {missing}"):
        signing.open_signer(uri.replace(part, ""))


def test_a_place_that_is_no_uri_is_a_file(tmp_path):
    (tmp_path / "keys").mkdir(mode=0o700)
    key = signing.FileSigner.open(tmp_path / "keys" / "anna.pem").key
    assert signing.open_signer(str(tmp_path / "keys" / "anna.pem")).key == key
    with pytest.raises(StorageError, match="nobody.pem"):
        signing.open_signer(str(tmp_path / "keys" / "nobody.pem"))


def test_without_the_extra_its_name_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    with pytest.raises(InputError, match=r"pip install 'cloister\[pkcs11\]'"):
        signing.TokenSigner.open(Path("/module.so"), "token", "house", PIN)
