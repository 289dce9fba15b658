"""The flow that measures domains: from a drafted spec to one with bounds found under noise.

    plan                 from the declared types alone
    reserve              charges the ledger, before a row is read
    open                 reads the data; if it cannot be used, the reservation is given back; then
                         makes the charge final, before the data is queried
    measure              queries the data, through the door and its journal
    write, finish        the new spec; then the release is a candidate

If a run is killed at any point, the same request resumes it: the ledger finds its charge, the
journal its answers. If it ended but was not reported, the same request finds what was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from cloister.flows.release import Finished
from cloister.models.task import AnyPlan
from cloister.privacy.discovery import Findings
from cloister.privacy.exact import decimal_below
from cloister.privacy.ledger import BudgetStatus
from cloister.tasks.data.session import Session
from cloister.tasks.data.sources import ColumnsSession, ColumnsSource
from cloister.tasks.home.home import Home, temporary_files
from cloister.tasks.home.process import flow_version
from cloister.tasks.ledger.access import open_ledger
from cloister.tasks.release.charge import Declined, ReservedRelease, open_data, reserve_budget
from cloister.tasks.release.measure import (
    Written,
    finish,
    measure_domains,
    require_ready,
    write_spec,
)
from cloister.tasks.release.publish import deliver, keep_outcome, write_finished
from cloister.tasks.requests.measurement import domain_context, domain_request, release_plan
from cloister.tasks.requests.plan import StageCost, stage_costs, total_cost
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.stores.prefect_runs import decline_run, name_run


@dataclass(frozen=True)
class DomainMeasurement:
    """What a measurement spent and found; all of it is public."""

    release: str
    request: ResolvedRequest
    stages: tuple[StageCost, ...]
    spent: float
    findings: Findings
    written: Written
    budget: BudgetStatus

    def to_json(self) -> dict[str, Any]:
        """The measurement as JSON values."""
        return {
            "release": self.release,
            "dataset": self.budget.budget.dataset,
            "epsilon": str(self.request.budget.epsilon),
            "delta": str(self.request.budget.delta),
            "accounted_epsilon": self.spent,
            "stages": [stage.to_json() for stage in self.stages],
            "budget_left": decimal_below(self.budget.left),
            "budget_window": self.budget.window,
            "rows": self.findings.rows,
            "attributes": dict(self.findings.attributes),
            "not_found": list(self.findings.empty),
            "spec": str(self.written.path),
            "problem": self.written.problem,
        }


def run_name() -> str:
    """Return what a run is called: by the name of its spec."""
    return f"measure {Path(flow_run.parameters['spec']).stem}"


@flow(
    name="measure",
    flow_run_name=run_name,
    version=flow_version(),
    retries=0,
    persist_result=False,
    log_prints=False,
)
def measure(
    spec: str, epsilon: str, delta: str, out: str, data: str | None = None, by: str = "prefect"
) -> DomainMeasurement | Finished:
    """Measure the domains that a spec marks data-derived, and write a new spec.

    ``epsilon`` and ``delta`` are text, so that they are exact. Paths are those of the machine that
    runs the flow.
    """
    wanted = ReleaseRequest(
        spec=Path(spec), epsilon=epsilon, delta=delta, data=data, out=out, by=by
    )
    request, home = domain_request(wanted), Home.current()
    require_ready(request, home)
    plan = release_plan(request)
    source = ColumnsSource()
    charge = reserve_budget(request, plan, source, home)
    if isinstance(charge, Declined):
        name_run(domain_context(request).dataset, "measure", "declined")
        return decline_run(charge.reason)
    with temporary_files(home), Session(source) as session:
        finished = charge.finished
        done = (
            _finished(request, charge, home)
            if finished
            else _measured(request, plan, charge, session, home)
        )
    deliver(charge.release, by, home)
    return done


def _finished(request: ResolvedRequest, charge: ReservedRelease, home: Home) -> Finished:
    return Finished(charge.release, write_finished(request, charge, home))


def _measured(
    request: ResolvedRequest,
    plan: AnyPlan,
    charge: ReservedRelease,
    session: ColumnsSession,
    home: Home,
) -> DomainMeasurement:
    spent = open_data(request, plan, charge, session, home)
    findings = measure_domains(request, spent, home)
    written = write_spec(request, spent, findings, home)
    context = domain_context(request)
    done = DomainMeasurement(
        charge.release,
        request,
        stage_costs(plan, request.budget, context.task),
        total_cost(plan, request.budget, context.task),
        findings,
        written,
        open_ledger(home).budget(context.dataset, context.unit),
    )
    keep_outcome(charge.release, done.to_json(), home)
    finish(request, spent, home)
    return done
