"""The parameter search: from a budget and public sizes to every parameter of a fit.

Source: Kamino Algorithm 6. Instead of lowering parameters by priority until the budget holds, the
budget is shared out and the noise of training is solved for, so that a greater budget never gives a
noisier plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from cloister.errors import PlanError, UnsupportedEvent
from cloister.figures import count_of, figure
from cloister.models import planning
from cloister.models.core import costs
from cloister.models.core.budget_split import BudgetSplit, Kind, counts, in_proportion, least_noise
from cloister.models.core.histograms import counted_by_value
from cloister.models.kamino.recipe import EMBEDDING_WIDTH, LARGEST_BLOCK, KaminoRecipe, Runs
from cloister.models.task import Budget, Forecast, Parameters, Plan, Stage, Task
from cloister.privacy.accounting.accountants import zcdp_rho
from cloister.privacy.events import SampledGaussian
from cloister.privacy.mechanisms.noise import DiscreteGaussian, GaussianGradient

_HISTOGRAMS = 0.25
"""Part of the budget, as a share of rho, for one-way histograms."""

_JOINT_TABLES = 0.06
"""Part of the budget for joint tables of hard constraints, if there are any."""

_WEIGHTS = 0.15
"""Part of the budget for counts of violations of soft constraints, if there are any."""

_DECIMALS = 3
"""Decimals of the noise multipliers of counts."""

_LEARNING_RATE = 0.02
"""Learning rate at the start of training, if noise is weak."""

_SLOWEST = 0.25
"""Smallest factor on the learning rate."""

_CLEAR_SIGNAL = 1000.0
"""Rows per unit of noise, over all steps, above which the learning rate is not lowered."""

_CLIP = 1.0
"""Clipping norm of a row's gradient, in the units of the learner."""

_BATCH_SHARE = 16
"""A batch has one in this many rows, within the bounds below."""

_LEAST_BATCH = 512
"""Least expected rows of a batch."""

_TRAINED = 2e-9
"""Seconds of training per row of a batch and weight used, forward and backward."""

_WEIGHTS_A_LEVEL, _WEIGHTS_A_PAIR = 24, 24
"""Weights used for a row, per level of an attribute and per pair of attributes."""

_DRAWN = 1.5e-9
"""Seconds of drawing, per row and weight used."""

_DRAWN_A_LEVEL, _DRAWN_A_PAIR = 40, 12
"""Weights used to draw a row, per level and per pair of attributes."""

_WEIGHED = (1.0, 0.02)
"""Seconds of fitting weights of soft constraints: fixed, and per constraint."""

_BYTES_OF_CELL = 40
"""Bytes of a cell of the table, or of the drawn rows, in all its copies."""

_BYTES_OF_UNIT, _UNITS_OF_ATTRIBUTE = 16, 96
"""Bytes of a number in a batch, and numbers per attribute in addition to its levels."""

_LIBRARIES = 400_000_000
"""Bytes of the libraries of training."""

_DEVICE_BYTES = 100
"""Bytes on a device per output and embedded level of a row: some ten copies, in single and double
precision."""

_DEVICE_COPIES = 12
"""Copies of all parameters on a device: moments, averages, gradients, sums in double precision."""

_GREATEST_BATCH = 8192
"""Greatest expected rows of a batch."""


@dataclass(frozen=True)
class KaminoParameters(Parameters):
    """Everything that a fit needs besides the task.

    Noises are multipliers of the sensitivity, None where there is no query; ``by_value`` names the
    attributes whose single values are counted, ``joint_tables`` the attributes of each joint table;
    the first ``networked`` attributes are modelled together, in ``runs`` of positions, each of
    which is a unit.
    """

    histogram_noise: Fraction
    by_value: tuple[str, ...]
    joint_tables: tuple[tuple[str, ...], ...]
    joint_noise: Fraction | None
    weight_noise: Fraction | None
    training_noise: Fraction
    sampling_rate: Fraction
    steps: int
    learning_rate: float
    clip: float
    networked: int
    runs: tuple[tuple[int, ...], ...]

    @property
    def gradient(self) -> GaussianGradient:
        """The mechanism of one step of DP-SGD."""
        return GaussianGradient(self.sampling_rate, self.training_noise, self.clip)


@dataclass(frozen=True)
class _Outline:
    """The queries of a plan, before any noise is set: all from public inputs."""

    task: Task
    sequence: tuple[str, ...]
    recipe: KaminoRecipe
    sizes: Mapping[str, int]
    tables: tuple[tuple[str, ...], ...]
    by_value: tuple[str, ...]
    runs: Runs

    @classmethod
    def of(cls, task: Task, sequence: tuple[str, ...], recipe: KaminoRecipe) -> _Outline:
        """The outline of a task under a recipe."""
        sizes = planning.public_sizes(task.domain)
        runs = recipe.trainer.runs(
            [sizes[name] for name in sequence[: planning.count_networked(sizes)]]
        )
        tables = dict.fromkeys(
            [*_first_table(sequence, runs), *planning.wanted_tables(task, sizes)]
        )
        by_value = counted_by_value(task.domain, sequence, task.data_rows)
        return cls(task, sequence, recipe, sizes, tuple(tables), by_value, runs)

    @property
    def histograms(self) -> int:
        """One-way histograms in all."""
        return len(self.sequence) + len(self.by_value)

    @property
    def steps(self) -> int:
        """Steps of DP-SGD in all."""
        return self.recipe.trainer.steps * self.recipe.trainer.repeats(len(self.runs))

    @property
    def networked(self) -> int:
        """How many attributes are modelled jointly."""
        return planning.count_networked(self.sizes)

    @property
    def rate(self) -> Fraction:
        """The share of rows in a batch: a sixteenth, between 512 and 8,192 rows; half at most."""
        batch = min(max(self.task.data_rows // _BATCH_SHARE, _LEAST_BATCH), _GREATEST_BATCH)
        return min(Fraction(batch, self.task.data_rows), Fraction(1, 2))

    @property
    def batch(self) -> float:
        """Rows of an expected batch."""
        return float(self.rate * self.task.data_rows)

    @property
    def split(self) -> BudgetSplit:
        """How counts share rho; what they do not need is left to training, if there is any."""
        words = f"noisy one-way histogram of {count_of(len(self.sequence), 'attribute')}"
        if self.by_value:
            words += ", and the values of " + ", ".join(self.by_value)
        listed = ", ".join(" x ".join(names) for names in self.tables)
        soft = bool(self.task.measured_soft)
        kinds = (
            counts(self.task, "histograms", _HISTOGRAMS, self.histograms, words),
            counts(
                self.task,
                "joint tables",
                _JOINT_TABLES,
                len(self.tables),
                f"noisy joint tables: {listed}",
            ),
            Kind("soft constraints", _WEIGHTS, soft, partial(self.recipe.weigher.stage, self.task)),
        )
        return BudgetSplit(kinds if self.steps else in_proportion(kinds), _DECIMALS)

    def training(self, noise: Fraction) -> Stage:
        """The stage of training with a noise multiplier."""
        words = self.recipe.trainer.explain(len(self.runs), self.networked)
        return Stage(
            "training",
            SampledGaussian(self.rate, noise, self.steps, self.task.neighbours.max_rows),
            f"{words}, in batches of about {count_of(round(self.batch), 'row')}; noise "
            f"{figure(float(noise))} x clip",
        )


def _first_table(sequence: tuple[str, ...], runs: Runs) -> list[tuple[str, ...]]:
    return [tuple(sequence[position] for position in runs[0])] if runs and len(runs[0]) > 1 else []


def plan_kamino(
    task: Task, sequence: tuple[str, ...], budget: Budget, recipe: KaminoRecipe
) -> Plan[KaminoParameters]:
    """The plan that spends just the budget.

    Raises:
        PlanError: there is no delta to spend, or the noise would drown the rows.
    """
    planning.require_delta(recipe.name, budget)
    outline = _Outline.of(task, sequence, recipe)
    noise = outline.split.noise_of(float(zcdp_rho(budget.epsilon, budget.delta)))
    planning.require_signal(DiscreteGaussian(noise["histograms"]), task, budget)
    stages, trained = outline.split.stages(noise), Fraction(0)
    if outline.steps:
        counted = stages
        with accounted_for(recipe, task):
            trained = least_noise(lambda level: (*counted, outline.training(level)), task, budget)
        stages = (*counted, outline.training(trained))
    joint, weights = noise.get("joint tables"), noise.get("soft constraints")
    return Plan(
        recipe.name,
        sequence,
        stages,
        _parameters(outline, noise, trained),
        forecast_kamino(task, outline.sizes, outline.networked, outline.steps, outline.batch),
        dict.fromkeys(outline.tables, DiscreteGaussian(joint).scale(task.neighbours.partition))
        if joint
        else {},
        recipe.weigher.deviation(float(weights), task) if weights else None,
    )


@contextmanager
def accounted_for(recipe: KaminoRecipe, task: Task) -> Iterator[None]:
    """Accounting for batches, which is unsupported for some neighbours.

    Raises:
        PlanError: no accountant reads them.
    """
    try:
        yield
    except UnsupportedEvent as refusal:
        neighbours = task.neighbours
        raise PlanError(
            f"method {recipe.name} cannot be accounted for under relation {neighbours.relation} "
            f"with up to {neighbours.max_rows} rows a unit; use relation add_remove, or another "
            "method"
        ) from refusal


def learning_rate(rows: float, steps: int, noise: float) -> float:
    """The learning rate, lower where the noise of a step is strong; public.

    ``rows`` is the expected batch. The rate follows the rows per unit of noise over all steps,
    rows * sqrt(steps) / noise.
    """
    signal = rows * math.sqrt(steps) / noise
    return _LEARNING_RATE * min(1.0, max(math.sqrt(signal / _CLEAR_SIGNAL), _SLOWEST))


def _parameters(
    outline: _Outline, noise: Mapping[str, Fraction], trained: Fraction
) -> KaminoParameters:
    steps = outline.recipe.trainer.steps
    parameters = KaminoParameters(
        histogram_noise=noise["histograms"],
        by_value=outline.by_value,
        joint_tables=outline.tables,
        joint_noise=noise.get("joint tables"),
        weight_noise=noise.get("soft constraints"),
        training_noise=trained,
        sampling_rate=outline.rate,
        steps=steps,
        learning_rate=learning_rate(outline.batch, steps, float(trained))
        if outline.steps
        else _LEARNING_RATE,
        clip=_CLIP,
        networked=outline.networked,
        runs=tuple(map(tuple, outline.runs)),
    )
    if outline.steps:
        parameters.gradient.sums()  # a noise that cannot be drawn is refused before the charge
    return parameters


def forecast_kamino(
    task: Task, sizes: Mapping[str, int], networked: int, steps: int, batch: float
) -> Forecast:
    """Processor seconds and bytes of training, weighing and drawing.

    Training takes ``steps`` steps on batches of ``batch`` rows and ``networked`` attributes.
    """
    rows, drawn = task.data_rows, task.output_rows
    levels = sum(size for size in sizes.values() if size <= planning.NETWORKED_LEVELS)
    pairs = networked**2
    train = steps * batch * (levels * _WEIGHTS_A_LEVEL + pairs * _WEIGHTS_A_PAIR) * _TRAINED
    draw = (levels * _DRAWN_A_LEVEL + pairs * _DRAWN_A_PAIR) * _DRAWN
    base, each = _WEIGHED
    weigh = base + costs.POOL_ROWS * draw + each * len(task.soft) if task.soft else 0.0
    units = levels + networked * _UNITS_OF_ATTRIBUTE
    memory = max(rows, drawn) * len(sizes) * _BYTES_OF_CELL + _LIBRARIES
    memory += int(batch) * units * _BYTES_OF_UNIT
    on_device = _DEVICE_BYTES * LARGEST_BLOCK * (levels + networked * EMBEDDING_WIDTH)
    on_device += _DEVICE_COPIES * 4 * EMBEDDING_WIDTH * (2 * levels + pairs)
    return Forecast(
        seconds=round(2 + train + weigh + costs.OVERSAMPLING * drawn * draw, 1),
        memory=memory,
        device_memory=costs.DEVICE_CONTEXT + on_device if steps else 0,
    )
