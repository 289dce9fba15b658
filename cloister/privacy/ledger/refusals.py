"""Refused data: each refusal that depends on rows is an exact answer, at no charge.

So the ledger counts them, and gives back the reservations of the first few in a window alone: from
the number that the rules of the account set, a reservation is forfeited, and the account takes no
other until an officer allows it.
"""

from __future__ import annotations

from cloister.errors import InputError
from cloister.privacy.ledger.books import REFUSAL, Books
from cloister.privacy.ledger.budgets import binding_budgets
from cloister.privacy.ledger.composition import REFUSALS
from cloister.privacy.ledger.entries import Entry
from cloister.privacy.ledger.records import REFUSED, Release, State


def refusal_of(books: Books, release: Release, time: str) -> tuple[int, State]:
    """Which refusal of its window that of a reserved release is, and what becomes of its charge.

    Of the longest of the windows of the budgets that hold at a time.
    """
    owner = release.request.dataset, release.request.unit
    periods = (budget.period for budget in binding_budgets(books, *owner, time))
    windows = [
        sum(part.number for key, part in books.sums_of(*owner, window) if key.standing in REFUSALS)
        for window in (period.window(release.reserved_at) for period in periods)
    ]
    number = 1 + max(windows, default=0)
    forfeited = number >= books.house.rules_of(release.request.dataset).refusals
    return number, State.FORFEITED if forfeited else State.REFUNDED


def require_counted(books: Books, entry: Entry) -> None:
    """Check that an entry on refused data counts it, and gives back no more than the rules allow.

    Errors: ``InputError`` if it does not.
    """
    refused = entry.kind == State.FORFEITED or entry.body.get("reason") == REFUSED
    release = books.releases.get(str(entry.body.get("release")))
    if release is None or not refused or entry.kind not in (State.REFUNDED, State.FORFEITED):
        return
    number, state = refusal_of(books, release, entry.time)
    if (entry.body.get(REFUSAL), entry.body.get("reason"), entry.kind) != (number, REFUSED, state):
        raise InputError(
            f"Release {release.id} is refusal {number} of data in its window, by which it is "
            f"{state.words}, and this says otherwise. Nothing was changed."
        )
