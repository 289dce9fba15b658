"""The parameter search of the mixture: from a budget and public sizes to every parameter of a fit; public."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cloister.errors import PlanError
from cloister.privacy.calibration import calibrate, concentrated
from cloister.privacy.events import Composed, Event, repeat
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.private import pair_sensitivity
from cloister.privacy.selection import Exponential
from models.kamino.search import wanted_tables
from models.kamino.sequencing import public_sizes
from models.protocol import Budget, Forecast, Plan, Stage, Task

HISTOGRAMS, JOINT_TABLES, PAIRS = 0.10, 0.04, 0.04
SELECTING = 0.10
NOISIEST = 4
COMPONENTS = 800
ROUNDS = 40


@dataclass(frozen=True)
class Shape:
    """How many queries of each kind a plan holds."""

    histograms: int
    joint: int
    soft: int
    rounds: int


def search(task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan:
    """The plan that spends just the budget.

    Raises:
        PlanError: there is no delta to spend, or the noise would drown the rows.
    """
    if budget.delta <= 0:
        raise PlanError("method cloister adds Gaussian noise and needs a delta above 0; allow one, such as 1e-6")
    signal = task.rows * math.sqrt(concentrated(budget.epsilon, budget.delta))
    joint = wanted_tables(task, public_sizes(task.domain))
    shape = Shape(len(sequence), len(joint), len(task.soft), rounds_for(signal, len(sequence)))
    noise = calibrate(
        lambda level: Composed(tuple((stage.event, 1) for stage in stages(task, shape, level))),
        budget.epsilon,
        budget.delta,
        task.neighbours.relation,
    )
    levels = noises(shape, noise)
    _require_signal(levels["histograms"], task.rows, budget)
    parameters = {
        **{f"{name} noise": str(level) for name, level in levels.items()},
        "joint tables": [list(names) for names in joint],
        "rounds": shape.rounds,
        "groups": groups_for(signal),
        "components": COMPONENTS,
    }
    return Plan("cloister", sequence, stages(task, shape, noise), parameters, _forecast(task, shape, parameters))


def rounds_for(signal: float, attributes: int) -> int:
    """Number of rounds, of rows times the square root of rho."""
    return 0 if attributes < 2 else ROUNDS


def groups_for(signal: float) -> int:
    """The most groups of a numeric attribute."""
    return 20


def noises(shape: Shape, noise: Fraction) -> dict[str, Fraction]:
    """The noise multiplier of each kind of count, and the epsilon of one selection, at a level of noise.

    A level of noise stands for a rho of 1 / (2 noise^2), of which each kind of query has its part.
    """
    parts = {"histograms": HISTOGRAMS}
    parts |= {"joint": JOINT_TABLES} if shape.joint else {}
    parts |= {"pairs": PAIRS} if shape.soft else {}
    rest = 1.0 - sum(parts.values())
    times = {"histograms": shape.histograms, "joint": shape.joint, "pairs": 1}
    if shape.rounds:
        parts["rounds"], times["rounds"] = rest * (1 - SELECTING), shape.rounds
    else:
        parts = {name: part / (1.0 - rest) for name, part in parts.items()}
    levels = {name: noise * _exact(math.sqrt(times[name] / part)) for name, part in parts.items()}
    if shape.rounds:
        levels["selection"] = _exact(2 * math.sqrt(rest * SELECTING / shape.rounds)) / noise
    return levels


def stages(task: Task, shape: Shape, noise: Fraction) -> tuple[Stage, ...]:
    """The steps that meet the data, at a level of noise."""
    levels = noises(shape, noise)
    planned = [_counts(task, "histograms", levels, shape.histograms, "one-way histogram of each attribute")]
    if shape.joint:
        planned.append(_counts(task, "joint", levels, shape.joint, "joint table of each hard constraint"))
    if shape.soft:
        event = DiscreteGaussian(levels["pairs"]).event(pair_sensitivity(task.neighbours, shape.soft))
        planned.append(Stage("pairs", event, "violating pairs of each soft constraint"))
    if shape.rounds:
        choice: Event = Exponential(levels["selection"]).event()
        planned.append(Stage("selection", repeat(choice, shape.rounds), "which joint table to measure next"))
        planned.append(_counts(task, "rounds", levels, shape.rounds, "the joint tables chosen"))
    return tuple(planned)


def _counts(task: Task, name: str, levels: Mapping[str, Fraction], times: int, explanation: str) -> Stage:
    event = DiscreteGaussian(levels[name]).event(task.neighbours.partition)
    return Stage(name, repeat(event, times), explanation)


def _exact(number: float) -> Fraction:
    return Fraction(math.floor(number * 10**6), 10**6)


def _require_signal(multiplier: Fraction, rows: int, budget: Budget) -> None:
    if float(multiplier) * NOISIEST > rows:
        least = float(budget.epsilon) * float(multiplier) * NOISIEST / rows
        raise PlanError(
            f"epsilon {float(budget.epsilon):g} is too small for {rows} rows: the noise would drown the counts; "
            f"use at least about {least:.2g}, or more rows"
        )


def _forecast(task: Task, shape: Shape, parameters: Mapping[str, Any]) -> Forecast:
    return Forecast(seconds=60.0, memory=1_000_000_000)
