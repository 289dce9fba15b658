"""Checkpoints on either database: believed as this home wrote them, and named if they differ."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_requests import ask
from two_databases import on_both

from cloister.errors import VerificationError
from cloister.privacy.ledger import Account, BudgetGrant, Ledger, Opening, Person, State, governance
from cloister.privacy.ledger import checkpoints as checkpoints_module
from cloister.privacy.ledger import ledger as ledger_module
from cloister.privacy.ledger.accounts import BlockScheme
from cloister.privacy.ledger.books import LedgerState
from cloister.privacy.ledger.checkpoints import CheckpointFile, LedgerSnapshot
from cloister.privacy.ledger.leases import Owner
from cloister.privacy.ledger.records import JournalState, Mark
from cloister.privacy.signing import FileSigner

TABLE = "cloister_entries"


def of_home(place: str, folder: Path) -> Ledger:
    """The ledger of a home, with its key and the place of its checkpoint."""
    folder.mkdir(exist_ok=True)
    signer = FileSigner.open(folder / "house.pem")
    file = CheckpointFile(folder / "checkpoint", lambda: signer.key)
    return replace(Ledger.open(place), signer=lambda: signer, checkpoints=file)


@pytest.fixture
def ledger(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger of which each transaction writes a checkpoint: two releases, one of them spent."""
    monkeypatch.setattr(ledger_module, "INTERVAL", 1)
    ledger = of_home(place, tmp_path / "home")
    ledger.grant("adult", "row", 3, "1e-4", "year", "officer", "policy")
    for release in ("r-1", "r-2"):
        ledger.reserve(ask(release=release), "flow")
    ledger.spend("r-1", "flow", "journal", "data")
    return ledger


def file_of(ledger: Ledger) -> Path:
    assert ledger.checkpoints
    return ledger.checkpoints.path


def state_of(ledger: Ledger) -> LedgerSnapshot:
    with ledger.store.reading() as connection:
        return LedgerSnapshot.read(ledger.store, connection, ledger.checkpoints)


def findings(ledger: Ledger) -> str:
    return "\n".join(map(str, ledger.verify()))


def require_ignored(ledger: Ledger, problem: str) -> None:
    """The checkpoint is named, is believed by no operation, and is replaced by the next."""
    assert problem in findings(ledger)
    assert state_of(ledger).since == 0
    assert state_of(ledger).books == LedgerState.of(ledger.entries())
    ledger.reserve(ask(release="r-9"), "flow")
    assert state_of(ledger).since == len(ledger.entries())
    assert ledger.verify() == []


def unguarded(ledger: Ledger, *statements: str) -> None:
    """Change rows as whoever has all rights on the database, and put the guards back."""
    with ledger.store.engine.begin() as connection:
        if ledger.store.dialect == "postgresql":
            connection.exec_driver_sql(f"ALTER TABLE {TABLE} DISABLE TRIGGER USER")
        else:
            listed = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            triggers = dict(connection.exec_driver_sql(listed).all())
            for name in triggers:
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.exec_driver_sql(statement)
        if ledger.store.dialect == "postgresql":
            for name in ("insert", "update", "delete", "truncate"):
                enable = f"ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER {TABLE}_{name}"
                connection.exec_driver_sql(enable)
        else:
            for trigger in triggers.values():
                connection.exec_driver_sql(trigger)


def write_all_kinds(ledger: Ledger, folder: Path) -> None:
    """Entries of every kind."""
    for name in ("anna", "ben"):
        officer = Person(name, ("officer", "engineer"), (name,))
        governance.change_person(
            ledger, name, lambda _, officer=officer: officer, "anna", "mandate"
        )
    other = FileSigner.open(folder / "other.pem").key
    governance.trust(ledger, other, "anna", "second site")
    governance.revoke(ledger, other, "anna", "closed")
    for places in (("/data/1.csv",), ("/data/1.csv", "/data/2.csv")):
        ledger.open_account(Account("adult", "row", "add_remove", places), "anna", "register")
    ledger.grant("adult", "row", 10, "1e-4", "year", "anna", "policy")
    ledger.grant("adult", "row", "19/2", "1e-4", "month", "anna", "policy")
    governance.change_rules(
        ledger, "adult", lambda rules: replace(rules, refusals=2), "anna", "policy"
    )
    approved, returned, withdrawn, *refused = (
        ledger.reserve(ask(epsilon=f"1/{number}", delta="1e-6"), "ben").release.id
        for number in (2, 3, 7, 9, 11)
    )
    ledger.advance(returned, State.REFUNDED, "ben", "not needed")
    for release in refused:
        governance.refuse(ledger, release, "ben")
    governance.allow_run(ledger, "adult", "anna", "corrected")
    ledger.spend(approved, "ben", "journal", "data")
    begin = Mark(0, "ab" * 32, "cd" * 16)
    journal = JournalState(begin, False, frozenset([begin.digest]))
    ledger.begin_run(approved, "ben", journal, Owner.current()).close()
    ledger.seal(approved, "ben", Mark(3, "ef" * 32))
    ledger.advance(approved, State.CANDIDATE, "ben", "the run ended", {"manifest": "12" * 32})
    ledger.deliver(approved, "ben")
    ledger.spend(withdrawn, "ben", "journal-2", "data")
    ledger.advance(withdrawn, State.WITHDRAWN, "anna", "not needed")
    asked = {"approvals": {"officer": 2}, "second_officer": True}
    governance.change_rules(
        ledger, "adult", lambda rules: replace(rules, **asked), "anna", "policy"
    )
    for name in ("anna", "ben"):
        ledger.advance(approved, State.APPROVED, name, "fine")
    ledger.sign(approved, "anna", "34" * 32)
    kinds = {"journal": {f"journals/{approved}": "ab" * 32}}
    governance.record_deletions(
        ledger, {approved: {"kinds": kinds, "listed": "cd" * 32}}, "anna", "decided"
    )
    growing = Account("growing", "row", "add_remove", (), BlockScheme("day", "date", "month"))
    ledger.open_account(growing, "anna", "register")
    for epsilon in (8, 7):
        ledger.grant("adult", "row", epsilon, "1e-4", "month", "anna", "policy")
    governance.confirm(ledger, min(ledger.books().house.proposals), "ben", "agreed")
    opening = Opening(growing, BudgetGrant.of("growing", "row", 1, 0, "year"), "declared")
    ledger.grant("growing", "row", 1, 0, "year", "anna", "policy")
    governance.confirm(ledger, max(ledger.books().house.proposals), "ben", "agreed")
    ledger.reserve(ask("growing", blocks=("2026-01", "2026-02")), "ben", opening)


def test_books_after_each_checkpoint_are_those_of_all_entries(place: str, tmp_path: Path) -> None:
    ledger = of_home(place, tmp_path / "home")
    write_all_kinds(ledger, tmp_path)
    entries, signer = ledger.entries(), ledger.signer()
    whole = LedgerState.of(entries)
    assert len({entry.kind for entry in entries}) == 22
    assert signer and ledger.checkpoints
    for entry in entries:
        ledger.checkpoints.write(entry.anchor, LedgerState.of(entries[: entry.seq]), signer)
        assert state_of(ledger) == LedgerSnapshot(whole, entries[-1], entry.seq)
        assert ledger.verify() == []


def test_each_operation_goes_on_from_the_checkpoint_of_the_one_before(place, tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_module, "INTERVAL", 1)
    ledger = of_home(place, tmp_path / "home")
    write_all_kinds(ledger, tmp_path)
    entries = ledger.entries()
    assert state_of(ledger) == LedgerSnapshot(LedgerState.of(entries), entries[-1], len(entries))
    assert ledger.verify() == []


def test_a_checkpoint_is_written_when_enough_entries_follow_the_last(place, tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_module, "INTERVAL", 3)
    ledger = of_home(place, tmp_path / "home")
    since = []
    for number in range(1, 8):
        ledger.grant("adult", "row", number, 0, "year", "officer", "policy")
        since.append(state_of(ledger).since)
    assert since == [0, 0, 3, 3, 3, 6, 6]


@on_both
def test_entries_before_the_checkpoint_are_not_read(ledger: Ledger) -> None:
    unguarded(ledger, f"UPDATE {TABLE} SET line = 'x' WHERE seq = 2")
    ledger.reserve(ask(release="r-3"), "flow")
    assert ledger.budget("adult", "row").left == 0
    assert "entry 2: was altered" in findings(ledger)
    file_of(ledger).unlink()
    with pytest.raises(VerificationError, match="entry 2"):
        ledger.budget("adult", "row")


@pytest.mark.parametrize("seq", [4, 5])
def test_an_altered_entry_from_the_checkpoint_on_stops_the_ledger(ledger: Ledger, seq: int) -> None:
    file = file_of(ledger).read_bytes()
    ledger.advance("r-2", State.REFUNDED, "flow", "not needed")
    file_of(ledger).write_bytes(file)
    assert state_of(ledger).since == 4
    unguarded(ledger, f"UPDATE {TABLE} SET line = replace(line, 'flow', 'wolf') WHERE seq = {seq}")
    with pytest.raises(VerificationError, match=f"entry {seq}"):
        ledger.budget("adult", "row")
    with pytest.raises(VerificationError, match=f"entry {seq}"):
        ledger.reserve(ask(), "flow")


@on_both
def test_guards_are_checked_by_whatever_writes(ledger: Ledger) -> None:
    on = f" ON {TABLE}" if ledger.store.dialect == "postgresql" else ""
    with ledger.store.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TRIGGER {TABLE}_delete{on}")
    with pytest.raises(VerificationError, match="delete is missing"):
        ledger.reserve(ask(), "flow")


@pytest.mark.parametrize("place_in_file", [0.0, 0.5, 1.0])
def test_a_damaged_checkpoint_is_ignored(ledger: Ledger, place_in_file: float) -> None:
    text = bytearray(file_of(ledger).read_bytes())
    text[int(place_in_file * (len(text) - 1))] ^= 1
    file_of(ledger).write_bytes(text)
    require_ignored(ledger, "checkpoint")


@pytest.mark.parametrize("length", [0, 300])
def test_a_checkpoint_that_was_cut_off_is_ignored(ledger: Ledger, length: int) -> None:
    file_of(ledger).write_bytes(file_of(ledger).read_bytes()[:length])
    require_ignored(ledger, "was altered, and is ignored")


def test_a_checkpoint_of_another_home_is_ignored(ledger, place, tmp_path) -> None:
    other = of_home(place, tmp_path / "other")
    other.grant("adult", "row", 4, "1e-4", "year", "officer", "policy")
    file_of(ledger).write_bytes(file_of(other).read_bytes())
    require_ignored(ledger, "is not signed by the key of this home")


def test_a_forged_checkpoint_frees_nothing(ledger: Ledger) -> None:
    forged = file_of(ledger).read_bytes().replace(b'"reserved"', b'"returned"')
    file_of(ledger).write_bytes(forged)
    require_ignored(ledger, "was altered, and is ignored")
    assert ledger.budget("adult", "row").left == 0


def test_books_that_the_key_signed_and_no_entries_give_are_named(ledger: Ledger) -> None:
    entries, signer = ledger.entries(), ledger.signer()
    assert ledger.checkpoints and signer
    ledger.checkpoints.write(entries[3].anchor, LedgerState.of(entries[:2]), signer)
    assert "entry 4: gives other books than the checkpoint" in findings(ledger)


def test_a_checkpoint_of_a_longer_ledger_is_ignored(ledger: Ledger, place: str) -> None:
    unguarded(ledger, f"DELETE FROM {TABLE} WHERE seq = 4")
    require_ignored(ledger, "entry 4: is not the one of the checkpoint")


def test_an_older_checkpoint_forgets_nothing(ledger: Ledger) -> None:
    older = file_of(ledger).read_bytes()
    ledger.reserve(ask(release="r-3"), "flow")
    file_of(ledger).write_bytes(older)
    assert state_of(ledger) == LedgerSnapshot(
        LedgerState.of(ledger.entries()), ledger.entries()[-1], 4
    )
    assert ledger.budget("adult", "row").left == 0
    assert ledger.verify() == []


def test_a_checkpoint_of_other_code_is_read_by_nobody(ledger, monkeypatch) -> None:
    monkeypatch.setattr(checkpoints_module, "_code", lambda: "other")
    assert state_of(ledger).since == 0
    assert ledger.verify() == []


def test_two_homes_of_a_ledger_each_believe_their_own(ledger, place, tmp_path) -> None:
    other = of_home(place, tmp_path / "other")
    other.reserve(ask(release="r-3"), "flow")
    assert (state_of(ledger).since, state_of(other).since) == (4, 5)
    assert state_of(ledger).books == state_of(other).books
    ledger.advance("r-3", State.REFUNDED, "flow", "not needed")
    assert state_of(other) == LedgerSnapshot(
        LedgerState.of(ledger.entries()), ledger.entries()[-1], 5
    )


@on_both
def test_whoever_is_killed_while_writing_one_leaves_the_one_before(
    ledger: Ledger,
    child: Callable[[Callable[[], int]], int],
    ending: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: object) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    def reserve() -> int:
        monkeypatch.setattr("cloister.files.sync", killed)
        ledger.reserve(ask(release="r-3"), "flow")
        return 0

    before = file_of(ledger).read_bytes()
    assert ending(child(reserve)) == -signal.SIGKILL
    assert file_of(ledger).read_bytes() == before
    assert ledger.release("r-3").state is State.RESERVED
    assert ledger.verify() == []
    ledger.advance("r-3", State.REFUNDED, "flow", "not needed")
    assert {path.name for path in file_of(ledger).parent.iterdir()} == {"checkpoint", "house.pem"}
    assert state_of(ledger).since == 6


@on_both
def test_a_transaction_that_fails_writes_no_checkpoint(ledger: Ledger) -> None:
    before = file_of(ledger).read_bytes()
    with pytest.raises(RuntimeError), ledger.writing() as transaction:
        transaction.grant(
            BudgetGrant.of("adult", "row", 9, 0, "year"), {"by": "me", "reason": "why"}
        )
        raise RuntimeError
    assert file_of(ledger).read_bytes() == before
