"""What a budget holds, and whether another release fits.

A filter: the composition over all releases of the window that were not given back, the new one
included, is compared with the cap. Releases of another window, dataset or privacy unit do not
count.

The ledger admits releases by the sum of their epsilons: a filter that holds even if each release is
chosen after seeing those before it. `together` is the tight composition of the events
themselves. It holds for a schedule of releases that was fixed in advance, and is shown beside the
sum; it never admits a release.

Source: Rogers, Roth, Ullman, Vadhan, "Privacy odometers and filters" (arXiv 1605.08294), on why the
    two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cloister.errors import BudgetExceeded, InputError, PrivacyError, UnsupportedEvent
from cloister.figures import count_of
from cloister.privacy.accounting.accountants import Spend, spend
from cloister.privacy.events import compose, event_from_json
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger.books import Books
from cloister.privacy.ledger.records import BudgetGrant, Release, ReservationRequest, State


@dataclass(frozen=True)
class Charge:
    """What one release costs: its declared price, and its events for an accountant."""

    release: str
    epsilon: Fraction
    delta: Fraction
    relation: str
    events: Mapping[str, Any]


Compose = Callable[[Sequence[Charge], Fraction], Fraction | None]
"""An upper bound on the epsilon of all charges together at a delta, without side effects.

None if no finite bound is known.
"""


def basic_composition(charges: Sequence[Charge], delta: Fraction) -> Fraction | None:
    """The sum of the epsilons, if the deltas add up to at most ``delta``.

    Source: Dwork and Roth, The Algorithmic Foundations of Differential Privacy (2014), theorem
    3.16; it holds for releases whose parameters were chosen after seeing earlier ones.
    """
    total = sum((charge.delta for charge in charges), Fraction(0))
    return sum((charge.epsilon for charge in charges), Fraction(0)) if total <= delta else None


@dataclass(frozen=True)
class BudgetStatus:
    """A budget and its use in one window.

    Amounts are epsilons at the budget's delta, None is infinite. ``spent`` composes the releases
    whose data may have been opened, ``reserved`` is what open reservations add, ``left`` what the
    cap leaves. ``releases`` counts both. ``lifetime`` composes all windows: the loss of a person
    who is in the data throughout. ``refusals`` counts, over all windows, the reservations that were
    given back because the data was refused: they cost nothing, and each revealed an exact fact
    about the data.
    """

    budget: BudgetGrant
    window: str
    spent: Fraction | None
    reserved: Fraction | None
    left: Fraction
    releases: int
    lifetime: Fraction | None
    refusals: int


def status(books: Books, budget: BudgetGrant, time: str, compose: Compose) -> BudgetStatus:
    """``budget`` in the window of ``time``."""
    window = budget.period.window(time)
    releases = _counted(books, budget.dataset, budget.unit)
    current = [
        release for release in releases if budget.period.window(release.reserved_at) == window
    ]
    held = _epsilon(current, budget.delta, compose)
    spent = _epsilon(
        [release for release in current if release.state is not State.RESERVED],
        budget.delta,
        compose,
    )
    reserved = None if held is None or spent is None else held - spent
    left = Fraction(0) if held is None else max(Fraction(0), budget.epsilon - held)
    lifetime = _epsilon(releases, budget.delta, compose)
    refusals = sum(
        held.refused
        for held in books.releases.values()
        if _owner(held.request) == (budget.dataset, budget.unit)
    )
    return BudgetStatus(budget, window, spent, reserved, left, len(current), lifetime, refusals)


def admit_request(
    books: Books, request: ReservationRequest, time: str, compose: Compose
) -> Fraction:
    """What the window would compose to with ``request`` in it.

    Errors: ``BudgetExceeded`` if no budget was granted, or it would be exceeded; ``InputError`` if
    the window holds releases under another relation.
    """
    budget = books.budgets.get((request.dataset, request.unit))
    if budget is None:
        raise BudgetExceeded(
            f"No budget is granted to dataset '{request.dataset}' with privacy unit "
            f"'{request.unit}': grant one with cloister budget grant."
        )
    window = budget.period.window(time)
    held = [
        r
        for r in _counted(books, *_owner(request))
        if budget.period.window(r.reserved_at) == window
    ]
    _require_one_relation(held, request)
    total = _composed([*map(_charge, held), _price(request)], budget.delta, compose)
    if total is None or total > budget.epsilon or request.delta > budget.delta:
        raise BudgetExceeded(_refusal(request, status(books, budget, time, compose)))
    return total


def _owner(request: ReservationRequest) -> tuple[str, str]:
    return request.dataset, request.unit


def _counted(books: Books, dataset: str, unit: str) -> list[Release]:
    return [
        r
        for r in books.releases.values()
        if _owner(r.request) == (dataset, unit) and r.state.charged
    ]


def _price(request: ReservationRequest) -> Charge:
    return Charge(request.release, request.epsilon, request.delta, request.relation, request.events)


def _charge(release: Release) -> Charge:
    return _price(release.request)


def _epsilon(releases: Sequence[Release], delta: Fraction, compose: Compose) -> Fraction | None:
    return _composed([_charge(release) for release in releases], delta, compose)


def _composed(charges: Sequence[Charge], delta: Fraction, compose: Compose) -> Fraction | None:
    if not charges:
        return Fraction(0)
    total = compose(charges, delta)
    if total is not None and not (isinstance(total, Fraction) and total >= 0):
        raise PrivacyError(
            "The composition of releases gave no rational number at or above zero: the accountant "
            "cannot be relied on."
        )
    return total


def _require_one_relation(held: Sequence[Release], request: ReservationRequest) -> None:
    others = {release.request.relation for release in held} - {request.relation}
    if others:
        raise InputError(
            f"The budget of dataset '{request.dataset}' holds releases under the relation "
            f"'{min(others)}', which do not add up with '{request.relation}': use one relation per "
            "dataset."
        )


def _refusal(request: ReservationRequest, now: BudgetStatus) -> str:
    cap = now.budget
    held = (
        "no finite epsilon"
        if now.spent is None or now.reserved is None
        else decimal(now.spent + now.reserved)
    )
    return (
        f"The budget of dataset '{cap.dataset}' (unit '{cap.unit}', window {now.window}) is "
        f"epsilon {decimal_below(cap.epsilon)} at delta {decimal_below(cap.delta)}; "
        f"{count_of(now.releases, 'release')} {'holds' if now.releases == 1 else 'hold'} {held} "
        f"and {decimal_below(now.left)} is left, but epsilon "
        f"{decimal(request.epsilon)} at delta {decimal(request.delta)} was requested: "
        "request less, or have more granted with cloister budget grant."
    )


def together(releases: Iterable[Release], delta: Fraction) -> Spend | None:
    """What the events of releases under one relation cost at ``delta``.

    None if no accountant reads them all.
    """
    charged = [release for release in releases if release.state.charged]
    if not charged:
        return None
    events = compose(*(event_from_json(release.request.events) for release in charged))
    try:
        return spend(events, delta, charged[0].request.relation)
    except UnsupportedEvent:
        return None
