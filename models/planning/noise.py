"""How strong the noise of a plan is beside the rows: in words, and when it is too strong."""

from __future__ import annotations

from fractions import Fraction

from cloister.errors import PlanError
from cloister.privacy.events import repeat
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from models.protocol import Budget, Stage, Task

_NOISIEST = 4
"""The scale of the noise of a count, in rows, times this may not exceed the rows."""


def counts_stage(
    task: Task, name: str, multiplier: Fraction, times: int, explanation: str
) -> Stage:
    """The stage of ``times`` tables of counts with discrete Gaussian noise."""
    mechanism = DiscreteGaussian(multiplier)
    words = f"{explanation}; noise of {mechanism.scale(task.neighbours.partition):.3g} rows a count"
    return Stage(name, repeat(mechanism.event(task.neighbours.partition), times), words)


def require_signal(scale: float, rows: int, budget: Budget) -> None:
    """Check that noise of a ``scale`` in rows leaves something of one-way counts.

    Raises:
        PlanError: says what epsilon would do.
    """
    if scale * _NOISIEST > rows:
        least = float(budget.epsilon) * scale * _NOISIEST / rows
        raise PlanError(
            f"epsilon {float(budget.epsilon):g} is too small for {rows} rows: "
            "the noise would drown the counts; "
            f"use at least about {least:.2g}, or more rows"
        )
