"""People on either database: roles, four eyes, approvals, and what a second officer confirms."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import combinations_with_replacement, product

import pytest
from ledger_requests import ask
from signing_keys import signer
from two_databases import on_both

from cloister.errors import InputError, NotPermitted, VerificationError
from cloister.identities import identity_of, new_token, token_identity
from cloister.privacy.certificate.certificate import Runner
from cloister.privacy.ledger import (
    Account,
    BudgetGrant,
    Ledger,
    Opening,
    Person,
    Proposal,
    Rules,
    State,
)
from cloister.privacy.ledger.books import LedgerState
from cloister.privacy.ledger.entries import REVOKED, TRUSTED, Entry
from cloister.privacy.ledger.governance import change_person, change_rules, confirm, revoke
from cloister.privacy.ledger.house import APPROVAL, APPROVAL_KEY, EVERYWHERE, RULES, match_roles
from cloister.privacy.ledger.outbox import events_after
from cloister.tasks.release.certify import runner_of
from cloister.tasks.release.trail import entry_words

PEOPLE = (
    Person("Anna", ("officer",), ("anna",)),
    Person("Ben", ("officer", "reviewer"), ("ben",)),
    Person("Eve", ("engineer",), ("eve", "root")),
    Person("Rita", ("reviewer",), ("rita",)),
    Person("Otto", ("auditor",), ("otto",)),
)


def set_person(ledger: Ledger, person: Person, by: str, reason: str) -> Proposal | None:
    return change_person(ledger, person.name, lambda _: person, by, reason)


def set_rules(ledger: Ledger, account: str, rules: Rules, by: str, reason: str) -> Proposal | None:
    return change_rules(ledger, account, lambda _: rules, by, reason)


@pytest.fixture
def ledger(place: str) -> Ledger:
    """A ledger with people of each role, and an account with a budget."""
    ledger = Ledger.open(place)
    for person in PEOPLE:
        set_person(ledger, person, "anna", "mandate")
    ledger.open_account(Account("adult", "row", "add_remove", ("/data/*.csv",)), "anna", "register")
    ledger.grant("adult", "row", 10, "1e-4", "year", "anna", "policy")
    return ledger


def candidate(ledger: Ledger, by: str = "eve") -> str:
    """A release that waits for review."""
    release = ledger.reserve(ask(), by).release.id
    ledger.spend(release, by, "journal", "data")
    ledger.advance(release, State.CANDIDATE, by, "the run ended")
    return release


def rules(ledger: Ledger, **asked: object) -> None:
    set_rules(ledger, EVERYWHERE, Rules(**asked), "anna", "policy")  # type: ignore[arg-type]


ACTS: dict[str, tuple[set[str], Callable[[Ledger, str, str], object]]] = {
    "reserve": ({"eve"}, lambda ledger, _, by: ledger.reserve(ask(), by)),
    "grant": (
        {"anna", "ben"},
        lambda ledger, _, by: ledger.grant("adult", "row", 9, "1e-4", "year", by, "why"),
    ),
    "open": (
        {"anna", "ben"},
        lambda ledger, _, by: ledger.open_account(Account("b", "row", "add_remove"), by, "why"),
    ),
    "approve": (
        {"anna", "ben", "rita"},
        lambda ledger, release, by: ledger.advance(release, State.APPROVED, by, "why"),
    ),
    "reject": (
        {"anna", "ben", "rita"},
        lambda ledger, release, by: ledger.advance(release, State.REJECTED, by, "why"),
    ),
    "person": (
        {"anna", "ben"},
        lambda ledger, _, by: set_person(ledger, Person("Zoe", ("auditor",), ("zoe",)), by, "why"),
    ),
    "rules": (
        {"anna", "ben"},
        lambda ledger, _, by: set_rules(ledger, "adult", Rules(four_eyes=True), by, "why"),
    ),
}


@pytest.mark.parametrize("act", ACTS)
def test_each_role_does_what_it_may_and_nothing_else(ledger: Ledger, act: str) -> None:
    allowed, run = ACTS[act]
    release = candidate(ledger)
    for by in ("eve", "rita", "otto", "mallory", "mallory on behalf of anna", "Anna"):
        if by not in allowed:
            before = ledger.entries()
            with pytest.raises(NotPermitted, match=r"needs the role .*Nothing was changed"):
                run(ledger, release, by)
            assert ledger.entries() == before
    run(ledger, release, f"{min(allowed)} on behalf of the board")
    assert ledger.verify() == []


def test_whoever_reaches_a_ledger_without_people_may_act(place: str) -> None:
    ledger = Ledger.open(place)
    ledger.grant("adult", "row", 10, "1e-4", "year", "anyone", "why")
    ledger.advance(candidate(ledger, "anyone"), State.APPROVED, "anyone", "why")
    assert ledger.verify() == []


def test_the_first_person_is_an_officer_who_sets_it(place: str) -> None:
    ledger = Ledger.open(place)
    for person in (PEOPLE[2], Person("Anna", ("officer",)), PEOPLE[1]):
        with pytest.raises(NotPermitted, match="is you.* --role officer --identity anna; then"):
            set_person(ledger, person, "anna", "why")
    with pytest.raises(NotPermitted, match="--identity says by what you are known"):
        set_person(ledger, Person("Anna", ("officer",)), "anna", "why")
    set_person(ledger, PEOPLE[0], "anna", "why")
    with pytest.raises(NotPermitted, match="too few officers"):
        set_person(ledger, Person("Anna"), "anna", "why")
    with pytest.raises(NotPermitted, match="known by nothing, give --identity"):
        set_person(ledger, Person("Anna", ("officer",)), "anna", "why")


def test_an_identity_is_of_one_person(ledger: Ledger) -> None:
    with pytest.raises(InputError, match="eve is the identity of another"):
        set_person(ledger, Person("Zoe", ("reviewer",), ("eve",)), "anna", "why")


def test_a_run_whose_engineer_lost_the_role_is_finished(ledger: Ledger) -> None:
    """What was charged is delivered."""
    release = ledger.reserve(ask(), "eve").release.id
    set_person(ledger, Person("Eve"), "anna", "left")
    ledger.spend(release, "eve", "journal", "data")
    ledger.advance(release, State.CANDIDATE, "eve", "the run ended")
    ledger.deliver(release, "eve")
    with pytest.raises(NotPermitted):
        ledger.reserve(ask(), "eve")
    assert ledger.verify() == []


def test_a_reservation_is_given_back_by_whoever_made_it_or_has_a_role(ledger: Ledger) -> None:
    first, second = (ledger.reserve(ask(), "eve").release.id for _ in range(2))
    set_person(ledger, Person("Eve", (), ("eve",)), "anna", "left")
    with pytest.raises(NotPermitted):
        ledger.advance(first, State.REFUNDED, "mallory", "why")
    ledger.advance(first, State.REFUNDED, "eve", "why")
    ledger.advance(second, State.REFUNDED, "rita", "why")
    assert ledger.verify() == []


def test_nobody_decides_on_what_they_ran(ledger: Ledger) -> None:
    """By none of their identities, nor in a second role."""
    set_person(
        ledger, Person("Ben", ("officer", "engineer"), ("ben", "ben (oidc x)")), "anna", "why"
    )
    rules(ledger, four_eyes=True)
    release = candidate(ledger, "ben")
    for by in ("ben", "ben (oidc x)", "ben on behalf of anna"):
        with pytest.raises(NotPermitted, match="Ben ran release"):
            ledger.advance(release, State.APPROVED, by, "why")
    ledger.advance(release, State.APPROVED, "rita", "why")
    with pytest.raises(NotPermitted, match="Ben ran release"):
        ledger.advance(release, State.PUBLISHED, "ben", "why")
    ledger.advance(release, State.PUBLISHED, "anna", "why")
    assert ledger.verify() == []


def test_as_many_approve_as_the_rules_ask_for(ledger: Ledger) -> None:
    rules(ledger, approvals={"officer": 2, "reviewer": 1})
    release = candidate(ledger)
    assert ledger.advance(release, State.APPROVED, "ben", "why").state is State.CANDIDATE
    with pytest.raises(InputError, match="approved it before"):
        ledger.advance(release, State.APPROVED, "ben", "again")
    assert ledger.advance(release, State.APPROVED, "rita", "why").state is State.CANDIDATE
    approved = ledger.advance(release, State.APPROVED, "anna", "why")
    assert approved.state is State.APPROVED
    assert [(each.words, each.who, each.reason) for each in approved.moves[3:]] == [
        ("approved (officer 1 of 2)", "Ben", "why"),
        ("approved (reviewer 1 of 1)", "Rita", "why"),
        ("approved", "Anna", "why"),
    ]
    assert ledger.verify() == []


def test_who_acted_stays_who_acted_when_an_identity_gets_another_owner(ledger: Ledger) -> None:
    """Else one person could run and approve a release, or approve it twice."""
    rules(ledger, approvals={"officer": 2}, four_eyes=True)
    set_person(ledger, Person("Zoe", ("officer", "engineer"), ("zoe", "ci")), "anna", "mandate")
    run, seen = candidate(ledger, "ci"), candidate(ledger, "eve")
    ledger.advance(seen, State.APPROVED, "ci", "why")
    set_person(ledger, Person("Zoe", ("officer", "engineer"), ("zoe",)), "anna", "a machine's")
    set_person(ledger, Person("Bob", ("officer", "engineer"), ("ci",)), "anna", "a machine's")
    with pytest.raises(NotPermitted, match="Zoe ran release"):
        ledger.advance(run, State.APPROVED, "zoe", "why")
    with pytest.raises(NotPermitted, match="Zoe approved it before"):
        ledger.advance(seen, State.APPROVED, "zoe", "again")
    assert ledger.advance(seen, State.APPROVED, "ben", "why").state is State.APPROVED
    assert ledger.verify() == []


def test_an_approval_in_another_role_is_recorded_and_not_counted(ledger: Ledger) -> None:
    rules(ledger, approvals={"officer": 2})
    release = candidate(ledger)
    for by in ("rita", "ben"):
        assert ledger.advance(release, State.APPROVED, by, "why").state is State.CANDIDATE
    approved = ledger.advance(release, State.APPROVED, "anna", "why")
    assert [move.words for move in approved.moves[3:]] == [
        "approved (in no role that the rules count)",
        "approved (officer 1 of 2)",
        "approved",
    ]


def test_nobody_counts_as_the_person_whose_name_they_bear(place: str) -> None:
    """Whoever was called Anna by the system before there were people is not the person Anna."""
    ledger = Ledger.open(place)
    ledger.grant("adult", "row", 10, "1e-4", "year", "anyone", "why")
    rules(ledger, approvals={"officer": 0, "reviewer": 0})
    release = candidate(ledger, "anyone")
    set_person(ledger, PEOPLE[0], "anna", "why")
    set_person(ledger, PEOPLE[1], "anna", "why")
    rules(ledger, approvals={"officer": 2})
    assert ledger.advance(release, State.APPROVED, "anna", "why").state is State.CANDIDATE
    with pytest.raises(NotPermitted):
        ledger.advance(release, State.APPROVED, "Ben", "why")
    assert ledger.advance(release, State.APPROVED, "ben", "why").state is State.APPROVED
    assert ledger.verify() == []


@on_both
def test_of_sixteen_racing_approvals_two_people_approve_once(ledger, child, ending) -> None:
    rules(ledger, approvals={"officer": 2}, four_eyes=True)
    release = candidate(ledger)
    place = ledger.store.engine.url.render_as_string(hide_password=False)

    def approve(by: str) -> Callable[[], int]:
        def run() -> int:
            try:
                Ledger.open(place).advance(release, State.APPROVED, by, "why")
            except InputError:
                return 1
            return 0

        return run

    runs = [child(approve(by)) for by in ("anna", "ben", "eve", "rita") * 4]
    ended = [ending(pid) for pid in runs]
    held = ledger.release(release)
    people = {*(each.by for each in held.consents), held.steps[-1].by}
    assert held.state is State.APPROVED
    assert {"anna", "ben"} <= people <= {"anna", "ben", "rita"}
    assert ended.count(0) == len(people)
    assert ledger.verify() == []


def test_a_second_officer_confirms_what_governs(ledger: Ledger) -> None:
    rules(ledger, second_officer=True)
    proposal = ledger.grant("adult", "row", 50, "1e-4", "year", "anna", "more data")
    assert ledger.budget("adult", "row").budget.epsilon == 10
    for by in ("anna", "anna on behalf of ben", "eve", "rita"):
        with pytest.raises(NotPermitted):
            confirm(ledger, proposal.seq, by, "why")
    confirm(ledger, proposal.seq, "ben", "seen")
    assert ledger.budget("adult", "row").budget.epsilon == 50
    assert [(each.by, each.confirmed) for each in ledger.books().grants["adult", "row"]][-1] == (
        "anna",
        "ben",
    )
    with pytest.raises(InputError, match="was confirmed already"):
        confirm(ledger, proposal.seq, "ben", "again")
    loosened = set_rules(ledger, EVERYWHERE, Rules(), "anna", "alone from now on")
    assert ledger.books().house.rules_of("adult").second_officer
    confirm(ledger, loosened.seq, "ben", "agreed")
    set_person(ledger, Person("Zoe", ("officer",), ("zoe",)), "anna", "why")
    assert ledger.verify() == []


def test_a_proposer_stays_one_when_their_identity_gets_another_owner(ledger: Ledger) -> None:
    """Else one officer could propose and confirm a grant, by two identities."""
    set_person(ledger, Person("Zoe", ("officer",), ("zoe", "ci")), "anna", "mandate")
    reserved = ledger.reserve(ask(), "eve").release.id
    rules(ledger, second_officer=True)
    proposal = ledger.grant("adult", "row", 50, "1e-4", "year", "ci", "more data")
    for name, roles, identities in (
        ("Zoe", ("officer",), ("zoe",)),
        ("Bob", ("officer",), ("ci", "eve")),
    ):
        for person in (Person("Eve", ("engineer",), ("eve2",)), Person(name, roles, identities)):
            proposed = set_person(ledger, person, "anna", "a machine's")
            confirm(ledger, proposed.seq, "ben", "seen")
    with pytest.raises(NotPermitted, match="Zoe proposed this"):
        confirm(ledger, proposal.seq, "zoe", "why")
    confirm(ledger, proposal.seq, "ben", "seen")
    assert ledger.advance(reserved, State.REFUNDED, "eve2", "why").state is State.REFUNDED
    assert ledger.verify() == []


def test_a_key_is_of_one_person(ledger: Ledger) -> None:
    """Else its signature would be the approvals of two, also once the first has another."""
    own, later = (signer(name).key.raw.hex() for name in ("zoe", "later"))
    for keys in ((own,), (own, later)):
        set_person(ledger, Person("Zoe", ("officer",), ("zoe",), keys), "anna", "a key")
    for name, roles in (("Cai", ("reviewer",)), ("Ben", ("officer",))):
        for key in (own, later):
            with pytest.raises(NotPermitted, match=f"of Zoe is no key of {name}"):
                set_person(ledger, Person(name, roles, (name.lower(),), (key,)), "anna", "a key")
    set_person(ledger, Person("Zoe", (), (), (own, later)), "anna", "left")
    with pytest.raises(NotPermitted, match="is no key of Cai"):
        set_person(ledger, Person("Cai", ("reviewer",), ("cai",), (own,)), "anna", "a key")
    assert ledger.verify() == []


def test_one_officer_does_not_loosen_the_rules_of_an_account(ledger: Ledger) -> None:
    set_rules(ledger, "adult", Rules(second_officer=True), "anna", "policy")
    loosened = set_rules(ledger, "adult", Rules(), "anna", "alone from now on")
    assert loosened is not None
    assert ledger.grant("adult", "row", 99, "1e-4", "year", "anna", "why") != ledger.budget(
        "adult", "row"
    )
    assert ledger.budget("adult", "row").budget.epsilon == 10
    confirm(ledger, loosened.seq, "ben", "agreed")
    ledger.grant("adult", "row", 20, "1e-4", "year", "anna", "why")
    assert ledger.budget("adult", "row").budget.epsilon == 20
    assert ledger.verify() == []


def test_a_release_says_what_it_is_for_where_rules_ask(ledger: Ledger) -> None:
    rules(ledger, purposes=True)
    for purpose in ("", " "):
        with pytest.raises(InputError, match="purpose"):
            ledger.reserve(ask(), "eve", purpose=purpose)
    release = ledger.reserve(ask(), "eve", purpose="the yearbook of 2027").release
    assert ledger.release(release.id).steps[0].reason == "the yearbook of 2027"
    assert ledger.verify() == []


def test_no_spec_grants_itself_a_budget_where_people_have_roles(ledger: Ledger) -> None:
    budget = BudgetGrant.of("new", "row", 3, "1e-4", "year")
    opening = Opening(Account("new", "row", "add_remove", ("/data/new",)), budget, "first release")
    refused = "needs the role officer, and Eve has engineer: account 'new' is not open"
    with pytest.raises(NotPermitted, match=refused):
        ledger.reserve(ask("new"), "eve", opening)
    known = Opening(
        Account("adult", "row", "add_remove", ("/elsewhere.csv",)),
        BudgetGrant.of("adult", "row", 99, "1e-4", "year"),
        "first release",
    )
    ledger.reserve(ask(), "eve", known)
    assert ledger.budget("adult", "row").budget.epsilon == 10


def test_a_token_is_a_person_while_it_is_valid_and_held(ledger: Ledger) -> None:
    token = new_token("Rita", date(2026, 3, 31))
    identity = token_identity(token)
    ledger = replace(ledger, clock=lambda: datetime(2200, 1, 1, tzinfo=UTC))
    forged = token_identity(new_token("Rita", date(2300, 1, 1)))
    release = candidate(ledger)
    set_person(ledger, Person("Rita", ("reviewer",), (identity,)), "anna", "token")
    with pytest.raises(NotPermitted, match="Nobody has this token"):
        ledger.advance(release, State.APPROVED, forged, "why")
    with pytest.raises(NotPermitted, match="valid until 2026-03-31"):
        ledger.advance(release, State.APPROVED, identity, "why")
    valid = token_identity(new_token("Rita", date(2200, 1, 1)))
    set_person(ledger, Person("Rita", ("reviewer",), (identity, valid)), "anna", "token")
    ledger.advance(release, State.APPROVED, f"{valid} on behalf of the board", "why")
    assert ledger.verify() == []
    assert token.rpartition(":")[2] not in "".join(entry.line for entry in ledger.entries())


def test_an_approval_by_the_key_of_another_names_its_owner(ledger: Ledger) -> None:
    keys = [signer(name).key for name in "abcd"]
    for person, own in zip(PEOPLE[:2], (keys[:2], keys[2:3]), strict=True):
        set_person(ledger, replace(person, keys=tuple(k.raw.hex() for k in own)), "anna", "key")
    rules(ledger, approvals={"officer": 1}, signed_approvals=True)
    release = candidate(ledger)
    for text in ("zz", "00"):  # what a forger may have written is refused too
        signed = {APPROVAL_KEY: text, APPROVAL: text}
        with pytest.raises(NotPermitted, match=f"The key {text} signed, and Anna acts"):
            ledger.advance(release, State.APPROVED, "anna", "why", signed)
    for key, owner in ((keys[2], " of Ben"), (keys[0], " of Anna"), (keys[3], "")):
        signed = {APPROVAL_KEY: key.raw.hex(), APPROVAL: "0" * 64}
        said = f"The key {key.id[:16]}{owner} signed, and Anna acts, whose key is "
        with pytest.raises(NotPermitted, match=f"{said}{keys[1].id[:16]}: give that one"):
            ledger.advance(release, State.APPROVED, "anna", "why", signed)


@pytest.mark.parametrize("kind", [TRUSTED, REVOKED])
def test_an_entry_about_a_key_has_its_slot_and_says_who_and_why(kind) -> None:
    body, state = (
        {"key": signer("otto").key.raw.hex(), "by": "anna", "reason": "why"},
        LedgerState(),
    )
    slot = state.slot(kind, body, 1)
    forged = [("other", body), (slot, body | {"by": " "}), (slot, body | {"reason": ""})]
    for entry in (Entry.after(None, "2026-01-01", kind, *each) for each in forged):
        with pytest.raises(VerificationError):
            state.post(entry)
    assert state.house == LedgerState().house
    state.post(Entry.after(None, "2026-01-01", kind, slot, body))
    assert state.house != LedgerState().house


def test_the_history_says_rules_people_and_keys_in_words(ledger: Ledger) -> None:
    key, token = signer("otto").key, token_identity(new_token("Otto", date(2200, 1, 1)))
    otto = Person("Otto", ("officer", "reviewer"), ("otto", token), (key.raw.hex(),))
    set_person(ledger, otto, "anna", "mandate")
    revoke(ledger, key, "anna", "stolen")
    rules(ledger, approvals={"officer": 2}, four_eyes=True, second_officer=True)
    own = Rules(True, {"officer": 1}, True, keep={"models": 9}, admission="filter")
    set_rules(ledger, "adult", own, "anna", "why")
    entries, books = ledger.entries(), ledger.books()
    *_, issued, lost, house, account = (entry_words(each, books) for each in entries)
    assert entry_words(entries[0], books) == "Anna is an officer, known by anna"
    assert entry_words(entries[1], books) == "Ben is an officer and a reviewer, known by ben"
    assert issued == "Otto: token issued (valid until 2200-01-01)"
    assert lost == f"the key {key.id[:16]} of Otto revoked"
    assert house == (
        "all accounts without rules of their own need two officers' approvals, four eyes, a second "
        "officer for grants, people and rules; budgets admit by the sum; from refusal 5 of data on "
        "a charge stays"
    )
    assert account == (
        "proposed: adult needs one officer's approval, four eyes, a second officer for grants, "
        "people and rules; budgets admit by a privacy filter; from refusal 5 of data on a charge "
        "stays; models is kept for 9 days"
    )


def test_a_token_is_recorded_and_people_read_the_name(ledger: Ledger) -> None:
    """Certificates, mails and histories name the person, also once the token is withdrawn."""
    by = f"{token_identity(new_token('Eve', date(2200, 1, 1)))} on behalf of the board"
    set_person(ledger, Person("Eve", ("engineer",), ("eve", identity_of(by))), "anna", "token")
    release, eve = candidate(ledger, by), "Eve on behalf of the board"
    assert ledger.release(release).steps[0].by == by
    assert runner_of(ledger, release) == Runner(
        person="Eve", roles=("engineer",), on_behalf_of="the board"
    )
    set_person(ledger, Person("Eve"), "anna", "left")
    assert runner_of(ledger, release) == Runner(identity=eve)
    assert {step.who for step in ledger.release(release).steps} == {eve}
    assert {event.by for event in events_after(ledger, 0)[0]} == {eve}


@pytest.mark.parametrize("text", ["", "rita", "rita:2026-01-01:", "rita:soon:secret", ":2026:x"])
def test_a_text_that_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no token"):
        token_identity(text)


def test_verify_names_entries_that_their_writers_might_not_write(ledger: Ledger) -> None:
    """Whoever holds the database can write; whoever verifies sees it."""
    rules(ledger, four_eyes=True)
    release = candidate(ledger)
    with ledger.writing() as transaction:
        body = {"release": release, "by": "eve", "reason": "me", "evidence": {}}
        transaction.append(transaction.next("approved", body))
    (found,) = ledger.verify()
    assert "needs the role officer or reviewer, and Eve has engineer" in found.problem


@pytest.mark.parametrize("asked", [{"second_officer": True}, {"approvals": {"officer": 2}}])
def test_rules_that_nobody_could_keep_are_refused(place: str, asked: dict) -> None:
    ledger = Ledger.open(place)
    set_person(ledger, PEOPLE[0], "anna", "why")
    with pytest.raises(NotPermitted, match="need 1 officer more"):
        rules(ledger, **asked)
    set_person(ledger, PEOPLE[1], "anna", "why")
    rules(ledger, **asked)


ALONE = Person("Anna", ("officer", "engineer"), ("anna",))


def test_four_eyes_are_refused_where_whoever_runs_is_all_who_may_approve(place: str) -> None:
    ledger = Ledger.open(place)
    set_person(ledger, ALONE, "anna", "why")
    before = ledger.entries()
    lacking = "need 1 officer or reviewer more, besides Anna, who runs releases: set people first"
    with pytest.raises(NotPermitted, match=lacking):
        rules(ledger, four_eyes=True)
    assert ledger.entries() == before
    set_person(ledger, PEOPLE[3], "anna", "why")
    with pytest.raises(NotPermitted, match="need 1 officer more, besides Anna"):
        rules(ledger, four_eyes=True, approvals={"officer": 1})
    rules(ledger, four_eyes=True)
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("asked", "person", "lacking"),
    [
        ({"four_eyes": True}, Person("Rita"), "besides Anna"),
        ({"four_eyes": True}, Person("Rita", ("auditor",), ("rita",)), "besides Anna"),
        ({"approvals": {"reviewer": 1}}, Person("Rita"), "1 reviewer more"),
    ],
    ids=["withdrawn", "another role", "approvals"],
)
def test_nobody_goes_without_whom_the_rules_cannot_be_kept(place, asked, person, lacking) -> None:
    ledger = Ledger.open(place)
    for each in (ALONE, PEOPLE[3]):
        set_person(ledger, each, "anna", "why")
    rules(ledger, **asked)
    with pytest.raises(NotPermitted, match=f"{lacking}.*or change the rules"):
        set_person(ledger, person, "anna", "left")
    set_person(ledger, replace(PEOPLE[3], name="Zoe", identities=("zoe",)), "anna", "follows")
    set_person(ledger, person, "anna", "left")
    assert ledger.verify() == []


def test_an_account_that_asks_for_a_second_officer_keeps_two(ledger: Ledger) -> None:
    set_rules(ledger, "adult", Rules(second_officer=True), "anna", "policy")
    with pytest.raises(NotPermitted, match="the rules of account adult would need 1 officer more"):
        set_person(ledger, Person("Ben"), "anna", "left")


def test_what_waits_for_a_second_officer_is_refused_when_it_is_proposed(ledger: Ledger) -> None:
    rules(ledger, second_officer=True)
    with pytest.raises(NotPermitted, match="need 3 reviewers more"):
        rules(ledger, approvals={"reviewer": 5})


def test_rules_that_an_earlier_version_let_nobody_keep_stay_sound_and_can_be_mended(place) -> None:
    ledger = Ledger.open(place)
    set_person(ledger, ALONE, "anna", "why")
    with ledger.writing() as transaction:
        body = {"account": EVERYWHERE, "by": "anna", "reason": "why"}
        body |= Rules(four_eyes=True).body
        transaction.append(transaction.next(RULES, body))
    assert ledger.verify() == []
    set_person(ledger, PEOPLE[2], "anna", "an engineer")
    set_person(ledger, PEOPLE[3], "anna", "a reviewer")
    assert ledger.verify() == []


BOTH = {"officer": 1, "reviewer": 1}


def test_a_person_of_two_roles_approves_in_one_of_them(ledger: Ledger) -> None:
    rules(ledger, approvals=BOTH)
    release = candidate(ledger)
    assert ledger.advance(release, State.APPROVED, "ben", "why").state is State.CANDIDATE
    with pytest.raises(NotPermitted, match="Ben approved it before"):
        ledger.advance(release, State.APPROVED, "ben on behalf of rita", "why")
    approved = ledger.advance(release, State.APPROVED, "anna", "why")
    assert [move.words for move in approved.moves[3:]] == ["approved (officer 1 of 1)", "approved"]
    assert ledger.verify() == []


def test_whoever_could_count_in_two_roles_counts_where_another_cannot(ledger: Ledger) -> None:
    set_person(ledger, Person("Zoe", ("officer", "reviewer"), ("zoe",)), "anna", "why")
    rules(ledger, approvals={"officer": 1, "reviewer": 2})
    release = candidate(ledger)
    for by in ("ben", "zoe"):
        assert ledger.advance(release, State.APPROVED, by, "why").state is State.CANDIDATE
    approved = ledger.advance(release, State.APPROVED, "anna", "why")
    assert [move.words for move in approved.moves[3:]] == [
        "approved (officer 1 of 1)",
        "approved (reviewer 1 of 2)",
        "approved",
    ]
    assert ledger.verify() == []


@pytest.mark.parametrize("four_eyes", [False, True])
def test_rules_that_one_person_would_meet_twice_are_refused(place: str, four_eyes: bool) -> None:
    ledger = Ledger.open(place)
    both = Person("Anna", ("officer", "reviewer"), ("anna",))
    runner = Person("Rita", ("reviewer", "engineer"), ("rita",))
    for person in (both, runner) if four_eyes else (both,):
        set_person(ledger, person, "anna", "why")
    with pytest.raises(NotPermitted, match="need 1 reviewer more"):
        rules(ledger, approvals=BOTH, four_eyes=four_eyes)
    set_person(ledger, replace(PEOPLE[3], name="Zoe", identities=("zoe",)), "anna", "why")
    rules(ledger, approvals=BOTH, four_eyes=four_eyes)
    with pytest.raises(NotPermitted, match="1 reviewer more.*or change the rules"):
        set_person(ledger, Person("Zoe"), "anna", "left")
    assert ledger.verify() == []


def test_rules_without_people_to_keep_them_are_refused(place: str) -> None:
    with pytest.raises(NotPermitted, match="need 1 officer and 1 reviewer more"):
        rules(Ledger.open(place), approvals=BOTH)


def test_approvals_by_key_need_people_with_keys(ledger: Ledger) -> None:
    with pytest.raises(NotPermitted, match="1 officer more, who signs by a key set with --key"):
        rules(ledger, approvals={"officer": 1}, signed_approvals=True)
    set_person(ledger, replace(PEOPLE[0], keys=("ab" * 32,)), "anna", "a key")
    rules(ledger, approvals={"officer": 1}, signed_approvals=True)
    assert ledger.verify() == []


def test_an_approval_in_two_roles_is_sound_only_from_an_earlier_version(ledger: Ledger) -> None:
    rules(ledger, approvals=BOTH)

    def approve_as_before() -> None:
        release = candidate(ledger)
        with ledger.writing() as transaction:
            body = {"release": release, "by": "ben", "reason": "both roles", "evidence": {}}
            transaction.append(transaction.next("approved", body))

    approve_as_before()
    assert ledger.verify() == []
    ledger.advance(candidate(ledger), State.APPROVED, "ben", "why")
    approve_as_before()
    (found,) = ledger.verify()
    assert "still needs 1 reviewer to approve it" in found.problem


def test_people_are_matched_so_that_as_many_places_as_possible_are_filled() -> None:
    kinds = [(), ("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "b", "c")]
    for roles in combinations_with_replacement(kinds, 4):
        for needed in ({"a": 1, "b": 1}, {"a": 2, "b": 1, "c": 1}, {"c": 0, "b": 2}):
            matched = match_roles(needed, dict(enumerate(roles)))
            assert all(role in roles[person] for person, role in matched.items())
            choices = product(*((*each, None) for each in roles))
            best = max(
                sum(min(choice.count(r), n) for r, n in needed.items()) for choice in choices
            )
            assert len(matched) == best
