"""Admission by a filter on either database: what it admits, counts, refuses, and verify audits."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from ledger_requests import ask
from two_databases import on, on_both

from cloister.errors import BudgetExceeded, InputError
from cloister.privacy.accounting.accountants import calibrate
from cloister.privacy.accounting.filters import filter_cost, least_cap
from cloister.privacy.events import (
    Bounded,
    GaussianCounts,
    SampledGaussian,
    Sensitivity,
    UncountedRecords,
)
from cloister.privacy.ledger import (
    Account,
    BlockScheme,
    Ledger,
    Release,
    ReservationRequest,
    State,
    verify_chain,
)
from cloister.privacy.ledger.budgets import Window
from cloister.privacy.ledger.entries import Entry
from cloister.privacy.ledger.governance import change_rules
from cloister.privacy.ledger.house import RULES
from cloister.tasks.ledger.budgets import admitted

DELTA = Fraction(1, 10**5)
ONE = Sensitivity.partition("add_remove")
TENTH = GaussianCounts(
    calibrate(lambda z: GaussianCounts(z, ONE), Fraction(1, 10), DELTA / 100, "add_remove"), ONE
)


def gaussian(**other: Any) -> ReservationRequest:
    """A release of epsilon 1/10 by Gaussian noise."""
    values = {"epsilon": "1/10", "delta": DELTA / 100, "events": TENTH.to_json()}
    return ask(**(values | other))


def admit_by(ledger: Ledger, rule: str) -> None:
    change_rules(ledger, "*", lambda rules: replace(rules, admission=rule), "officer", "policy 9")


def fill(ledger: Ledger, most: int, request: Any = gaussian) -> list[Release]:
    """Releases until the budget takes no more, or so many."""
    held = []
    try:
        while len(held) < most:
            held.append(ledger.reserve(request(), "flow").release)
    except BudgetExceeded:
        pass
    return held


@pytest.fixture
def ledger(place: str) -> Ledger:
    """A ledger with a budget of epsilon 1/2 a year, at delta 1e-5."""
    ledger = replace(Ledger.open(place), clock=on("2026-01-05"))
    ledger.grant("adult", "row", "1/2", DELTA, "year", "officer", "policy")
    return ledger


def test_the_sum_rules_by_default_and_entries_do_not_name_it(ledger: Ledger) -> None:
    assert len(fill(ledger, 9)) == 5
    change_rules(ledger, "*", lambda rules: replace(rules, four_eyes=True), "officer", "why")
    assert {"admission", "refusals"}.isdisjoint(ledger.entries()[-1].body)


def test_a_filter_admits_until_its_bound_is_the_cap_and_no_further(ledger: Ledger) -> None:
    admit_by(ledger, "filter")
    cost = filter_cost(TENTH, "add_remove")
    most = next(k for k in range(1, 99) if least_cap([cost] * (k + 1), DELTA) > Fraction(1, 2))
    assert most > 15
    held = fill(ledger, 99)
    assert len(held) == most
    now = ledger.budget("adult", "row")
    assert now.admission == "filter"
    assert now.filtered == least_cap([cost] * most, DELTA)
    assert now.left == Fraction(1, 2) - now.filtered
    assert now.reserved == most * Fraction(1, 10)
    with pytest.raises(BudgetExceeded, match="by the filter .* with which it needs an epsilon of"):
        ledger.reserve(gaussian(), "flow")
    for release in held:
        ledger.spend(release.id, "flow", "journal", "data")
    assert ledger.budget("adult", "row").bound == Fraction(1, 2)
    assert ledger.verify() == []


def test_what_the_sum_admitted_counts_by_its_sum_and_the_filter_has_the_rest(ledger) -> None:
    fill(ledger, 3)
    admit_by(ledger, "filter")
    assert ledger.budget("adult", "row").filtered == Fraction(3, 10)
    more = fill(ledger, 99)
    cost, rest = filter_cost(TENTH, "add_remove"), DELTA - 3 * DELTA / 100
    most = next(k for k in range(99) if least_cap([cost] * (k + 1), rest) > Fraction(1, 5))
    assert len(more) == most > 2
    assert ledger.verify() == []


def test_a_change_of_the_rule_frees_nothing_of_a_window_that_is_full(ledger: Ledger) -> None:
    fill(ledger, 5)
    admit_by(ledger, "filter")
    assert ledger.budget("adult", "row").left == 0
    assert fill(ledger, 1) == []
    assert len(fill(replace(ledger, clock=on("2027-01-05")), 9)) == 9


def test_the_sum_rules_again_from_the_next_window_on(ledger: Ledger) -> None:
    admit_by(ledger, "filter")
    fill(ledger, 9)
    admit_by(ledger, "sum")
    now = ledger.budget("adult", "row")
    assert (now.admission, now.next_admission, now.releases) == ("filter", "sum", 9)
    assert len(fill(ledger, 1)) == 1
    later = replace(ledger, clock=on("2027-01-05"))
    assert later.budget("adult", "row").admission == "sum"
    assert len(fill(later, 9)) == 5
    assert later.verify() == []


def test_what_was_given_back_before_the_filter_began_does_not_count(ledger: Ledger) -> None:
    before, pending = fill(ledger, 2)
    ledger.advance(before.id, State.REFUNDED, "flow", "not needed")
    admit_by(ledger, "filter")
    fill(ledger, 1)
    after = ledger.budget("adult", "row").filtered
    ledger.advance(pending.id, State.REFUNDED, "flow", "not needed")
    assert ledger.budget("adult", "row").filtered == after > Fraction(1, 10)
    assert ledger.verify() == []


@pytest.mark.parametrize("rule", ["sum", "filter"])
def test_as_many_are_foreseen_as_are_admitted(ledger: Ledger, rule: str) -> None:
    admit_by(ledger, rule)
    fill(ledger, 2)
    now = ledger.budget("adult", "row")
    foreseen = admitted(now.windows[0], now.budget, gaussian())
    assert foreseen == len(fill(ledger, 99)) > 1
    assert admitted(Window("2027", rule), now.budget, gaussian()) == foreseen + 2


@on_both
def test_racing_reservations_stay_within_the_cap(ledger, child, ending) -> None:
    admit_by(ledger, "filter")
    place = ledger.store.engine.url.render_as_string(hide_password=False)

    def race() -> int:
        fill(replace(Ledger.open(place), clock=on("2026-01-06")), 99)
        return 0

    assert [ending(pid) for pid in [child(race) for _ in range(4)]] == [0] * 4
    now = ledger.budget("adult", "row")
    assert now.releases > 15 and 0 < now.left < Fraction(1, 50)
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (UncountedRecords(50, Fraction(4), 10).to_json(), "not differentially private"),
        ({"event": "OfALaterVersion"}, "newer version"),
    ],
)
def test_it_never_admits_what_it_cannot_read(ledger: Ledger, events: Any, said: str) -> None:
    admit_by(ledger, "filter")
    with pytest.raises(BudgetExceeded, match=f"{said}.*--admission sum.*Nothing was charged"):
        ledger.reserve(ask(epsilon="1/100", events=events), "flow")


def test_it_admits_no_second_relation(ledger: Ledger) -> None:
    admit_by(ledger, "filter")
    fill(ledger, 1)
    with pytest.raises(InputError, match="one relation"):
        ledger.reserve(gaussian(relation="replace_one"), "flow")


def test_an_event_without_divergences_counts_as_its_epsilon_and_delta(ledger: Ledger) -> None:
    """Rows replaced, and sampled: no Rényi divergence is known."""
    admit_by(ledger, "filter")
    event = SampledGaussian(Fraction(1, 100), Fraction(2), 10).to_json()
    asked = {"epsilon": "1/100", "delta": "1e-7", "relation": "replace_one", "events": event}
    ledger.reserve(ask(**asked), "flow")
    cost = filter_cost(Bounded(Fraction(1, 100), Fraction(1, 10**7)), "add_remove")
    assert ledger.budget("adult", "row").filtered == least_cap([cost], DELTA)


def test_a_greater_grant_admits_what_a_smaller_one_did(ledger: Ledger) -> None:
    admit_by(ledger, "filter")
    held = fill(ledger, 99)
    ledger.grant("adult", "row", 1, DELTA, "year", "officer", "more")
    assert ledger.budget("adult", "row").left >= Fraction(1, 2)
    assert len(fill(ledger, 99)) > len(held)
    assert ledger.verify() == []


def test_each_of_two_budgets_has_its_window(ledger: Ledger) -> None:
    """A month's budget holds from March on, beside that of the year."""
    ledger.open_account(Account("adult", "row", "add_remove"), "officer", "why")
    admit_by(ledger, "filter")
    march = replace(ledger, clock=on("2026-03-05"))
    march.grant("adult", "row", "3/10", DELTA, "month", "officer", "monthly")
    number = len(fill(march, 99))
    april = replace(ledger, clock=on("2026-04-05"))
    now = april.budget("adult", "row")
    assert (now.filtered, [window.name for window in now.windows]) == (0, ["2026-04", "2026"])
    assert len(fill(april, 99)) == number
    may = replace(ledger, clock=on("2026-05-05"))
    assert 0 < len(fill(may, 99)) < number
    with pytest.raises(BudgetExceeded, match="window 2026\\)"):
        may.reserve(gaussian(), "flow")
    assert may.verify() == []


def test_each_block_of_growing_data_has_its_filter(place: str) -> None:
    ledger = replace(Ledger.open(place), clock=on("2026-03-05"))
    months = BlockScheme("admitted", "date", "month")
    ledger.open_account(Account("adult", "row", "add_remove", (), months), "officer", "why")
    ledger.grant("adult", "row", "1/2", DELTA, "ever", "officer", "each block")
    admit_by(ledger, "filter")
    first = fill(ledger, 99, lambda: gaussian(blocks=("2026-01",)))
    assert len(first) > 15
    assert fill(ledger, 1, lambda: gaussian(blocks=("2026-01", "2026-02"))) == []
    assert len(fill(ledger, 99, lambda: gaussian(blocks=("2026-02",)))) == len(first)
    assert ledger.verify() == []


def test_a_group_of_rows_counts_by_the_price_of_the_group(ledger: Ledger) -> None:
    """Its events are of no more than that price: divergences of one row would be too small."""
    admit_by(ledger, "filter")
    group = Bounded(Fraction(1, 10), DELTA / 100)
    held = fill(ledger, 99, lambda: gaussian(events=group.to_json()))
    cost = filter_cost(group, "add_remove")
    assert ledger.budget("adult", "row").filtered == least_cap([cost] * len(held), DELTA)
    assert len(held) < len(fill(replace(ledger, clock=on("2027-01-05")), 99))


def test_verify_finds_what_a_filter_would_not_have_admitted(ledger: Ledger) -> None:
    """The chain is rebuilt with the rule of the account left out: its releases exceed the sum."""
    admit_by(ledger, "filter")
    fill(ledger, 9)
    rebuilt: list[Entry] = []
    for entry in ledger.entries():
        if entry.kind != RULES:
            last = rebuilt[-1] if rebuilt else None
            rebuilt.append(Entry.after(last, entry.time, entry.kind, entry.slot, entry.body))
    found = verify_chain(rebuilt)
    assert [each.entry for each in found] == [7, 8, 9, 10]
    assert all("was requested" in each.problem for each in found)


def test_verify_finds_a_release_beyond_the_filter(ledger: Ledger) -> None:
    admit_by(ledger, "filter")
    fill(ledger, 99)
    entries = ledger.entries()
    request = gaussian(release="r-beyond")
    body = request.body | {"by": "flow", "reason": "", "evidence": {}, "composed": "1/2"}
    forged = Entry.after(
        entries[-1], entries[-1].time, State.RESERVED.value, f"spend/{request.spend_id}/0", body
    )
    (found,) = verify_chain([*entries, forged])
    assert found.entry == forged.seq and "by the filter" in found.problem
