"""When a recurring release runs, and how often its budget admits it."""

from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.errors import BudgetExceeded, InputError
from cloister.models.task import Budget as Price
from cloister.privacy.ledger import BudgetGrant, basic_composition
from cloister.privacy.ledger.composition import Charges
from cloister.tasks.ledger.budgets import Allowance, room


def late_imports():
    global ReleaseSchedule
    from cloister.tasks.stores.prefect_registration import ReleaseSchedule


NOW = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)

amounts = st.fractions(min_value=Fraction(1, 8), max_value=6, max_denominator=8)
deltas = st.fractions(min_value=0, max_value=Fraction(1, 2), max_denominator=16)


def times(cron: str, timezone: str, number: int) -> list[str]:
    return [
        run.isoformat() for run in islice(ReleaseSchedule.of(cron, timezone, NOW).runs(NOW), number)
    ]


def allowance(per: str, whole: int, left: int) -> Allowance:
    budget = BudgetGrant.of("clubs", "row", whole or Fraction(1, 2), "1e-5", per)
    return Allowance(
        budget, Price(Fraction(1), Fraction(0)), budget.period.window(NOW.isoformat()), whole, left
    )


def foreseen(made: Allowance, cron: str, number: int) -> list[bool]:
    return [
        fits
        for _, fits in islice(made.foreseen(ReleaseSchedule.of(cron, "UTC", NOW).runs(NOW)), number)
    ]


def exceeded(made: Allowance, cron: str) -> bool:
    return made.exceeded_by(ReleaseSchedule.of(cron, "UTC", NOW).runs(NOW), NOW)


def test_runs_follow_the_schedule_in_its_time_zone():
    first, second = times("0 3 1 * *", "UTC", 2)
    assert (first, second) == ("2026-12-01T03:00:00+00:00", "2027-01-01T03:00:00+00:00")
    first, second = times("0 3 1 4,12 *", "Europe/Paris", 2)
    assert (first, second) == ("2026-12-01T03:00:00+01:00", "2027-04-01T03:00:00+02:00")


def test_runs_go_on_without_gaps_or_doubles():
    runs = list(islice(ReleaseSchedule.of("*/7 * * * *", "UTC", NOW).runs(NOW), 230))
    assert len(set(runs)) == 230
    assert (
        max(after - before for before, after in zip(runs, runs[1:], strict=False)).total_seconds()
        == 420
    )


WRONG = ["", "monthly", "@monthly", "0 3 1 *", "0 3 1 * * *", "0 25 * * *", "H 3 * * *"]


@pytest.mark.parametrize(
    ("cron", "timezone", "example"),
    [
        *((cron, "UTC", r"0 3 1 \* \*") for cron in (*WRONG, "0 0 30 2 *")),
        *(("0 3 1 * *", timezone, "Europe/Paris") for timezone in ("", "Mars/Olympus")),
    ],
)
def test_a_schedule_that_cannot_be_used_is_refused_with_an_example(cron, timezone, example):
    with pytest.raises(InputError, match=example):
        ReleaseSchedule.of(cron, timezone, NOW)


@given(amounts, deltas, amounts, deltas)
def test_there_is_room_for_as_many_releases_as_the_ledger_composes(epsilon, delta, price, chance):
    def fits(number: int) -> bool:
        total = basic_composition(Charges.of([Price(price, chance)] * number), delta)
        return total is not None and total <= epsilon

    fit = room(epsilon, delta, Price(price, chance))
    assert fit == 0 or fits(fit)
    assert not fits(fit + 1)
    # and none where more is held than granted
    assert room(epsilon, -delta - 1, Price(price, chance)) == 0
    assert room(-epsilon, delta, Price(price, chance)) == 0


def test_each_window_admits_its_own_releases():
    for made, cron, admitted in (
        (allowance("year", whole=2, left=1), "0 3 1 * *", [1, 1, 1, 0, 0]),
        (allowance("month", whole=1, left=0), "0 3 1,25 * *", [0, 1, 0, 1, 0]),
        (allowance("ever", whole=9, left=1), "0 3 1 * *", [1, 0, 0]),
    ):
        assert foreseen(made, cron, len(admitted)) == [bool(each) for each in admitted]


@pytest.mark.parametrize(
    ("made", "cron", "too_often"),
    [
        (allowance("year", 12, 1), "0 3 1 * *", False),
        (allowance("year", 11, 1), "0 3 1 * *", True),
        (allowance("year", 12, 0), "0 3 1 * *", True),
        (allowance("month", 1, 1), "0 3 1 * *", False),
        (allowance("month", 1, 1), "0 3 1,2 6 *", True),
        (allowance("month", 50, 50), "* * * * *", True),
        (allowance("ever", 5, 5), "0 3 1 1 *", True),
    ],
)
def test_a_schedule_may_run_more_often_than_the_budget_admits(made, cron, too_often):
    assert exceeded(made, cron) is too_often


def test_one_release_at_least_is_required():
    allowance("year", whole=1, left=0).require_one()
    for made in (allowance("month", whole=0, left=0), allowance("ever", whole=3, left=0)):
        with pytest.raises(BudgetExceeded, match="budget grant"):
            made.require_one()
