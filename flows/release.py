"""The release flow: from a sensitive table to a candidate for review.

    sequence, search     make the plan from public inputs
    reserve              charges the ledger, before the data is opened
    validate             opens the data; if it cannot be used, the reservation is given back
    spend                makes the charge final, before the data is asked
    train, weights       ask the data, through the door and its journal
    sample, evaluate     post-processing; measures that stay inside
    certify, register, version, publish

Killed at any point, the same order goes on: the ledger finds its charge, the journal its answers.
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from cloister import __version__
from cloister.errors import CloisterError
from cloister.evaluation.asked import Level
from flows.outcome import Outcome
from models.protocol import Plan
from tasks.certifying import Certified, write_certificate
from tasks.charging import Charge, DataReference, open_valid_data, reserve, spend
from tasks.checks import require_usable
from tasks.drawing import sample
from tasks.fitting import train, weigh
from tasks.home import Home
from tasks.ledgers import give_back, open_ledger
from tasks.measures import Measured
from tasks.measuring import measure
from tasks.opening import forgetting
from tasks.orders import Options, Order, world_of
from tasks.planning import search, sequence
from tasks.plans import stage_costs, total_cost
from tasks.publishing import publish
from tasks.registering import register, version


@flow(
    name="release",
    flow_run_name="release {spec}",
    version=__version__,
    retries=0,
    persist_result=False,
    log_prints=False,
)
def release(
    spec: str,
    method: str | None = None,
    epsilon: str | None = None,
    delta: str | None = None,
    rows: int | None = None,
    data: str | None = None,
    out: str | None = None,
    csv: bool = False,
    seed: int | None = None,
    evaluate: Level = "quick",
    by: str = "prefect",
) -> Outcome:
    """Release a synthetic table of the dataset that a spec file declares.

    ``epsilon`` and ``delta`` are text, so that they are exact. Paths are those of the machine that runs the flow.
    """
    options = Options(method, epsilon, delta, rows, _path(data), _path(out), csv, seed, evaluate)
    order, home = Order.of(Path(spec), options, by), Home.current()
    require_usable(order, world_of(order), home)
    sequence(order)
    plan = search(order)
    charge = reserve(order, plan, home)
    with forgetting(charge.release):
        return _released(order, plan, charge, home)


def _released(order: Order, plan: Plan, charge: Charge, home: Home) -> Outcome:
    data = _valid_data(order, charge, home)
    anchor = spend(order, charge, plan, data, home)
    fitted = weigh(order, charge, plan, train(order, charge, plan, home), home)
    drawn = sample(order, charge, fitted, home)
    measured = measure(order, charge, drawn.file, home)
    done = Certified(charge, anchor, plan, data, drawn)
    folder = write_certificate(order, done, home)
    run = register(order, done, measured, folder, fitted, home)
    version(order, done, folder, home)
    public = publish(order, done, folder, run, home)
    return _outcome(order, done, measured, public, home)


def _valid_data(order: Order, charge: Charge, home: Home) -> DataReference:
    """The validated data; if it cannot be used, nothing was asked of it and the reservation is given back."""
    try:
        return open_valid_data(order, charge, home)
    except CloisterError:
        give_back(charge.release, order, home)
        raise


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


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
