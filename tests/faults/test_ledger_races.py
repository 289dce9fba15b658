"""Many processes at one ledger: never overspent, never stuck."""

import os
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context

import pytest
from ledger_requests import ask
from two_databases import on_both

from cloister.errors import BudgetExceeded, InputError
from cloister.privacy.ledger import Ledger, State

Start = Callable[[Callable[[], int]], int]


def race(
    racers: int, child: Start, ending: Callable[[int], int], run: Callable[[], int]
) -> Counter[int]:
    """How many of the racers, started at once, ended with which code."""
    barrier = get_context("fork").Barrier(racers)

    def racer() -> int:
        barrier.wait(60)
        return run()

    return Counter(ending(pid) for pid in [child(racer) for _ in range(racers)])


def race_for_the_last(place: str, racers: int, child: Start, ending: Callable[[int], int]) -> None:
    """Each requests a third of a budget of which two thirds and a bit are left."""
    ledger = Ledger.open(place)
    ledger.grant("adult", "row", 1, 0, "ever", "officer", "why")
    ledger.reserve(ask(epsilon="1/4"), "flow")

    def run() -> int:
        try:
            Ledger.open(place).reserve(ask(epsilon="1/3", spend_id=f"run-{os.getpid()}"), "flow")
        except BudgetExceeded:
            return 1
        return 0

    assert race(racers, child, ending, run) == {0: 2, 1: racers - 2}
    now = ledger.budget("adult", "row")
    assert (
        now.reserved == ledger.budget("adult", "row").budget.epsilon - now.left
        and now.releases == 3
    )
    assert ledger.verify() == []


@on_both
def test_eight_processes_race_for_the_last_of_a_budget(place, child, ending) -> None:
    race_for_the_last(place, 8, child, ending)


@pytest.mark.slow
@pytest.mark.parametrize("repeat", range(10))
@on_both
def test_twenty_processes_race_for_the_last_of_a_budget(place, child, ending, repeat) -> None:
    race_for_the_last(place, 20, child, ending)


@on_both
def test_processes_that_run_the_same_release_are_charged_once(place, child, ending) -> None:
    ledger = Ledger.open(place)
    ledger.grant("adult", "row", 3, 0, "ever", "officer", "why")

    def run() -> int:
        mine = Ledger.open(place)
        release = mine.reserve(ask(spend_id="one-run"), "flow").release.id
        mine.spend(release, "flow", "journal-1", "data-1")
        return 0

    assert race(6, child, ending, run) == {0: 6}
    (release,) = ledger.releases()
    assert release.state is State.SPENT and len(ledger.entries()) == 3
    assert ledger.verify() == []


@on_both
def test_processes_that_make_the_ledger_make_one(place, child, ending) -> None:
    def run() -> int:
        Ledger.open(place).grant("adult", "row", 1, 0, "ever", "officer", "why")
        return 0

    assert race(8, child, ending, run) == {0: 8}
    ledger = Ledger.open(place)
    assert len(ledger.entries()) == 8 and ledger.verify() == []


@on_both
def test_one_release_is_approved_by_one_of_many(place, child, ending, tmp_path) -> None:
    ledger = Ledger.open(place)
    ledger.grant("adult", "row", 1, 0, "ever", "officer", "why")
    release = ledger.reserve(ask(), "flow").release.id
    ledger.spend(release, "flow", "journal-1", "data-1")
    ledger.advance(release, State.CANDIDATE, "flow", "evaluated")

    def run() -> int:
        to = State.APPROVED if os.getpid() % 2 else State.REJECTED
        try:
            Ledger.open(place).advance(release, to, "reviewer", "why")
        except InputError:
            return 1
        return 0

    assert race(6, child, ending, run) == {0: 1, 1: 5}
    assert len(ledger.release(release).steps) == 4 and ledger.verify() == []
