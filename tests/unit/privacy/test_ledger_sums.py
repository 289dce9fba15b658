"""Running sums are those of the releases themselves, whatever becomes of them."""

import random
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest
from ledger_requests import ask

from cloister.privacy.ledger import Account, Ledger, State
from cloister.privacy.ledger.accounts import BlockScheme
from cloister.privacy.ledger.budgets import Budgets
from cloister.privacy.ledger.composition import ChargeState, Sum
from cloister.privacy.ledger.governance import refuse

BLOCKS = ("2026-01", "2026-02", "2026-03")
WINDOWS = ("2025", "2026", "2025-12", "2026-01", "ever")


def one_life(ledger: Ledger, draw: random.Random) -> None:
    """A release that ends in one of the ways that there are."""
    dataset = draw.choice(("whole", "growing"))
    blocks = tuple(sorted(draw.sample(BLOCKS, draw.randint(1, 3)))) if dataset == "growing" else ()
    price = {
        "epsilon": Fraction(1, draw.randint(2, 9)),
        "delta": Fraction(1, draw.randint(99, 999)),
    }
    release = ledger.reserve(ask(dataset, blocks=blocks, **price), "flow").release.id
    end = draw.choice(("reserved", "refused", "given back", "spent", "withdrawn"))
    if end == "refused":
        refuse(ledger, release, "flow")
    elif end == "given back":
        ledger.advance(release, State.REFUNDED, "flow", "not needed")
    elif end != "reserved":
        ledger.spend(release, "flow", "journal", "data")
    if end == "withdrawn":
        ledger.advance(release, State.WITHDRAWN, "officer", "not needed")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(other, marks=pytest.mark.slow) for other in (1, 2))]
)
def test_sums_are_those_of_the_releases(tmp_path: Path, seed: int) -> None:
    draw, months = random.Random(seed), [datetime(2025, 12, 5), datetime(2026, 1, 5)]
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger = replace(ledger, clock=lambda: months[0].replace(tzinfo=UTC))
    for name, partition in (("whole", None), ("growing", BlockScheme("day", "date", "month"))):
        ledger.open_account(Account(name, "row", "add_remove", (), partition), "officer", "why")
        ledger.grant(name, "row", 100, "1/2", "year", "officer", "why")
    for number in range(30):
        if number == 15:
            months.pop(0)
        one_life(ledger, draw)
    books = ledger.books()
    standings = [each for size in (1, 3) for each in combinations(ChargeState, size)]
    for dataset, blocks in (("whole", (None,)), ("growing", (None, *BLOCKS))):
        for window in WINDOWS:
            for block in blocks:
                for chosen in standings:
                    charges = Budgets(books, dataset, "row", "").charges(window, chosen, block)
                    requests = [*charges.requests()]
                    epsilons = sum((each.epsilon for each in requests), Fraction(0))
                    deltas = sum((each.delta for each in requests), Fraction(0))
                    assert charges.sum == Sum(len(requests), epsilons, deltas)
    assert ledger.verify() == []
