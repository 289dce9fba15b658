"""Laws of signed statements: what is made can be read, and no text is read in two ways."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st
from signing_keys import CERTIFICATE, payload, revoking, role, signer

from cloister.errors import InputError, VerificationError
from cloister.privacy import signing
from cloister.privacy.ledger import Anchor

PEOPLE = [signer(f"person {number}") for number in range(6)]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
facts = st.dictionaries(texts.filter(lambda name: name != "format"), values, max_size=4)
names = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1).filter(
        lambda part: part not in (".", "..")
    ),
    min_size=1,
    max_size=3,
).map("/".join)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
folders = st.dictionaries(names, digests, min_size=1, max_size=5)


def text_of(value):
    return json.dumps(value, sort_keys=True)


@given(folders, facts)
def test_what_is_made_and_signed_is_read_as_it_was(files, said):
    envelope = signing.Envelope.parse(
        signing.sign(signing.make_statement(files, CERTIFICATE, said), PEOPLE[0]).text
    )
    statement = signing.read_statement(envelope)
    assert statement.subjects == files
    assert text_of(statement.facts(CERTIFICATE)) == text_of(said)
    assert signing.signers(envelope, [each.key for each in PEOPLE]) == {PEOPLE[0].key.id}


@given(folders, facts, folders, facts)
def test_equal_bytes_say_the_same_and_others_do_not(files, said, others, unsaid):
    one, two = (
        signing.make_statement(*each)
        for each in ((files, CERTIFICATE, said), (others, CERTIFICATE, unsaid))
    )
    assert (one == two) is (files == others and text_of(said) == text_of(unsaid))


@given(st.binary(max_size=200) | texts.map(str.encode) | values.map(json.dumps).map(str.encode))
def test_any_text_is_read_or_refused(text):
    body = base64.b64encode(text).decode()
    kind, sig = "application/vnd.in-toto+json", {"sig": body}
    for each in (text, json.dumps({"payload": body, "payloadType": kind, "signatures": [sig]})):
        try:
            envelope = signing.Envelope.parse(each if isinstance(each, bytes) else each.encode())
            assert not signing.signers(envelope, [PEOPLE[0].key])
            signing.read_statement(envelope)
        except VerificationError:
            continue


@given(
    st.sets(st.sampled_from(range(6))), st.sets(st.sampled_from(range(6)), min_size=1), st.data()
)
def test_a_threshold_is_met_by_members_alone(by, members, data):
    threshold = data.draw(st.integers(1, len(members)))
    keys = tuple(PEOPLE[each].key for each in sorted(members))
    trust = signing.Trust(signer("house").key, (role("officer", keys, threshold),))
    envelope = signing.sign(payload(), signer("other"), *(PEOPLE[each] for each in sorted(by)))
    found = signing.standing(envelope, trust, "officer")
    assert found.signed == {PEOPLE[each].key.id for each in by & members}
    assert found.complete is (len(by & members) >= threshold)
    assert found.missing == max(0, threshold - len(by & members))


@given(st.lists(st.sampled_from(["role", "house", "revoke"]), max_size=5), st.data())
def test_each_version_is_believed_if_each_was_signed_as_it_must_be(changes, data):
    """Without any one of its signatures a version is believed neither itself nor by later ones."""
    houses = [signer(f"house {number}") for number in range(7)]
    trusts, by = [signing.Trust(houses[0].key)], [[houses[0]]]
    for number, change in enumerate(changes):
        before = trusts[-1]
        current = next(each for each in houses if each.key == before.house)
        if change == "role":
            after = before.with_role(role("officer", (PEOPLE[number].key,)))
        elif change == "house":
            after = before.with_house(houses[houses.index(current) + 1].key)
        else:
            entry = Anchor(number + 1, f"{number + 1:064x}")
            after = revoking(before, PEOPLE[number].key, entry)
        following = next(each for each in houses if each.key == after.house)
        trusts.append(after)
        by.append([current] if following == current else [current, following])
    envelopes = [signing.sign_trust(trust, *each) for trust, each in zip(trusts, by, strict=True)]
    assert signing.follow_trust(envelopes, houses[0].key) == trusts
    place = data.draw(st.integers(0, len(trusts) - 1))
    left_out = data.draw(st.sampled_from(by[place]))
    others = [each for each in by[place] if each != left_out]
    envelopes[place] = signing.sign_trust(trusts[place], *others, signer("stranger"))
    try:
        believed = signing.follow_trust(envelopes, houses[0].key)
    except VerificationError:
        return
    # a first version that nobody signed is one that the reader has not: the next of this key is
    assert place == 0 and believed == trusts[1:]


@given(st.lists(st.sampled_from(range(6)), min_size=1, max_size=6))
def test_signatures_may_come_in_any_order(by):
    envelope = signing.sign(payload(), PEOPLE[by[0]])
    for each in by[1:]:
        envelope = signing.add_signature(envelope, PEOPLE[each])
    assert signing.signers(envelope, [each.key for each in PEOPLE]) == {
        PEOPLE[each].key.id for each in by
    }
    assert envelope.payload == payload()
    assert len(envelope.signatures) == len(set(by))


@given(values)
def test_what_is_no_json_is_never_signed(value):
    for wrong in ({"a": [value, 0.5]}, {"a": {1: value}}, {"a": (value, b"")}):
        try:
            signing.make_statement({"a": "ab" * 32}, CERTIFICATE, wrong)
        except InputError:
            continue
        raise AssertionError
