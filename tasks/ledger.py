"""The ledger's part in a release: its request, its charge, its state, and what a budget admits.

Reading makes no ledger where there is none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import groupby, islice, takewhile
from pathlib import Path

from cloister.errors import BudgetExceeded, InputError
from cloister.figures import count_of
from cloister.models.plan import AnyPlan
from cloister.models.task import AS_USUAL
from cloister.models.task import Budget as Price
from cloister.privacy.accounting.accountants import Spend
from cloister.privacy.accounting.composition import is_deniable
from cloister.privacy.certificate.certificate import RecordGuarantees
from cloister.privacy.certificate.spend import record_guarantees
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import Relation, event_from_json
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger import (
    Anchor,
    BudgetGrant,
    BudgetStatus,
    Ledger,
    Owner,
    Period,
    Release,
    ReservationRequest,
    State,
)
from cloister.privacy.ledger.budgets import together
from cloister.privacy.ledger.records import REFUSED
from cloister.privacy.mechanisms.randomness import noise_source
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_version
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest

COMPOSITION = "the sum of the epsilons of all releases (basic composition)"


def open_ledger(home: Home) -> Ledger:
    """The ledger of a home.

    Raises:
        StorageError: it cannot be reached, read or made.
    """
    home.prepare()
    return replace(Ledger.open(home.ledger), written=home.write_end)


def spent_anchor(ledger: Ledger, release: str) -> Anchor:
    """The entry that made the charge of a release final."""
    spent = next(moved for moved in ledger.release(release).steps if moved.state is State.SPENT)
    return ledger.entries()[spent.seq - 1].anchor


def commit_charge(
    release: str, request: ResolvedRequest, journal: Journal, data: str, home: Home
) -> Anchor:
    """Make the charge of a release final; this process leases the release.

    The lease ends when the journal is closed.

    The run is written into the journal before the ledger: killed in between, the journal holds one
    place more than the ledger knows, and is still accepted.

    Raises:
        JournalMismatch: the release was begun with another journal or other data, or the journal is
            not whole.
        StorageError: another process runs the release.
    """
    ledger = open_ledger(home)
    ledger.spend(release, request.by, journal.id, data)
    journal.guard(
        ledger.begin_run(release, request.by, journal.begin_run(code_version()), Owner.current())
    )
    return spent_anchor(ledger, release)


def seal(release: str, request: ResolvedRequest, journal: Journal, home: Home) -> None:
    """Seal the journal of a release, in its file and in the ledger: no more queries."""
    open_ledger(home).seal(release, request.by, journal.seal())


def give_back(release: str, request: ResolvedRequest, home: Home) -> None:
    """Give back a reservation whose data was never queried; a charge that is final stays."""
    ledger = open_ledger(home)
    if ledger.release(release).state is State.RESERVED:
        ledger.advance(release, State.REFUNDED, request.by, REFUSED)


def record_candidate(release: str, by: str, evidence: dict[str, str], home: Home) -> None:
    """Record that a release is ready for review, with digests of what is to be reviewed."""
    open_ledger(home).advance(release, State.CANDIDATE, by, "the release flow ended", evidence)


def is_candidate(release: str, home: Home) -> bool:
    """Whether a release is ready for review."""
    return open_ledger(home).release(release).state is State.CANDIDATE


def spend_id(request: ResolvedRequest, context: PublicContext) -> str:
    """SHA-256 of everything that makes a fit what it is, whatever the version of the code.

    That is spec, data, method and budget.
    """
    sources = [part.source for part in context.spec.parts.values()]
    named = [each.path or f"{each.url} {each.table}" for each in sources]
    parts = {
        "spec": request.digest,
        "data": str(request.data or " ".join(named)),
        "method": request.method,
        "epsilon": str(request.budget.epsilon),
        "delta": str(request.budget.delta),
    }
    if request.row_sampling != AS_USUAL:
        parts["sampling"] = repr(request.row_sampling)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def release_request(
    request: ResolvedRequest, context: PublicContext, plan: AnyPlan
) -> ReservationRequest:
    """The request as the ledger records it."""
    return ReservationRequest(
        dataset=context.spec.name,
        unit=context.unit,
        relation=Relation(context.spec.privacy.relation).value,
        epsilon=request.budget.epsilon,
        delta=request.budget.delta,
        events=plan.event.to_json(),
        method=request.method,
        spec_digest=request.digest,
        code_version=code_version(),
        spend_id=spend_id(request, context),
        stain="" if noise_source().secure else "NOT PRIVATE: seeded noise",
    )


def grant_declared(ledger: Ledger, request: ResolvedRequest, context: PublicContext) -> None:
    """Grant what the spec declares to a dataset that has no budget yet."""
    try:
        ledger.budget(context.spec.name, context.unit)
    except InputError:
        declared = context.spec.privacy.budget
        _require_declared(request, context)
        reason = f"first release; declared in the spec with digest {request.digest[:16]}"
        ledger.grant(
            context.spec.name,
            context.unit,
            declared.epsilon,
            declared.delta,
            declared.per,
            f"spec ({request.by})",
            reason,
        )


def _require_declared(request: ResolvedRequest, context: PublicContext) -> None:
    declared = context.spec.privacy.budget
    if request.budget.epsilon > declared.epsilon or request.budget.delta > declared.delta:
        raise BudgetExceeded(
            f"the spec gives '{context.spec.name}' a budget of epsilon "
            f"{decimal_below(declared.epsilon)} and delta {decimal_below(declared.delta)}, but "
            f"epsilon {decimal(request.budget.epsilon)} and delta {decimal(request.budget.delta)} "
            "was asked; ask for less, or have more granted with cloister budget grant"
        )


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


@dataclass(frozen=True)
class Allowance:
    """How many releases of ``price`` a budget admits: ``whole`` in a new window, ``left`` now."""

    budget: BudgetGrant
    price: Price
    window: str
    whole: int
    left: int

    def admits(self, window: str) -> int:
        """How many more releases a window takes."""
        return self.left if window == self.window else self.whole

    def foreseen(self, runs: Iterable[datetime]) -> Iterator[tuple[datetime, bool]]:
        """Each run, and whether its window has room for it, if nothing else is charged."""
        for window, held in groupby(runs, self._window_of):
            yield from ((run, place < self.admits(window)) for place, run in enumerate(held))

    def exceeded_by(self, runs: Iterable[datetime], now: datetime) -> bool:
        """Whether a schedule runs more often than the budget admits, in this year or the next."""
        if self.budget.period is Period.EVER:
            return True
        soon = takewhile(lambda run: run.year <= now.year + 1, runs)
        return any(
            _more_than(self.admits(window), held) for window, held in groupby(soon, self._window_of)
        )

    def require_one(self) -> None:
        """Check that there is room for one release, now or in a later window.

        Raises:
            BudgetExceeded: there is none.
        """
        budget, last = self.budget, self.budget.period is Period.EVER
        if not (self.left if last else self.whole):
            raise BudgetExceeded(
                f"the budget of '{budget.dataset}' is epsilon {decimal_below(budget.epsilon)} at "
                f"delta {decimal_below(budget.delta)} per {budget.period.value} and admits "
                f"{count_of(self.whole, 'release')} of epsilon {decimal(self.price.epsilon)} at "
                f"delta {decimal(self.price.delta)}, {self.left} of them now; ask for less, or "
                "have more granted with cloister budget grant"
            )

    def _window_of(self, run: datetime) -> str:
        return self.budget.period.window(run.astimezone(UTC).isoformat())


def allowance_of(
    request: ResolvedRequest, context: PublicContext, home: Home, now: datetime
) -> Allowance:
    """The releases that the budget of a request's dataset admits.

    The budget is the granted one, else the one that the spec declares.

    Raises:
        StorageError: the ledger cannot be read.
    """
    budget = _budget(context, home)
    window = budget.period.window(now.astimezone(UTC).isoformat())
    held = [
        charged
        for charged in _charged(context, home)
        if budget.period.window(charged.reserved_at) == window
    ]
    epsilon = budget.epsilon - sum(charged.request.epsilon for charged in held)
    delta = budget.delta - sum(charged.request.delta for charged in held)
    whole = room(budget.epsilon, budget.delta, request.budget)
    return Allowance(budget, request.budget, window, whole, room(epsilon, delta, request.budget))


def room(epsilon: Fraction, delta: Fraction, price: Price) -> int:
    """How many releases of a price fit into the rest of a budget, under basic composition."""
    if min(epsilon, delta) < 0:
        return 0
    fit = epsilon // price.epsilon
    return min(fit, delta // price.delta) if price.delta else fit


def _budget(context: PublicContext, home: Home) -> BudgetGrant:
    granted = (status.budget for status in budgets(home, None))
    declared = context.spec.privacy.budget
    name, unit = context.spec.name, context.unit
    return next(
        (budget for budget in granted if (budget.dataset, budget.unit) == (name, unit)),
        BudgetGrant.of(name, unit, declared.epsilon, declared.delta, declared.per),
    )


def _charged(context: PublicContext, home: Home) -> list[Release]:
    found = releases(home, context.spec.name)
    return [
        release
        for release in found
        if release.request.unit == context.unit and release.state.charged
    ]


def _more_than(number: int, runs: Iterable[datetime]) -> bool:
    return len(list(islice(runs, number + 1))) > number
