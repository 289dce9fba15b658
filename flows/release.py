"""The release flow, and what it returns: public values, an internal evaluation, places of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from cloister.constraints.denial import ViolationReport
from cloister.evaluation.report import AnyEvaluation
from cloister.models.task import AnyPlan
from cloister.privacy.exact import decimal_below
from cloister.privacy.ledger import BudgetStatus
from cloister.schema.blocks import PREVIOUS
from cloister.tasks.data.session import AnySession, Session
from cloister.tasks.data.sources import TablesSource
from cloister.tasks.data.workers import Workers, workers_of
from cloister.tasks.home.home import Home, temporary_files
from cloister.tasks.home.process import flow_version
from cloister.tasks.ledger.access import open_ledger
from cloister.tasks.release.certify import Certified, write_certificate
from cloister.tasks.release.charge import (
    Declined,
    ReservedRelease,
    open_data,
    plan_release,
    prepare_stores,
    reserve_budget,
)
from cloister.tasks.release.comparison import EvaluationRecord
from cloister.tasks.release.kept_request import kept_previous
from cloister.tasks.release.preflight import require_usable
from cloister.tasks.release.publish import deliver, keep_outcome, publish_finished, record_release
from cloister.tasks.release.synthesis import evaluate_release, fit_model, sample_rows
from cloister.tasks.requests.plan import StageCost, stage_costs, total_cost
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import ResolvedRequest, public_context_of, resolve
from cloister.tasks.stores import prefect_runs


@dataclass(frozen=True)
class Outcome:
    """A release that is ready for review.

    ``spent`` is the epsilon of all stages together as accounted, at most what was requested.
    ``rows`` are those of each synthetic table; ``evaluation`` is internal.
    """

    release: str
    dataset: str
    request: ResolvedRequest
    stages: tuple[StageCost, ...]
    spent: float
    rows: Mapping[str, int]
    violations: tuple[ViolationReport, ...]
    evaluation: AnyEvaluation
    budget: BudgetStatus
    public: Path
    internal: Path
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The outcome as JSON values; ``internal`` must not be shared."""
        price = public_context_of(self.request).price(self.request.budget)
        return {
            "release": self.release,
            "dataset": self.dataset,
            "method": self.request.method,
            "reason": self.request.reason,
            "rows": self.request.rows,
            "tables": dict(self.rows),
            "epsilon": str(self.request.budget.epsilon),
            "delta": str(self.request.budget.delta),
            **({"block": self.request.block} if self.request.block else {}),
            "charged": {"epsilon": str(price.epsilon), "delta": str(price.delta)},
            "accounted_epsilon": self.spent,
            "stages": [stage.to_json() for stage in self.stages],
            "budget_left": decimal_below(self.budget.left),
            "budget_granted": decimal_below(self.budget.budget.epsilon),
            "budget_window": self.budget.window,
            "violations": [
                {"name": v.name, "hard": v.hard, "violations": v.violations, "percent": v.percent}
                for v in self.violations
            ],
            "warnings": list(self.warnings),
            "internal": self.evaluation.to_dict(),
            "files": {"public": str(self.public), "internal": str(self.internal)}
            | ({"database": self.request.database} if self.request.database else {}),
        }


@dataclass(frozen=True)
class Finished:
    """A release that an earlier run finished but did not report: its outcome, as JSON values."""

    release: str
    content: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The outcome as JSON values, with ``earlier`` set."""
        return self.content


def run_name() -> str:
    """Return what a run is called before its spec is read: by the spec's name and its day."""
    spec = Path(flow_run.parameters["request"].spec)
    return f"{spec.stem} {flow_run.scheduled_start_time:%Y-%m-%d}"


@flow(
    name="release",
    flow_run_name=run_name,
    version=flow_version(),
    retries=0,
    persist_result=False,
    log_prints=False,
)
def release(request: ReleaseRequest) -> Outcome | Finished:
    """Release a synthetic table of the dataset that a spec file declares.

    The run ends in the state AwaitingReview; one that the budget does not admit in the state
    Declined, which raises ``BudgetExceeded`` for a caller.
    """
    due = flow_run.scheduled_start_time if request.block == PREVIOUS else None
    resolved, home = resolve(request, due), Home.current()
    account, period = public_context_of(resolved).dataset, _period(resolved)
    prefect_runs.name_run(account, period)
    require_usable(resolved, public_context_of(resolved), home)
    plan = plan_release(resolved)
    with temporary_files(home), workers_of(resolved.workers) as workers:
        source = TablesSource.fitting(resolved, plan, workers)
        charge = reserve_budget(resolved, plan, source, home, prepare_stores(home))
        if isinstance(charge, Declined):
            prefect_runs.name_run(account, period, "declined")
            return prefect_runs.decline_run(charge.reason)
        _tell(resolved, charge)
        if previous := kept_previous(home, charge.release):
            prefect_runs.note("reuses the noisy numbers of release %s", previous)
        with Session(source) as session:
            finished = charge.finished
            done = (
                _finished(resolved, charge, home)
                if finished
                else _released(resolved, plan, charge, session, workers, home)
            )
    prefect_runs.attach_certificate(home.release(charge.release) / "public")
    prefect_runs.note("release %s is ready for review", charge.release)
    deliver(charge.release, request.by, home)
    return prefect_runs.await_review(charge.release, done)


def _period(resolved: ResolvedRequest) -> str:
    return resolved.block or str(flow_run.scheduled_start_time.date())


def _tell(resolved: ResolvedRequest, charge: ReservedRelease) -> None:
    """Name the run by account, release and period; log what it charges, or that it resumes."""
    account = public_context_of(resolved).dataset
    prefect_runs.name_run(account, charge.release, _period(resolved))
    if charge.resumed:
        prefect_runs.note("resumes release %s, nothing charged", charge.release)
        prefect_runs.link_resumed(charge.release)
        return
    budget = resolved.budget
    prefect_runs.note(
        "release %s: epsilon %s, delta %s", charge.release, budget.epsilon, budget.delta
    )


def _finished(resolved: ResolvedRequest, charge: ReservedRelease, home: Home) -> Finished:
    return Finished(charge.release, publish_finished(resolved, charge, home))


def _released(
    resolved: ResolvedRequest,
    plan: AnyPlan,
    charge: ReservedRelease,
    session: AnySession,
    workers: Workers | None,
    home: Home,
) -> Outcome:
    spent = open_data(resolved, plan, charge, session, home)
    fitted = fit_model(resolved, plan, spent, home)
    drawn = sample_rows(resolved, fitted, home, workers)
    measured = evaluate_release(resolved, spent, drawn, home)
    done = write_certificate(resolved, fitted, drawn, home)
    outcome = _outcome(resolved, done, measured, home)
    keep_outcome(done.release, outcome.to_json(), home)
    record_release(resolved, done, measured, home)
    return outcome


def _outcome(
    resolved: ResolvedRequest, done: Certified, measured: EvaluationRecord, home: Home
) -> Outcome:
    context, plan = public_context_of(resolved), done.fitted.plan
    return Outcome(
        release=done.release,
        dataset=context.dataset,
        request=resolved,
        stages=stage_costs(plan, resolved.budget, context.task),
        spent=total_cost(plan, resolved.budget, context.task),
        rows=done.drawn.rows,
        violations=done.drawn.violations,
        evaluation=measured.evaluation,
        budget=open_ledger(home).budget(context.dataset, context.unit, context.spec.blocks),
        public=resolved.out_path or done.folder.path,
        internal=measured.folder,
        warnings=done.drawn.warnings,
    )
