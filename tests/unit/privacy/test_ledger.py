"""The ledger separates budgets, states and runs, and refuses what does not fit."""

import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from ledger_requests import ask

from cloister.errors import BudgetExceeded, InputError, JournalMismatch, StorageError
from cloister.privacy.ledger import Ledger, Owner, State
from cloister.privacy.ledger.governance import allow_run, change_rules, refuse
from cloister.privacy.ledger.records import JournalState, Mark


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    opened = Ledger.open(tmp_path / "state" / "ledger.db")
    opened.grant("adult", "row", 3, "1e-6", "year", "officer", "yearly budget")
    return opened


def bring(ledger: Ledger, state: State) -> str:
    """A release in ``state``, by the shortest way."""
    release = ledger.reserve(ask(epsilon="1/100"), "flow").release.id
    ways = {
        State.RESERVED: [],
        State.SPENT: [State.SPENT],
        State.CANDIDATE: [State.SPENT, State.CANDIDATE],
        State.APPROVED: [State.SPENT, State.CANDIDATE, State.APPROVED],
        State.PUBLISHED: [State.SPENT, State.CANDIDATE, State.APPROVED, State.PUBLISHED],
        State.REJECTED: [State.SPENT, State.CANDIDATE, State.REJECTED],
        State.WITHDRAWN: [State.SPENT, State.WITHDRAWN],
        State.REFUNDED: [State.REFUNDED],
        State.FORFEITED: [State.FORFEITED],
    }
    for step in ways[state]:
        move(ledger, release, step)
    return release


def move(ledger: Ledger, release: str, to: State) -> None:
    if to is State.SPENT:
        ledger.spend(release, "flow", "journal-1", "data-1")
    elif to is State.FORFEITED and ledger.release(release).state is State.RESERVED:
        change_rules(ledger, "*", lambda rules: replace(rules, refusals=1), "officer", "why")
        refuse(ledger, release, "flow")
        allow_run(ledger, "adult", "officer", "why")
    else:
        ledger.advance(release, to, "reviewer", "as agreed", {"certificate": "cd" * 32})


def test_reservations_add_up_to_the_cap_and_no_further(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.reserve(ask(), "flow")
    now = ledger.budget("adult", "row")
    assert (now.spent, now.reserved, now.left, now.releases) == (0, 3, 0, 3)
    with pytest.raises(
        BudgetExceeded, match=r"0 is left, but epsilon 1e-09 at delta 0 was requested"
    ):
        ledger.reserve(ask(epsilon="1e-9"), "flow")
    assert ledger.budget("adult", "row") == now


def test_thirds_are_exact_and_deltas_add_up_too(ledger: Ledger) -> None:
    ledger.reserve(ask(epsilon="1/3", delta="6e-7"), "flow")
    with pytest.raises(BudgetExceeded):
        ledger.reserve(ask(epsilon="1/3", delta="6e-7"), "flow")
    ledger.reserve(ask(epsilon="1/3", delta="4e-7"), "flow")
    for _ in range(7):
        ledger.reserve(ask(epsilon="1/3"), "flow")
    assert ledger.budget("adult", "row").left == 0


def test_datasets_and_units_do_not_share_a_budget_and_are_refused_without_one(ledger) -> None:
    with pytest.raises(BudgetExceeded, match="No budget is granted to dataset 'other'"):
        ledger.reserve(ask("other"), "flow")
    with pytest.raises(BudgetExceeded, match="privacy unit 'person'"):
        ledger.reserve(ask(unit="person"), "flow")
    with pytest.raises(InputError, match="No budget"):
        ledger.budget("other", "row")
    ledger.grant("ädult 'x'", "row", 1, 0, "ever", "officer", "second")
    ledger.grant("adult", "person", 1, 0, "ever", "officer", "third")
    ledger.reserve(ask(epsilon=3), "flow")
    ledger.reserve(ask("ädult 'x'"), "flow")
    ledger.reserve(ask(unit="person"), "flow")
    assert [status.left for status in ledger.budgets()] == [0, 0, 0]


def test_a_budget_takes_one_relation_a_spend_id_one_request_and_a_release_name_one_release(ledger):
    request = ask(epsilon="1/2")
    release = ledger.reserve(request, "flow").release.id
    with pytest.raises(InputError, match="one relation"):
        ledger.reserve(ask(relation="replace_one"), "flow")
    with pytest.raises(InputError, match="spend id"):
        ledger.reserve(replace(request, epsilon=Fraction(1, 3)), "flow")
    with pytest.raises(InputError, match="exists already"):
        ledger.reserve(ask(epsilon="1/2", release=release), "flow")


def test_a_new_grant_replaces_the_cap_and_frees_nothing(ledger: Ledger) -> None:
    ledger.reserve(ask(epsilon=3), "flow")
    ledger.grant("adult", "row", 4, "1e-6", "year", "officer", "more")
    assert ledger.budget("adult", "row").left == 1
    ledger.grant("adult", "row", 2, "1e-6", "year", "officer", "less")
    now = ledger.budget("adult", "row")
    assert (now.left, now.reserved) == (0, 3)
    assert ledger.verify() == []


@pytest.mark.parametrize(
    "grant", [(0, 0, "year"), (1, 1, "year"), (float("nan"), 0, "year"), (1, 0, "week")]
)
def test_a_budget_that_cannot_be_one_is_refused(ledger, grant) -> None:
    before = len(ledger.entries())
    with pytest.raises(InputError):
        ledger.grant("adult", "row", *grant, "officer", "why")
    with pytest.raises(InputError, match="'by'"):
        ledger.grant("adult", "row", 1, 0, "year", " ", "why")
    assert len(ledger.entries()) == before


@pytest.mark.parametrize(
    "field",
    [
        *({"epsilon": amount} for amount in (0, -1, float("nan"), float("inf"), 5e-324)),
        *({"delta": amount} for amount in (-1, 1, float("nan"), 5e-324)),
        *(
            {"events": events}
            for events in ({"noise": 1.5}, {"noise": float("nan")}, {1: "a"}, {"x": b"y"})
        ),
        *(
            {"spend_id": ""},
            {"spend_id": "a b"},
            {"dataset": ""},
            {"method": "x" * 2001},
            {"release": "a/b"},
        ),
    ],
)
def test_a_request_that_cannot_be_one_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(InputError):
        ask(**field)


def test_the_same_run_is_resumed_while_unfinished_and_charged_anew_after(ledger: Ledger) -> None:
    request = ask()
    first = ledger.reserve(request, "flow")
    assert not first.resumed
    assert ledger.reserve(replace(request, release="r-other"), "flow").release == first.release
    spent = ledger.spend(first.release.id, "flow", "journal-1", "data-1")
    again = ledger.reserve(request, "flow")
    assert again.resumed and again.release == spent
    assert ledger.budget("adult", "row").releases == 1
    move(ledger, spent.id, State.CANDIDATE)
    new = ledger.reserve(replace(request, release="r-new"), "flow")
    assert not new.resumed and new.release.id == "r-new"
    assert ledger.budget("adult", "row").releases == 2


def test_a_candidate_is_found_by_the_same_run_until_it_is_delivered_or_moved(ledger) -> None:
    for last in ("delivered", "moved"):
        request = ask(epsilon="1/4")
        release = ledger.reserve(request, "flow").release.id
        move(ledger, release, State.SPENT)
        state = JournalState(Mark(0, "ab" * 32, "n"), sealed=False, digests=frozenset({"ab" * 32}))
        ledger.begin_run(release, "flow", state, Owner.current()).close()
        move(ledger, release, State.CANDIDATE)
        again = ledger.reserve(replace(request, release=f"r-{last}"), "flow")
        assert again.resumed and again.release.id == release and again.release.undelivered
        if last == "delivered":
            assert ledger.deliver(release, "flow") == ledger.deliver(release, "flow")
        else:
            move(ledger, release, State.APPROVED)
        assert (
            ledger.reserve(replace(request, release=f"r-{last}"), "flow").release.id == f"r-{last}"
        )
    assert ledger.verify() == []


def test_refusals_are_counted_by_dataset_and_unit(ledger: Ledger) -> None:
    for refused in (True, True, False):
        release = ledger.reserve(ask(epsilon="1/4"), "flow").release.id
        if refused:
            refuse(ledger, release, "flow")
        else:
            ledger.advance(release, State.REFUNDED, "flow", "a person withdrew it")
    assert ledger.budget("adult", "row").refusals == 2
    ledger.grant("adult", "person", 1, 0, "ever", "officer", "why")
    assert ledger.budget("adult", "person").refusals == 0


def test_another_version_goes_on_with_the_same_plan_alone(ledger: Ledger) -> None:
    request = ask()
    later = replace(request, release="r-new", code_version="9.0.0")
    release = ledger.reserve(request, "flow").release.id
    ledger.spend(release, "flow", "journal-1", "data-1")
    assert ledger.reserve(later, "flow").release.id == release
    with pytest.raises(InputError, match=f"begun by version {request.code_version}.*withdraw"):
        ledger.reserve(replace(later, events={"noise": 2}), "flow")
    assert ledger.budget("adult", "row").releases == 1


def test_what_another_version_reserved_for_another_plan_is_given_back(ledger: Ledger) -> None:
    request = ask()
    release = ledger.reserve(request, "flow").release.id
    later = replace(request, release="r-new", code_version="9.0.0", events={"noise": 2})
    assert ledger.reserve(later, "flow").release.id == "r-new"
    assert ledger.release(release).state is State.REFUNDED
    budget = ledger.budget("adult", "row")
    assert (budget.releases, budget.refusals) == (1, 0)
    assert ledger.verify() == []


def test_a_spent_release_is_resumed_with_its_own_journal_and_data_only(ledger: Ledger) -> None:
    release = bring(ledger, State.SPENT)
    assert ledger.spend(release, "flow", "journal-1", "data-1").state is State.SPENT
    with pytest.raises(JournalMismatch, match="another journal"):
        ledger.spend(release, "flow", "journal-2", "data-1")
    with pytest.raises(JournalMismatch, match="another data"):
        ledger.spend(release, "flow", "journal-1", "data-2")


ALLOWED = {
    State.RESERVED: {State.SPENT, State.REFUNDED, State.FORFEITED},
    State.SPENT: {State.CANDIDATE, State.WITHDRAWN},
    State.CANDIDATE: {State.APPROVED, State.REJECTED, State.WITHDRAWN},
    State.APPROVED: {State.PUBLISHED, State.WITHDRAWN},
    State.PUBLISHED: {State.WITHDRAWN},
}


@pytest.mark.parametrize("state", list(State))
def test_every_state_allows_its_moves_and_no_other(ledger: Ledger, state: State) -> None:
    for to in State:
        release = bring(ledger, state)
        if to in ALLOWED.get(state, set()):
            move(ledger, release, to)
            assert ledger.release(release).state is to
        elif not (state is to is State.SPENT):
            with pytest.raises(InputError, match=f"is {state.words} and cannot become {to.words}"):
                move(ledger, release, to)
            assert ledger.release(release).state is state
    assert ledger.verify() == []


def test_only_what_was_never_spent_is_given_back(ledger: Ledger) -> None:
    cap = ledger.budget("adult", "row").left
    bring(ledger, State.REFUNDED)
    assert ledger.budget("adult", "row").left == cap
    for state in (State.REJECTED, State.WITHDRAWN):
        bring(ledger, state)
    assert ledger.budget("adult", "row").left == cap - Fraction(2, 100)


def test_every_move_says_who_when_why_and_on_what(ledger: Ledger) -> None:
    release = ledger.release(bring(ledger, State.PUBLISHED))
    ways = "reserved spent candidate approved published".split()
    assert [step.state.value for step in release.steps] == ways
    assert all(step.by and step.time.endswith("Z") for step in release.steps)
    assert [step.reason for step in release.steps] == ["", "", *["as agreed"] * 3]
    assert release.evidence == {"journal": "journal-1", "data": "data-1", "certificate": "cd" * 32}
    with pytest.raises(InputError, match="'reason'"):
        ledger.advance(release.id, State.WITHDRAWN, "reviewer", "")
    with pytest.raises(InputError, match="no release"):
        ledger.advance("r-none", State.WITHDRAWN, "reviewer", "why")


def test_releases_are_listed_by_dataset_in_order_with_their_stain(ledger: Ledger) -> None:
    ledger.grant("other", "row", 1, 0, "ever", "officer", "second")
    made = [
        ledger.reserve(ask(name, epsilon="1/4", stain=stain), "flow").release.id
        for name, stain in (("adult", ""), ("other", ""), ("adult", "NOT PRIVATE: fixed noise"))
    ]
    assert [release.id for release in ledger.releases()] == made
    assert [release.id for release in ledger.releases("adult")] == [made[0], made[2]]
    assert ledger.release(made[2]).request.stain == "NOT PRIVATE: fixed noise"


@pytest.mark.parametrize(
    "address", ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "://", "postgresqlx://h/d"]
)
def test_an_address_that_is_no_ledger_is_refused(address: str) -> None:
    with pytest.raises(StorageError, match="address"):
        Ledger.open(address)


def test_a_path_that_cannot_hold_a_ledger_is_refused_and_the_file_is_its_owners(tmp_path) -> None:
    text = "text that is no database, and long enough to be read as one" * 50
    (tmp_path / "file").write_text(text)
    for path in (tmp_path, tmp_path / "file" / "ledger.db", tmp_path / "file"):
        with pytest.raises(StorageError):
            Ledger.open(path)
    assert (tmp_path / "file").read_text() == text
    ledger = Ledger.open(f"sqlite:///{tmp_path}/l.db")
    ledger.grant("adult", "row", 1, 0, "ever", "officer", "why")
    assert (tmp_path / "l.db").stat().st_mode & 0o777 == 0o600


READ_AND_LEAVE = """
import sqlite3, sys
ledger = sqlite3.connect(sys.argv[1])
print(ledger.execute("SELECT count(*) FROM answers").fetchone()[0])
ledger.close()
"""


def test_what_a_run_commits_stays_while_other_commands_come_and_go(tmp_path: Path) -> None:
    """Opening the ledger anew gives up no lock that a lease of the same process holds."""
    path, seen = tmp_path / "l.db", list[bytes]()
    with closing(Ledger.open(path).store.connect()) as lease:
        with lease.begin():
            lease.exec_driver_sql("CREATE TABLE answers (number)")
        Ledger.open(path)
        for number in range(3):
            command = [sys.executable, "-c", READ_AND_LEAVE, str(path)]
            seen.append(subprocess.run(command, check=True, capture_output=True).stdout)
            with lease.begin():
                lease.exec_driver_sql(f"INSERT INTO answers VALUES ({number})")
    assert [int(count) for count in seen] == [0, 1, 2]
