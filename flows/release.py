"""The release flow: from a sensitive table to a candidate for review.

    sequence, search     make the plan from public inputs
    stores               finds or makes the stores that will be written to
    reserve              charges the ledger, before a row is read
    validate             reads the data; if it cannot be used, the reservation is given back
    spend                makes the charge final, before the data is queried
    train, weights       query the data, through the door and its journal
    sample, evaluate     post-processing; measures that stay internal
    certify, register, version, publish

Killed at any point, the same request resumes: the ledger finds its charge, the journal its answers.
Killed after its end but before it was reported, the same request finds the release.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from cloister.errors import BudgetExceeded
from cloister.flows.outcome import Finished, Outcome
from cloister.models.plan import AnyPlan
from cloister.tasks.data.session import AnySession, Session
from cloister.tasks.data.sources import source_of
from cloister.tasks.home.home import Home, temporary_files
from cloister.tasks.ledger import open_ledger
from cloister.tasks.release.charge import (
    ReservedRelease,
    kept_prior,
    prepare_stores,
    refund_on_failure,
    reserve_budget,
    search_parameters,
    sequence_attributes,
    spend_budget,
    validate_data,
)
from cloister.tasks.release.comparison import EvaluationRecord
from cloister.tasks.release.preflight import require_usable
from cloister.tasks.release.publish import (
    Recorded,
    deliver,
    keep_outcome,
    publish_finished,
    publish_release,
    register_release,
    version_release,
)
from cloister.tasks.release.synthesis import (
    Certified,
    evaluate_release,
    sample_rows,
    train_model,
    weigh_constraints,
    write_certificate,
)
from cloister.tasks.requests.plan import stage_costs, total_cost
from cloister.tasks.requests.plan_report import require_forecast_memory
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import ResolvedRequest, public_context_of, resolve
from cloister.tasks.stores.prefect_runs import attach_certificate, decline_run, note
from cloister.version import __version__


def run_name() -> str:
    """What a run is called: by its spec."""
    return f"release {flow_run.parameters['request'].spec}"


@flow(
    name="release",
    flow_run_name=run_name,
    version=__version__,
    retries=0,
    persist_result=False,
    log_prints=False,
)
def release(request: ReleaseRequest) -> Outcome | Finished:
    """Release a synthetic table of the dataset that a spec file declares.

    A run that the budget does not admit ends in the state Declined, which raises ``BudgetExceeded``
    for a caller.
    """
    resolved, home = resolve(request), Home.current()
    require_usable(resolved, public_context_of(resolved), home)
    plan = search_parameters(resolved, sequence_attributes(resolved))
    require_forecast_memory(resolved, plan)
    stores = prepare_stores(resolved, home)
    source = source_of(resolved)
    try:
        charge = reserve_budget(resolved, plan, source, home, stores)
    except BudgetExceeded as error:
        return decline_run(error)
    note(
        "release %s: epsilon %s, delta %s",
        charge.release,
        resolved.budget.epsilon,
        resolved.budget.delta,
    )
    if prior := kept_prior(home.release(charge.release)):
        note("the noisy numbers of release %s are used again", prior)
    with temporary_files(home), Session(source) as session:
        finished = charge.finished
        done = (
            _finished(resolved, charge, home)
            if finished
            else _released(resolved, plan, charge, session, home)
        )
    attach_certificate(home.release(charge.release) / "public")
    note("release %s is ready for review", charge.release)
    deliver(charge.release, request.by, home)
    return done


def _finished(resolved: ResolvedRequest, charge: ReservedRelease, home: Home) -> Finished:
    return Finished(charge.release, publish_finished(resolved, charge, home))


def _released(
    resolved: ResolvedRequest,
    plan: AnyPlan,
    charge: ReservedRelease,
    session: AnySession,
    home: Home,
) -> Outcome:
    with refund_on_failure(charge, resolved, home):
        opened = validate_data(resolved, charge, session, home)
    spent = spend_budget(resolved, plan, opened, home)
    fitted = weigh_constraints(
        resolved, spent, plan, train_model(resolved, spent, plan, home), home
    )
    drawn = sample_rows(resolved, charge, fitted, home)
    measured = evaluate_release(resolved, spent, drawn, home)
    done = Certified(charge, spent, plan, fitted, drawn)
    folder = write_certificate(resolved, done, home)
    run = register_release(resolved, done, measured, folder, home)
    recorded = Recorded(run, version_release(resolved, done, folder, home))
    outcome = _outcome(resolved, done, measured, resolved.out_path or folder.path, home)
    keep_outcome(charge.release, outcome.to_json(), home)
    publish_release(resolved, done, folder, recorded, home)
    return outcome


def _outcome(
    resolved: ResolvedRequest, done: Certified, measured: EvaluationRecord, public: Path, home: Home
) -> Outcome:
    context = public_context_of(resolved)
    return Outcome(
        release=done.charge.release,
        dataset=context.spec.name,
        request=resolved,
        stages=stage_costs(done.plan, resolved.budget, context.task),
        spent=total_cost(done.plan, resolved.budget, context.task),
        rows=done.drawn.rows,
        violations=done.drawn.violations,
        evaluation=measured.evaluation,
        budget=open_ledger(home).budget(context.spec.name, context.unit),
        public=public,
        internal=measured.folder,
        warnings=done.drawn.warnings,
    )
