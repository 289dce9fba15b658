"""``kill -9`` at every step of a release: rerun, it ends with the same answers and one charge."""

import hashlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledger_requests import ask
from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect

from cloister.privacy.door.journal import Journal
from cloister.privacy.door.journal_format import JOURNAL_NAME
from cloister.privacy.ledger import (
    Account,
    BudgetGrant,
    Ledger,
    Opening,
    Owner,
    ReservationRequest,
    State,
)
from cloister.privacy.ledger.governance import record_deletions

Start = Callable[[Callable[[], int]], int]
ANSWERS = 4
FIRST = Opening(
    Account("adult", "row", "add_remove", ("/data/adult.csv",)),
    BudgetGrant.of("adult", "row", 1, 0, "ever"),
    "first release",
)


@dataclass(frozen=True)
class Run:
    """One release: where its ledger, its journal and the list of answers that were seen are.

    ``opening`` is the account that it opens, with its budget.
    """

    place: str
    folder: Path
    request: ReservationRequest
    opening: Opening | None = None

    @property
    def seen(self) -> Path:
        return self.folder / "seen"

    def __call__(self) -> int:
        """Reserve, open the journal, spend, ask, finish; or nothing, if it is finished."""
        ledger = Ledger.open(self.place, timeout=20)
        mine = [r for r in ledger.releases() if r.request.spend_id == self.request.spend_id]
        if mine and mine[-1].delivered:
            return 0
        reserved = ledger.reserve(self.request, "flow", self.opening).release
        release = reserved.id
        if reserved.undelivered:
            ledger.deliver(release, "flow")
            return 0
        with Journal.open(self.folder / release, {"release": release}) as journal:
            ledger.spend(release, "flow", journal.id, "data-1")
            journal.guard(ledger.begin_run(release, "flow", journal.begin_run(), Owner.current()))
            for position in range(ANSWERS):
                self._see(position, journal.answer({"position": position}, draw))
            ledger.seal(release, "flow", journal.seal())
            ledger.advance(release, State.CANDIDATE, "flow", "done", {"journal": journal.digest})
        ledger.deliver(release, "flow")
        return 0

    def _see(self, position: int, answer: np.ndarray) -> None:
        descriptor = os.open(self.seen, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(
            descriptor, f"{position} {hashlib.sha256(answer.tobytes()).hexdigest()}\n".encode()
        )
        os.close(descriptor)


def draw() -> np.ndarray:
    return np.frombuffer(os.urandom(800), dtype=np.int64)


class Steps:
    """Counts the steps of this process, and kills it at one of them."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.count = 0

    def __call__(self, *_: Any, **__: Any) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def in_the_database(self) -> None:
        """Step before and after each statement and commit."""
        for name in ("before_cursor_execute", "after_cursor_execute"):
            event.listen(Engine, name, self)
        DefaultDialect.do_commit = self.around(DefaultDialect.do_commit)  # type: ignore[method-assign]

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **options: Any) -> Any:
            self()
            result = function(*arguments, **options)
            self()
            return result

        return stepped

    def halfway(self, write: Callable[..., int]) -> Callable[..., int]:
        """``write`` with a step between the two halves of what is written."""

        def torn(descriptor: int, content: Any, start: int) -> int:
            half = len(content) // 2
            done = write(descriptor, content[:half], start) if half else 0
            self()
            return done + write(descriptor, content[done:], start + done)

        return self.around(torn)


def stepping(run: Callable[[], int], last: int, counted: Path | None = None) -> Callable[[], int]:
    """``run`` in a process that is killed at step ``last``: before or after a call or statement."""

    def killed() -> int:
        steps = Steps(last)
        os.pwrite = steps.halfway(os.pwrite)
        for name in ("fsync", "ftruncate", "open", "fchmod"):
            setattr(os, name, steps.around(getattr(os, name)))
        steps.in_the_database()
        code = run()
        if counted:
            counted.write_text(str(steps.count))
        return code

    return killed


@pytest.fixture
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Makes places for new ledgers, on the database that the test names."""
    number = count()
    with ExitStack() as schemas:
        if request.param == "sqlite":
            yield lambda: f"sqlite:///{tmp_path}/{next(number)}/ledger.db"
        else:
            schema = request.getfixturevalue("postgres_schemas")
            yield lambda: schemas.enter_context(schema())


@pytest.fixture
def new_run(new_place, tmp_path) -> Callable[[], Run]:
    """Makes releases, each with a ledger of its own."""
    number = count()

    def make() -> Run:
        place, folder = new_place(), tmp_path / f"run-{next(number)}"
        folder.mkdir()
        Ledger.open(place)
        return Run(place, folder, ask(), FIRST)

    return make


def finished_once(run: Run) -> None:
    """The release is finished, was charged once, and no question was answered in two ways."""
    ledger = Ledger.open(run.place)
    (release,) = ledger.releases()
    assert release.state is State.CANDIDATE and release.delivered
    assert ledger.budget("adult", "row").spent == 1
    books = ledger.books()
    assert [*books.accounts.values()] == [FIRST.account]
    assert [len(granted) for granted in books.grants.values()] == [1]
    assert ledger.verify() == []
    assert len(set(run.seen.read_text().splitlines())) == ANSWERS
    journal = (run.folder / release.id / JOURNAL_NAME).read_bytes()
    with Journal.open(run.folder / release.id, {"release": release.id}) as kept:
        assert kept.sealed and kept.recorded == ANSWERS
        assert release.evidence["journal"] == kept.digest == release.seal.digest
    assert (run.folder / release.id / JOURNAL_NAME).read_bytes() == journal


both = pytest.mark.parametrize("new_place", ["sqlite", "postgresql"], indirect=True)


def strided(sqlite: int, postgresql: int) -> pytest.MarkDecorator:
    """On each database every so many steps by default, and every one in the slow suite."""
    strides = {"sqlite": sqlite, "postgresql": postgresql}
    every = [pytest.param(database, 1, marks=pytest.mark.slow) for database in strides]
    return pytest.mark.parametrize(
        ("new_place", "stride"), [*strides.items(), *every], indirect=["new_place"]
    )


@strided(sqlite=31, postgresql=67)
def test_a_kill_at_any_step_loses_nothing_and_charges_once(
    new_run: Callable[[], Run],
    child: Start,
    ending: Callable[[int], int],
    tmp_path: Path,
    stride: int,
) -> None:
    whole = new_run()
    assert ending(child(stepping(whole, -1, tmp_path / "steps"))) == 0
    finished_once(whole)
    steps = int((tmp_path / "steps").read_text())
    assert steps > 50
    for step in range(1, steps + 1, stride):
        run = new_run()
        assert ending(child(stepping(run, step))) == -signal.SIGKILL, step
        assert ending(child(run)) == 0, step
        finished_once(run)


@both
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_run_killed_again_and_again_ends_all_the_same(new_run, child, ending, seed) -> None:
    rng, run = random.Random(seed), new_run()
    while ending(child(stepping(run, rng.randrange(20, 300)))) != 0:
        assert Ledger.open(run.place).verify() == []
    finished_once(run)


@strided(sqlite=11, postgresql=17)
def test_a_kill_while_the_ledger_is_made_leaves_none_or_a_whole_one(
    new_place: Callable[[], str],
    child: Start,
    ending: Callable[[int], int],
    tmp_path: Path,
    stride: int,
) -> None:
    for step in count(1, stride):
        run = Run(new_place(), tmp_path / f"made-{step}", ask())
        made = ending(
            child(stepping(run, step))
        )  # ends with a refusal once the ledger is there: no budget
        ledger = Ledger.open(run.place)
        assert ledger.verify() == [] and ledger.entries() == []
        if made != -signal.SIGKILL:
            break
    assert step > 10


def spent(ledger: Ledger, request: ReservationRequest) -> str:
    release = ledger.reserve(request, "flow", FIRST).release.id
    ledger.spend(release, "flow", "journal-1", "data-1")
    return release


def first(ledger: Ledger, request: ReservationRequest) -> Callable[[], object]:
    """The first release opens its account and takes its budget."""
    return lambda: ledger.reserve(request, "flow", FIRST)


def replanned(ledger: Ledger, request: ReservationRequest) -> Callable[[], object]:
    """Another version gives a reservation back and makes its own."""
    ledger.reserve(request, "flow", FIRST)
    other = replace(request, release="r-0000000001", code_version="0.2.1", events={"type": "none"})
    return lambda: ledger.reserve(other, "flow", FIRST)


def deleted(ledger: Ledger, request: ReservationRequest) -> Callable[[], object]:
    """What is held of two releases goes."""
    half = replace(request, epsilon=Fraction(1, 2))
    both = [half, replace(half, spend_id="second", release="r-0000000002")]
    releases = [spent(ledger, each) for each in both]
    for release in releases:
        ledger.advance(release, State.WITHDRAWN, "officer", "why")
    bodies = {name: {"kinds": {"journal": {f"journals/{name}": ""}}} for name in releases}

    def delete() -> None:
        if not any(held.deletions for held in ledger.releases()):
            record_deletions(ledger, bodies, "officer", "why")

    return delete


@strided(sqlite=5, postgresql=11)
@pytest.mark.parametrize(
    ("prepare", "entries"),
    [(first, 3), pytest.param(replanned, 2, marks=pytest.mark.slow), (deleted, 2)],
)
def test_a_transaction_of_several_entries_is_killed_anywhere_and_done_once(
    new_place: Callable[[], str],
    child: Start,
    ending: Callable[[int], int],
    prepare: Callable[[Ledger, ReservationRequest], Callable[[], object]],
    entries: int,
    stride: int,
) -> None:
    """Killed before its commit, the next attempt finds a ledger without any of them."""

    def made() -> tuple[Ledger, Callable[[], object], int]:
        ledger = Ledger.open(new_place(), timeout=20)
        return ledger, prepare(ledger, ask()), len(ledger.entries())

    ledger, act, before = made()
    seen = set()
    for step in count(1, stride):

        def killed(act: Callable[[], object] = act, step: int = step) -> int:
            Steps(step).in_the_database()
            act()
            return 0

        ended = ending(child(killed))
        assert ended in (0, -signal.SIGKILL), step
        seen.add(len(ledger.entries()) - before)
        assert ledger.verify() == [], step
        if len(ledger.entries()) > before:
            act()
            assert len(ledger.entries()) == before + entries, step
            if ended == 0:
                break
            ledger, act, before = made()
    assert seen == {0, entries} and step > 10
