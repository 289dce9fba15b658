"""How the charges of releases are composed: by their sum, which admits, or by their events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from cloister.errors import PrivacyError, UnsupportedEvent
from cloister.privacy.events import Composed, Event, event_from_json
from cloister.privacy.ledger.records import ReservationRequest
from cloister.privacy.ledger.sums import Sum

if TYPE_CHECKING:
    from cloister.privacy.accounting.accountants import Spend


@dataclass(frozen=True)
class Charge:
    """What one release costs: its declared price, and its events for an accountant."""

    release: str
    epsilon: Fraction
    delta: Fraction
    relation: str
    events: Mapping[str, Any]


@dataclass(frozen=True)
class Charges:
    """Charges to compose: what they sum up to, and each of them, for who needs more than that."""

    sum: Sum = field(default_factory=Sum)
    requests: Callable[[], Iterable[ReservationRequest]] = field(default=tuple, compare=False)

    @classmethod
    def of(cls, requests: Sequence[ReservationRequest]) -> Self:
        """Those of some requests."""
        return cls().plus(requests)

    def __len__(self) -> int:
        return self.sum.number

    def __iter__(self) -> Iterator[Charge]:
        return map(charge_of, self.requests())

    def plus(self, further: Sequence[ReservationRequest]) -> Self:
        """With those of further requests."""
        ones = [Sum(1, request.epsilon, request.delta) for request in further]
        total = reduce(Sum.plus, ones, self.sum)
        return type(self)(total, lambda: chain(self.requests(), further))


def charge_of(request: ReservationRequest) -> Charge:
    """What a request costs."""
    return Charge(request.release, request.epsilon, request.delta, request.relation, request.events)


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
    """What requests do to the data, each event with how often it happens."""
    asked = [request.events for request in requests]
    events, times = {id(each): each for each in asked}, Counter(map(id, asked))
    found: Counter[Event] = Counter()
    for each, values in events.items():  # requests of one plan may hold one object: read once
        found[event_from_json(values)] += times[each]
    return found


def together(requests: Sequence[ReservationRequest], delta: Fraction) -> Spend | None:
    """What the events of requests under one relation cost at ``delta``.

    None if no accountant reads them all.
    """
    from cloister.privacy.accounting.accountants import spend  # which imports scipy

    if not requests:
        return None
    try:
        events = Composed(tuple(events_of(requests).items()))
        return spend(events, delta, requests[0].relation)
    except UnsupportedEvent:
        return None
