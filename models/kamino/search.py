"""The parameter search: from a budget and public sizes to every parameter of a fit.

Source: Kamino Algorithm 6. Instead of lowering parameters by priority until the budget holds, the budget is shared out
and the noise of training is solved for, so that a greater budget never gives a noisier plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from cloister.constraints import DenialConstraint, functional_dependency, order_rule
from cloister.errors import PlanError
from cloister.privacy.calibration import calibrate
from cloister.privacy.events import Composed, Event, SampledGaussian, repeat
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.private import pair_sensitivity
from models.kamino.sequencing import networked, public_sizes
from models.protocol import Budget, Forecast, Plan, Stage, Task

HISTOGRAMS, JOINT_TABLES, PAIRS = 0.25, 0.06, 0.10
STEPS, LEARNING_RATE, CLIP = 200, 0.02, 1.0
BATCH_SHARE, LEAST_BATCH, GREATEST_BATCH = 16, 512, 8192
JOINT_CELLS, ROWS_PER_LEFT = 300_000, 5
NOISIEST = 4


def wanted_tables(task: Task, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """Attribute sets of hard constraints whose joint domain is modest, left sides before right sides."""
    wanted = dict.fromkeys(names for c in task.hard if (names := _table_of(c)) is not None)
    return tuple(names for names in wanted if all(n in sizes for n in names) and _affordable(names, sizes, task.rows))


def _table_of(constraint: DenialConstraint) -> tuple[str, ...] | None:
    dependency, order = functional_dependency(constraint), order_rule(constraint)
    if dependency is not None:
        return (*dependency[0], dependency[1])
    if order is not None:
        return (*order.equal, order.first, order.second)
    return constraint.attributes if constraint.arity == 2 and len(constraint.attributes) > 1 else None


def _affordable(names: Sequence[str], sizes: Mapping[str, int], rows: int) -> bool:
    lefts = math.prod(sizes[name] for name in names[:-1])
    return lefts * sizes[names[-1]] <= JOINT_CELLS and lefts * ROWS_PER_LEFT <= rows


def search(task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan:
    """The plan that spends just the budget.

    Raises:
        PlanError: the budget is so small that the noise would drown the rows.
    """
    sizes = public_sizes(task.domain)
    joint = wanted_tables(task, sizes)
    rho = zero_concentrated(float(budget.epsilon), float(budget.delta))
    histogram = _multiplier(HISTOGRAMS * rho, len(sequence))
    _require_signal(histogram, task.rows, budget)
    counts = [_stage(task, "histograms", histogram, len(sequence), "one-way histogram of each attribute")]
    if joint:
        noise = _multiplier(JOINT_TABLES * rho, len(joint))
        counts.append(_stage(task, "joint tables", noise, len(joint), "joint table of each hard constraint"))
    if task.soft:
        pairs = _multiplier(PAIRS * rho, 1)
        event = DiscreteGaussian(pairs).event(pair_sensitivity(task.neighbours, len(task.soft)))
        counts.append(Stage("pairs", event, "violating pairs of each soft constraint"))
    deep = networked(sizes)
    train = _training(task, budget, [stage.event for stage in counts])
    stages = (*counts, Stage("training", train, f"{STEPS} steps of DP-SGD on {deep} attributes together"))
    parameters = _parameters(task, joint, histogram, stages, train, sizes)
    return Plan("kamino", sequence, stages, parameters, _forecast(task, sizes, deep))


def zero_concentrated(epsilon: float, delta: float) -> float:
    """The rho of zero-concentrated privacy that gives (epsilon, delta) by Bun and Steinke (2016), proposition 1.3."""
    log = math.log(1 / delta)
    return (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def _multiplier(rho: float, queries: int) -> Fraction:
    return Fraction(math.ceil(math.sqrt(queries / (2 * rho)) * 1000), 1000)


def _stage(task: Task, name: str, multiplier: Fraction, times: int, explanation: str) -> Stage:
    return Stage(name, repeat(DiscreteGaussian(multiplier).event(task.neighbours.partition), times), explanation)


def sampling_rate(rows: int) -> Fraction:
    """The share of rows in a batch: a sixteenth, between 512 and 8,192 rows."""
    batch = min(max(rows // BATCH_SHARE, LEAST_BATCH), GREATEST_BATCH)
    return min(Fraction(batch, rows), Fraction(1, 2))


def _training(task: Task, budget: Budget, counts: Sequence[Event]) -> SampledGaussian:
    rate = sampling_rate(task.rows)

    def event(noise: Fraction) -> SampledGaussian:
        return SampledGaussian(rate, noise, STEPS, task.neighbours.max_rows)

    noise = calibrate(
        lambda value: Composed((*((part, 1) for part in counts), (event(value), 1))),
        budget.epsilon,
        budget.delta,
        task.neighbours.relation,
    )
    return event(noise)


def _require_signal(multiplier: Fraction, rows: int, budget: Budget) -> None:
    if float(multiplier) * NOISIEST > rows:
        least = float(budget.epsilon) * float(multiplier) * NOISIEST / rows
        raise PlanError(
            f"epsilon {float(budget.epsilon):g} is too small for {rows} rows: the noise would drown the counts; "
            f"use at least about {least:.2g}, or more rows"
        )


def _parameters(
    task: Task,
    joint: tuple[tuple[str, ...], ...],
    histogram: Fraction,
    stages: Sequence[Stage],
    train: SampledGaussian,
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    noises = {stage.name: _noise_of(stage.event) for stage in stages}
    return {
        "histogram_noise": str(histogram),
        "joint_tables": [list(names) for names in joint],
        "joint_noise": str(noises["joint tables"]) if joint else None,
        "pair_noise": str(noises["pairs"]) if task.soft else None,
        "training_noise": str(train.noise_multiplier),
        "sampling_rate": str(train.rate),
        "steps": STEPS,
        "learning_rate": LEARNING_RATE,
        "clip": CLIP,
        "networked": networked(sizes),
        "rows": task.rows,
    }


def _noise_of(event: Event) -> Fraction:
    first = event.parts[0][0] if isinstance(event, Composed) else event
    noise: Fraction = first.noise_multiplier  # type: ignore[attr-defined]
    return noise


def _forecast(task: Task, sizes: Mapping[str, int], deep: int) -> Forecast:
    batch = float(sampling_rate(task.rows) * task.rows)
    levels = sum(size for size in sizes.values() if size <= 256)
    train = STEPS * batch * (levels * 24 + deep**2 * 24) * 1.2e-9
    draw = task.rows * (levels * 40 + deep**2 * 12) * 1.5e-9
    memory = task.rows * len(sizes) * 40 + int(batch) * (levels + deep * 96) * 16 + 600_000_000
    return Forecast(seconds=round(10 + train + draw, 1), memory=memory)
