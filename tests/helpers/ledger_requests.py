"""Requests to a ledger, each its own run unless it says otherwise."""

import os
from itertools import count

from cloister.privacy.ledger import ReservationRequest

_ids = count()


def ask(
    dataset: str = "adult", epsilon: object = 1, delta: object = 0, **fields: object
) -> ReservationRequest:
    """A request on one dataset, of a run of its own in this process."""
    values = {
        "dataset": dataset,
        "unit": "row",
        "relation": "add_remove",
        "epsilon": epsilon,
        "delta": delta,
        "events": {"type": "gaussian", "noise": "3/2"},
        "method": "kamino",
        "spec_digest": "ab" * 32,
        "code_version": "0.1.0",
        "spend_id": f"run-{os.getpid()}-{next(_ids)}",
    }
    return ReservationRequest(**(values | fields))  # type: ignore[arg-type]
