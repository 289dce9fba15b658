"""The flow that measures domains: from a drafted spec to one whose bounds and values were found with noise.

    plan                 from the declared types alone
    reserve              charges the ledger, before the data is opened
    open                 opens the data; if it cannot be used, the reservation is given back
    spend                makes the charge final, before the data is asked
    measure              asks the data, through the door and its journal
    write                the new spec

Killed at any point, the same order goes on: the ledger finds its charge, the journal its answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow

from cloister import __version__
from cloister.errors import CloisterError
from cloister.privacy.discovery import Findings
from cloister.privacy.ledger import BudgetStatus
from cloister.privacy.ledger.exact import decimal
from models.protocol import Plan
from tasks.charging import Charge, DataReference
from tasks.columns import forgetting
from tasks.discovering import (
    Written,
    measure_domains,
    open_columns,
    reserve_measurement,
    spend_measurement,
    write_spec,
)
from tasks.domains import domain_order, domain_world, release_plan, require_ready
from tasks.home import Home
from tasks.ledgers import give_back, open_ledger
from tasks.orders import Options, Order
from tasks.plans import StageCost, stage_costs, total_cost


@dataclass(frozen=True)
class Measurement:
    """What a measurement spent and found; all of it may be handed on."""

    release: str
    order: Order
    stages: tuple[StageCost, ...]
    spent: float
    found: Findings
    written: Written
    budget: BudgetStatus

    def to_json(self) -> dict[str, Any]:
        """The measurement as JSON values."""
        return {
            "release": self.release,
            "dataset": self.budget.budget.dataset,
            "epsilon": str(self.order.budget.epsilon),
            "delta": str(self.order.budget.delta),
            "accounted_epsilon": self.spent,
            "stages": [{"name": s.name, "epsilon": s.epsilon, "explanation": s.explanation} for s in self.stages],
            "budget_left": decimal(self.budget.left),
            "rows": self.found.rows,
            "attributes": dict(self.found.attributes),
            "not_found": list(self.found.empty),
            "spec": str(self.written.path),
            "problem": self.written.problem,
        }


@flow(
    name="measure",
    flow_run_name="measure {spec}",
    version=__version__,
    retries=0,
    persist_result=False,
    log_prints=False,
)
def measure(spec: str, epsilon: str, delta: str, out: str, data: str | None = None, by: str = "prefect") -> Measurement:
    """Measure the domains that a spec marks data-derived, and write a new spec.

    ``epsilon`` and ``delta`` are text, so that they are exact. Paths are those of the machine that runs the flow.
    """
    options = Options(epsilon=epsilon, delta=delta, data=Path(data) if data else None, out=Path(out))
    order, home = domain_order(Path(spec), options, by), Home.current()
    require_ready(order, home)
    plan = release_plan(order)
    charge = reserve_measurement(order, plan, home)
    with forgetting(charge.release):
        return _measured(order, plan, charge, home)


def _measured(order: Order, plan: Plan, charge: Charge, home: Home) -> Measurement:
    data = _opened(order, charge, home)
    anchor = spend_measurement(order, charge, plan, data, home)
    found = measure_domains(order, charge)
    written = write_spec(order, charge, anchor, found, home)
    world = domain_world(order)
    return Measurement(
        charge.release,
        order,
        stage_costs(plan, order.budget, world.task),
        total_cost(plan, order.budget, world.task),
        found,
        written,
        open_ledger(home).budget(world.spec.name, world.unit),
    )


def _opened(order: Order, charge: Charge, home: Home) -> DataReference:
    """The data; if it cannot be read, nothing was asked of it and the reservation is given back."""
    try:
        return open_columns(order, charge, home)
    except CloisterError:
        give_back(charge.release, order, home)
        raise
