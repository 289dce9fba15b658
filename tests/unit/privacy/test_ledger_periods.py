"""What a budget holds: its period by the clock, and its releases as they compose."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from ledger_requests import ask

from cloister.errors import BudgetExceeded, PrivacyError
from cloister.privacy.ledger import Ledger, basic_composition
from cloister.privacy.ledger.composition import Charges


def clock_at(*moments: str) -> Callable[[], datetime]:
    clock = iter(moments)
    return lambda: datetime.fromisoformat(next(clock)).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("period", "fits"), [("year", [1, 1, 0, 1]), ("month", [1, 1, 1, 1]), ("ever", [1, 1, 0, 0])]
)
def test_a_budget_lasts_its_period(tmp_path: Path, period: str, fits: list[int]) -> None:
    clock = clock_at(
        "2026-01-31", "2026-01-31", "2026-02-01", "2026-12-31", "2027-01-01", "2027-01-01"
    )
    ledger = replace(Ledger.open(tmp_path / "l.db"), clock=clock)
    ledger.grant("adult", "row", 2, 0, period, "officer", "why")
    for fit in fits:
        if fit:
            ledger.reserve(ask(), "flow")
        else:
            with pytest.raises(BudgetExceeded):
                ledger.reserve(ask(), "flow")
    assert ledger.budget("adult", "row").lifetime == sum(fits)
    assert ledger.verify() == []


def test_a_clock_that_runs_back_reopens_no_window(tmp_path: Path) -> None:
    clock = clock_at("2027-01-01", "2027-01-02", "2026-12-31", "2020-01-01", "2026-12-31")
    ledger = replace(Ledger.open(tmp_path / "l.db"), clock=clock)
    ledger.grant("adult", "row", 1, 0, "year", "officer", "why")
    ledger.reserve(ask(), "flow")
    for _ in range(2):
        with pytest.raises(BudgetExceeded, match="window 2027.* 1 release holds 1 and 0 is left"):
            ledger.reserve(ask(), "flow")
    assert ledger.budget("adult", "row").window == "2027"
    times = [entry.time for entry in ledger.entries()]
    assert times == sorted(times) and ledger.verify() == []


def test_times_are_written_in_utc(tmp_path: Path) -> None:
    east = datetime.fromisoformat("2027-01-01T01:00:00+05:00")
    ledger = replace(Ledger.open(tmp_path / "l.db"), clock=lambda: east)
    ledger.grant("adult", "row", 1, 0, "year", "officer", "why")
    assert ledger.entries()[0].time == "2026-12-31T20:00:00.000000Z"
    assert ledger.budget("adult", "row").window == "2026"
    assert timedelta(0) == east.utcoffset() - timedelta(hours=5)  # type: ignore[operator]


def test_the_composition_decides_not_the_sum(tmp_path: Path) -> None:
    def root_sum(charges: Charges, delta: Fraction) -> Fraction | None:
        assert delta == Fraction(1, 10**6) and all(
            charge.events["type"] == "gaussian" for charge in charges
        )
        return Fraction(len(charges), 4)

    ledger = Ledger.open(tmp_path / "l.db", compose=root_sum)
    ledger.grant("adult", "row", 1, "1e-6", "ever", "officer", "why")
    for _ in range(4):
        ledger.reserve(ask(delta="1e-6"), "flow")
    with pytest.raises(BudgetExceeded, match="4 releases hold 1 and 0 is left"):
        ledger.reserve(ask(delta="1e-6"), "flow")
    assert ledger.verify() == []
    assert any(
        "is left" in finding.problem
        for finding in replace(ledger, compose=basic_composition).verify()
    )


@pytest.mark.parametrize("total", [float("nan"), 0.5, Fraction(-1)])
def test_an_accountant_that_gives_no_rational_is_not_believed(tmp_path, total) -> None:
    path = tmp_path / "l.db"
    ledger = Ledger.open(path, compose=lambda *_: total)  # type: ignore[arg-type,return-value]
    ledger.grant("adult", "row", 1, "1e-6", "ever", "officer", "why")
    with pytest.raises(PrivacyError):
        ledger.reserve(ask(), "flow")
    assert len(ledger.entries()) == 1


def test_a_delta_above_the_budgets_and_no_finite_epsilon_are_refused(tmp_path: Path) -> None:
    """Whatever the composition says of the delta."""
    found = [Fraction(0)]
    ledger = Ledger.open(tmp_path / "l.db", compose=lambda charges, delta: found[0])
    ledger.grant("adult", "row", 1, "1e-6", "ever", "officer", "why")
    ledger.reserve(ask(delta="1e-6"), "flow")
    with pytest.raises(BudgetExceeded, match="delta 1e-05 was requested"):
        ledger.reserve(ask(delta="1e-5"), "flow")
    found[0] = None
    with pytest.raises(BudgetExceeded):
        ledger.reserve(ask(), "flow")
