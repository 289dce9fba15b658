"""The plan of a request, from public inputs alone, and what its stages cost.

Whether a release would take a spec is known from its plan, and so from the spec alone.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cloister import devices
from cloister.constraints import require_consistent
from cloister.errors import PlanError, PrivacyError
from cloister.figures import count_of, figure
from cloister.models import quality, registry
from cloister.models.task import AnyPlan, Budget, DatabaseTask, Stage
from cloister.privacy.accounting import composition
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.certificate.provenance import ignored_columns
from cloister.privacy.exact import float_above
from cloister.schema.blocks import PREVIOUS
from cloister.schema.columns import Serial
from cloister.schema.declarations import DIFFERENTIAL_PRIVACY
from cloister.schema.domain import Domain
from cloister.schema.fan_outs import across_units
from cloister.schema.relations import joined_domain
from cloister.schema.spec_files.loading import citations_of, load_spec, uncited_declarations
from cloister.tasks.requests import plan_report, resolved
from cloister.tasks.requests.release_request import LOCAL_WORKERS, ReleaseRequest

_WORKER_BYTES = 600 << 20
"""Bytes of a worker beside the codes that it holds: libraries, and a part while it is read."""

_EXCHANGED_ROW = 16
"""Bytes of the number of a row's person, and of its lot, while rows of persons are put together."""

_NUMBERS_OF_WORKERS = (1, 10, 100)
"""Workers of which a plan says what each holds and reads: those of one machine, rack, cluster."""


@dataclass(frozen=True)
class StageCost:
    """A stage of a plan and the epsilon of that stage alone, at the delta of the whole.

    These do not add up. None for what is not differentially private.
    """

    name: str
    explanation: str
    epsilon: float | None

    def to_json(self) -> dict[str, Any]:
        """The stage as JSON values."""
        return {"name": self.name, "epsilon": self.epsilon, "explanation": self.explanation}


@lru_cache(maxsize=4)
def sequence_of(request: resolved.ResolvedRequest) -> tuple[str, ...]:
    """The order in which attributes are modelled."""
    method = registry.over_databases(registry.create(request.method))
    return method.sequence(resolved.public_context_of(request).task)


@lru_cache(maxsize=4)
def plan_along(request: resolved.ResolvedRequest, sequence: tuple[str, ...]) -> AnyPlan:
    """The plan of a request that models the attributes in a sequence.

    Raises:
        PlanError: no parameters fit the budget.
    """
    method = registry.over_databases(registry.create(request.method))
    return method.search(resolved.public_context_of(request).task, sequence, request.budget)


def plan_of(request: resolved.ResolvedRequest) -> AnyPlan:
    """The whole plan of a request.

    Raises:
        PlanError: no parameters fit the budget.
    """
    return plan_along(request, sequence_of(request))


def stage_costs(plan: AnyPlan, budget: Budget, task: DatabaseTask) -> tuple[StageCost, ...]:
    """What each stage would cost alone."""
    return tuple(
        StageCost(stage.name, stage.explanation, _epsilon_alone(stage, budget, task))
        for stage in plan.stages
    )


def _epsilon_alone(stage: Stage, budget: Budget, task: DatabaseTask) -> float | None:
    if not composition.accountable([stage]):
        return None
    return epsilon(stage.event, budget.delta, task.neighbours.relation)


def total_cost(plan: AnyPlan, budget: Budget, task: DatabaseTask) -> float:
    """The epsilon of all stages together, as accounted.

    What is not differentially private is not in it.
    """
    event = composition.event_of_stages(composition.accountable(plan.stages))
    return epsilon(event, budget.delta, task.neighbours.relation)


def require_within_budget(plan: AnyPlan, budget: Budget, task: DatabaseTask) -> None:
    """Check that a plan stays within the epsilon that is charged for it.

    Raises:
        PrivacyError: it costs more, or holds what no epsilon bounds and the task does not declare.
    """
    if not composition.is_counted(plan.event) and task.guarantee == DIFFERENTIAL_PRIVACY:
        raise PrivacyError(
            f"the plan of method {plan.method} is not differentially private, and the spec "
            "declares no other guarantee; nothing was charged"
        )
    if total_cost(plan, budget, task) > float_above(budget.epsilon):
        raise PrivacyError(
            f"the plan of method {plan.method} costs more than its epsilon; nothing was charged"
        )


def is_out_of_core(request: resolved.ResolvedRequest, plan: AnyPlan) -> bool:
    """Whether a release reads its rows out of core: in memory it needs more than is free here.

    Its answers are the same. What needs all rows at once is in memory.
    """
    if request.workers:
        return False
    context = resolved.public_context_of(request)
    needed = plan_report.forecast_of(request, context, plan).memory
    return needed > devices.free_memory(devices.CPU) and not _in_memory(request, context, plan)


def memory_out_of_core(request: resolved.ResolvedRequest, plan: AnyPlan) -> int:
    """Forecast of the memory of a release, in bytes, that reads its rows out of core; public."""
    context = resolved.public_context_of(request)
    codes = [
        plan_report.code_bytes(Domain((column,)), task.data_rows)
        for task in context.task.tables.values()
        for column in task.domain
    ]
    whole = plan_report.forecast_of(request, context, plan).memory
    return whole - sum(codes) + max(codes)  # the longest column is read whole


def _in_memory(
    request: resolved.ResolvedRequest, context: resolved.PublicContext, plan: AnyPlan
) -> str | None:
    """Why a release can only read its rows in memory, and the remedy; None if it need not."""
    if request.workers and (crossing := across_units(context.task.schema)):
        return f"{crossing}; such tables are read in memory, so leave --workers out"
    if context.task.schema.keys and not request.workers:
        return "several tables are read in memory, or by --workers; one is read out of core"
    if context.unit != "row" and not request.workers:
        return "rows of persons are read in memory, or by --workers; others are read out of core"
    if composition.divides_rows(plan.event):
        return f"method '{request.method}' divides the rows in memory; others read them out of core"
    return None


def require_forecast_memory(request: resolved.ResolvedRequest, plan: AnyPlan) -> None:
    """Check, by the forecast, that device and machine have the memory that a release needs.

    Raises:
        PlanError: one has not, or workers cannot hold the rows.
    """
    if (device := plan_report.training_device(request, plan)) != devices.CPU:
        devices.require_memory(device, plan.forecast.device_memory)
    context = resolved.public_context_of(request)
    reason = _in_memory(request, context, plan)
    if request.workers and reason:
        raise PlanError(f"--workers cannot be used here: {reason}; nothing was charged now")
    if request.workers and request.data is None and not _are_read_in_parts(context):
        raise PlanError(
            "--workers cannot be used here: workers read files, and tables of PostgreSQL; nothing "
            "was charged now"
        )
    if request.workers or is_out_of_core(request, plan):
        needed = memory_out_of_core(request, plan) + _memory_of_workers(request)
        devices.require_memory(devices.CPU, needed)
        return
    needed = plan_report.forecast_of(request, context, plan).memory
    devices.require_memory(devices.CPU, needed, reason)


def _memory_of_workers(request: resolved.ResolvedRequest) -> int:
    """Bytes that workers of this machine take, which hold the codes of all rows together."""
    local = re.fullmatch(LOCAL_WORKERS, request.workers or "")
    return 0 if local is None else _held_bytes(request) + int(local[1]) * _WORKER_BYTES


def _held_bytes(request: resolved.ResolvedRequest) -> int:
    """Bytes of all rows that workers hold together; of units of several, as read and exchanged.

    Several tables are held joined too.
    """
    context = resolved.public_context_of(request)
    schema, tasks = context.task.schema, context.task.tables
    codes = sum(plan_report.code_bytes(task.domain, task.data_rows) for task in tasks.values())
    if context.unit == "row":
        return codes
    joined = sum(
        plan_report.code_bytes(side, tasks[key.table].data_rows)
        for key in schema.keys
        for side in joined_domain(schema, key)
    )
    rows = sum(task.data_rows for task in tasks.values())
    return 2 * codes + joined + _EXCHANGED_ROW * rows


def _are_read_in_parts(context: resolved.PublicContext) -> bool:
    """Whether parts of all sources are the same when they are read again, by their kind alone."""
    urls = [part.spec.source.url for part in context.tables.values()]
    return all(url is None or url.startswith("postgresql") for url in urls)


def memory_words(request: resolved.ResolvedRequest, plan: AnyPlan) -> str:
    """The memory that a release takes, and whether its rows are out of core on this machine."""
    context = resolved.public_context_of(request)
    words = f"about {plan_report.forecast_of(request, context, plan).memory / 2**30:.1f} GiB"
    if not is_out_of_core(request, plan):
        return words
    less = memory_out_of_core(request, plan) / 2**30
    return f"{words}, or {less:.1f} with the rows out of core, as here: less is free"


def worker_facts(request: resolved.ResolvedRequest, plan: AnyPlan) -> dict[str, str]:
    """What each of some numbers of workers holds and reads, if workers are requested."""
    if request.workers is None:
        return {}
    codes = _held_bytes(request) / 2**20
    seconds = plan_report.seconds_to_read(resolved.public_context_of(request).task)
    each = "; ".join(
        f"{number:,}: {figure(codes / number)} MiB of rows each, read in about "
        f"{figure(seconds / number)} s from Parquet"
        for number in _NUMBERS_OF_WORKERS
    )
    return {"workers": f"{each}; counted in at most {composition.scans(plan.event):,} scans"}


def until_learnt(plan: AnyPlan, task: DatabaseTask) -> bool:
    """Whether a plan will learn every functional dependency."""
    return all(forecast.learnt for forecast in dependencies_of(plan, task))


def until_possible(plan: AnyPlan, task: DatabaseTask) -> bool:  # noqa: ARG001 - one of two kinds
    """True: there is a plan."""
    return True


UNTIL = MappingProxyType({"learnt": until_learnt, "possible": until_possible})
"""What a budget may be raised for."""


def dependencies_of(plan: AnyPlan, task: DatabaseTask) -> tuple[quality.DependencyForecast, ...]:
    """The forecast for the functional dependencies of all tables; public."""
    return tuple(
        forecast
        for one, fit in plan.tables(task).values()
        for forecast in quality.forecast_dependencies(one, fit.sequence, fit.mapped)
    )


def raise_budget(request: resolved.ResolvedRequest, wanted: str) -> resolved.ResolvedRequest:
    """The request at the least epsilon, of two digits, at which what is ``wanted`` holds; public.

    Raises:
        PlanError: it does not at the greatest epsilon that may be charged.
    """
    index = bisect.bisect_left(
        quality.EPSILONS, True, key=lambda epsilon: _holds(_with_epsilon(request, epsilon), wanted)
    )
    if index == len(quality.EPSILONS):
        raise PlanError(
            f"no epsilon up to {float(quality.EPSILONS[-1]):g} is enough for '{wanted}'; declare "
            "fewer values or bins, release more rows, or make constraints soft"
        )
    return _with_epsilon(request, quality.EPSILONS[index])


def _with_epsilon(request: resolved.ResolvedRequest, epsilon: Fraction) -> resolved.ResolvedRequest:
    return request.filled(epsilon=str(epsilon))


def _holds(request: resolved.ResolvedRequest, wanted: str) -> bool:
    try:
        plan = plan_of(request)
    except PlanError:
        return False
    return UNTIL[wanted](plan, resolved.public_context_of(request).task)


def plan_json(plan: AnyPlan) -> dict[str, Any]:
    """The plan as JSON values."""
    return {
        "method": plan.method,
        "sequence": list(plan.sequence),
        "stages": [
            {"name": stage.name, "event": stage.event.to_json(), "explanation": stage.explanation}
            for stage in plan.stages
        ],
        "parameters": plan.parameters.to_json(),
        "forecast": {"seconds": plan.forecast.seconds, "memory": plan.forecast.memory},
    }


def plan_digest(plan: AnyPlan) -> str:
    """SHA-256 of what decides the answers of a fit: everything but the forecast."""
    decisive = plan_json(plan) | {"forecast": None}
    return hashlib.sha256(
        json.dumps(decisive, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def request_of_spec(path: Path) -> resolved.ResolvedRequest:
    """The release that a spec asks for by itself; of growing data, one of the previous block.

    Raises:
        SpecError, PlanError, InputError: as ``resolve``.
    """
    grows = load_spec(path).privacy.block is not None
    return resolved.resolve(ReleaseRequest(spec=path, block=PREVIOUS if grows else None))


def checked_spec(path: Path) -> dict[str, Any]:
    """What a spec declares, if a release would take it: it is resolved and planned as one.

    Raises:
        SpecError, ConstraintError, PlanError, InputError: a release would not.
    """
    request = request_of_spec(path)
    context = resolved.public_context_of(request)
    require_satisfiable(context)
    plan_of(request)
    spec, tasks = context.spec, context.task.tables.values()
    ignored = ignored_columns(spec)
    return {
        "name": spec.name,
        "attributes": sum(len(task.domain.names) for task in tasks),
        **({"ignored columns": ", ".join(ignored)} if ignored else {}),
        "hard constraints": sum(len(task.hard) for task in tasks) + len(context.task.across),
        "soft constraints": sum(len(task.soft) for task in tasks),
        "privacy unit": context.unit,
        "relation": spec.privacy.relation,
        "declared rows": context.task.data_rows,
        "provenance": citations_of(spec),
        "without a source": uncited_declarations(spec),
        "not stated": [name for name, text in dict(spec.about).items() if text is None],
        "warnings": list(plan_report.budget_warnings(request, context)),
    }


def require_satisfiable(context: resolved.PublicContext) -> None:
    """Check that so many rows can satisfy the hard constraints and have keys; public.

    Keys of persons have a number for each person; columns that refer to others share their numbers.

    Raises:
        ConstraintError: the hard constraints contradict each other, or cannot hold for so many.
        PlanError: names the key whose pattern is too narrow.
    """
    for name, task in context.task.tables.items():
        require_consistent(task.constraints, task.domain, max(task.output_rows, task.data_rows))
        shared = {key.column for key in context.task.schema.parents_of(name)} | task.person_keys
        for column in task.domain:
            if isinstance(column, Serial) and column.name not in shared:
                _require_numbers(column, task.output_rows)


def _require_numbers(column: Serial, rows: int) -> None:
    if column.values < rows:
        raise PlanError(
            f"column '{column.name}': its pattern has {count_of(column.values, 'key')} for "
            f"{count_of(rows, 'row')}; widen the pattern or request fewer rows"
        )
