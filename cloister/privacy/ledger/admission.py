"""What a filter adds up of releases, where the rules of an account admit by one.

It reads what releases do to the data, and never admits what no Rényi divergence bounds: releases
under plausible deniability alone, and events that this version does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from cloister.errors import BudgetExceeded, UnsupportedEvent
from cloister.privacy.events import event_from_json
from cloister.privacy.ledger.records import ReservationRequest

if TYPE_CHECKING:
    from cloister.privacy.accounting.filters import FilterCost


def filtered_cap(requests: Sequence[ReservationRequest], delta: Fraction) -> Fraction | None:
    """The least epsilon of a budget at ``delta`` under which a filter admits all of these.

    None if none does.
    """
    from cloister.privacy.accounting.filters import least_cap  # which imports numpy and scipy

    # requests of one plan may hold one object, which is written as text once
    alike = {(id(each.events), each.relation, each.epsilon, each.delta): each for each in requests}
    try:
        costs = {key: _cost_of(request) for key, request in alike.items()}
        keys = ((id(each.events), each.relation, each.epsilon, each.delta) for each in requests)
        return least_cap([costs[key] for key in keys], delta)
    except UnsupportedEvent:
        return None


def require_filtered(request: ReservationRequest) -> None:
    """Check that a filter can tell what a release reveals.

    Raises:
        BudgetExceeded: it is under plausible deniability alone, or does what no accountant knows.
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

    Errors: UnsupportedEvent for plausible deniability, and events that this version cannot read.
    """
    from cloister.privacy.accounting.composition import is_deniable
    from cloister.privacy.accounting.filters import bounded_cost, filter_cost

    event = event_from_json(events)
    if is_deniable(event):
        raise UnsupportedEvent("No epsilon bounds a release under plausible deniability alone.")
    try:
        return filter_cost(event, relation)
    except UnsupportedEvent:
        return bounded_cost(epsilon, delta)
