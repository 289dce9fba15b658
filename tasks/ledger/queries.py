"""Reading the ledger; none is made where there is none."""

from __future__ import annotations

from pathlib import Path

from cloister.errors import InputError
from cloister.privacy.accounting.accountants import Spend
from cloister.privacy.accounting.composition import is_deniable
from cloister.privacy.certificate.schema import RecordGuarantees
from cloister.privacy.certificate.spend import record_guarantees
from cloister.privacy.events import event_from_json
from cloister.privacy.ledger import Anchor, BudgetStatus, Ledger, Release
from cloister.privacy.ledger.books import together
from cloister.tasks.ledger.transitions import open_ledger, spend_id
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home


def existing_ledger(home: Home) -> Ledger | None:
    """The ledger of a home, if there is one."""
    kept_in_file = "://" not in home.ledger
    return None if kept_in_file and not Path(home.ledger).exists() else open_ledger(home)


def budgets(home: Home, dataset: str | None) -> list[BudgetStatus]:
    """The budgets of a dataset, or all.

    Raises:
        InputError: none was granted to the dataset.
    """
    ledger = existing_ledger(home)
    found = (
        [status for status in ledger.budgets() if dataset in (None, status.budget.dataset)]
        if ledger
        else []
    )
    if dataset and not found:
        raise InputError(
            f"no budget is granted to dataset '{dataset}'; grant one with cloister budget grant"
        )
    return found


def composed_spend(home: Home, status: BudgetStatus) -> Spend | None:
    """What the releases of a budget's window cost together, by their events.

    None if no accountant reads them all.
    """
    budget = status.budget
    mine = [held for held in releases(home, budget.dataset) if held.request.unit == budget.unit]
    current = [held for held in mine if budget.period.window(held.reserved_at) == status.window]
    return together(current, budget.delta)


def deniable_releases(home: Home, dataset: str) -> int:
    """How many charged releases of a dataset are under plausible deniability alone.

    No epsilon bounds what these reveal.
    """
    charged = (held for held in releases(home, dataset) if held.state.charged)
    return sum(is_deniable(event_from_json(held.request.events)) for held in charged)


def export_ledger(home: Home, path: Path) -> Anchor:
    """Write all entries of the ledger to a file; the anchor of the last.

    Raises:
        InputError: there is none.
        StorageError: the file cannot be written.
    """
    ledger = existing_ledger(home)
    anchor = ledger.export(path) if ledger and ledger.anchor() else None
    if anchor is None:
        raise InputError(f"there is no entry in a ledger at {home.ledger}; set CLOISTER_HOME")
    return anchor


def releases(home: Home, dataset: str | None) -> list[Release]:
    """The releases of a dataset, or all, oldest first."""
    ledger = existing_ledger(home)
    return ledger.releases(dataset) if ledger else []


def release_of(home: Home, release: str) -> Release:
    """One release.

    Raises:
        InputError: there is none of this name.
    """
    ledger = existing_ledger(home)
    if ledger is None:
        raise InputError(
            f"there is no release '{release}': there is no ledger at {home.ledger} yet"
        )
    return ledger.release(release)


def guarantees_of(held: Release) -> RecordGuarantees | None:
    """The guarantees of the records of a release that are made from seeds; None without any."""
    asked = held.request
    return record_guarantees(event_from_json(asked.events), asked.delta, asked.relation)


def pending_release(request: ResolvedRequest, context: PublicContext, home: Home) -> Release | None:
    """The release of an earlier run of the request, if it is unfinished or was not reported."""
    ledger = existing_ledger(home)
    mine = (
        [held for held in ledger.releases() if held.request.spend_id == spend_id(request, context)]
        if ledger
        else []
    )
    return mine[-1] if mine and mine[-1].pending else None
