"""Refused data on either database: counted, forfeited from the n-th on, allowed by an officer."""

from dataclasses import replace
from typing import Any

import pytest
from ledger_requests import ask
from two_databases import on

from cloister.errors import BudgetExceeded, InputError, NotPermitted
from cloister.privacy.ledger import Ledger, Person, State, verify_chain
from cloister.privacy.ledger.books import ALLOWED, REFUSAL, LedgerState
from cloister.privacy.ledger.entries import Entry
from cloister.privacy.ledger.governance import allow_run, change_person, change_rules, refuse
from cloister.privacy.ledger.records import REFUSED
from cloister.tasks.data.session import validation_findings, write_validation
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger


@pytest.fixture
def ledger(place: str) -> Ledger:
    """A ledger with a budget of epsilon 20 a year."""
    ledger = replace(Ledger.open(place), clock=on("2026-01-05"))
    ledger.grant("adult", "row", 20, "1e-4", "year", "officer", "policy")
    return ledger


def refused(ledger: Ledger) -> State:
    """Run on data that is refused; what becomes of the reservation."""
    return refuse(ledger, ledger.reserve(ask(), "flow").release.id, "flow").state


def limit(ledger: Ledger, refusals: int) -> None:
    change_rules(ledger, "*", lambda rules: replace(rules, refusals=refusals), "officer", "policy")


def test_the_fifth_refusal_in_a_window_is_forfeited_and_the_next_run_waits(ledger: Ledger) -> None:
    assert [refused(ledger) for _ in range(5)] == [State.REFUNDED] * 4 + [State.FORFEITED]
    now = ledger.budget("adult", "row")
    assert (now.refusals, now.spent, now.releases) == (5, 1, 1)
    with pytest.raises(BudgetExceeded, match=r"budget allow adult .* Nothing was charged"):
        ledger.reserve(ask(), "flow")
    assert ledger.verify() == []


def test_an_officer_allows_the_next_run_and_it_is_forfeited_too(ledger: Ledger) -> None:
    limit(ledger, 2)
    with pytest.raises(InputError, match="Nothing keeps"):
        allow_run(ledger, "adult", "officer", "too early")
    assert [refused(ledger), refused(ledger)] == [State.REFUNDED, State.FORFEITED]
    allow_run(ledger, "adult", "officer", "the export was repaired")
    with pytest.raises(InputError, match="Nothing keeps"):
        allow_run(ledger, "adult", "officer", "twice")
    assert refused(ledger) is State.FORFEITED
    with pytest.raises(BudgetExceeded, match="refused too often"):
        ledger.reserve(ask(), "flow")
    assert ledger.verify() == []


def test_what_a_run_began_is_finished_though_its_account_waits(ledger: Ledger) -> None:
    limit(ledger, 1)
    request = ask()
    begun = ledger.reserve(request, "flow").release.id
    refused(ledger)
    assert ledger.reserve(request, "flow").release.id == begun
    ledger.spend(begun, "flow", "journal", "data")
    ledger.advance(begun, State.CANDIDATE, "flow", "the run ended")
    assert refuse(ledger, begun, "flow").state is State.CANDIDATE
    assert ledger.verify() == []


def test_a_new_window_counts_anew_and_a_forfeited_run_waits_beyond_it(ledger: Ledger) -> None:
    limit(ledger, 2)
    refused(ledger)
    later = replace(ledger, clock=on("2027-01-05"))
    assert [refused(later), refused(later)] == [State.REFUNDED, State.FORFEITED]
    last = replace(ledger, clock=on("2028-01-05"))
    with pytest.raises(BudgetExceeded, match="refused too often"):
        last.reserve(ask(), "flow")
    assert last.budget("adult", "row").refusals == 3
    assert last.verify() == []


def test_only_officers_allow_runs(ledger: Ledger) -> None:
    for name, role in (("anna", "officer"), ("eve", "engineer")):
        person = Person(name, (role,), (name,))
        change_person(ledger, name, lambda _, person=person: person, "anna", "mandate")
    change_rules(ledger, "*", lambda rules: replace(rules, refusals=1), "anna", "policy")
    release = ledger.reserve(ask(), "eve").release.id
    with pytest.raises(NotPermitted, match="is nobody's identity"):
        refuse(ledger, release, "mallory")
    refuse(ledger, release, "eve")
    with pytest.raises(NotPermitted, match="needs the role officer"):
        allow_run(ledger, "adult", "eve", "please")
    allow_run(ledger, "adult", "anna", "repaired")
    assert ledger.verify() == []


def test_no_other_way_gives_refused_data_its_charge_back(ledger: Ledger) -> None:
    limit(ledger, 1)
    release = ledger.reserve(ask(), "flow").release.id
    for state in (State.REFUNDED, State.FORFEITED):
        with pytest.raises(InputError, match="says otherwise. Nothing was changed"):
            ledger.advance(release, state, "flow", REFUSED)
    assert ledger.release(release).state is State.RESERVED


def test_a_refused_run_that_was_killed_counts_when_it_is_withdrawn(place, tmp_path) -> None:
    """The findings of the last one were deleted, which verify names."""
    from cloister.flows.review import move_release

    home = Home.current({"CLOISTER_HOME": str(tmp_path / "home"), "CLOISTER_LEDGER": place})
    ledger = open_ledger(home)
    ledger.grant("adult", "row", 20, "1e-4", "year", "officer", "policy")
    limit(ledger, 2)
    states = []
    for refused_before, deleted in ((False, False), (True, False), (True, True)):
        reserved = ledger.reserve(ask(), "flow").release
        release = reserved.id
        home.release(release).mkdir(parents=True)
        path = write_validation(release, {"refused": refused_before, "problems": []}, home)
        assert list(validation_findings(reserved, home)) == []
        if deleted:
            path.write_text(path.read_text().replace('"seal"', '"note"'))
            (found,) = validation_findings(reserved, home)
            assert "has no seal" in found
            path.unlink()
            (found,) = validation_findings(reserved, home)
            assert found.startswith(f"{path}: is missing; restore it")
        states.append(move_release(home, release, "withdrawn", "flow", "given up"))
    assert states == ["released_back", "released_back", "forfeited"]
    assert ledger.budget("adult", "row").refusals == 2


def rebuilt(ledger: Ledger, change: Any) -> list[Entry]:
    """The chain anew, each entry as ``change`` makes it, or left out where that is None."""
    entries: list[Entry] = []
    for entry in ledger.entries():
        changed = change(entry)
        if changed is not None:
            last = entries[-1] if entries else None
            entries.append(Entry.after(last, entry.time, *changed))
    return entries


def test_verify_finds_a_forfeited_charge_that_was_given_back(ledger: Ledger) -> None:
    limit(ledger, 2)
    assert [refused(ledger), refused(ledger)] == [State.REFUNDED, State.FORFEITED]

    def change(entry: Entry) -> tuple[str, str, Any]:
        slot = entry.slot.replace("forfeited", "released_back")
        kind = "released_back" if entry.kind == State.FORFEITED else entry.kind
        body = {key: value for key, value in entry.body.items() if key != REFUSAL}
        counted = entry.body if entry.kind == State.REFUNDED else body
        return kind, slot, counted

    (found,) = verify_chain(rebuilt(ledger, change))
    assert "refusal 2 of data in its window" in found.problem


def test_verify_finds_a_reservation_that_nobody_allowed(ledger: Ledger) -> None:
    limit(ledger, 1)
    refused(ledger)
    allow_run(ledger, "adult", "officer", "repaired")
    ledger.reserve(ask(), "flow")

    def change(entry: Entry) -> tuple[str, str, Any] | None:
        return None if entry.kind == ALLOWED else (entry.kind, entry.slot, entry.body)

    (found,) = verify_chain(rebuilt(ledger, change))
    assert "refused too often" in found.problem


def test_refusals_of_earlier_versions_are_read_and_counted(ledger: Ledger) -> None:
    """Their entries say nothing of a number, and gave back every charge."""
    limit(ledger, 9)
    for _ in range(6):
        refused(ledger)

    def change(entry: Entry) -> tuple[str, str, Any] | None:
        body = {key: value for key, value in entry.body.items() if key != REFUSAL}
        return None if entry.kind == "rules_set" else (entry.kind, entry.slot, body)

    earlier = rebuilt(ledger, change)
    assert verify_chain(earlier) == []
    assert sum(release.refused for release in LedgerState.of(earlier).releases.values()) == 6
