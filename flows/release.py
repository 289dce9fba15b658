"""The release flow: from a sensitive table to a candidate for review.

    sequence, search     make the plan from public inputs
    stores               finds or makes the stores that will be written to
    reserve              charges the ledger, before the data is opened
    validate             opens the data; if it cannot be used, the reservation is given back
    spend                makes the charge final, before the data is asked
    train, weights       ask the data, through the door and its journal
    sample, evaluate     post-processing; measures that stay inside
    certify, register, version, publish

Killed at any point, the same order resumes: the ledger finds its charge, the journal its answers. Finished, but killed
before anybody was told, the same order finds the release.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from cloister import __version__
from cloister.errors import BudgetExceeded
from cloister.privacy.door.table import PrivateTable
from cloister.schema.domain import Table
from flows.outcome import Finished, Outcome
from models.protocol import AnyPlan
from tasks.data.open_table import TableSource
from tasks.data.session import Session
from tasks.evaluation.compare import Measured
from tasks.ledger.charges import open_ledger
from tasks.ledger.delivery import deliver, keep_outcome, publish_finished
from tasks.release.certify import Certified, write_certificate
from tasks.release.charge import Charge, giving_back, reserve, spend, validate
from tasks.release.evaluate import measure
from tasks.release.fit import train, weigh
from tasks.release.plan import search, sequence
from tasks.release.preflight import require_usable
from tasks.release.publish import Recorded, publish
from tasks.release.register import register, version
from tasks.release.sample import sample
from tasks.release.stores import prepare_stores
from tasks.requests.plan import stage_costs, total_cost
from tasks.requests.release_request import ReleaseRequest
from tasks.requests.resolved import Order, world_of
from tasks.runtime.home import Home
from tasks.stores.prefect_run_page import declined, note, show_certificate


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

    A run that the budget does not admit ends in the state Declined, which raises ``BudgetExceeded`` for a caller.
    """
    order, home = request.order(), Home.current()
    require_usable(order, world_of(order), home)
    plan = search(order, sequence(order))
    stores = prepare_stores(order, home)
    source = TableSource()
    try:
        charge = reserve(order, plan, source, home, stores)
    except BudgetExceeded as error:
        return declined(error)
    note("release %s: epsilon %s, delta %s", charge.release, order.budget.epsilon, order.budget.delta)
    with Session(source) as session:
        finished = charge.finished
        done = _finished(order, charge, home) if finished else _released(order, plan, charge, session, home)
    show_certificate(home.release(charge.release) / "public")
    note("release %s is ready for review", charge.release)
    deliver(charge.release, request.by, home)
    return done


def _finished(order: Order, charge: Charge, home: Home) -> Finished:
    return Finished(charge.release, publish_finished(order, charge, home))


def _released(
    order: Order,
    plan: AnyPlan,
    charge: Charge,
    session: Session[Table, PrivateTable],
    home: Home,
) -> Outcome:
    with giving_back(charge, order, home):
        opened = validate(order, charge, session, home)
    spent = spend(order, plan, opened, home)
    fitted = weigh(order, spent, plan, train(order, spent, plan, home), home)
    drawn = sample(order, charge, fitted, home)
    measured = measure(order, spent, drawn.file, home)
    done = Certified(charge, spent, plan, fitted, drawn)
    folder = write_certificate(order, done, home)
    run = register(order, done, measured, folder, home)
    recorded = Recorded(run, version(order, done, folder, home))
    outcome = _outcome(order, done, measured, order.out or folder.path, home)
    keep_outcome(charge.release, outcome.to_json(), home)
    publish(order, done, folder, recorded, home)
    return outcome


def _outcome(order: Order, done: Certified, measured: Measured, public: Path, home: Home) -> Outcome:
    world = world_of(order)
    return Outcome(
        done.charge.release,
        world.spec.name,
        order,
        stage_costs(done.plan, order.budget, world.task),
        total_cost(done.plan, order.budget, world.task),
        done.drawn.violations,
        measured.evaluation,
        open_ledger(home).budget(world.spec.name, world.unit),
        public,
        measured.folder,
    )
