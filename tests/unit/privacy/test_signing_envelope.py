"""Envelopes are those of DSSE v1, statements those of in-toto v1; what is ambiguous is refused."""

import base64
import hashlib
import json
import os
from pathlib import Path

import pytest
from signing_keys import CERTIFICATE, FACTS, FILES, SeededSigner, payload, signer

from cloister.errors import InputError, StorageError, VerificationError
from cloister.privacy import signing
from cloister.privacy.signing import sign

ADA, BEN, EVE = signer("ada"), signer("ben"), signer("eve")
KEYS = [ADA.key, BEN.key]

# the keys of RFC 8032, 7.1, and vectors of DSSE: protocol.md, testvectors/vectors.json
FIRST = signing.PublicKey(
    bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
)
SECOND = signing.PublicKey(
    bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
)
BODY = "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEifQ=="
BY_FIRST = (
    "2WAfaHm5jluo0w+0rk8uVkluELJYWjSmU9x7EUzx+AyteDGJ4/nqyJXfmAUVFIAoQafWm7AxBZNw5M9ixNHiCA=="
)
BY_SECOND = (
    "c1+67/aT0yqEpwx8PsVY3MLHsj9D0CZ014/Fv/QlG59P+9CobUZ7xECJ/V3USG0Ob9CiE5LjReEZUzNF2l7eBw=="
)


def envelope_text(body=BODY, signatures=(), **changes) -> bytes:
    content = {
        "payload": body,
        "payloadType": "application/vnd.in-toto+json",
        "signatures": list(signatures),
    }
    return json.dumps(content | changes).encode()


@pytest.mark.parametrize(
    ("kind", "body", "encoded"),
    [
        (
            "http://example.com/HelloWorld",
            b"hello world",
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world",
        ),
        ("", b"", b"DSSEv1 0  0 "),
        (
            "application/vnd.exämple+json",
            b"{}",
            b"DSSEv1 29 application/vnd.ex\xc3\xa4mple+json 2 {}",
        ),
    ],
)
def test_known_answers_of_the_encoding(kind, body, encoded):
    assert signing.pae(kind, body) == encoded


def test_known_signatures_of_dsse():
    seeds = (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
    )
    message = signing.pae("application/vnd.in-toto+json", base64.b64decode(BODY))
    for seed, signature in zip(seeds, (BY_FIRST, BY_SECOND), strict=True):
        assert SeededSigner(bytes.fromhex(seed)).sign(message) == base64.b64decode(signature)


@pytest.mark.parametrize(
    ("signatures", "expected"),
    [
        ([{"sig": BY_FIRST, "keyid": "A"}], {FIRST.id}),
        (
            [{"sig": BY_FIRST, "keyid": "A"}, {"sig": BY_SECOND, "keyid": "B"}],
            {FIRST.id, SECOND.id},
        ),
        ([{"sig": BY_FIRST, "keyid": "A"}, {"sig": BY_FIRST, "keyid": "A"}], {FIRST.id}),
        ([{"sig": BY_FIRST}, {"sig": BY_SECOND}], {FIRST.id, SECOND.id}),
        ([{"sig": BY_FIRST, "keyid": SECOND.id}], {FIRST.id}),
        ([{"sig": BY_SECOND.replace("c1", "c2"), "keyid": SECOND.id}], set()),
        ([{"sig": "", "keyid": FIRST.id}], set()),
    ],
)
def test_who_signed_does_not_depend_on_hints(signatures, expected):
    envelope = signing.Envelope.parse(envelope_text(signatures=signatures))
    assert signing.signers(envelope, [FIRST, SECOND]) == expected


def test_both_alphabets_of_base64_are_read():
    body, signature = (
        "-_-_Pj8=",
        (
            "P-_KHICeR7tI6S_YyejJTRtrXhcQyQ2LYPaL8h90KjC9qN8HU_svOQ6TuDOT1HIrsGW886DbWNWcCmX5twLrAw=="
        ),
    )
    envelope = signing.Envelope.parse(envelope_text(body, [{"sig": signature}]))
    assert envelope.payload == bytes.fromhex("fbffbf3e3f")
    assert signing.signers(envelope, [FIRST, SECOND]) == {FIRST.id}
    with pytest.raises(VerificationError, match="is not text in UTF-8"):
        signing.read_statement(envelope)


def test_a_statement_comes_back_as_it_was_made_and_as_the_type_that_it_is():
    envelope = sign(payload(), ADA)
    statement = signing.read_statement(signing.Envelope.parse(envelope.text))
    assert statement.subjects == FILES
    assert statement.facts(CERTIFICATE) == FACTS
    with pytest.raises(VerificationError, match=rf"{CERTIFICATE}, not urn:approval"):
        statement.facts("urn:approval")
    assert signing.signers(envelope, KEYS) == {ADA.key.id}
    assert json.loads(envelope.payload) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": FILES[name]}} for name in sorted(FILES)],
        "predicateType": CERTIFICATE,
        "predicate": {"format": 1, **FACTS},
    }
    reverse = (dict(reversed(own.items())) for own in (FILES, FACTS))
    assert payload() == signing.make_statement(next(reverse), CERTIFICATE, next(reverse))


def test_a_signature_is_added_to_the_same_bytes():
    # bytes of another writer: other spaces and order
    foreign = json.dumps(json.loads(payload()), indent=3).encode()
    message = signing.pae("application/vnd.in-toto+json", foreign)
    body, first = base64.urlsafe_b64encode(foreign), base64.b64encode(ADA.sign(message))
    text = envelope_text(body.decode(), [{"sig": first.decode(), "keyid": "ada"}])
    both = signing.add_signature(signing.Envelope.parse(text), BEN)
    assert both.payload == foreign
    assert signing.signers(both, KEYS) == {ADA.key.id, BEN.key.id}
    assert signing.signers(signing.Envelope.parse(both.text), KEYS) == {ADA.key.id, BEN.key.id}
    assert signing.add_signature(both, ADA) is both
    assert [each.keyid for each in both.signatures] == ["ada", BEN.key.id]


def test_a_false_signature_in_a_keys_name_gives_way_to_its_own():
    false = {"sig": BY_FIRST, "keyid": BEN.key.id}
    body = base64.b64encode(payload()).decode()
    signed = signing.add_signature(signing.Envelope.parse(envelope_text(body, [false])), BEN)
    assert [each.keyid for each in signed.signatures] == [BEN.key.id]
    assert signing.signers(signed, KEYS) == {BEN.key.id}


def test_signers_sign_once_each():
    assert len(sign(payload(), ADA, BEN, ADA).signatures) == 2
    with pytest.raises(InputError, match="1 to 64 signatures"):
        sign(payload())
    many = sign(payload(), *(signer(str(number)) for number in range(64)))
    with pytest.raises(InputError, match="remove those of unknown keys"):
        signing.add_signature(many, ADA)


def test_a_signature_that_does_not_verify_is_not_written():
    class Faulty:
        key = ADA.key

        def sign(self, message: bytes) -> bytes:
            return BEN.sign(message)

    with pytest.raises(StorageError, match="does not verify"):
        sign(payload(), Faulty())
    with pytest.raises(StorageError, match="does not verify"):
        signing.add_signature(sign(payload(), BEN), Faulty())


def test_digests_of_signatures_tell_keys_signatures_and_statements_apart():
    first, second = sign(payload(), ADA, BEN), sign(payload({"epsilon": "2"}), ADA)
    digests = [
        digest
        for envelope in (first, second)
        for each in signing.signature_digests(envelope, KEYS).values()
        for digest in each
    ]
    assert len(set(digests)) == 3
    # sha256 of the key's 32 bytes, the 64 of the signature, and what it signs
    by_hand = hashlib.sha256(ADA.key.raw + first.signatures[0].sig + first.message).hexdigest()
    assert signing.signature_digests(first, [ADA.key]) == {ADA.key.id: {by_hand}}
    assert signing.signature_digests(
        signing.add_signature(first, EVE), KEYS
    ) == signing.signature_digests(first, KEYS)


def test_each_flipped_byte_is_refused_or_changes_nothing_that_is_believed():
    envelope = sign(payload({"epsilon": "1/2"}), ADA, BEN)
    believed, refused, unsigned = signing.read_statement(envelope), 0, 0
    for offset in range(len(envelope.text)):
        for mask in (0x01, 0x20, 0x80):
            text = bytearray(envelope.text)
            text[offset] ^= mask
            try:
                forged = signing.Envelope.parse(bytes(text))
            except VerificationError:
                refused += 1
                continue
            signed = signing.signers(forged, KEYS)
            assert signed <= {ADA.key.id, BEN.key.id}
            if signed:
                assert forged.payload == envelope.payload
                assert signing.read_statement(forged) == believed
            else:
                unsigned += 1
    assert refused > 600 and unsigned > 600


def body_of(change) -> str:
    content = json.loads(payload())
    change(content)
    return base64.b64encode(json.dumps(content).encode()).decode()


def raw(text: str | bytes) -> str:
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


GOOD = [{"sig": BY_FIRST, "keyid": "A"}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xef\xbb\xbf" + envelope_text(signatures=GOOD), "is not JSON"),
        (envelope_text(signatures=GOOD) + b"x", "is not JSON"),
        (envelope_text(signatures=GOOD).decode().encode("utf-16"), "is not text in UTF-8"),
        (b"\xff", "is not text in UTF-8"),
        (b"[]", "has the fields payload, payloadType, signatures, and no others"),
        (b"null", "has the fields"),
        (envelope_text(signatures=GOOD, more=1), "has the fields"),
        (b'{"payload": "", "payloadType": "application/vnd.in-toto+json"}', "has the fields"),
        (b'{"payload": "", "payload": ""}', "has a field twice"),
        (b'{"payload": {"a": 1, "a": 1}}', "has a field twice"),
        (envelope_text(signatures=GOOD, payloadType="text/plain"), "bytes of the type application"),
        (envelope_text(signatures=GOOD, payloadType=""), "bytes of the type application"),
        (envelope_text(signatures=GOOD, payloadType=1), "bytes of the type application"),
        (envelope_text(signatures=[]), "1 to 64 signatures"),
        (envelope_text(signatures=GOOD * 65), "1 to 64 signatures"),
        (envelope_text(signatures=GOOD, payload=1), "canonical base64"),
        (envelope_text(BODY[:-1], GOOD), "canonical base64"),
        (envelope_text(BODY[:-2], GOOD), "canonical base64"),
        (envelope_text(BODY + "=", GOOD), "canonical base64"),
        (envelope_text(BODY[:-3] + "R==", GOOD), "canonical base64"),
        (envelope_text(" " + BODY, GOOD), "canonical base64"),
        (envelope_text(BODY[:8] + "\n" + BODY[8:], GOOD), "canonical base64"),
        (envelope_text("-/-/", GOOD), "canonical base64"),
        (envelope_text("ä===", GOOD), "canonical base64"),
        (envelope_text(signatures=[1]), "a signature has the fields sig, and no others"),
        (envelope_text(signatures=[{"keyid": "A"}]), "a signature has the fields keyid, sig"),
        (envelope_text(signatures=[{"sig": BY_FIRST, "cert": ""}]), "a signature has the fields"),
        (envelope_text(signatures=[{"sig": BY_FIRST, "keyid": 1}]), "'keyid' that is not text"),
        (envelope_text(signatures=[{"sig": BY_FIRST[:-1], "keyid": ""}]), "canonical base64"),
        (envelope_text(signatures=GOOD, payload=1.5), "a number that is not whole"),
        (b'{"payload": NaN}', "a number that is not whole"),
        (b'{"payload": 1e400}', "a number that is not whole"),
        (b'{"payload": "\\ud800"}', "UTF-8 cannot write"),
        (b'{"\\udfff": 1}', "UTF-8 cannot write"),
        (b" " * (16 << 20) + b"{}", "longer than 16,777,216 bytes"),
    ],
)
def test_what_is_no_envelope_is_refused_in_words(tmp_path: Path, text: bytes, problem: str):
    path = tmp_path / "certificate.dsse.json"
    path.write_bytes(text)
    with pytest.raises(VerificationError, match=problem) as raised:
        signing.read_envelope(path)
    assert str(raised.value).startswith(str(path))
    assert str(raised.value).endswith("; get the file again from its publisher")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (raw(""), "is not JSON"),
        (raw(b"\xff"), "is not text in UTF-8"),
        (raw("{}"), "a statement has the fields _type, subject, predicateType, predicate, and"),
        (body_of(lambda it: it.update(more=1)), "has the fields"),
        (body_of(lambda it: it.pop("predicate")), "has the fields"),
        (raw(payload().decode().replace('"format":1', '"format":1,"format":1')), "a field twice"),
        (body_of(lambda it: it.update(_type="https://in-toto.io/Statement/v0.1")), "of the type"),
        (body_of(lambda it: it.update(predicateType="")), "not a URI"),
        (body_of(lambda it: it.update(predicateType="no uri")), "not a URI"),
        (body_of(lambda it: it.update(predicateType=7)), "not a URI"),
        (body_of(lambda it: it.update(predicateType="urn:a\x1b[2J")), "not a URI"),
        (body_of(lambda it: it.update(predicate=[])), "without a number 'format'"),
        (body_of(lambda it: it["predicate"].pop("format")), "without a number 'format'"),
        (body_of(lambda it: it["predicate"].update(format="1")), "without a number 'format'"),
        (body_of(lambda it: it["predicate"].update(format=True)), "without a number 'format'"),
        (body_of(lambda it: it["predicate"].update(format=2)), "of format 2 and this version"),
        (body_of(lambda it: it["predicate"].update(epsilon=0.5)), "a number that is not whole"),
        (body_of(lambda it: it["predicate"].update(rows=2**53)), "2\\^53 or more"),
        (body_of(lambda it: it["predicate"].update(rows=-(2**53))), "2\\^53 or more"),
        (body_of(lambda it: it["predicate"].update(rows=10**4000)), "2\\^53 or more"),
        (raw(payload().decode().replace('"1/2"', "[" * 40 + "]" * 40)), "deeper than 32 levels"),
        (body_of(lambda it: it.update(subject=[])), "names no files"),
        (body_of(lambda it: it.update(subject={})), "names no files"),
        (body_of(lambda it: it["subject"][0].update(uri="x:y")), "a subject has the fields name,"),
        (body_of(lambda it: it["subject"][0].pop("name")), "a subject has the fields name, digest"),
        (body_of(lambda it: it["subject"][0].update(digest={})), "a digest has the fields sha256"),
        (body_of(lambda it: it["subject"][0]["digest"].update(md5="")), "a digest has the fields"),
        (body_of(lambda it: it["subject"][0].update(digest={"sha256": "AB" * 32})), "no SHA-256"),
        (body_of(lambda it: it["subject"][0].update(digest={"sha256": "ab" * 31})), "no SHA-256"),
        (body_of(lambda it: it["subject"].append(it["subject"][0])), "certificate.yaml twice"),
        *(
            (body_of(lambda it, name=name: it["subject"][0].update(name=name)), "a path inside")
            for name in ("", "/etc/passwd", "../a", "a/../b", "a//b", "a/", ".", "a\0b", 1, None)
        ),
    ],
)
def test_what_is_no_statement_is_refused_in_words(body: str, problem: str):
    envelope = signing.Envelope.parse(envelope_text(body, GOOD))
    with pytest.raises(VerificationError, match=problem) as raised:
        signing.read_statement(envelope, "approval.dsse.json")
    assert str(raised.value).startswith("approval.dsse.json ")
    with pytest.raises(InputError, match="correct it before it is signed"):
        sign(envelope.payload, ADA)


@pytest.mark.parametrize(
    ("files", "kind", "predicate", "problem"),
    [
        ({}, CERTIFICATE, {}, "names no files"),
        ({"a": "ab"}, CERTIFICATE, {}, "no SHA-256"),
        ({"../a": "ab" * 32}, CERTIFICATE, {}, "a path inside a folder"),
        ({"\udcff": "ab" * 32}, CERTIFICATE, {}, "rename the file"),
        (FILES, "certificate", {}, "not a URI"),
        (FILES, CERTIFICATE, {"format": 1}, "'format', which is ours"),
        (FILES, CERTIFICATE, {"epsilon": 0.5}, "holds a float: write it as text"),
        (FILES, CERTIFICATE, {"epsilon": float("nan")}, "holds a float"),
        (FILES, CERTIFICATE, {"files": {1, 2}}, "holds a set"),
        (FILES, CERTIFICATE, {"key": b"bytes"}, "holds a bytes"),
        (FILES, CERTIFICATE, {"a": {1: 2}}, "a field whose name is not text"),
        (FILES, CERTIFICATE, {"rows": 2**53}, "2\\^53 or more"),
        (FILES, CERTIFICATE, {"text": "a" * (16 << 20)}, "longer than"),
    ],
)
def test_what_cannot_be_read_is_not_made(files, kind, predicate, problem):
    with pytest.raises(InputError, match=problem):
        signing.make_statement(files, kind, predicate)


def test_what_would_be_too_long_or_too_deep_to_read_is_not_made():
    long = signing.make_statement(FILES, CERTIFICATE, {"text": "a" * (13 << 20)})
    with pytest.raises(InputError, match="longer than"):
        sign(long, ADA)
    loop: list = []
    loop.append(loop)
    with pytest.raises(InputError, match="deeper than"):
        signing.make_statement(FILES, CERTIFICATE, {"loop": loop})


def test_an_envelope_is_stored_as_it_is(tmp_path: Path):
    path, envelope = tmp_path / "certificate.dsse.json", sign(payload(), ADA)
    signing.write_envelope(path, envelope)
    assert path.read_bytes() == envelope.text
    assert signing.read_envelope(path) == envelope
    with pytest.raises(StorageError, match="File exists"):
        signing.write_envelope(path, sign(payload(), BEN))
    assert signing.read_envelope(path) == envelope
    signing.write_envelope(path, signing.add_signature(envelope, BEN), replace=True)
    assert signing.signers(signing.read_envelope(path), KEYS) == {ADA.key.id, BEN.key.id}
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_files_that_cannot_be_read_or_written_are_storage_errors(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("no.json", "pipe", "."):
        with pytest.raises(StorageError, match="is not a file"):
            signing.read_envelope(tmp_path / name)
    with pytest.raises(StorageError, match="cannot be written"):
        signing.write_envelope(tmp_path / "no folder" / "a.json", sign(payload(), ADA))
