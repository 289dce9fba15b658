"""What a budget holds, and whether another release fits.

A filter: the composition over all releases of the window that were not given back, the new one
included, is compared with the cap. Releases of another window or account do not count.

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
from itertools import pairwise
from typing import Any

from cloister.errors import BudgetExceeded, InputError, PrivacyError, UnsupportedEvent
from cloister.figures import count_of
from cloister.privacy.accounting.accountants import Spend, spend
from cloister.privacy.events import compose, event_from_json
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger.books import Books
from cloister.privacy.ledger.records import BudgetGrant, Period, Release, ReservationRequest, State


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


def binding_budgets(books: Books, dataset: str, unit: str, time: str) -> list[BudgetGrant]:
    """The budgets that hold at a time, the last granted first; empty if none was granted.

    A budget of another period takes effect with the next window of both: until then the earlier one
    holds too, so that no change of the period frees what was spent. One for ever counts all that
    was, so the earlier ends with its own window. A budget of the same period replaces the one
    before at once.
    """
    grants = books.grants.get((dataset, unit), [])
    if not grants or dataset not in books.accounts:
        return [granted.budget for granted in grants[-1:]]
    held = {grants[-1].budget.period: grants[-1].budget}
    for earlier, later in reversed(list(pairwise(grants))):
        period, changed = earlier.budget.period, later.time
        both = {period, later.budget.period} - ({Period.EVER} - {period})
        if any(each.window(changed) == each.window(time) for each in both):
            held.setdefault(period, earlier.budget)
    return list(held.values())


@dataclass(frozen=True)
class BudgetStatus:
    """A budget and its use in one window.

    Amounts are epsilons at the budget's delta, None is infinite. ``spent`` composes the releases
    whose data may have been opened, ``reserved`` is what open reservations add, ``left`` what this
    budget and ``others`` leave, ``left_delta`` the same of deltas, added up. ``others`` are budgets
    of other periods that still hold. ``releases`` counts both. ``lifetime`` composes all windows:
    the loss of a person who is in the data throughout. ``refusals`` counts, over all windows, the
    reservations that were given back because the data was refused: they cost nothing, and each
    revealed an exact fact about the data.

    Of growing data the budget is that of ``block``. ``lifetime``, at ``lifetime_delta``, composes
    all windows of all blocks: the loss of a person with rows in each.
    """

    budget: BudgetGrant
    window: str
    spent: Fraction | None
    reserved: Fraction | None
    left: Fraction
    left_delta: Fraction
    releases: int
    lifetime: Fraction | None
    refusals: int
    others: tuple[BudgetGrant, ...] = ()
    block: str = ""
    lifetime_delta: Fraction = Fraction(0)


def statuses(
    books: Books, dataset: str, unit: str, time: str, compose: Compose, blocks: Sequence[str] = ()
) -> list[BudgetStatus]:
    """The budget of each of some blocks of growing data, by default of all that were read.

    Of other data, or where none was read, that of the whole. Errors: ``BudgetExceeded`` if none was
    granted.
    """
    named = blocks or books.blocks(dataset) or (None,)
    return [status(books, dataset, unit, time, compose, block) for block in named]


def tightest(
    books: Books, dataset: str, unit: str, time: str, compose: Compose, blocks: Sequence[str] = ()
) -> BudgetStatus:
    """Of those budgets the one that the least is left of.

    Errors: ``BudgetExceeded`` if none was granted.
    """
    found = statuses(books, dataset, unit, time, compose, blocks)
    return min(found, key=lambda status: (status.left, status.left_delta))


def status(
    books: Books, dataset: str, unit: str, time: str, compose: Compose, block: str | None = None
) -> BudgetStatus:
    """The budget of a dataset, or of one of its blocks, in the window of ``time``.

    Raises:
        BudgetExceeded: none was granted.
    """
    binding = binding_budgets(books, dataset, unit, time)
    if not binding:
        raise BudgetExceeded(
            f"No budget is granted to dataset '{dataset}' with privacy unit '{unit}': grant one "
            "with cloister budget grant."
        )
    budget, *others = binding
    charged, ever = books.charged(dataset, unit, block), books.charged(dataset, unit)
    lifetime_delta = budget.delta
    if block is not None:
        lifetime_delta = max(budget.delta, sum((each.request.delta for each in ever), Fraction(0)))
    current = _in_window(charged, budget.period, time)
    held = _epsilon(current, budget.delta, compose)
    opened = [release for release in current if release.state is not State.RESERVED]
    spent = _epsilon(opened, budget.delta, compose)
    reserved = None if held is None or spent is None else held - spent
    rooms = [_room(charged, each, time, compose) for each in binding]
    refusals = [
        release
        for release in books.releases.values()
        if release.refused and _owner(release.request) == (dataset, unit)
    ]
    return BudgetStatus(
        budget,
        budget.period.window(time),
        spent,
        reserved,
        min(epsilon for epsilon, _ in rooms),
        min(delta for _, delta in rooms),
        len(current),
        _epsilon(ever, lifetime_delta, compose),
        len(refusals),
        tuple(others),
        block or "",
        lifetime_delta,
    )


def _room(
    charged: Sequence[Release], budget: BudgetGrant, time: str, compose: Compose
) -> tuple[Fraction, Fraction]:
    """The epsilon that a budget leaves in its window, and the delta, added up."""
    current = _in_window(charged, budget.period, time)
    held = _epsilon(current, budget.delta, compose)
    delta = budget.delta - sum(release.request.delta for release in current)
    left = Fraction(0) if held is None else max(Fraction(0), budget.epsilon - held)
    return left, max(Fraction(0), delta)


def admit_request(
    books: Books, request: ReservationRequest, time: str, compose: Compose
) -> Fraction:
    """What the window of the last budget would compose to with ``request`` in it.

    Of growing data each block that it reads has the budget; the greatest of what they compose to.
    Errors: ``BudgetExceeded`` if no budget was granted, or one that holds would be exceeded;
    ``InputError`` if the window holds releases under another relation.
    """
    return max(_admit(books, request, time, compose, block) for block in request.blocks or (None,))


def _admit(
    books: Books, request: ReservationRequest, time: str, compose: Compose, block: str | None
) -> Fraction:
    now = status(books, *_owner(request), time, compose, block)
    charged = books.charged(*_owner(request), block)
    totals = []
    for budget in (now.budget, *now.others):
        held = _in_window(charged, budget.period, time)
        _require_one_relation(held, request)
        total = _composed([*map(_charge, held), _price(request)], budget.delta, compose)
        if total is None or total > budget.epsilon or request.delta > budget.delta:
            raise BudgetExceeded(_refusal(request, budget, held, time, compose, block))
        totals.append(total)
    return totals[0]


def _owner(request: ReservationRequest) -> tuple[str, str]:
    return request.dataset, request.unit


def _in_window(charged: Iterable[Release], period: Period, time: str) -> list[Release]:
    window = period.window(time)
    return [release for release in charged if period.window(release.reserved_at) == window]


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


def _refusal(
    request: ReservationRequest,
    cap: BudgetGrant,
    held: Sequence[Release],
    time: str,
    compose: Compose,
    block: str | None,
) -> str:
    total = _epsilon(held, cap.delta, compose)
    left, left_delta = _room(held, cap, time, compose)
    hold = "no finite epsilon" if total is None else decimal(total)
    used_up = ""
    if request.delta > left_delta:
        used_up = (
            f"Of delta, which deltas of releases add up to, {decimal_below(left_delta)} is left. "
        )
    return (
        f"The budget of dataset '{cap.dataset}' (unit '{cap.unit}', "
        f"{f'block {block}, ' if block else ''}window {cap.period.window(time)}) is epsilon "
        f"{decimal_below(cap.epsilon)} at delta {decimal_below(cap.delta)}; "
        f"{count_of(len(held), 'release')} {'holds' if len(held) == 1 else 'hold'} {hold} and "
        f"{decimal_below(left)} is left, but epsilon {decimal(request.epsilon)} at delta "
        f"{decimal(request.delta)} was requested. {used_up}Request less, or have "
        "more granted with cloister budget grant."
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
