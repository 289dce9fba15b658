"""Growing data on either database: each block has the budget, and no block has another's."""

from dataclasses import replace
from fractions import Fraction

import pytest
from ledger_requests import ask
from two_databases import on, on_both

from cloister.errors import BudgetExceeded, InputError, VerificationError
from cloister.privacy.ledger import Account, BlockScheme, BudgetGrant, Ledger, Opening
from cloister.privacy.ledger.checks import verify_chain
from cloister.privacy.ledger.entries import Entry

MONTHS = BlockScheme("admitted", "date", "month")


def opening(
    partition: BlockScheme | None = MONTHS, unit: str = "row", per: str = "ever"
) -> Opening:
    budget = BudgetGrant.of("adult", unit, 3, "1e-4", per)
    return Opening(Account("adult", unit, "add_remove", (), partition), budget, "first release")


@on_both
def test_each_block_has_the_budget_and_a_range_charges_all_of_its_blocks(place: str) -> None:
    ledger = Ledger.open(place)
    ledger.reserve(ask(epsilon=3, blocks=("2026-08",)), "flow", opening())
    ledger.reserve(ask(epsilon=2, blocks=("2026-09", "2026-10")), "flow", opening())
    left = {each.block: (each.spent, each.reserved, each.left) for each in ledger.budgets()}
    assert left == {"2026-08": (0, 3, 0), "2026-09": (0, 2, 1), "2026-10": (0, 2, 1)}
    with pytest.raises(BudgetExceeded, match="block 2026-08, window ever"):
        ledger.reserve(ask(epsilon="1/2", blocks=("2026-07", "2026-08")), "flow", opening())
    with pytest.raises(BudgetExceeded, match=r"block 2026-09.*1 is left"):
        ledger.reserve(ask(epsilon=2, blocks=("2026-09",)), "flow", opening())
    ledger.reserve(ask(epsilon=1, blocks=("2026-07", "2026-09")), "flow", opening())
    assert ledger.budget("adult", "row", ("2026-07", "2026-09")).block == "2026-09"
    assert ledger.verify() == []


def test_a_person_with_rows_in_every_block_loses_the_sum(place: str) -> None:
    ledger = Ledger.open(place)
    persons = {"unit": "key:person", "delta": "1e-4"}
    for block in ("2026-08", "2026-09", "2026-10"):
        ledger.reserve(
            ask(epsilon=3, blocks=(block,), **persons), "flow", opening(unit="key:person")
        )
    status = ledger.budget("adult", "key:person", ("2026-09",))
    assert status.reserved == 3
    assert (status.lifetime, status.lifetime_delta) == (9, Fraction(3, 10**4))
    assert ledger.verify() == []


def test_a_block_has_the_budget_anew_in_each_window_of_time(place: str) -> None:
    """A month that is read in two years is charged to the budget of each; both are in lifetime."""
    year = opening(per="year")
    first = replace(Ledger.open(place), clock=on("2026-11-05"))
    first.reserve(ask(epsilon=3, blocks=("2026-10",)), "flow", year)
    later = replace(first, clock=on("2027-01-05"))
    later.reserve(ask(epsilon=3, blocks=("2026-10",)), "flow", year)
    assert later.budget("adult", "row", ("2026-10",)).lifetime == 6
    assert later.verify() == []


@pytest.mark.parametrize(
    "blocks",
    [(), ("2026",), ("2026-13",), ("2026-10", "2026-10"), ("2026-10", "2026-09"), ("2026-10-01",)],
)
def test_blocks_that_the_account_does_not_have_are_refused(place: str, blocks: tuple) -> None:
    ledger = Ledger.open(place)
    ledger.reserve(ask(blocks=("2026-08",)), "flow", opening())
    before = ledger.entries()
    with pytest.raises((InputError, VerificationError)):
        ledger.reserve(ask(blocks=blocks), "flow", opening())
    assert ledger.entries() == before


@pytest.mark.parametrize(
    "other",
    [None, replace(MONTHS, per="year"), replace(MONTHS, column="left"), replace(MONTHS, form="x")],
)
def test_an_account_has_its_blocks_for_life(place: str, other: BlockScheme | None) -> None:
    ledger = Ledger.open(place)
    ledger.reserve(ask(blocks=("2026-08",)), "flow", opening())
    blocks = ("2026",) if other and other.per == "year" else ("2026-09",) if other else ()
    with pytest.raises(InputError, match="for life"):
        ledger.reserve(ask(blocks=blocks), "flow", opening(other))
    account = Account("adult", "row", "add_remove", (), MONTHS)
    assert ledger.books().accounts == {"adult": account}


def test_an_account_of_all_rows_gets_no_blocks(place: str) -> None:
    ledger = Ledger.open(place)
    ledger.reserve(ask(), "flow", opening(None))
    with pytest.raises(InputError, match="for life"):
        ledger.reserve(ask(blocks=("2026-09",)), "flow", opening())
    with pytest.raises(InputError, match="replaced may change its block"):
        Account("visits", "row", "replace_one", (), MONTHS)


def test_other_accounts_are_written_as_before(place: str) -> None:
    """Entries of earlier versions have no blocks, and neither have these."""
    ledger = Ledger.open(place)
    ledger.reserve(ask(), "flow", opening(None))
    assert not any("block" in entry.line or "partition" in entry.line for entry in ledger.entries())


@pytest.mark.parametrize("forged", [["2026-10"], []])
def test_verify_finds_a_charge_that_was_moved_to_another_block(place, forged) -> None:
    """A rebuilt chain in which a block holds more than its cap, or a charge is of no block."""
    ledger = Ledger.open(place)
    ledger.reserve(ask(epsilon=3, blocks=("2026-10",)), "flow", opening())
    ledger.reserve(ask(epsilon=3, blocks=("2026-11",)), "flow", opening())
    entries = ledger.entries()
    body = dict(entries[-1].body) | {"blocks": forged}
    last = Entry.after(entries[-2], entries[-1].time, entries[-1].kind, entries[-1].slot, body)
    assert [finding.entry for finding in verify_chain([*entries[:-1], last])]
    assert verify_chain(entries) == []
