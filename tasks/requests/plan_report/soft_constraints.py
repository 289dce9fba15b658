"""What a release does about soft constraints, in words for plans and certificates; public."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cloister.constraints import DenialConstraint
from cloister.figures import figure
from cloister.models.plan import AnyPlan
from cloister.models.planning.sampling_choice import choose_sampling
from cloister.models.protocol import AnySynthesizer
from cloister.models.registry import create
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.resolved import ResolvedRequest

_UNWEIGHED = (
    "{names}: method {method} does nothing about soft constraints; rows break them as often as "
    "they happen to"
)


def unweighed_soft(request: ResolvedRequest, context: PublicContext) -> tuple[str, ...]:
    """A sentence for those soft constraints of each table that the method leaves alone."""
    if _weighs(request):
        return ()
    tasks = [part.one for part in context.tables.values()]
    return tuple(
        _UNWEIGHED.format(names=_names(task.soft), method=request.method)
        for task in tasks
        if task.soft
    )


def soft_facts(request: ResolvedRequest, context: PublicContext, plan: AnyPlan) -> dict[str, str]:
    """How rates of soft constraints are known, and how rows are drawn under them."""
    if not any(part.one.soft for part in context.tables.values()):
        return {}
    if not _weighs(request):
        return {"soft rates": f"not kept by {request.method}"}
    tasks = [part.one for part in context.tables.values()]
    found = {"soft rates": "; ".join(_sources([rule for t in tasks for rule in t.soft], plan))}
    if not context.spec.tables:
        found["sampling"] = str(choose_sampling(context.one, _method(request).samplings))
    return found


def soft_json(request: ResolvedRequest, context: PublicContext) -> dict[str, Any]:
    """The same for programs: the way of drawing and why, and what is known."""
    found: dict[str, Any] = {}
    if not context.spec.tables and context.one.soft:
        choice = choose_sampling(context.one, _method(request).samplings)
        found["sampling"] = {"way": choice.way, "reason": choice.reason}
    rules = [rule for part in context.tables.values() for rule in part.one.soft]
    found["soft_known"] = [rule.name for rule in rules if rule.known is not None]
    return found


def _sources(rules: Sequence[DenialConstraint], plan: AnyPlan) -> Iterator[str]:
    measured = [rule for rule in rules if rule.known is None]
    if measured and plan.rate_deviation is not None:
        points = figure(100 * plan.rate_deviation)
        yield f"measured to about {points} percentage points"
    elif measured:
        yield f"{_names(measured)} from noisy answers"
    if known := [rule for rule in rules if rule.known is not None]:
        yield f"{_names(known)} as declared, for which nothing is asked of the data"


def _weighs(request: ResolvedRequest) -> bool:
    """Whether the method does anything about soft constraints: all that do need a delta."""
    return _method(request).weighs_soft and request.budget.delta > 0


def _method(request: ResolvedRequest) -> AnySynthesizer:
    return create(request.method)


def _names(rules: Sequence[DenialConstraint]) -> str:
    return ", ".join(f"'{rule.name}'" for rule in rules)
