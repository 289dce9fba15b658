"""The ledger's part in a release: its request, its charge, and its state."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from cloister.errors import BudgetExceeded, InputError
from cloister.models.plan import AnyPlan
from cloister.models.task import AS_USUAL
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import Relation
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger import Anchor, Ledger, Owner, ReservationRequest, State
from cloister.privacy.ledger.records import REFUSED
from cloister.privacy.mechanisms.randomness import noise_source
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.code_version import code_version
from cloister.tasks.runtime.home import Home

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
