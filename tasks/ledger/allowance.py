"""How many releases of one price a budget admits; reads the ledger, and makes none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from itertools import groupby, islice, takewhile

from cloister.errors import BudgetExceeded
from cloister.figures import count_of
from cloister.models.task import Budget as Price
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger import BudgetGrant, Period, Release
from cloister.tasks.ledger.queries import budgets, releases
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home


@dataclass(frozen=True)
class Allowance:
    """How many releases of ``price`` a budget admits: ``whole`` in a new window, ``left`` now."""

    budget: BudgetGrant
    price: Price
    window: str
    whole: int
    left: int

    def admits(self, window: str) -> int:
        """How many more releases a window takes."""
        return self.left if window == self.window else self.whole

    def foreseen(self, runs: Iterable[datetime]) -> Iterator[tuple[datetime, bool]]:
        """Each run, and whether its window has room for it, if nothing else is charged."""
        for window, held in groupby(runs, self._window_of):
            yield from ((run, place < self.admits(window)) for place, run in enumerate(held))

    def exceeded_by(self, runs: Iterable[datetime], now: datetime) -> bool:
        """Whether a schedule runs more often than the budget admits, in this year or the next."""
        if self.budget.period is Period.EVER:
            return True
        soon = takewhile(lambda run: run.year <= now.year + 1, runs)
        return any(
            _more_than(self.admits(window), held) for window, held in groupby(soon, self._window_of)
        )

    def require_one(self) -> None:
        """Check that there is room for one release, now or in a later window.

        Raises:
            BudgetExceeded: there is none.
        """
        budget, last = self.budget, self.budget.period is Period.EVER
        if not (self.left if last else self.whole):
            raise BudgetExceeded(
                f"the budget of '{budget.dataset}' is epsilon {decimal_below(budget.epsilon)} at "
                f"delta {decimal_below(budget.delta)} per {budget.period.value} and admits "
                f"{count_of(self.whole, 'release')} of epsilon {decimal(self.price.epsilon)} at "
                f"delta {decimal(self.price.delta)}, {self.left} of them now; ask for less, or "
                "have more granted with cloister budget grant"
            )

    def _window_of(self, run: datetime) -> str:
        return self.budget.period.window(run.astimezone(UTC).isoformat())


def allowance_of(
    request: ResolvedRequest, context: PublicContext, home: Home, now: datetime
) -> Allowance:
    """The releases that the budget of a request's dataset admits.

    The budget is the granted one, else the one that the spec declares.

    Raises:
        StorageError: the ledger cannot be read.
    """
    budget = _budget(context, home)
    window = budget.period.window(now.astimezone(UTC).isoformat())
    held = [
        charged
        for charged in _charged(context, home)
        if budget.period.window(charged.reserved_at) == window
    ]
    epsilon = budget.epsilon - sum(charged.request.epsilon for charged in held)
    delta = budget.delta - sum(charged.request.delta for charged in held)
    whole = room(budget.epsilon, budget.delta, request.budget)
    return Allowance(budget, request.budget, window, whole, room(epsilon, delta, request.budget))


def room(epsilon: Fraction, delta: Fraction, price: Price) -> int:
    """How many releases of a price fit into the rest of a budget, under basic composition."""
    if min(epsilon, delta) < 0:
        return 0
    fit = epsilon // price.epsilon
    return min(fit, delta // price.delta) if price.delta else fit


def _budget(context: PublicContext, home: Home) -> BudgetGrant:
    granted = (status.budget for status in budgets(home, None))
    declared = context.spec.privacy.budget
    name, unit = context.spec.name, context.unit
    return next(
        (budget for budget in granted if (budget.dataset, budget.unit) == (name, unit)),
        BudgetGrant.of(name, unit, declared.epsilon, declared.delta, declared.per),
    )


def _charged(context: PublicContext, home: Home) -> list[Release]:
    found = releases(home, context.spec.name)
    return [
        release
        for release in found
        if release.request.unit == context.unit and release.state.charged
    ]


def _more_than(number: int, runs: Iterable[datetime]) -> bool:
    return len(list(islice(runs, number + 1))) > number
