"""The parameter search: from a budget and public sizes to every parameter of a fit.

Source: Kamino Algorithm 6. Instead of lowering parameters by priority until the budget holds, the
budget is shared out and the noise of training is solved for, so that a greater budget never gives a
noisier plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cloister.errors import PlanError, UnsupportedEvent
from cloister.figures import count_of, figure
from cloister.models import planning
from cloister.models.core import budget_split, costs
from cloister.models.core.histograms import counted_by_value
from cloister.models.kamino.recipe import EMBEDDING_WIDTH, LARGEST_BLOCK, KaminoRecipe, Runs
from cloister.models.task import Budget, Forecast, Parameters, Plan, Stage, Task
from cloister.privacy.accounting.accountants import calibrate, zcdp_rho
from cloister.privacy.events import Composed, Event, SampledGaussian
from cloister.privacy.mechanisms.noise import DiscreteGaussian, GaussianGradient

_HISTOGRAMS = 0.25
"""Part of the budget, as a share of rho, for one-way histograms."""

_JOINT_TABLES = 0.06
"""Part of the budget for joint tables of hard constraints, if there are any."""

_WEIGHTS = 0.15
"""Part of the budget for counts of violations of soft constraints, if there are any."""

_LEARNING_RATE = 0.02
"""Learning rate at the start of training, where the signal is clear."""

_SLOWEST = 0.25
"""Least factor on the learning rate."""

_CLEAR_SIGNAL = 1000.0
"""Signal, in rows, from which on the learning rate is not lowered; see `learning_rate`."""

_CLIP = 1.0
"""Clipping norm of a row's gradient, in the units of the learner."""

_BATCH_SHARE = 16
"""A batch is one row of this many, within the two bounds below."""

_LEAST_BATCH = 512
"""Rows of an expected batch at least."""

_TRAINED = 2e-9
"""Seconds of training for each row of a batch and weight that it meets, forward and backward."""

_WEIGHTS_A_LEVEL, _WEIGHTS_A_PAIR = 24, 24
"""Weights that a row meets for each level of an attribute, and for each pair of attributes."""

_DRAWN = 1.5e-9
"""Seconds of drawing a row, for each of the weights that it then meets."""

_DRAWN_A_LEVEL, _DRAWN_A_PAIR = 40, 12
"""Weights that a drawn row meets for each level and for each pair of attributes."""

_WEIGHED = (1.0, 0.02)
"""Seconds of fitting weights of soft constraints, and those for each."""

_BYTES_OF_CELL = 40
"""Bytes of a cell of the table, or of the drawn rows, in all its copies."""

_BYTES_OF_UNIT, _UNITS_OF_ATTRIBUTE = 16, 96
"""Bytes of a number of a row in a batch, and numbers of an attribute beside its levels."""

_LIBRARIES = 400_000_000
"""Bytes of the libraries of training."""

_DEVICE_BYTES = 100
"""Bytes on a device of each output and embedded level of a row that is computed: some ten copies,
in single and in double precision."""

_DEVICE_COPIES = 12
"""Copies of all parameters on a device: moments, averages, gradients, sums in double precision."""

_GREATEST_BATCH = 8192
"""Rows of an expected batch at most."""


@dataclass(frozen=True)
class KaminoParameters(Parameters):
    """Everything that a fit needs besides the task.

    Noises are multipliers of the sensitivity, None where there is no query; ``by_value`` names the
    attributes whose single values are counted, ``joint_tables`` the attributes of each joint table;
    the first ``networked`` attributes are modelled together, in ``runs`` of places that are one
    unit each.
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

    def training(self, noise: Fraction) -> Iterator[SampledGaussian]:
        """The event of training with a noise multiplier; none where there is nothing to train."""
        if self.steps:
            yield SampledGaussian(self.rate, noise, self.steps, self.task.neighbours.max_rows)


def _first_table(sequence: tuple[str, ...], runs: Runs) -> list[tuple[str, ...]]:
    return [tuple(sequence[place] for place in runs[0])] if runs and len(runs[0]) > 1 else []


@dataclass(frozen=True)
class _Noises:
    """Noise multipliers of the counts; None where there is no query."""

    histograms: Fraction
    tables: Fraction | None
    weights: Fraction | None

    @classmethod
    def of(cls, outline: _Outline, rho: float) -> _Noises:
        """Fixed shares of the budget.

        What is not needed is left to training, or shared out where there is none.
        """
        tables, soft = bool(outline.tables), bool(outline.task.measured_soft)
        counted = _HISTOGRAMS + _JOINT_TABLES * tables + _WEIGHTS * soft
        rho = rho if outline.steps else rho / counted
        return cls(
            _multiplier(_HISTOGRAMS * rho, outline.histograms),
            _multiplier(_JOINT_TABLES * rho, len(outline.tables)) if tables else None,
            _multiplier(_WEIGHTS * rho, 1) if soft else None,
        )


def plan_kamino(
    task: Task, sequence: tuple[str, ...], budget: Budget, recipe: KaminoRecipe
) -> Plan[KaminoParameters]:
    """The plan that spends just the budget.

    Raises:
        PlanError: there is no delta to spend, or the noise would drown the rows.
    """
    budget_split.require_delta(recipe.name, budget)
    outline = _Outline.of(task, sequence, recipe)
    noises = _Noises.of(outline, float(zcdp_rho(budget.epsilon, budget.delta)))
    scale = DiscreteGaussian(noises.histograms).scale(task.neighbours.partition)
    budget_split.require_signal(scale, task.data_rows, budget)
    counts = list(_counts(outline, noises))
    noise = (
        _training_noise(outline, budget, [stage.event for stage in counts])
        if outline.steps
        else Fraction(0)
    )
    stages = (*counts, *_training_stage(outline, noise))
    return Plan(
        recipe.name,
        sequence,
        stages,
        _parameters(outline, noises, noise),
        forecast_kamino(task, outline.sizes, outline.networked, outline.steps, outline.batch),
        _mapped(outline, noises),
        _rate_deviation(outline, noises),
    )


def _rate_deviation(outline: _Outline, noises: _Noises) -> float | None:
    if noises.weights is None:
        return None
    return outline.recipe.weigher.deviation(float(noises.weights), outline.task)


def _mapped(outline: _Outline, noises: _Noises) -> dict[tuple[str, ...], float]:
    if noises.tables is None:
        return {}
    scale = DiscreteGaussian(noises.tables).scale(outline.task.neighbours.partition)
    return dict.fromkeys(outline.tables, scale)


def _multiplier(rho: float, queries: int) -> Fraction:
    return Fraction(math.ceil(math.sqrt(queries / (2 * rho)) * 1000), 1000)


def _counts(outline: _Outline, noises: _Noises) -> Iterator[Stage]:
    if outline.histograms:
        words = f"noisy one-way histogram of {count_of(len(outline.sequence), 'attribute')}"
        if outline.by_value:
            words += ", and the single values of " + ", ".join(outline.by_value)
        yield budget_split.counts_stage(
            outline.task, "histograms", noises.histograms, outline.histograms, words
        )
    if noises.tables is not None:
        words = "noisy joint tables: " + ", ".join(" x ".join(names) for names in outline.tables)
        yield budget_split.counts_stage(
            outline.task, "joint tables", noises.tables, len(outline.tables), words
        )
    if noises.weights is not None:
        yield outline.recipe.weigher.stage(outline.task, noises.weights)


def _training_noise(outline: _Outline, budget: Budget, counts: Sequence[Event]) -> Fraction:
    neighbours = outline.task.neighbours
    spent = tuple((event, 1) for event in counts)
    try:
        return calibrate(
            lambda noise: Composed((*spent, *((event, 1) for event in outline.training(noise)))),
            budget.epsilon,
            budget.delta,
            neighbours.relation,
        )
    except UnsupportedEvent as refusal:
        raise PlanError(
            f"method {outline.recipe.name} cannot be accounted for under relation "
            f"{neighbours.relation} with up to {neighbours.max_rows} rows a unit; "
            "use relation add_remove, or another method"
        ) from refusal


def _training_stage(outline: _Outline, noise: Fraction) -> Iterator[Stage]:
    batch = round(outline.rate * outline.task.data_rows)
    words = outline.recipe.trainer.explain(len(outline.runs), outline.networked)
    if outline.steps:
        mechanism = GaussianGradient(outline.rate, noise, _CLIP)
        event = mechanism.events(outline.steps, outline.task.neighbours.max_rows)
        yield Stage(
            "training",
            event,
            f"{words}, in batches of about {count_of(batch, 'row')}; noise {figure(float(noise))} "
            "x clip",
        )


def learning_rate(rows: float, steps: int, noise: float) -> float:
    """The learning rate, lower where the noise of a step is strong; public.

    ``rows`` is the expected batch; the signal of all batches is rows * sqrt(steps) / noise, in
    rows.
    """
    signal = rows * math.sqrt(steps) / noise
    return _LEARNING_RATE * min(1.0, max(math.sqrt(signal / _CLEAR_SIGNAL), _SLOWEST))


def _parameters(outline: _Outline, noises: _Noises, noise: Fraction) -> KaminoParameters:
    steps = outline.recipe.trainer.steps
    batch = float(outline.rate * outline.task.data_rows)
    return KaminoParameters(
        histogram_noise=noises.histograms,
        by_value=outline.by_value,
        joint_tables=outline.tables,
        joint_noise=noises.tables,
        weight_noise=noises.weights,
        training_noise=noise,
        sampling_rate=outline.rate,
        steps=steps,
        learning_rate=learning_rate(batch, steps, float(noise))
        if outline.steps
        else _LEARNING_RATE,
        clip=_CLIP,
        networked=outline.networked,
        runs=tuple(map(tuple, outline.runs)),
    )


def forecast_kamino(
    task: Task, sizes: Mapping[str, int], networked: int, steps: int, batch: float
) -> Forecast:
    """Seconds on the processor and bytes of training in batches, of weighing and of drawing.

    ``steps`` of training, on batches of ``batch`` rows, of ``networked`` attributes.
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
