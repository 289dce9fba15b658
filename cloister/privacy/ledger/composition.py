"""How charges count: running sums, which admit, and their composition by events or by a filter.

Sums are kept by account and window, so that a charge costs the same in any ledger.

What a filter adds up of releases, where the rules of an account admit by one, is what they do to
the data. It never admits what no Rényi divergence bounds: releases that are not differentially
private, and events that this version does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import chain
from typing import TYPE_CHECKING, Self

from cloister.errors import BudgetExceeded, PrivacyError, UnsupportedEvent
from cloister.privacy.events import Composed, Event, event_from_json
from cloister.privacy.ledger.accounts import Period
from cloister.privacy.ledger.records import Release, ReservationRequest, State

if TYPE_CHECKING:
    from cloister.privacy.accounting.accountants import Spend
    from cloister.privacy.accounting.filters import FilterCost


class ChargeState(StrEnum):
    """How a release counts.

    Reserved; opened, which is final; forfeited, or given back, since its data was refused; given
    back otherwise.
    """

    RESERVED = "reserved"
    OPENED = "opened"
    FORFEITED = "forfeited"
    REFUSED = "refused"
    RETURNED = "returned"

    @classmethod
    def of(cls, release: Release) -> ChargeState:
        """The standing of a release."""
        if release.state in _STANDINGS:
            return _STANDINGS[release.state]
        if release.state is not State.REFUNDED:
            return cls.OPENED
        return cls.REFUSED if release.refused else cls.RETURNED


_STANDINGS = {State.RESERVED: ChargeState.RESERVED, State.FORFEITED: ChargeState.FORFEITED}

CHARGED = (ChargeState.RESERVED, ChargeState.OPENED, ChargeState.FORFEITED)
"""The standings that count against a budget."""

QUERIED, FINAL = CHARGED[:2], CHARGED[1:]
"""Those whose data was or may be queried, and those whose charge is final."""

REFUSALS = (ChargeState.FORFEITED, ChargeState.REFUSED)
"""Those of releases whose data was refused."""


@dataclass(frozen=True)
class Sum:
    """How many releases, and the sums of their epsilons and deltas."""

    number: int = 0
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """The sum of both; with ``times`` -1, what is left without the other."""
        return Sum(
            self.number + times * other.number,
            self.epsilon + times * other.epsilon,
            self.delta + times * other.delta,
        )


@dataclass(frozen=True)
class Key:
    """What distinguishes releases of a window.

    Those of ``block`` None are all, of "" those that name none of growing data: they read each.
    """

    unit: str
    relation: str
    standing: ChargeState
    admission: str
    block: str | None = None


@dataclass
class Sums:
    """The sums of each dataset and window, by what distinguishes its releases."""

    parts: dict[tuple[str, str], dict[Key, Sum]] = field(default_factory=dict)

    def move(self, before: Release | None, after: Release) -> None:
        """Count a release as it is now, in place of what it was."""
        if before and ChargeState.of(before) is ChargeState.of(after):
            return
        if before:
            self._count(before, -1)
        self._count(after, 1)

    def _count(self, release: Release, times: int) -> None:
        request, one = release.request, Sum(1, release.request.epsilon, release.request.delta)
        of = request.unit, request.relation, ChargeState.of(release), release.admission
        for window in (period.window(release.reserved_at) for period in Period):
            parts = self.parts.setdefault((request.dataset, window), {})
            for key in (Key(*of, block) for block in (None, *(request.blocks or ("",)))):
                parts[key] = parts.get(key, Sum()).plus(one, times)
                if not parts[key].number:
                    del parts[key]


def falls_in(release: Release, window: str) -> bool:
    """Whether the charge of a release falls in a window: its time begins with a year or month."""
    return window == Period.EVER or release.reserved_at.startswith(window)


@dataclass(frozen=True)
class Charges:
    """Charges to compose: what they sum up to, and each request, for who needs more than that."""

    sum: Sum = field(default_factory=Sum)
    requests: Callable[[], Iterable[ReservationRequest]] = field(default=tuple, compare=False)

    @classmethod
    def of(cls, requests: Sequence[ReservationRequest]) -> Self:
        """Those of some requests."""
        return cls().plus(requests)

    def __len__(self) -> int:
        return self.sum.number

    def __iter__(self) -> Iterator[ReservationRequest]:
        return iter(self.requests())

    def plus(self, further: Sequence[ReservationRequest]) -> Self:
        """The composition with further requests."""
        ones = [Sum(1, request.epsilon, request.delta) for request in further]
        total = reduce(Sum.plus, ones, self.sum)
        return type(self)(total, lambda: chain(self.requests(), further))


Compose = Callable[[Charges, Fraction], Fraction | None]
"""An upper bound on the epsilon of all charges together at a delta, without side effects.

None if no finite bound is known.
"""


def basic_composition(charges: Charges, delta: Fraction) -> Fraction | None:
    """The sum of the epsilons, if the deltas add up to at most ``delta``.

    Source: Dwork and Roth, The Algorithmic Foundations of Differential Privacy (2014), theorem
    3.16; it holds for releases whose parameters were chosen after seeing earlier ones.
    """
    return charges.sum.epsilon if charges.sum.delta <= delta else None


def checked_composition(charges: Charges, delta: Fraction, compose: Compose) -> Fraction | None:
    """The epsilon of charges under a composition, which must give a bound; 0 of none.

    Errors: ``PrivacyError`` for a number that is no bound.
    """
    if not charges:
        return Fraction(0)
    total = compose(charges, delta)
    if total is not None and not (isinstance(total, Fraction) and total >= 0):
        raise PrivacyError(
            "The composition of releases gave no rational number at or above zero: the accountant "
            "cannot be relied on."
        )
    return total


def events_of(requests: Iterable[ReservationRequest]) -> dict[Event, int]:
    """The events of requests, each with its multiplicity."""
    descriptions = [request.events for request in requests]
    # requests of one plan may hold one object: read once
    times, events = Counter(map(id, descriptions)), {id(each): each for each in descriptions}
    counts: Counter[Event] = Counter()
    for description, values in events.items():
        counts[event_from_json(values)] += times[description]
    return counts


def together(requests: Sequence[ReservationRequest], delta: Fraction) -> Spend | None:
    """What the events of requests under one relation cost at ``delta``.

    None if no accountant reads them all.
    """
    from cloister.privacy.accounting.accountants import spend  # which imports scipy

    if not requests:
        return None
    try:
        return spend(Composed(tuple(events_of(requests).items())), delta, requests[0].relation)
    except UnsupportedEvent:
        return None


def filtered_cap(requests: Sequence[ReservationRequest], delta: Fraction) -> Fraction | None:
    """The least epsilon of a budget at ``delta`` under which a filter admits all of these.

    None if none does.
    """
    from cloister.privacy.accounting.filters import least_cap  # which imports numpy and scipy

    def key(request: ReservationRequest) -> Hashable:
        return id(request.events), request.relation, request.epsilon, request.delta

    # requests of one plan may hold one object, which is written as text once
    alike = {key(request): request for request in requests}
    try:
        costs = {each: _cost_of(request) for each, request in alike.items()}
        return least_cap([costs[key(request)] for request in requests], delta)
    except UnsupportedEvent:
        return None


def require_filtered(request: ReservationRequest) -> None:
    """Check that a filter can tell what a release reveals.

    Raises:
        BudgetExceeded: it is not differentially private, or does what no accountant knows.
    """
    try:
        _cost_of(request)
    except UnsupportedEvent as error:
        raise BudgetExceeded(
            f"The rules of account '{request.dataset}' admit releases by a filter, which cannot "
            f"admit this one: {error} Ask for another method, or have the account admit by the sum "
            f"from its next window on: cloister rules set {request.dataset} --admission sum. "
            "Nothing was charged."
        ) from None


def _cost_of(request: ReservationRequest) -> FilterCost:
    return _cost(request.events_text, request.relation, request.epsilon, request.delta)


@lru_cache(maxsize=4096)
def _cost(events: str, relation: str, epsilon: Fraction, delta: Fraction) -> FilterCost:
    """What a filter adds up of a release: by its events, else as by its declared price.

    Errors: UnsupportedEvent for what is not differentially private, and for unknown events.
    """
    from cloister.privacy.accounting.composition import is_counted
    from cloister.privacy.accounting.filters import bounded_cost, filter_cost

    event = event_from_json(events)
    if not is_counted(event):
        raise UnsupportedEvent("No epsilon bounds a release that is not differentially private.")
    try:
        return filter_cost(event, relation)
    except UnsupportedEvent:
        return bounded_cost(epsilon, delta)
