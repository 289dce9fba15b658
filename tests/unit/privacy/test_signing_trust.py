"""Whose signatures count: thresholds, changes of the house, revocations; forgeries of each."""

import json
from dataclasses import replace

import pytest
from signing_keys import FILES, payload, revoking, role, signer

from cloister.errors import InputError, VerificationError
from cloister.privacy.ledger import Anchor
from cloister.privacy.signing import (
    HOUSE,
    TRUST_TYPE,
    Envelope,
    Record,
    Revocation,
    Role,
    Trust,
    add_signature,
    follow_trust,
    make_statement,
    read_statement,
    sign,
    sign_trust,
    signature_digests,
    standing,
)

OLD, NEW, NEXT = signer("house 2026"), signer("house 2027"), signer("house 2028")
ADA, BEN, CAI, EVE = signer("ada"), signer("ben"), signer("cai"), signer("eve")

OFFICERS = role("officer", (ADA.key, BEN.key, CAI.key), 2)
FIRST = Trust(OLD.key, (OFFICERS, role("engineer", (EVE.key,))))


def chain(*steps) -> list[Envelope]:
    """Trust statements, each with its signers."""
    return [sign_trust(trust, *by) for trust, *by in steps]


def test_a_trust_statement_comes_back_as_it_was_signed():
    trust = revoking(FIRST.with_house(NEW.key), BEN.key, Anchor(7, "ab" * 32))
    envelope = sign_trust(trust, NEW)
    assert follow_trust([Envelope.parse(envelope.text)], NEW.key) == [trust]
    statement = read_statement(envelope)
    assert statement.subjects == {HOUSE: NEW.key.id}
    assert statement.facts(TRUST_TYPE) == {
        "version": 3,
        "house": NEW.key.raw.hex(),
        "former": [OLD.key.raw.hex()],
        "roles": [
            {
                "name": "officer",
                "people": [[each.key.raw.hex()] for each in (ADA, BEN, CAI)],
                "threshold": 2,
            },
            {"name": "engineer", "people": [[EVE.key.raw.hex()]], "threshold": 1},
        ],
        "revoked": [{"key": BEN.key.id, "seq": 7, "hash": "ab" * 32}],
    }


def test_a_given_key_is_needed_and_must_be_the_houses():
    envelopes = chain((FIRST, OLD))
    for key in (NEW.key, EVE.key, ADA.key):
        with pytest.raises(VerificationError, match="ask the house for its public key"):
            follow_trust(envelopes, key)
    with pytest.raises(VerificationError, match="ask the house for its public key"):
        follow_trust([], OLD.key)
    forged = chain((replace(FIRST, house=OLD.key), EVE))
    with pytest.raises(VerificationError, match="ask the house for its public key"):
        follow_trust(forged, OLD.key)


@pytest.mark.parametrize(
    ("by", "signed", "missing", "words"),
    [
        ((), 0, 2, "signed by 0 of the role 'officer'; missing: 2 more officer"),
        ((ADA,), 1, 1, "signed by 1 of the role 'officer'; missing: one more officer"),
        ((ADA, EVE, OLD), 1, 1, "signed by 1 of the role 'officer'; missing: one more officer"),
        ((ADA, CAI), 2, 0, "signed by 2 of the role 'officer'"),
        ((ADA, BEN, CAI), 3, 0, "signed by 3 of the role 'officer'"),
    ],
)
def test_a_role_needs_as_many_different_keys_as_its_threshold(by, signed, missing, words):
    state = standing(sign(payload(), NEXT, *by), FIRST, "officer")
    assert len(state.signed) == signed
    assert state.signed <= {each.key.id for each in by}
    assert (state.missing, state.complete) == (missing, not missing)
    assert str(state) == words


def test_two_signatures_of_one_key_and_two_keys_of_one_person_are_one():
    once = json.loads(sign(payload(), ADA).text)
    once["signatures"] *= 2
    once["signatures"][1] = once["signatures"][1] | {"keyid": BEN.key.id}
    twice = Envelope.parse(json.dumps(once).encode())
    assert standing(twice, FIRST, "officer").signed == {ADA.key.id}
    trust = Trust(OLD.key, (Role("officer", ((ADA.key, BEN.key), (CAI.key,)), 2),))
    assert standing(sign(payload(), ADA, BEN), trust, "officer").missing == 1
    assert standing(sign(payload(), BEN, CAI), trust, "officer").complete
    with pytest.raises(InputError, match="Nobody has the role 'auditor'"):
        standing(sign(payload(), ADA), FIRST, "auditor")


def test_what_a_former_house_signed_stays_signed():
    trust = FIRST.with_house(NEW.key)
    for house in (OLD, NEW):
        state = standing(sign(payload(), house), trust, HOUSE)
        assert state.complete and state.signed == {house.key.id}
    assert not standing(sign(payload(), NEXT), trust, HOUSE).complete


def test_a_change_of_the_house_is_signed_by_both():
    second = FIRST.with_house(NEW.key)
    third = second.with_role(role("auditor", (EVE.key,)))
    envelopes = chain((FIRST, OLD), (second, OLD, NEW), (third, NEW))
    assert follow_trust(envelopes, OLD.key) == [FIRST, second, third]
    assert follow_trust(envelopes, NEW.key) == [FIRST, second, third]
    assert follow_trust(envelopes[1:], NEW.key) == [second, third]
    for forged in (sign_trust(FIRST, EVE), sign_trust(replace(FIRST, version=2), OLD)):
        assert follow_trust([forged, *envelopes[1:]], NEW.key) == [second, third]
    assert follow_trust(envelopes[:1], OLD.key) == [FIRST]
    for by, missing in (((OLD,), NEW), ((NEW,), OLD), ((EVE,), OLD), ((NEW, EVE), OLD)):
        with pytest.raises(
            VerificationError, match=f"not signed by the house's key {missing.key.id}"
        ):
            follow_trust(chain((FIRST, OLD), (second, *by)), OLD.key)


def test_a_change_alone_is_not_the_former_houses_and_its_second_signature_may_come_later():
    """Whoever steals the old key cannot start a reader at a new one."""
    second = FIRST.with_house(NEW.key)
    for by in ((OLD,), (OLD, NEW)):
        with pytest.raises(VerificationError, match="ask the house for its public key"):
            follow_trust(chain((second, *by)), OLD.key)
    whole = add_signature(sign_trust(second, OLD), NEW)
    assert follow_trust([*chain((FIRST, OLD)), whole], OLD.key)[-1] == second


def test_neither_a_former_house_nor_officers_change_anything():
    second, thief = FIRST.with_house(NEW.key), role("officer", (EVE.key,))
    with pytest.raises(VerificationError, match=f"not signed by the house's key {NEW.key.id}"):
        follow_trust(
            chain((FIRST, OLD), (second, OLD, NEW), (second.with_role(thief), OLD)), OLD.key
        )
    with pytest.raises(VerificationError, match="not signed by the house's key"):
        follow_trust(chain((FIRST, OLD), (FIRST.with_role(thief), ADA, BEN, CAI)), OLD.key)


REVOKED = revoking(FIRST, ADA.key, Anchor(5, "ab" * 32))


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (FIRST, FIRST, "does not follow version 1"),
        (FIRST, replace(FIRST, version=3), "does not follow version 1"),
        (REVOKED, replace(FIRST, version=3), "takes a revocation back"),
        (
            REVOKED,
            replace(REVOKED, version=3, revoked=(Revocation(ADA.key.id, 9, "ab" * 32),)),
            "takes a revocation back",
        ),
        (FIRST, replace(FIRST.with_house(NEW.key), former=()), "the house's former keys"),
        (
            FIRST,
            replace(FIRST.with_house(NEW.key), former=(OLD.key, EVE.key), roles=()),
            "the house's former keys",
        ),
        (FIRST, replace(FIRST, version=2, former=(NEXT.key,)), "the house's former keys"),
    ],
)
def test_a_version_that_forgets_is_refused(before, after, problem):
    envelopes = chain((before, OLD), (after, OLD, NEW))
    with pytest.raises(VerificationError, match=problem):
        follow_trust(envelopes, OLD.key)


def test_versions_left_out_are_missed():
    first, last = chain((FIRST, OLD), (FIRST.with_role(OFFICERS).with_role(OFFICERS), OLD))
    with pytest.raises(VerificationError, match="Version 3 .* does not follow version 1"):
        follow_trust([first, last], OLD.key)


def approved_by_two():
    envelope = sign(payload(), ADA, BEN)
    digests = signature_digests(envelope, [ADA.key, BEN.key])
    return envelope, {key: min(digests) for key, digests in digests.items()}


@pytest.mark.parametrize(("seq", "counts"), [(1, True), (4, True), (5, False), (6, False)])
def test_a_revoked_key_counts_only_if_the_ledger_held_its_signature_before(seq, counts):
    envelope, digests = approved_by_two()
    recorded = Record({digests[ADA.key.id]: seq, digests[BEN.key.id]: 9}, {})
    state = standing(envelope, REVOKED, "officer", recorded)
    assert state.complete is counts
    assert state.undated == (set() if counts else {ADA.key.id})
    assert state.signed == ({ADA.key.id, BEN.key.id} if counts else {BEN.key.id})
    if not counts:
        assert str(state) == (
            "signed by 1 of the role 'officer'; 1 revoked since, and not shown to be older; "
            "missing: one more officer"
        )


def test_a_revoked_key_without_an_entry_of_the_ledger_counts_nothing():
    envelope, digests = approved_by_two()
    assert standing(envelope, FIRST, "officer").complete
    assert standing(envelope, REVOKED, "officer").signed == {BEN.key.id}
    recorded = Record({digests[BEN.key.id]: 1}, {})
    assert standing(envelope, REVOKED, "officer", recorded).signed == {BEN.key.id}


def test_a_stolen_key_cannot_sign_what_was_there_before():
    """An old statement by Ben is in the ledger since entry 1; Ada's key is stolen later."""
    old = sign(payload(), BEN)
    digests = frozenset[str]().union(*signature_digests(old, [ADA.key, BEN.key]).values())
    recorded = Record(dict.fromkeys(digests, 1), {})
    assert standing(add_signature(old, ADA), REVOKED, "officer", recorded).signed == {BEN.key.id}


def test_the_earliest_of_two_revocations_holds():
    envelope, digests = approved_by_two()
    earlier = revoking(REVOKED, ADA.key, Anchor(3, "ef" * 32))
    later = revoking(REVOKED, ADA.key, Anchor(9, "ef" * 32))
    recorded = Record({digests[ADA.key.id]: 4, digests[BEN.key.id]: 4}, {})
    assert not standing(envelope, earlier, "officer", recorded).complete
    assert standing(envelope, later, "officer", recorded).complete
    assert follow_trust(chain((FIRST, OLD), (REVOKED, OLD), (earlier, OLD)), OLD.key)[-1] == earlier


def test_a_former_house_can_be_revoked_but_not_the_present_one():
    with pytest.raises(InputError, match="change it for another first"):
        revoking(FIRST, OLD.key, Anchor(5, "ab" * 32))
    trust = revoking(FIRST.with_house(NEW.key), OLD.key, Anchor(5, "ab" * 32))
    envelope = sign(payload(), OLD)
    digest = min(signature_digests(envelope, [OLD.key])[OLD.key.id])
    assert standing(envelope, trust, HOUSE).undated == {OLD.key.id}
    assert standing(envelope, trust, HOUSE, Record({digest: 4}, {})).complete


@pytest.mark.parametrize(("recorded", "revoked"), [(4, 5), (5, 5), (6, 5), (4, None), (None, None)])
def test_with_a_ledger_recorded_and_revoked_are_what_the_ledger_says(recorded, revoked):
    """Whoever has a stolen key leaves the revocation out of the statements beside a forgery."""
    trust, envelope = FIRST.with_house(NEW.key), sign(payload(), OLD)
    digest = min(signature_digests(envelope, [OLD.key])[OLD.key.id])
    record = Record(
        {digest: recorded} if recorded else {}, {OLD.key.id: revoked} if revoked else {}
    )
    state = standing(envelope, trust, HOUSE, record)
    assert state.complete is (recorded == 4)
    assert state.former == frozenset() and state.current == state.signed
    assert state.undated == ({OLD.key.id} if revoked and recorded != 4 else set())
    assert state.unrecorded == (set() if recorded else {OLD.key.id})


def test_without_a_ledger_a_former_key_of_the_house_is_told_from_the_present_one():
    trust = FIRST.with_house(NEW.key)
    assert standing(sign(payload(), OLD), trust, HOUSE).former == {OLD.key.id}
    both = standing(sign(payload(), OLD, NEW), trust, HOUSE)
    assert (both.former, both.current) == ({OLD.key.id}, {NEW.key.id})


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: role("officer", (), 1), "0 people, of whom 1 must sign"),
        (lambda: role("officer", (ADA.key,), 0), "of whom 0 must sign"),
        (lambda: role("officer", (ADA.key,), 2), "1 people, of whom 2 must sign"),
        (lambda: role("officer", (ADA.key, ADA.key), 2), "a key twice"),
        (lambda: Trust(OLD.key, (role("boss", (ADA.key,)),)), "Roles are engineer, officer"),
        (lambda: Trust(OLD.key, (role("house", (ADA.key,)),)), "Roles are engineer, officer"),
        (lambda: Trust(OLD.key, (OFFICERS, OFFICERS)), "each once"),
        (lambda: Trust(OLD.key, (role("officer", (OLD.key,)),)), "key has a role of people"),
        (lambda: FIRST.with_house(ADA.key), "key has a role of people"),
        (lambda: FIRST.with_house(OLD.key), "a key twice"),
        (lambda: FIRST.with_house(NEW.key).with_house(OLD.key), "a key twice"),
    ],
)
def test_contradictions_are_refused(make, problem):
    with pytest.raises(InputError, match=problem):
        make()


def written(change) -> Envelope:
    """A trust statement whose text was altered before the house signed it."""
    said = dict(read_statement(sign_trust(REVOKED, OLD)).predicate)
    said = json.loads(json.dumps(said))
    change(said)
    return sign(make_statement({HOUSE: OLD.key.id}, TRUST_TYPE, said), OLD)


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.update(more=1),
        lambda it: it.pop("former"),
        lambda it: it.update(version=0),
        lambda it: it.update(version=True),
        lambda it: it.update(version="2"),
        lambda it: it.update(house=it["house"].upper()),
        lambda it: it.update(house=it["house"] + " "),
        lambda it: it.update(house=it["house"][:-2]),
        lambda it: it.update(house=None),
        lambda it: it.update(roles={}),
        lambda it: it.update(roles=[[]]),
        lambda it: it.update(roles=1),
        lambda it: it["roles"][0].update(threshold=True),
        lambda it: it["roles"][0].update(threshold=4),
        lambda it: it["roles"][0].update(threshold=0),
        lambda it: it["roles"][0].update(name=["officer"]),
        lambda it: it["roles"][0].update(name="house"),
        lambda it: it["roles"][0].update(holders=[]),
        lambda it: it["roles"][0].update(people=it["roles"][0]["people"] * 2),
        lambda it: it["roles"][0].update(people="".join(it["roles"][0]["people"][0])),
        lambda it: it["roles"][0].update(keys=it["roles"][0].pop("people")),
        lambda it: it["roles"][0]["people"][0].append(OLD.key.raw.hex()),
        lambda it: it["roles"][0]["people"].append(["01" + "00" * 31]),
        lambda it: it["revoked"][0].update(seq="5"),
        lambda it: it["revoked"][0].update(seq=-1),
        lambda it: it["revoked"][0].update(key=1),
        lambda it: it["revoked"][0].update(more=1),
        lambda it: it["revoked"].append({}),
        lambda it: it.update(former=[OLD.key.raw.hex()]),
    ],
)
def test_a_trust_statement_is_read_as_it_is_written_or_not_at_all(change):
    assert follow_trust([written(lambda _: None)], OLD.key) == [REVOKED]
    with pytest.raises(VerificationError, match="The trust statement"):
        follow_trust([written(change)], OLD.key)


def test_a_statement_of_another_kind_is_no_trust_statement():
    with pytest.raises(VerificationError, match=f"not {TRUST_TYPE}"):
        follow_trust([sign(payload(), OLD)], OLD.key)
    said = read_statement(sign_trust(FIRST, OLD)).predicate
    with pytest.raises(VerificationError, match="not as Cloister writes it"):
        follow_trust([sign(make_statement(FILES, TRUST_TYPE, said), OLD)], OLD.key)
