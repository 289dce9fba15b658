"""Budgets as people see and grant them, and how many releases of a price one admits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from fractions import Fraction
from itertools import chain, groupby, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloister.errors import BudgetExceeded, InputError, StorageError
from cloister.figures import count_of
from cloister.privacy.events import Relation
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger import (
    Account,
    BlockScheme,
    BudgetGrant,
    BudgetStatus,
    Period,
    Proposal,
    ReservationRequest,
    basic_composition,
)
from cloister.privacy.ledger.books import LedgerState
from cloister.privacy.ledger.budgets import Window
from cloister.privacy.ledger.composition import filtered_cap, together
from cloister.privacy.ledger.house import FILTER, SUM
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import (
    account_of,
    all_places,
    bound_account,
    existing_ledger,
    open_ledger,
    opening_of,
    release_request,
)
from cloister.tasks.ledger.people import house_of

if TYPE_CHECKING:
    from cloister.models.task import AnyPlan
    from cloister.models.task import Budget as Price
    from cloister.privacy.accounting.accountants import Spend
    from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest


def budgets(home: Home, dataset: str | None) -> list[BudgetStatus]:
    """The budgets of a dataset, or all.

    Raises:
        InputError: none was granted to the dataset.
    """
    ledger = existing_ledger(home)
    granted = ledger.budgets() if ledger else []
    statuses = [status for status in granted if dataset in (None, status.budget.dataset)]
    if dataset and not statuses:
        raise InputError(
            f"no budget is granted to dataset '{dataset}'; grant one with cloister budget grant"
        )
    return statuses


def composed_spend(status: BudgetStatus) -> Spend | None:
    """What the releases of a budget's window cost together, by their events.

    It holds for a schedule that was fixed in advance. None if no accountant reads them all.
    """
    return together([*status.windows[0].charged.requests()], status.budget.delta)


def filtered_spend(status: BudgetStatus) -> Fraction | None:
    """The least epsilon under which a filter holds a budget's window.

    As counted by the filter in force, or by one in force from the window's beginning. None if no
    epsilon does.
    """
    if status.admission == FILTER:
        return status.filtered
    return filtered_cap([*status.windows[0].charged.requests()], status.budget.delta)


def budget_note(request: ResolvedRequest, home: Home) -> str | None:
    """A sentence if a spec declares another budget than its account was granted, which holds.

    None where the ledger cannot be reached: a release says so.
    """
    from cloister.tasks.requests.resolved import public_context_of

    context = public_context_of(request)
    with suppress(StorageError):
        granted = _granted(context, home)
        declared = opening_of(request, context, home).budget
        if granted and granted.budget != declared:
            return (
                f"the spec declares a budget of {budget_text(declared)}, but account "
                f"'{context.dataset}' was granted {budget_text(granted.budget)}, which holds: "
                "cloister budget grant changes it"
            )
    return None


def grant_budget(
    home: Home, budget: BudgetGrant, by: str, reason: str, *, confirmed: bool = False
) -> BudgetStatus | Proposal:
    """Grant a budget to an existing account; a proposal, if a second officer must confirm it.

    Raises:
        InputError: there is no such account; or, unless ``confirmed``, the budget is below what is
            spent, or more than ten times the one before.
    """
    ledger = open_ledger(home)
    loosest_first = sorted(ledger.budgets(), key=lambda status: -status.left)
    granted = {status.budget.dataset: status for status in loosest_first}
    known = ledger.books().accounts.keys() | granted.keys()
    if budget.dataset not in known:
        near = get_close_matches(budget.dataset, known, 1)
        meant = f" (did you mean '{near[0]}'?)" if near else ""
        raise InputError(
            f"there is no account '{budget.dataset}'{meant}; its first release opens it, or "
            "cloister dataset add"
        )
    if (doubts := _doubts(granted.get(budget.dataset), budget)) and not confirmed:
        raise InputError(f"{'; '.join(doubts)}; if that is meant, say --yes")
    return ledger.grant(**asdict(budget), by=by, reason=reason)


_UNUSUAL = 10
"""How many times the last budget a new one may be without confirmation: a digit too many."""


def _doubts(now: BudgetStatus | None, budget: BudgetGrant) -> list[str]:
    """What is unusual about a new budget."""
    if now is None:
        return []
    doubts = []
    spent = now.filtered if now.admission == FILTER else now.spent
    if spent is None or budget.epsilon < spent:
        doubts.append(
            f"epsilon {decimal_below(budget.epsilon)} is below the {decimal(spent)} that is "
            "spent in this window, so nothing more is admitted in it"
        )
    if budget.epsilon > _UNUSUAL * now.budget.epsilon:
        doubts.append(
            f"epsilon {decimal_below(budget.epsilon)} is more than {_UNUSUAL} times the "
            f"{decimal_below(now.budget.epsilon)} granted before"
        )
    return doubts


@dataclass(frozen=True)
class Allowance:
    """How many releases of ``price`` a budget admits: ``whole`` in a new window, ``left`` now.

    Where each run reads the preceding block of growing data, a month or a year as ``moving`` says,
    a window is of that block too.
    """

    budget: BudgetGrant
    price: Price
    window: str
    whole: int
    left: int
    moving: str = ""

    def admits(self, window: str) -> int:
        """How many more releases a window takes."""
        return self.left if window == self.window else self.whole

    def foreseen(self, runs: Iterable[datetime]) -> Iterator[tuple[datetime, bool]]:
        """Each run, and whether its window has room for it, if nothing else is charged."""
        for window, group in groupby(runs, self._window_of):
            yield from ((run, position < self.admits(window)) for position, run in enumerate(group))

    def exceeded_by(self, runs: Iterable[datetime], now: datetime) -> bool:
        """Whether a schedule runs more often than the budget admits, in this year or the next."""
        if self.budget.period is Period.EVER and not self.moving:
            return True
        soon = takewhile(lambda run: run.year <= now.year + 1, runs)
        return any(
            _more_than(self.admits(window), group)
            for window, group in groupby(soon, self._window_of)
        )

    def require_one(self) -> None:
        """Check that there is room for one release, now or in a later window.

        Raises:
            BudgetExceeded: there is none.
        """
        budget, last = self.budget, self.budget.period is Period.EVER and not self.moving
        if not (self.left if last else self.whole):
            raise BudgetExceeded(
                f"the budget of '{budget.dataset}' is epsilon {decimal_below(budget.epsilon)} at "
                f"delta {decimal_below(budget.delta)} per {budget.period.value} and admits "
                f"{count_of(self.whole, 'release')} of epsilon {decimal(self.price.epsilon)} at "
                f"delta {decimal(self.price.delta)}, {self.left} of them now; ask for less, or "
                "have more granted with cloister budget grant"
            )

    def _window_of(self, run: datetime) -> str:
        return _window(self.budget, self.moving, run)


def _window(budget: BudgetGrant, moving: str, run: datetime) -> str:
    """The window that a run is charged to, and the block that it reads if that moves."""
    from cloister.schema.blocks import previous

    window = budget.period.window(_iso(run))
    return f"{window}, block {previous(moving, run)}" if moving else window


def allowance_of(
    request: ResolvedRequest,
    context: PublicContext,
    plan: AnyPlan,
    home: Home,
    now: datetime,
    *,
    moving: bool = False,
) -> Allowance:
    """The releases that the budget of a request's dataset admits.

    The budget is the granted one, else the one that the spec declares. ``moving`` says that each
    run reads the block of growing data before it.

    Raises:
        StorageError: the ledger cannot be read.
    """
    from cloister.models.task import Budget

    opening, granted = opening_of(request, context, home), _granted(context, home)
    budget = granted.budget if granted else opening.budget
    block = context.spec.privacy.block
    per = block.per if block and moving else ""
    rule = granted.next_admission if granted else house_of(home).rules_of(context.dataset).admission
    price = release_request(request, context, plan)
    whole = admitted(Window("", rule), budget, price)
    left = whole
    if granted and granted.window == budget.period.window(_iso(now)):
        binding = zip(granted.windows, (granted.budget, *granted.also_binding), strict=True)
        left = min(admitted(charges, cap, price) for charges, cap in binding)
    charge = Budget(price.epsilon, price.delta)
    return Allowance(budget, charge, _window(budget, per, now), whole, left, per)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


_MOST_COUNTED = 10_000
"""The most releases that are counted under a filter: one an hour for more than a year."""


def admitted(window: Window, budget: BudgetGrant, price: ReservationRequest) -> int:
    """How many more releases of a price a window of a budget admits."""
    if window.admission == SUM:
        epsilon, delta = window.left(budget, basic_composition)
        return room(epsilon, delta, price)

    def exceeded(number: int) -> bool:
        total = window.total(budget.delta, basic_composition, [price] * number)
        return total is None or total > budget.epsilon

    return bisect_left(range(1, _MOST_COUNTED + 1), True, key=exceeded)


def room(epsilon: Fraction, delta: Fraction, price: Price | ReservationRequest) -> int:
    """How many releases of a price fit into the rest of a budget, under basic composition."""
    if min(epsilon, delta) < 0:
        return 0
    fit = epsilon // price.epsilon
    return min(fit, delta // price.delta) if price.delta else fit


def _granted(context: PublicContext, home: Home) -> BudgetStatus | None:
    """The granted budget of a request's dataset, if there is one."""
    ledger = existing_ledger(home)
    with suppress(BudgetExceeded):
        blocks = context.spec.blocks
        return ledger.budget(context.dataset, context.unit, blocks) if ledger else None
    return None


def _more_than(number: int, runs: Iterable[datetime]) -> bool:
    return len(list(islice(runs, number + 1))) > number


def budget_text(budget: BudgetGrant) -> str:
    """A budget in words."""
    return (
        f"epsilon {decimal_below(budget.epsilon)}, delta {decimal_below(budget.delta)} per "
        f"{budget.period.value}"
    )


def budget_history(home: Home, dataset: str | None) -> list[dict[str, Any]]:
    """The grants of a dataset, or all, oldest first: each from what to what, by whom and why."""
    ledger = existing_ledger(home)
    return grants_in(ledger.books(), dataset) if ledger else []


def grants_in(books: LedgerState, dataset: str | None) -> list[dict[str, Any]]:
    """The same from books already read."""
    history: list[dict[str, Any]] = []
    last: dict[tuple[str, str], str] = {}
    grants = chain.from_iterable(books.grants.values())
    for granted in sorted(grants, key=lambda granted: granted.seq):
        budget, owner = granted.budget, (granted.budget.dataset, granted.budget.unit)
        text = budget_text(budget)
        if dataset in (None, budget.dataset):
            history.append(
                {
                    "entry": granted.seq,
                    "time": granted.time,
                    "dataset": budget.dataset,
                    "unit": budget.unit,
                    "from": last.get(owner, "none"),
                    "to": text,
                    "by": books.house.shown(granted.by),
                    "confirmed_by": books.house.shown(granted.confirmed),
                    "reason": granted.reason,
                }
            )
        last[owner] = text
    return history


def open_account(
    home: Home,
    dataset: str,
    unit: str,
    relation: str,
    places: Sequence[str],
    by: str,
    reason: str,
    blocks: str | None = None,
) -> Account:
    """Register a data set, or further places of one; ``blocks`` as ``admitted (date) per month``.

    Raises:
        InputError: the account is of another unit or relation, or a place is of another account.
        StorageError: a variable that the URL of a database names is not set.
    """
    if relation not in set(Relation):
        raise InputError(f"'{relation}' is no relation; give add_remove or replace_one")
    ledger = open_ledger(home)
    books = ledger.books()
    known = {name: account.partition for name, account in books.accounts.items()}
    partition = BlockScheme.parse(blocks) if blocks else known.get(dataset)
    registered = tuple(chain.from_iterable(map(_source_identities, places)))
    account = Account(dataset, unit, relation, registered, partition)
    return ledger.open_account(all_places(books, account), by, reason)


def reread_account(home: Home, spec: Path, by: str, reason: str) -> Account:
    """Move the account of a spec to how the spec reads its sources.

    Raises:
        InputError: there is no such account, or it is read so already.
        NotPermitted: ``by`` is no officer.
        SpecError: the spec cannot be read.
    """
    from cloister.schema.spec_files.loading import load_spec

    ledger = open_ledger(home)
    account = bound_account(ledger.books(), account_of(load_spec(spec), None, home))
    return ledger.reread_account(account, by, reason)


def _source_identities(text: str) -> tuple[str, ...]:
    """A place as an account registers it: an absolute path, an object, a table of a database."""
    from cloister.schema.sources.databases import table_identities
    from cloister.schema.sources.files_and_urls import is_url
    from cloister.schema.sources.stored_files import object_identity

    url, _, table = text.rpartition("#")
    if is_url(url):
        return table_identities(url, table)
    return (object_identity(text) if is_url(text) else str(Path(text).resolve()),)


def account_json(account: Account) -> dict[str, Any]:
    """An account as JSON values."""
    return {
        "dataset": account.name,
        "unit": account.unit,
        "relation": account.relation,
        "places": list(account.places),
        "blocks": str(account.partition or ""),
        "reading": dict(account.reading),
        "moves": [asdict(move) for move in account.moves],
    }
