"""Stock verifiers accept what Cloister signed, and refuse what was forged."""

import json
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from signing_keys import CERTIFICATE, FACTS, FILES, payload, role, signer

from cloister.privacy import signing


def late_imports():
    global CryptoSigner, SSlibKey, StockEnvelope, StockRefusal
    from securesystemslib.dsse import Envelope as StockEnvelope
    from securesystemslib.exceptions import VerificationError as StockRefusal
    from securesystemslib.signer import CryptoSigner, SSlibKey


PAGE = Path(__file__).parents[3] / "docs" / "signatures.md"

ADA, BEN, EVE = signer("ada"), signer("ben"), signer("eve")


def stock_key(key: signing.PublicKey):
    return SSlibKey.from_crypto(load_pem_public_key(key.pem.encode()), keyid=key.id)


def accepted(text: bytes, keys: list[signing.PublicKey], threshold: int) -> set[str]:
    stock = StockEnvelope.from_dict(json.loads(text))
    return set(stock.verify([stock_key(key) for key in keys], threshold))


def test_a_stock_verifier_accepts_our_envelope():
    envelope = signing.add_signature(signing.sign(payload(), ADA), BEN)
    assert accepted(envelope.text, [ADA.key], 1) == {ADA.key.id}
    assert accepted(envelope.text, [ADA.key, BEN.key], 2) == {ADA.key.id, BEN.key.id}
    with pytest.raises(StockRefusal):
        accepted(envelope.text, [ADA.key, EVE.key], 2)


def test_a_stock_verifier_refuses_a_forged_envelope():
    envelope, signed_by_eve = (
        json.loads(signing.sign(payload(), ADA).text),
        signing.sign(payload({"epsilon": "9"}), EVE),
    )
    forged = envelope | {"payload": json.loads(signed_by_eve.text)["payload"]}
    renamed = json.loads(signed_by_eve.text)
    renamed["signatures"][0]["keyid"] = ADA.key.id
    for each in (forged, renamed, envelope | {"payloadType": "application/vnd.other+json"}):
        with pytest.raises(StockRefusal):
            accepted(json.dumps(each).encode(), [ADA.key], 1)


def test_we_accept_a_stock_envelope():
    stock = StockEnvelope(payload(), "application/vnd.in-toto+json", {})
    key = CryptoSigner.generate_ed25519()
    stock.sign(key)
    envelope = signing.Envelope.parse(json.dumps(stock.to_dict()).encode())
    ours = (
        signing.PublicKey.from_pem(key.public_key.keyval["public"].encode())
        if ("BEGIN" in key.public_key.keyval["public"])
        else signing.PublicKey(bytes.fromhex(key.public_key.keyval["public"]))
    )
    assert signing.signers(envelope, [ADA.key, ours]) == {ours.id}
    assert signing.read_statement(envelope).subjects == FILES


@pytest.mark.parametrize(
    "envelope",
    [
        signing.sign(payload(), ADA),
        signing.sign_trust(signing.Trust(ADA.key, (role("officer", (BEN.key,)),)), ADA),
    ],
)
def test_a_stock_reader_finds_a_valid_statement(envelope):
    read = json_format.Parse(envelope.payload, statement_pb2.Statement())
    Statement.copy_from_pb(read).validate()
    ours = signing.read_statement(envelope)
    assert {each.name: each.digest["sha256"] for each in read.subject} == ours.subjects
    assert read.predicate_type == ours.predicate_type
    said = json_format.MessageToDict(read.predicate)
    assert json.dumps(said, sort_keys=True) == json.dumps(
        json.loads(json.dumps({"format": 1, **ours.predicate}), parse_int=float), sort_keys=True
    )


BLOCKS = [block.split("\n", 1) for block in PAGE.read_text(encoding="utf-8").split("```")[1::2]]


def shell_accepts(command: str) -> bool:
    return subprocess.run(["sh", "-e", "-c", command], capture_output=True).returncode == 0


def python_accepts(command: str) -> bool:
    try:
        exec(command, {})
    except (AssertionError, StockRefusal):
        return False
    return True


@pytest.mark.parametrize(
    ("language", "accepts"), [("sh", shell_accepts), ("python", python_accepts)]
)
def test_the_commands_of_the_page_verify(tmp_path, monkeypatch, language, accepts):
    monkeypatch.chdir(tmp_path)
    (command,) = (text for name, text in BLOCKS if name == language)
    (tmp_path / "tables").mkdir()
    (tmp_path / "certificate.yaml").write_text("certificate: 1\n")
    (tmp_path / "tables" / "ünïcode name.csv").write_text("a,b\n1,2\n")
    (tmp_path / "house.pub").write_text(ADA.key.pem)

    envelope = signing.sign(payload(), ADA)
    forged = json.loads(envelope.text)
    forged["payload"] = json.loads(signing.sign(payload({"epsilon": "9"}), EVE).text)["payload"]
    (tmp_path / "approved.dsse.json").write_bytes(envelope.text)
    assert accepts(command)
    (tmp_path / "certificate.yaml").write_text("certificate: 2\n")
    assert not accepts(command)
    (tmp_path / "certificate.yaml").write_text("certificate: 1\n")
    for text in (json.dumps(forged).encode(), signing.sign(payload(), EVE).text):
        (tmp_path / "approved.dsse.json").write_bytes(text)
        assert not accepts(command)


def test_the_facts_of_both_are_the_same():
    assert json.loads(payload())["predicate"] == {"format": 1, **FACTS}
    assert json.loads(payload())["predicateType"] == CERTIFICATE
