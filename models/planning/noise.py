"""How strong the noise of a plan is beside the rows: in words, and when it is too strong."""

from __future__ import annotations

import math
from fractions import Fraction

from cloister.errors import PlanError
from cloister.figures import figure
from cloister.privacy.events import repeat
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from models.protocol import Stage
from models.task import Budget, Task

_NOISIEST = 4
"""The scale of the noise of a count, in rows, times this may not exceed the rows."""


def counts_stage(
    task: Task, name: str, multiplier: Fraction, times: int, explanation: str
) -> Stage:
    """The stage of ``times`` tables of counts with discrete Gaussian noise."""
    mechanism = DiscreteGaussian(multiplier)
    scale = figure(mechanism.scale(task.neighbours.partition))
    words = f"{explanation}; noise of {scale} rows a count"
    return Stage(name, repeat(mechanism.event(task.neighbours.partition), times), words)


def require_signal(scale: float, rows: int, budget: Budget) -> None:
    """Check that noise of a ``scale`` in rows leaves something of one-way counts.

    Raises:
        PlanError: says what epsilon would do.
    """
    if scale * _NOISIEST > rows:
        least = float(budget.epsilon) * scale * _NOISIEST / rows
        raise PlanError(
            f"epsilon {figure(float(budget.epsilon), 6)} is too small for {rows:,} rows: "
            "the noise would drown the counts; "
            f"use at least about {figure(least, 2)}, or more rows"
        )


def require_delta(method: str, budget: Budget) -> None:
    """Check that there is a delta for Gaussian noise.

    Raises:
        PlanError: there is none.
    """
    if budget.delta <= 0:
        raise PlanError(
            f"method {method} adds Gaussian noise and needs a delta above 0; allow one, such as "
            "1e-6"
        )


def laplace_deviation(scale: float) -> float:
    """The standard deviation of discrete Laplace noise, in rows."""
    ratio = math.exp(-1.0 / scale)
    return math.sqrt(2.0 * ratio) / (1.0 - ratio)
