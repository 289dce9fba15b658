"""The ledger: budgets and releases, append-only, hash-chained, on SQLite or PostgreSQL."""

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
from cloister.privacy.ledger.composition import basic_composition
from cloister.privacy.ledger.entries import (
    Anchor,
    Entry,
    Finding,
    read_chain,
    revocations,
    signature_findings,
    signed_by,
)
from cloister.privacy.ledger.house import Person, Proposal, Rules
from cloister.privacy.ledger.leases import Owner
from cloister.privacy.ledger.ledger import Ledger
from cloister.privacy.ledger.records import Release, ReleaseStep, ReservationRequest, State

__all__ = [
    "Account",
    "Anchor",
    "BlockScheme",
    "BudgetGrant",
    "BudgetStatus",
    "Entry",
    "Finding",
    "Granted",
    "Ledger",
    "Opening",
    "Owner",
    "Period",
    "Person",
    "Proposal",
    "Release",
    "ReleaseStep",
    "ReservationRequest",
    "Rules",
    "State",
    "basic_composition",
    "export_lines",
    "read_chain",
    "revocations",
    "signature_findings",
    "signed_by",
    "verify_chain",
    "verify_export",
]
