"""The ledger: budgets and releases, append-only, hash-chained, on SQLite or PostgreSQL."""

from cloister.privacy.exact import Amount, exact, ratio
from cloister.privacy.ledger.budgets import BudgetStatus, Charge, Compose, basic_composition
from cloister.privacy.ledger.checks import verify_chain, verify_export
from cloister.privacy.ledger.entries import Anchor, Entry, Finding, canonical
from cloister.privacy.ledger.leases import Lease, Owner
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.ledger.records import (
    Account,
    BudgetGrant,
    Granted,
    Opening,
    Period,
    Release,
    ReleaseStep,
    Reservation,
    ReservationRequest,
    State,
    new_release_id,
)

__all__ = [
    "Account",
    "Amount",
    "Anchor",
    "BudgetGrant",
    "BudgetStatus",
    "Charge",
    "Compose",
    "Entry",
    "Finding",
    "Granted",
    "Lease",
    "Ledger",
    "Opening",
    "Owner",
    "Period",
    "Release",
    "ReleaseStep",
    "Reservation",
    "ReservationRequest",
    "State",
    "basic_composition",
    "canonical",
    "exact",
    "new_release_id",
    "ratio",
    "verify_chain",
    "verify_export",
]
