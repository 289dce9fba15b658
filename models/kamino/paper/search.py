"""Algorithm 6 as printed: parameters are lowered from the best setting until they fit the budget.

Source: Kamino Algorithm 6 and section 6. The bounds and the size of a move are ours: the paper
prints neither. Each move costs less, so the first setting within the budget is found by bisection.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from cloister.figures import count_of, figure
from cloister.models import planning
from cloister.models.core.budget_split import counts_stage
from cloister.models.kamino.plan import KaminoParameters, accounted_for, forecast_kamino
from cloister.models.kamino.recipe import KaminoRecipe, Runs
from cloister.models.task import Budget, Plan, Stage, Task
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.accounting.composition import event_of_stages
from cloister.privacy.events import SampledGaussian
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.schema.partition import equal_cells

QUANTIZED = 20
"""q: equal parts of a number's range, besides special and missing values."""

_MOVE = 0.02
"""Relative change of each parameter in a move."""

_MOST_MOVES = 700
"""Most moves: the noise is then a million times the least."""

_STEPS = (200, 50)
"""T of a sub-model: the greatest and the least."""

_BATCH = (512, 256)
"""b, rows of an expected batch: the greatest and the least."""

_LEAST_NOISE = 0.8
"""Least noise multiplier of each kind: sigma_g, sigma_d, sigma_w."""

_LEARNING_RATE = 0.5
"""eta of plain gradient descent, on mean gradients of norm at most one."""

_CLIP = 1.0
"""C, the clipping norm of a row's gradient."""


@dataclass(frozen=True)
class _Setting:
    """Psi: the parameters that determine the cost, ``moves`` moves from the best."""

    task: Task
    recipe: KaminoRecipe
    sequence: tuple[str, ...]
    runs: Runs
    moves: int

    @property
    def noise(self) -> Fraction:
        """The noise multiplier of histograms, gradients and the violation matrix."""
        return Fraction(math.ceil(_LEAST_NOISE * (1 + _MOVE) ** self.moves * 10**6), 10**6)

    @property
    def steps(self) -> int:
        """T: steps of each sub-model."""
        return max(round(_STEPS[0] * (1 - _MOVE) ** self.moves), _STEPS[1])

    @property
    def rate(self) -> Fraction:
        """The probability that a row is in a batch; at most half."""
        batch = max(round(_BATCH[0] * (1 - _MOVE) ** self.moves), _BATCH[1])
        return min(Fraction(batch, self.task.data_rows), Fraction(1, 2))

    @property
    def counted(self) -> tuple[tuple[str, ...], ...]:
        """Attributes with a histogram: the first unit's, and those too large for a sub-model."""
        first = tuple(self.sequence[position] for run in self.runs[:1] for position in run)
        inside = sum(map(len, self.runs))
        return tuple(names for names in (first, *((n,) for n in self.sequence[inside:])) if names)

    def stages(self) -> Iterator[Stage]:
        """The steps that query the data."""
        if self.counted:
            listed = ", ".join(" x ".join(names) for names in self.counted)
            yield counts_stage(
                "histograms",
                [(DiscreteGaussian(self.noise), len(self.counted))],
                self.task.neighbours.partition,
                f"noisy histogram of {listed}",
            )
        if self.task.measured_soft:
            yield self.recipe.weigher.stage(self.task, self.noise)
        repeats = len(self.runs) - 1
        if repeats > 0:
            rows = self.task.neighbours.max_rows
            event = SampledGaussian(self.rate, self.noise, self.steps * repeats, rows)
            batch = round(self.rate * self.task.data_rows)
            words = (
                f"{count_of(repeats, 'run')} of {count_of(self.steps, 'step')} of DP-SGD, one a "
                f"sub-model, in batches of about {count_of(batch, 'row')}; noise "
                f"{figure(float(self.noise))} x clip"
            )
            yield Stage("training", event, words)

    def parameters(self) -> KaminoParameters:
        """The parameters of a fit."""
        return KaminoParameters(
            histogram_noise=self.noise,
            by_value=(),
            joint_tables=(),
            joint_noise=None,
            weight_noise=self.noise if self.task.measured_soft else None,
            training_noise=self.noise,
            sampling_rate=self.rate,
            steps=self.steps,
            learning_rate=_LEARNING_RATE,
            clip=_CLIP,
            networked=sum(map(len, self.runs)),
            runs=tuple(map(tuple, self.runs)),
        )


def quantized_sizes(task: Task) -> dict[str, int]:
    """The number of values or equal parts of each attribute that is modelled."""
    return {name: equal_cells(task.domain[name], QUANTIZED).size for name in task.domain.modelled}


def search_as_printed(
    task: Task, sequence: tuple[str, ...], budget: Budget, recipe: KaminoRecipe
) -> Plan[KaminoParameters]:
    """The plan of the first setting within the budget.

    Raises:
        PlanError: there is no delta to spend, or the noise would drown the rows.
    """
    planning.require_delta(recipe.name, budget)
    sizes = quantized_sizes(task)
    networked = planning.count_networked(planning.public_sizes(task.domain))
    runs = recipe.trainer.runs([sizes[name] for name in sequence[:networked]])

    def setting(moves: int) -> _Setting:
        return _Setting(task, recipe, sequence, runs, moves)

    def holds(moves: int) -> bool:
        event = event_of_stages(setting(moves).stages())
        return epsilon(event, budget.delta, task.neighbours.relation) <= float(budget.epsilon)

    with accounted_for(recipe, task):
        chosen = setting(bisect.bisect_left(range(_MOST_MOVES), True, key=holds))
    planning.require_signal(DiscreteGaussian(chosen.noise), task, budget)
    stages = tuple(chosen.stages())
    steps = chosen.steps * max(len(runs) - 1, 0)
    expected = forecast_kamino(task, sizes, networked, steps, float(chosen.rate * task.data_rows))
    return Plan(recipe.name, sequence, stages, chosen.parameters(), expected)
