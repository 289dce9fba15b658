"""The ledger: budgets and releases, append-only, hash-chained, on SQLite or PostgreSQL."""

from cloister.privacy.exact import Amount, exact, ratio
from cloister.privacy.ledger.accounts import (
    Account,
    BlockScheme,
    BudgetGrant,
    Granted,
    Opening,
    Period,
)
from cloister.privacy.ledger.budgets import BudgetStatus
from cloister.privacy.ledger.checks import export_lines, verify_chain, verify_export
from cloister.privacy.ledger.composition import Compose, basic_composition
from cloister.privacy.ledger.entries import (
    Anchor,
    Entry,
    Finding,
    canonical,
    read_chain,
    revocations,
    signature_findings,
    signed_by,
)
from cloister.privacy.ledger.house import Person, Proposal, Rules
from cloister.privacy.ledger.leases import Lease, Owner
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.ledger.records import (
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
    "BlockScheme",
    "BudgetGrant",
    "BudgetStatus",
    "Compose",
    "Entry",
    "Finding",
    "Granted",
    "Lease",
    "Ledger",
    "Opening",
    "Owner",
    "Period",
    "Person",
    "Proposal",
    "Release",
    "ReleaseStep",
    "Reservation",
    "ReservationRequest",
    "Rules",
    "State",
    "basic_composition",
    "canonical",
    "exact",
    "export_lines",
    "new_release_id",
    "ratio",
    "read_chain",
    "revocations",
    "signature_findings",
    "signed_by",
    "verify_chain",
    "verify_export",
]
