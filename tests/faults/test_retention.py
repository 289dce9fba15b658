"""What is deleted is an entry on either database: by the rules of its time, and by who may."""

from dataclasses import replace

import pytest
from ledger_requests import ask
from two_databases import on, on_both

from cloister.errors import InputError, NotPermitted
from cloister.privacy.ledger import Ledger, Person, Rules, State
from cloister.privacy.ledger.governance import change_person, change_rules, record_deletions, refuse
from cloister.privacy.ledger.house import DAYS, DELETED, EVERYWHERE, goes_at


@pytest.fixture
def ledger(place: str) -> Ledger:
    opened = replace(Ledger.open(place), clock=on("2026-01-05"))
    opened.grant("adult", "row", 100, "1e-4", "ever", "officer", "why")
    return opened


def release_in(ledger: Ledger, state: State) -> str:
    """A release that was brought to a state."""
    release = ledger.reserve(ask(), "flow").release.id
    if state is State.REFUNDED:
        ledger.advance(release, state, "flow", "not used")
        return release
    if state is State.FORFEITED:
        change_rules(ledger, EVERYWHERE, lambda _: Rules(refusals=1), "officer", "policy")
        refuse(ledger, release, "flow")
        return release
    steps = {
        State.RESERVED: (),
        State.SPENT: (),
        State.CANDIDATE: (State.CANDIDATE,),
        State.APPROVED: (State.CANDIDATE, State.APPROVED),
        State.PUBLISHED: (State.CANDIDATE, State.APPROVED, State.PUBLISHED),
        State.REJECTED: (State.CANDIDATE, State.REJECTED),
        State.WITHDRAWN: (State.WITHDRAWN,),
    }
    if state is not State.RESERVED:
        ledger.spend(release, "flow", "journal", "data")
    for step in steps[state]:
        ledger.advance(release, step, "flow", "why")
    return release


def delete(ledger: Ledger, release: str, *kinds: str, by: str = "officer") -> None:
    body = {"kinds": {kind: {f"releases/{release}/{kind}": "ab" * 32} for kind in kinds}}
    record_deletions(ledger, {release: body | {"listed": "cd" * 32}}, by, "not needed")


DECIDED = {"source", "measures", "journal"}
GOES = {
    State.RESERVED: set(),
    State.SPENT: set(),
    State.CANDIDATE: set(),
    State.APPROVED: DECIDED,
    State.PUBLISHED: DECIDED,
    State.REJECTED: DECIDED | {"models"},
    State.WITHDRAWN: DECIDED | {"models"},
    State.REFUNDED: {"refusals"},
    State.FORFEITED: {"refusals"},
}


@pytest.mark.parametrize(("state", "goes"), GOES.items())
def test_only_what_is_needed_no_more_is_deleted(ledger, state, goes) -> None:
    release = release_in(ledger, state)
    later = replace(ledger, clock=on("2026-03-05"))
    for kind in DAYS:
        before = ledger.entries()
        if kind in goes:
            delete(later, release, kind)
        else:
            with pytest.raises(NotPermitted, match=rf"\({kind}\) is needed.*Nothing was changed"):
                delete(later, release, kind)
            assert ledger.entries() == before
    assert {kind for each in ledger.release(release).deletions for kind in each.kinds} == goes
    assert ledger.verify() == []


@on_both
def test_rules_say_how_long_each_kind_stays(ledger: Ledger) -> None:
    change_rules(ledger, EVERYWHERE, lambda _: Rules(keep={"measures": 10}), "officer", "policy")
    release = release_in(ledger, State.APPROVED)
    delete(ledger, release, "journal")
    for day in ("2026-01-05", "2026-01-14"):
        with pytest.raises(NotPermitted, match="stays until 2026-01-15"):
            delete(replace(ledger, clock=on(day)), release, "measures")
    delete(replace(ledger, clock=on("2026-01-15")), release, "measures")
    first, second = ledger.release(release).deletions
    assert (list(first.kinds), list(second.kinds)) == (["journal"], ["measures"])
    assert ledger.verify() == []


def test_why_data_was_refused_stays_for_a_month(ledger: Ledger) -> None:
    held = ledger.release(release_in(ledger, State.REFUNDED))
    assert goes_at(held, "refusals", Rules()) == "2026-02-04T00:00:00.000000Z"
    assert goes_at(held, "refusals", Rules(keep={"refusals": 0})) == held.steps[-1].time


def test_an_entry_of_rules_without_days_is_read() -> None:
    body = {"four_eyes": True, "approvals": {}, "second_officer": False}
    assert Rules.from_body(body) == Rules(four_eyes=True)
    assert Rules.from_body(Rules(keep={"journal": 9}).body) == Rules(keep={"journal": 9})


@pytest.mark.parametrize("keep", [{"rows": 1}, {"journal": -1}, {"journal": True}, {"models": 9e9}])
def test_days_that_are_none_are_refused(keep: dict) -> None:
    with pytest.raises(InputError, match="days of source, measures"):
        Rules(keep=keep)


def test_whoever_runs_or_decides_may_delete(ledger: Ledger) -> None:
    for name, role in (("anna", "officer"), ("eve", "engineer"), ("otto", "auditor")):
        person = Person(name, (role,), (name,))
        change_person(ledger, name, lambda _, new=person: new, "anna", "why")
    release = ledger.reserve(ask(), "eve").release.id
    ledger.spend(release, "eve", "journal", "data")
    ledger.advance(release, State.WITHDRAWN, "anna", "why")
    for by in ("otto", "mallory"):
        with pytest.raises(NotPermitted, match="needs the role"):
            delete(ledger, release, "journal", by=by)
    delete(ledger, release, "journal", by="eve")
    delete(ledger, release, "models", by="anna")
    assert ledger.verify() == []


def test_no_entry_deletes_outside_a_home(ledger: Ledger) -> None:
    release = release_in(ledger, State.APPROVED)
    for outside in ("../elsewhere", "/etc", "", "releases/../../x"):
        body = {"kinds": {"journal": {outside: ""}}}
        with pytest.raises(Exception, match="no ledger writes"):
            record_deletions(ledger, {release: body}, "officer", "why")


def test_verify_names_an_entry_that_deleted_what_was_needed(ledger: Ledger) -> None:
    """Whoever holds the database can write; whoever verifies sees it."""
    release = release_in(ledger, State.CANDIDATE)
    with ledger.writing() as transaction:
        kinds = {"journal": {f"journals/{release}": ""}}
        body = {"release": release, "kinds": kinds, "by": "officer", "reason": "why"}
        transaction.append(transaction.next(DELETED, body))
    (found,) = ledger.verify()
    assert "(journal) is needed" in found.problem
