"""A request to measure domains, and its plan: from the declared types of a spec, without data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from cloister.devices import CPU
from cloister.errors import SpecError
from cloister.models import task as models
from cloister.privacy.discovery import DomainPlan, attribute_outline, plan_domains, require_enough
from cloister.privacy.ledger.records import MEASURE
from cloister.schema.attributes import AnyAttribute, Ordinal
from cloister.schema.domain import Domain
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec, spec_digest, unconfirmed_facts
from cloister.tasks.requests.options import budget_of
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest, require_none

SPEC_NAME = "spec.yaml"
_SECONDS = 2.0
"""Forecast of a measurement, in seconds: a rough figure, shown and not checked."""

_MEMORY = 1 << 30
"""Forecast of its memory, in bytes: a rough figure, shown and not checked."""

_EXPLANATIONS = MappingProxyType(
    {
        "rows": "noisy number of rows",
        "bounds": "noisy counts of public parts of the whole line; a bound is the outer end of "
        "the outermost part with at least {threshold} rows, noise included",
        "categories": "values with at least {values} rows, noise included; the rest become missing",
    }
)


@dataclass(frozen=True)
class DomainParameters(models.Parameters):
    """The noise of a measurement of domains, and its thresholds in noisy rows.

    ``threshold`` is that of a bound, ``values`` that of a value.
    """

    noise: str
    level: Fraction
    leak: Fraction
    threshold: int | None
    values: int | None


def domain_request(request: ReleaseRequest) -> ResolvedRequest:
    """The request to measure what a spec marks data-derived, the number of rows if so marked.

    Raises:
        SpecError: the spec cannot be used, was drafted and not confirmed, or nothing in it can be
            measured.
        PlanError: epsilon or delta cannot be.
    """
    path = request.spec.absolute()
    declared = load_spec(path)
    require_none(path, unconfirmed_facts(declared))
    _require_measurable(path, declared)
    declared = strip_derived_domains(declared)
    budget = budget_of(declared, request)
    decided = {
        "spec": path,
        "method": MEASURE,
        "epsilon": str(budget.epsilon),
        "delta": str(budget.delta),
        "rows": declared.privacy.rows.public or 1,
        "data": request.data.absolute() if request.data else None,
        "evaluate": "none",
        "device": str(CPU),
        "digest": spec_digest(declared),
        "reason": "bounds are measured before a release",
    }
    return ResolvedRequest(**(dict(request) | decided))


def domain_context(request: ResolvedRequest) -> PublicContext:
    """The declared context without any domain that is marked data-derived.

    Raises:
        SpecError: the spec cannot be used, or was changed since the request was made.
    """
    spec = strip_derived_domains(load_spec(request.spec))
    if spec.unconfirmed or spec_digest(spec) != request.digest:
        raise SpecError(
            f"{request.spec} was changed since the measurement began; run the command again"
        )
    task = models.Task(Domain(()), (), request.rows, models.neighbours_of(spec))
    return PublicContext(spec, models.DatabaseTask.of(spec.name, task))


def strip_derived_domains(spec: Spec) -> Spec:
    """A spec without its data-derived domains: all that a measurement, and its digest, may know."""
    outlines = {name: attribute_outline(attribute) for name, attribute in to_measure(spec).items()}
    return spec.model_copy(update={"attributes": {**spec.attributes, **outlines}})


def to_measure(spec: Spec) -> Mapping[str, AnyAttribute]:
    """The attributes that a spec marks data-derived."""
    return {
        name: attribute for name, attribute in spec.attributes.items() if attribute.data_derived
    }


@lru_cache(maxsize=4)
def domain_plan(request: ResolvedRequest) -> DomainPlan:
    """The queries of a measurement.

    Raises:
        PlanError: no noise fits the budget, or so much noise would hide everything.
    """
    context = domain_context(request)
    plan = plan_domains(
        to_measure(context.spec),
        context.task.neighbours,
        request.budget.epsilon,
        request.budget.delta,
    )
    if context.spec.privacy.rows.public:
        require_enough(plan, context.spec.privacy.rows.public)
    return plan


def release_plan(request: ResolvedRequest) -> models.Plan[DomainParameters]:
    """The plan as the ledger and the release folder hold it."""
    plan = domain_plan(request)
    thresholds = {"threshold": plan.threshold, "values": plan.values_threshold}
    stages = [
        models.Stage(name, event, _EXPLANATIONS[name].format(**thresholds))
        for name, event in plan.parts.items()
    ]
    parameters = DomainParameters(
        type(plan.noise).__name__,
        Fraction(*dataclasses.astuple(plan.noise)),
        plan.leak,
        **thresholds,
    )
    return models.Plan(
        MEASURE,
        tuple(plan.attributes),
        tuple(stages),
        parameters,
        models.Forecast(_SECONDS, _MEMORY),
    )


def _require_measurable(path: Path, spec: Spec) -> None:
    if spec.privacy.block:
        raise SpecError(
            f"{path}: domains of growing data are not measured, since each block has its own; "
            "declare bounds, values and the number of rows of a block public"
        )
    if spec.tables:
        raise SpecError(
            f"{path}: of a dataset of several tables nothing is measured; declare bounds, values "
            "and numbers of rows public"
        )
    ordered = [
        name for name, attribute in to_measure(spec).items() if isinstance(attribute, Ordinal)
    ]
    if ordered:
        raise SpecError(
            f"{path}: '{ordered[0]}' is ordinal, and an order cannot be measured; declare its "
            "list public, or make it categorical"
        )
    if not to_measure(spec) and not spec.privacy.rows.measured:
        raise SpecError(
            f"{path}: nothing is marked data-derived or measured; it can be released as it is"
        )
