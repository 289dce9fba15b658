"""One process draws the answers of a release, from the whole journal; copies do not."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psycopg
import pytest
from ledger_requests import ask
from sqlalchemy import make_url
from two_databases import on_both

from cloister.errors import InputError, JournalMismatch, StorageError
from cloister.privacy.door.journal import Journal
from cloister.privacy.ledger import Ledger, Owner, State
from cloister.privacy.ledger.leases import LEASE_SECONDS

Start = Callable[[Callable[[], int]], int]
RELEASE = "r-1"


@pytest.fixture
def ledger(place: str) -> Ledger:
    """A ledger with one reserved release."""
    opened = Ledger.open(place)
    opened.grant("adult", "row", 1, 0, "ever", "officer", "why")
    opened.reserve(ask(release=RELEASE), "flow")
    return opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the journal of the release is."""
    return tmp_path / "home" / "journals"


def begin(ledger: Ledger, folder: Path) -> Journal:
    """The journal of the release, leased to this process."""
    journal = Journal.open(folder, {"release": RELEASE})
    try:
        ledger.spend(RELEASE, "flow", journal.id, "data-1")
        journal.guard(ledger.begin_run(RELEASE, "flow", journal.begin_run(), Owner.current()))
    except BaseException:
        journal.close()
        raise
    return journal


def draw(journal: Journal, answers: int) -> list[bytes]:
    return [
        journal.answer(
            {"n": journal.position}, lambda: np.frombuffer(os.urandom(64), dtype=np.int64)
        ).tobytes()
        for _ in range(answers)
    ]


def run(ledger: Ledger, folder: Path, answers: int) -> list[bytes]:
    with begin(ledger, folder) as journal:
        return draw(journal, answers)


def copied(folder: Path, name: str = "copy") -> Path:
    return shutil.copytree(folder, folder.parent.parent / name / "journals")


@on_both
def test_a_run_resumes_where_it_was(ledger: Ledger, folder: Path) -> None:
    seen = run(ledger, folder, 3)
    assert run(ledger, folder, 5)[:3] == seen
    held = ledger.release(RELEASE)
    assert [mark.position for mark in held.runs] == [0, 3]
    assert len({mark.nonce for mark in held.runs}) == 2
    assert ledger.verify() == []


def test_a_copy_made_before_the_last_run_draws_nothing(ledger: Ledger, folder: Path) -> None:
    run(ledger, folder, 3)
    copy = copied(folder)
    run(ledger, folder, 5)
    with pytest.raises(JournalMismatch, match=f"withdraw {RELEASE}"):
        run(ledger, copy, 5)
    run(ledger, folder, 6)


def test_of_two_copies_that_nobody_resumed_one_does(ledger: Ledger, folder: Path) -> None:
    run(ledger, folder, 3)
    copy = copied(folder)
    run(ledger, copy, 3)
    with pytest.raises(JournalMismatch):
        run(ledger, folder, 4)
    run(ledger, copy, 4)


def test_a_restored_older_copy_of_the_same_run_draws_nothing(ledger: Ledger, folder: Path) -> None:
    with begin(ledger, folder) as journal:
        draw(journal, 3)
        copy = copied(folder)
        draw(journal, 1)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    with pytest.raises(JournalMismatch, match="older one was restored"):
        run(ledger, folder, 4)


def test_an_unsealed_copy_draws_nothing_after_the_seal(ledger: Ledger, folder: Path) -> None:
    with begin(ledger, folder) as journal:
        seen = draw(journal, 3)
        copy = copied(folder)
        mark = journal.seal()
    with pytest.raises(JournalMismatch):
        run(ledger, copy, 4)
    ledger.seal(RELEASE, "flow", mark)
    assert ledger.release(RELEASE).seal == mark
    forget_leases(ledger)
    with pytest.raises(JournalMismatch):
        run(ledger, copy, 4)
    with begin(ledger, folder) as journal:
        assert draw(journal, 3) == seen
        with pytest.raises(JournalMismatch):
            draw(journal, 1)
    assert ledger.seal(RELEASE, "flow", mark).seal == mark
    assert ledger.verify() == []


def forget_leases(ledger: Ledger) -> None:
    """The ledger as an earlier version made it: no table of leases."""
    with ledger.store.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE cloister_leases")


@on_both
def test_a_ledger_of_an_earlier_version_is_resumed(ledger: Ledger, folder: Path) -> None:
    with Journal.open(folder, {"release": RELEASE}) as journal:
        ledger.spend(RELEASE, "flow", journal.id, "data-1")
        seen = draw(journal, 3)
    forget_leases(ledger)
    assert run(ledger, folder, 5)[:3] == seen
    assert ledger.verify() == []


def test_a_run_killed_between_its_journal_and_the_ledger_locks_nobody_out(ledger, folder) -> None:
    seen = run(ledger, folder, 3)
    for _ in range(3):
        with Journal.open(folder, {"release": RELEASE}) as journal:
            journal.begin_run()
    assert run(ledger, folder, 4)[:3] == seen


@on_both
def test_another_process_is_refused_while_the_first_runs(ledger, place, folder, child, ending):
    running, done = get_context("fork").Event(), get_context("fork").Event()

    def first() -> int:
        with begin(Ledger.open(place), folder) as journal:
            draw(journal, 3)
            running.set()
            done.wait(60)
            draw(journal, 1)
        return 0

    pid = child(first)
    assert running.wait(60)
    copy = copied(folder)
    with pytest.raises(
        StorageError, match=rf"{RELEASE} is being run by process {pid} on .*wait for it or end it"
    ):
        run(ledger, copy, 4)
    done.set()
    assert ending(pid) == 0
    with pytest.raises(JournalMismatch):
        run(ledger, copy, 4)


@on_both
def test_two_copies_at_once_draw_once(ledger, place, folder, child, ending) -> None:
    run(ledger, folder, 3)
    copies = [copied(folder, f"copy-{number}") for number in range(4)]
    barrier = get_context("fork").Barrier(len(copies))

    def racer(copy: Path) -> int:
        barrier.wait(60)
        try:
            run(Ledger.open(place), copy, 20)
        except (JournalMismatch, StorageError):
            return 1
        return 0

    codes = [ending(pid) for pid in [child(lambda copy=copy: racer(copy)) for copy in copies]]
    assert sorted(codes) == [0, 1, 1, 1]
    assert len(ledger.release(RELEASE).runs) == 2


@on_both
def test_a_killed_process_is_followed_at_once(ledger, place, folder, child, ending) -> None:
    def killed() -> int:
        draw(begin(Ledger.open(place), folder), 3)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert ending(child(killed)) == -signal.SIGKILL
    assert len(run(ledger, folder, 4)) == 4


def elsewhere(ledger: Ledger) -> None:
    """Let the lease be that of a process of another machine."""
    owner = json.dumps(json.loads(replace(Owner.current(), boot="another", host="other").text))
    change(ledger, f"owner = '{owner}'")


def change(ledger: Ledger, what: str) -> None:
    with ledger.store.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE cloister_leases SET {what}")


def left(ledger: Ledger) -> float:
    """Seconds until the lease ends, about."""
    with ledger.store.engine.begin() as connection:
        expires = connection.exec_driver_sql("SELECT expires FROM cloister_leases").scalar_one()
    return float(expires) / 1000 - time.time()


@on_both
def test_another_machine_is_waited_for_and_then_draws_nothing(ledger: Ledger, folder: Path) -> None:
    with begin(ledger, folder) as journal:
        draw(journal, 3)
        copy = copied(folder)
        elsewhere(ledger)
        with pytest.raises(StorageError, match="on other"):
            run(ledger, copy, 4)
        change(ledger, f"expires = expires - {int(LEASE_SECONDS * 1000)}")
        with begin(ledger, copy) as other:
            draw(other, 4)
            with pytest.raises(JournalMismatch, match="taken over"):
                draw(journal, 1)
            draw(other, 1)


@on_both
def test_a_clock_that_was_set_back_delays_for_one_lease_at_most(ledger, folder) -> None:
    run(ledger, folder, 3)
    with begin(ledger, folder):
        elsewhere(ledger)
        change(ledger, "expires = expires + 86400000")
        copy = copied(folder)
        with pytest.raises(StorageError, match="being run"):
            run(ledger, copy, 3)
        assert left(ledger) <= LEASE_SECONDS + 1


@on_both
def test_the_lease_ends_with_the_run(ledger: Ledger, folder: Path) -> None:
    with begin(ledger, folder) as journal:
        draw(journal, 1)
        assert 0 < left(ledger) <= LEASE_SECONDS + 1
    assert left(ledger) < 0


def test_a_release_withdrawn_while_it_runs_draws_nothing_more(ledger: Ledger, folder: Path) -> None:
    with begin(ledger, folder) as journal:
        draw(journal, 3)
        ledger.advance(RELEASE, State.WITHDRAWN, "officer", "why")
        with pytest.raises(JournalMismatch, match="withdrawn"):
            draw(journal, 1)
    with pytest.raises((InputError, JournalMismatch)):
        run(ledger, folder, 4)


@on_both
def test_a_run_whose_lease_ran_out_asks_before_it_draws(ledger, folder, monkeypatch) -> None:
    with begin(ledger, folder) as journal:
        draw(journal, 1)
        late = time.monotonic() + 2 * LEASE_SECONDS
        monkeypatch.setattr(time, "monotonic", lambda: late)
        draw(journal, 1)
        change(ledger, "token = 'another'")
        late += 2 * LEASE_SECONDS
        with pytest.raises(JournalMismatch):
            journal.answer({"n": 2}, lambda: pytest.fail("drawn without a lease"))
        assert journal.recorded == 2


def test_a_connection_lost_between_answers_is_opened_again(postgres_place, tmp_path) -> None:
    ledger = Ledger.open(postgres_place)
    ledger.grant("adult", "row", 1, 0, "ever", "officer", "why")
    ledger.reserve(ask(release=RELEASE), "flow")
    url = (
        make_url(postgres_place).set(drivername="postgresql").render_as_string(hide_password=False)
    )
    with begin(ledger, tmp_path) as journal:
        draw(journal, 2)
        held = journal._guard._connection  # type: ignore[attr-defined]
        connection = held.connection.dbapi_connection
        with psycopg.connect(url, autocommit=True) as server:
            server.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))
        draw(journal, 2)
    assert journal.recorded == 4
