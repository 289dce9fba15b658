"""Criteria that the rows of a release must meet, and fits that are tried until they do.

The tables of all criteria are counted once, with noise. Each try is a fit of its own and a table
drawn from its model, whose errors are measured against the noisy counts: post-processing. One try
is delivered, chosen among the first K; K is secret. docs/privacy.md says why, and what it costs.

Source: Liu, Talwar, "Private selection from private candidates" (arXiv 1811.07971); Papernot,
    Steinke, "Hyperparameter tuning with Rényi differential privacy" (arXiv 2110.03620); Hod,
    Canetti, "Differentially private release of Israel's national registry of live births" (arXiv
    2405.00267), sections 2.5 and 2.9, acceptance criteria.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Generic, TypeVar

from cloister.arrays import Integers
from cloister.errors import PlanError, SampleError
from cloister.figures import figure
from cloister.models.criteria import Criterion, criteria_of
from cloister.models.task import AnyPlan, Budget, ParametersT, Plan, Stage, Task
from cloister.privacy.accounting.accountants import calibrate, epsilon
from cloister.privacy.accounting.composition import divides_rows, is_counted
from cloister.privacy.certificate.certificate import MeasuredCriterion
from cloister.privacy.events import Composed, Event, RepeatedSelection, repeat
from cloister.privacy.mechanisms.noise import DiscreteGaussian, DiscreteLaplace, Neighbours
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.declarations import AcceptanceSpec
from cloister.schema.domain import Table

COUNTS, TRIES = "acceptance criteria", "tries"
"""Names of the two stages."""

_STEPS = 100
"""Epsilons that a fit may have: multiples of this part of that of the release."""

ModelT = TypeVar("ModelT")

CountNoise = DiscreteGaussian | DiscreteLaplace


@dataclass(frozen=True, kw_only=True)
class TriedPlan(Plan[ParametersT], Generic[ParametersT]):
    """The plan of several tries, each a ``fit`` planned for the ``fit_budget``.

    ``noise`` is that of the criteria's counts.
    """

    fit: Plan[ParametersT]
    fit_budget: Budget
    noise: CountNoise
    tries: int

    @property
    def one_fit(self) -> Plan[ParametersT]:
        """The plan of one try."""
        return self.fit


def plan_tries(search: Callable[[Budget], AnyPlan], task: Task, budget: Budget) -> TriedPlan[Any]:
    """The plan of tries under acceptance criteria: each fit has the largest epsilon that fits.

    Raises:
        PlanError: the criteria cannot be measured so, or no fit has a plan.
    """
    declared = task.acceptance
    assert declared is not None
    _require_supported(task)
    criteria = criteria_of(declared, task.domain)
    noise = _count_noise(declared, len(criteria), task.neighbours, budget)
    counted = repeat(noise.event(task.neighbours.partition), len(criteria))
    expected = [_expected(noise, each, task) for each in criteria]
    fit, each_budget = _largest_fit(search, counted, declared.tries, task, budget)
    measured = "; ".join(
        f"{each.name}, largest error {figure(each.largest)}, noise alone about {figure(error)}"
        for each, error in zip(criteria, expected, strict=True)
    )
    stages = (
        Stage(COUNTS, counted, f"noisy counts to measure each try against: {measured}"),
        Stage(
            TRIES,
            RepeatedSelection(fit.event, declared.tries),
            f"{declared.tries} fits, of which one is delivered, each planned for epsilon "
            f"{figure(float(each_budget.epsilon))}: {', '.join(each.name for each in fit.stages)}",
        ),
    )
    forecast = replace(fit.forecast, seconds=round(declared.tries * fit.forecast.seconds, 1))
    return TriedPlan(
        method=fit.method,
        sequence=fit.sequence,
        stages=stages,
        parameters=fit.parameters,
        forecast=forecast,
        mapped=fit.mapped,
        rate_deviation=fit.rate_deviation,
        fit=fit,
        fit_budget=each_budget,
        noise=noise,
        tries=declared.tries,
    )


def _require_supported(task: Task) -> None:
    if task.persons is not None:
        raise PlanError(
            "release.acceptance is of tables whose rows are drawn one by one, and here persons "
            "have several; leave it out"
        )


def _count_noise(
    declared: AcceptanceSpec, number: int, neighbours: Neighbours, budget: Budget
) -> CountNoise:
    share, partition = declared.share * budget.epsilon, neighbours.partition
    if not budget.delta:
        return DiscreteLaplace(share / number)
    return DiscreteGaussian(
        calibrate(
            lambda noise: repeat(DiscreteGaussian(noise).event(partition), number),
            share,
            budget.delta,
            neighbours.relation,
        )
    )


def _expected(noise: CountNoise, criterion: Criterion, task: Task) -> float:
    """About the error that noise alone makes.

    Raises:
        PlanError: it is above the largest that is accepted.
    """
    scale = noise.scale(task.neighbours.partition)
    mean = scale * (math.sqrt(2 / math.pi) if isinstance(noise, DiscreteGaussian) else 1)
    error = criterion.noise_alone(mean, task.data_rows)
    if error > criterion.largest:
        raise PlanError(
            f"release.acceptance: noise alone makes an error of about {figure(error)} in the "
            f"{criterion.name}, above its largest of {figure(criterion.largest)}, so that no rows "
            "would be accepted; raise largest, share or epsilon, or declare fewer bins"
        )
    return error


def _largest_fit(
    search: Callable[[Budget], AnyPlan], counted: Event, tries: int, task: Task, budget: Budget
) -> tuple[AnyPlan, Budget]:
    """The plan of a fit with the largest epsilon with which all stages stay within the budget."""
    plans: dict[int, AnyPlan] = {}
    refusals: list[PlanError] = []

    def part(step: int) -> Budget:
        return Budget(budget.epsilon * Fraction(step, _STEPS), budget.delta)

    def too_much(step: int) -> bool:
        try:
            plans[step] = search(part(step))
        except PlanError as refusal:
            refusals.append(refusal)
            return False
        _require_whole(plans[step])
        whole = Composed(((counted, 1), (RepeatedSelection(plans[step].event, tries), 1)))
        cost = epsilon(whole, budget.delta, task.neighbours.relation)
        return cost > float(budget.epsilon)

    step = bisect.bisect_left(range(1, _STEPS), True, key=too_much)
    if step in plans:
        return plans[step], part(step)
    why = f": {refusals[-1]}" if refusals else ""
    raise PlanError(
        f"release.acceptance: no fit has a plan with the budget of {tries} tries{why}; declare "
        "fewer tries, or allow a larger epsilon"
    )


def _require_whole(plan: AnyPlan) -> None:
    if divides_rows(plan.event) or not is_counted(plan.event):
        raise PlanError(
            f"release.acceptance is of methods that read all rows in each step, and method "
            f"'{plan.method}' reads disjoint parts; leave it out, or name another method"
        )


@dataclass(frozen=True)
class Tried(Generic[ModelT]):
    """The outcome of one try: its model, and the errors of its rows; none if none can be drawn."""

    model: ModelT
    errors: tuple[MeasuredCriterion, ...]

    @property
    def excess(self) -> float:
        """0 if each criterion is met, else the ratio of the worst error to its largest."""
        if all(each.met for each in self.errors):
            return 0.0 if self.errors else math.inf
        return max(each.error / each.largest for each in self.errors)


def choose_try(tried: Sequence[Tried[ModelT]]) -> Tried[ModelT]:
    """The first that meets every criterion, else the one that exceeds its worst least."""
    return min(tried, key=lambda outcome: outcome.excess)


def run_tries(
    private: Door[TableRows],
    task: Task,
    plan: TriedPlan[Any],
    counted: int,
    fit: Callable[[AnyPlan], ModelT],
    draw: Callable[[ModelT], Table],
) -> Tried[ModelT]:
    """Make all tries of a plan, and choose one of the first ``counted``.

    Privacy: all fits are made, whatever ``counted`` is and whatever their errors, so that neither
        answers nor steps depend on either; the others are forgotten. ``draw`` has no access to the
        data, and draws equally from equal models.
    """
    assert task.acceptance is not None
    criteria = criteria_of(task.acceptance, task.domain)
    noisy = [private.answer(each.query, plan.noise, each.name) for each in criteria]
    best: Tried[ModelT] | None = None
    for number in range(plan.tries):
        model = fit(plan.fit)
        outcome = Tried(model, _measured(model, draw, criteria, noisy))
        if number < counted:
            best = outcome if best is None else choose_try((best, outcome))
    assert best is not None
    return best


def _measured(
    model: ModelT,
    draw: Callable[[ModelT], Table],
    criteria: Sequence[Criterion],
    noisy: Sequence[Integers],
) -> tuple[MeasuredCriterion, ...]:
    try:
        table = draw(model)
    except SampleError:
        return ()
    errors = [
        each.error(counts, each.counts(table)) for each, counts in zip(criteria, noisy, strict=True)
    ]
    return tuple(
        MeasuredCriterion(
            name=each.name, largest=each.largest, error=error, met=error <= each.largest
        )
        for each, error in zip(criteria, errors, strict=True)
    )
