"""The steps up to a charge: plan, prepare the stores, reserve before a row is read, spend.

The plan is public and costs nothing. The request is written into the folder of the release before
the charge, and read by each later run. The price is spent before the data is queried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cloister import errors
from cloister.models.acceptance import TriedPlan
from cloister.models.task import AnyPlan
from cloister.privacy.accounting.composition import divides_rows
from cloister.privacy.door.journal import Journal
from cloister.privacy.ledger import Ledger, Release, State
from cloister.privacy.ledger.checks import other_version
from cloister.privacy.ledger.governance import decline
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.declarations import LATEST
from cloister.schema.sources.reading import require_declared_size
from cloister.tasks.data.session import (
    CHARGED_NOTHING,
    DoorT,
    Opened,
    RawT,
    RowSource,
    Session,
    Spent,
    usable,
)
from cloister.tasks.home.files import write_json
from cloister.tasks.home.home import Home
from cloister.tasks.home.process import code_version, reporter
from cloister.tasks.ledger import access
from cloister.tasks.ledger.fingerprints import seal_fingerprint
from cloister.tasks.release.kept_request import has_request, keep_request, kept_previous, kept_seed
from cloister.tasks.release.preflight import charging_nothing, find_previous, previous_digest
from cloister.tasks.requests import plan as plans
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest
from cloister.tasks.stores.dvc_store import Versions
from cloister.tasks.stores.mlflow_store import Tracker
from cloister.tasks.stores.prefect_runs import report_progress, step


@step("plan", "plan for epsilon {request.budget.epsilon}")
def plan_release(request: ResolvedRequest) -> AnyPlan:
    """The order of the attributes, and the parameters that fit the budget.

    Raises:
        PlanError: none do.
        InputError: this machine has less memory than it takes.
    """
    plan = plans.plan_of(request)
    plans.require_forecast_memory(request, plan)
    return plan


@dataclass(frozen=True)
class Stores:
    """Where MLflow and DVC will record a release; checked to be usable."""

    tracking: str
    versions: Path


def prepare_stores(home: Home) -> Stores:
    """Make the stores that a release will write to, or check that they can be used.

    Raises:
        StorageError: MLflow's store cannot be reached or made, or DVC's repository or remote; says
            that nothing was charged.
    """
    versions = Versions(home.versions, home.remote)
    checks: dict[str, Callable[[], object]] = {
        "tracking": lambda: Tracker.open(home.tracking, home.artifacts),
        "versions": versions.prepare,
        "remote": versions.require_answer,
    }
    with charging_nothing():
        for name, check in checks.items():
            report_progress(name, check)()
    return Stores(home.tracking, home.versions)


def _begin_request(
    release: str, request: ResolvedRequest, context: PublicContext, home: Home
) -> None:
    """Write the request with its seed and previous release into its folder, unless a run did.

    Raises:
        InputError: the earlier run had others, or the previous release cannot be used.
    """
    if not has_request(home, release):
        previous = find_previous(request, context, home)
        seed = request.seed_sampling
        filled = request.filled(
            seed_sampling=SamplingSource().seed if seed is None else seed,
            prior=previous.id if previous else None,
        )
        keep_request(home, release, filled)
        return
    if request.seed_sampling not in (None, kept_seed(home, release)):
        raise errors.InputError(
            "this release was begun with another --seed-sampling; give that one, or leave it out"
        )
    if request.prior not in (None, LATEST, kept_previous(home, release)):
        raise errors.InputError("this release was begun with another --prior; give that one")


@dataclass(frozen=True)
class ReservedRelease:
    """The release that the ledger holds for a request.

    ``resumed`` says that an earlier run reserved it, ``finished`` that it also ended it without
    reporting it.
    """

    release: str
    resumed: bool
    finished: bool = False


@dataclass(frozen=True)
class Declined:
    """Why the ledger refuses a charge: an answer, not a failure of the step."""

    reason: str


@step("reserve", "reserve epsilon {request.budget.epsilon} of {request.spec.stem}", "plan")
def reserve_budget(
    request: ResolvedRequest,
    plan: AnyPlan,
    source: RowSource[RawT, DoorT],
    home: Home,
    stores: Stores | None = None,  # noqa: ARG001 - what is charged can be recorded
) -> ReservedRelease | Declined:
    """Reserve the price of a release, or find the one that the same request began before.

    Its request and plan are then in its folder. ``stores`` are those that will record it, if any.
    It is declined if the budget does not cover the price.

    Raises:
        InputError: another version of the code began it, with another plan.
        PrivacyError: the plan costs more than the budget of the request.
        StorageError: a database that is asked for the identity of its table cannot be reached.
    """
    context = source.context(request)
    plans.require_within_budget(plan, request.budget, context.task)
    home.key()  # a home that has releases has a key
    home.fingerprint_key()
    ledger = access.open_ledger(home)
    _require_none_of_first_version(ledger, request, context)
    ledger_request, opening = (
        access.release_request(request, context, plan),
        access.opening_of(request, context, home),
    )
    opening = access.with_all_places(opening, ledger.books(), request, context)
    try:
        reservation = ledger.reserve(ledger_request, request.by, opening, request.purpose)
    except errors.BudgetExceeded as error:
        with suppress(errors.StorageError):  # the budget's answer is the same
            decline(ledger, ledger_request, request.by, request.purpose)
        return Declined(str(error))
    release = reservation.release.id
    if reservation.resumed:
        reporter().resume(release)
    _begin_request(release, request, context, home)
    if reservation.release.undelivered:
        return ReservedRelease(release, resumed=True, finished=True)
    write_json(home.release(release) / "plan.json", plans.plan_json(plan))
    return ReservedRelease(release, reservation.resumed)


@contextmanager
def _refund_on_failure(
    charge: ReservedRelease, request: ResolvedRequest, home: Home
) -> Iterator[None]:
    """Give the reservation back if the data cannot be used: it was never queried.

    Raises:
        CloisterError: the same, saying whether the charge stays, as it does after many refusals.
    """
    try:
        yield
    except errors.CloisterError as error:
        release = access.give_back(charge.release, request, home)
        if release.state is State.FORFEITED:
            raise type(error)(f"{error}; {_FORFEITED.format(release.request.dataset)}") from None
        if isinstance(error, errors.DataError | errors.StorageError):
            raise type(error)(f"{error}; {CHARGED_NOTHING}") from None
        raise


_FORFEITED = (
    "data was refused too often in this budget window, so the charge of this run stays, and an "
    "officer allows the next one: cloister budget allow {} --reason TEXT"
)


@step("open", "open the data of {charge.release}", "charge")
def open_data(
    request: ResolvedRequest,
    plan: AnyPlan,
    charge: ReservedRelease,
    session: Session[RawT, DoorT],
    home: Home,
) -> Spent[RawT, DoorT]:
    """Read and validate the data, then make the charge final: from here on it is queried.

    The findings stay in the home; a reservation of data that cannot be used is given back.

    Raises:
        InputError: the data is not as declared, or the release was begun by another version of the
            code, whose answers cannot be used.
        JournalMismatch: the release was begun with other data, spec or parameters.
        StorageError: the journal cannot be written, or another process runs this release.
    """
    with _refund_on_failure(charge, request, home):
        opened = _validated(request, charge.release, session, home)
    reporter().advance("open", 1, 2)
    return _spent(request, plan, opened, home)


def _validated(
    request: ResolvedRequest, release: str, session: Session[RawT, DoorT], home: Home
) -> Opened[RawT, DoorT]:
    tables = session.source.context(request).tables

    def opened() -> Opened[RawT, DoorT]:
        for part in tables.values():
            require_declared_size(part.spec, request.data)
        return session.open(release, request, home)

    return usable(opened, release, home)


def _spent(
    request: ResolvedRequest, plan: AnyPlan, opened: Opened[RawT, DoorT], home: Home
) -> Spent[RawT, DoorT]:
    """Open the journal, and make the charge final."""
    session, release, digests = opened.session, opened.release, opened.digests
    reserved = access.open_ledger(home).release(release)
    parts = {
        "data": digests.data,
        "spec": request.digest,
        "code": reserved.request.code_version,
        "plan": plans.plan_digest(plan),
    }
    if previous := kept_previous(home, release):
        parts["prior"] = previous_digest(previous, home)
    with _naming_version(reserved):
        journal = session.open_journal(home.journal(release), parts)
    _require_usable_answers(journal, plan, reserved)
    task = session.source.context(request).task
    private = session.source.door(opened.rows.value, task, plan.event, journal, home)
    sealed = seal_fingerprint(digests.fingerprint, home.fingerprint_key())
    anchor = access.commit_charge(release, request, journal, (digests.data, sealed), home)
    return Spent(opened, session.hold(release, private), journal, anchor)


def _require_none_of_first_version(
    ledger: Ledger, request: ResolvedRequest, context: PublicContext
) -> None:
    """Check that version 0.1, whose ids included its code, left no release that this may repeat."""
    for release in ledger.releases(context.dataset):
        begun, by_first = release.request, release.request.code_version.startswith("0.1.")
        same = (begun.method, begun.epsilon) == (request.method, request.budget.epsilon)
        if release.state is State.SPENT and by_first and same:
            raise other_version(release, "cannot tell whether the same is asked for")


@contextmanager
def _naming_version(reserved: Release) -> Iterator[None]:
    """Name the version that began a release where its journal does not fit this version."""
    try:
        yield
    except errors.JournalMismatch:
        if reserved.request.code_version == code_version():
            raise
        raise other_version(reserved, "reads its data or plans it otherwise") from None


def _require_usable_answers(journal: Journal, plan: AnyPlan, reserved: Release) -> None:
    """Check that answers of another version compose with those that this version will draw.

    Privacy: parts of the rows are disjoint only under one version of the code that divides them;
        two versions may put a row into two parts, which the plan does not pay for. A selection is
        paid for only if the outcomes of all tries have the same distribution.
    """
    if not set(journal.drawn_by) - {code_version()}:
        return
    if divides_rows(plan.event):
        raise other_version(reserved, "may divide the rows into other parts")
    if isinstance(plan, TriedPlan):
        raise other_version(reserved, "may fit in another way, and all tries must be alike")
