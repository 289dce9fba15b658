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
from cloister.privacy.accounting.calibration import calibrate, concentrated
from cloister.privacy.events import Composed, Event, SampledGaussian
from cloister.privacy.mechanisms.counts import GaussianGradient
from models.discretization.attribute_order import networked, public_sizes
from models.discretization.histograms import wide
from models.kamino.hyper_attributes import Runs
from models.kamino.recipes import Recipe
from models.planning.constraint_marginals import wanted_tables
from models.planning.noise import counts_stage, require_signal
from models.protocol import Budget, Forecast, Parameters, Plan, Stage, Task
from models.sampling import balanced
from models.soft_constraints.reweighting import POOL

HISTOGRAMS, JOINT_TABLES, WEIGHTS = 0.25, 0.06, 0.15
LEARNING_RATE, SLOWEST, CLEAR, CLIP = 0.02, 0.25, 1000.0, 1.0
BATCH_SHARE, LEAST_BATCH, GREATEST_BATCH = 16, 512, 8192


@dataclass(frozen=True)
class KaminoParameters(Parameters):
    """Everything that a fit needs besides the task.

    Noises are multipliers of the sensitivity, None where nothing is asked; ``by_value`` names the
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
class Outline:
    """What a plan asks, before any noise is set: all from public inputs."""

    task: Task
    sequence: tuple[str, ...]
    recipe: Recipe
    sizes: Mapping[str, int]
    tables: tuple[tuple[str, ...], ...]
    by_value: tuple[str, ...]
    runs: Runs

    @classmethod
    def of(cls, task: Task, sequence: tuple[str, ...], recipe: Recipe) -> Outline:
        """The outline of a task under a recipe."""
        sizes = public_sizes(task.domain)
        runs = recipe.trainer.runs([sizes[name] for name in sequence[: networked(sizes)]])
        tables = dict.fromkeys([*_first_table(sequence, runs), *wanted_tables(task, sizes)])
        by_value = wide(task.domain, sequence, task.data_rows)
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
    def deep(self) -> int:
        """How many attributes are modelled jointly."""
        return networked(self.sizes)

    @property
    def rate(self) -> Fraction:
        """The share of rows in a batch: a sixteenth, between 512 and 8,192 rows; at most a half."""
        batch = min(max(self.task.data_rows // BATCH_SHARE, LEAST_BATCH), GREATEST_BATCH)
        return min(Fraction(batch, self.task.data_rows), Fraction(1, 2))

    def training(self, noise: Fraction) -> Iterator[SampledGaussian]:
        """The event of training with a noise multiplier; none where there is nothing to train."""
        if self.steps:
            yield SampledGaussian(self.rate, noise, self.steps, self.task.neighbours.max_rows)


def _first_table(sequence: tuple[str, ...], runs: Runs) -> list[tuple[str, ...]]:
    return [tuple(sequence[place] for place in runs[0])] if runs and len(runs[0]) > 1 else []


@dataclass(frozen=True)
class Noises:
    """Noise multipliers of the counts; None where nothing is asked."""

    histograms: Fraction
    tables: Fraction | None
    weights: Fraction | None

    @classmethod
    def of(cls, outline: Outline, rho: float) -> Noises:
        """Fixed shares of the budget.

        What is not needed is left to training, or shared out where there is none.
        """
        asked = HISTOGRAMS + JOINT_TABLES * bool(outline.tables) + WEIGHTS * bool(outline.task.soft)
        rho = rho if outline.steps else rho / asked
        tables = _multiplier(JOINT_TABLES * rho, len(outline.tables)) if outline.tables else None
        weights = _multiplier(WEIGHTS * rho, 1) if outline.task.soft else None
        return cls(_multiplier(HISTOGRAMS * rho, outline.histograms), tables, weights)


def search(
    task: Task, sequence: tuple[str, ...], budget: Budget, recipe: Recipe
) -> Plan[KaminoParameters]:
    """The plan that spends just the budget.

    Raises:
        PlanError: there is no delta to spend, or the noise would drown the rows.
    """
    if budget.delta <= 0:
        raise PlanError(
            f"method {recipe.name} adds Gaussian noise and needs a delta above 0; allow one, such as 1e-6"
        )
    outline = Outline.of(task, sequence, recipe)
    noises = Noises.of(outline, float(concentrated(budget.epsilon, budget.delta)))
    require_signal(float(noises.histograms), task.data_rows, budget)
    counts = list(_counts(outline, noises))
    noise = (
        _training_noise(outline, budget, [stage.event for stage in counts])
        if outline.steps
        else Fraction(0)
    )
    stages = (*counts, *_training_stage(outline, noise))
    return Plan(
        recipe.name, sequence, stages, _parameters(outline, noises, noise), _forecast(outline)
    )


def _multiplier(rho: float, queries: int) -> Fraction:
    return Fraction(math.ceil(math.sqrt(queries / (2 * rho)) * 1000), 1000)


def _counts(outline: Outline, noises: Noises) -> Iterator[Stage]:
    if outline.histograms:
        words = f"noisy one-way histogram of {len(outline.sequence)} attributes"
        if outline.by_value:
            words += ", and the single values of " + ", ".join(outline.by_value)
        yield counts_stage(outline.task, "histograms", noises.histograms, outline.histograms, words)
    if noises.tables is not None:
        words = "noisy joint tables: " + ", ".join(" x ".join(names) for names in outline.tables)
        yield counts_stage(outline.task, "joint tables", noises.tables, len(outline.tables), words)
    if noises.weights is not None:
        yield outline.recipe.weigher.stage(outline.task, noises.weights)


def _training_noise(outline: Outline, budget: Budget, counts: Sequence[Event]) -> Fraction:
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
            f"method {outline.recipe.name} cannot be accounted for under relation {neighbours.relation} with up to "
            f"{neighbours.max_rows} rows a unit; use relation add_remove, or another method"
        ) from refusal


def _training_stage(outline: Outline, noise: Fraction) -> Iterator[Stage]:
    batch = round(outline.rate * outline.task.data_rows)
    words = outline.recipe.trainer.explain(len(outline.runs), outline.deep)
    if outline.steps:
        mechanism = GaussianGradient(outline.rate, noise, CLIP)
        event = mechanism.events(outline.steps, outline.task.neighbours.max_rows)
        yield Stage(
            "training",
            event,
            f"{words}, in batches of about {batch} rows; noise {float(noise):.3g} x clip",
        )


def learning_rate(rows: float, steps: int, noise: float) -> float:
    """The learning rate, lower where noise is so strong that steps wander: public, from the signal of all batches.

    ``rows`` is the expected batch; the signal is batch * sqrt(steps) / noise, in rows.
    """
    signal = rows * math.sqrt(steps) / noise
    return LEARNING_RATE * min(1.0, max(math.sqrt(signal / CLEAR), SLOWEST))


def _parameters(outline: Outline, noises: Noises, noise: Fraction) -> KaminoParameters:
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
        learning_rate=learning_rate(batch, steps, float(noise)) if outline.steps else LEARNING_RATE,
        clip=CLIP,
        networked=outline.deep,
        runs=tuple(map(tuple, outline.runs)),
    )


def _forecast(outline: Outline) -> Forecast:
    rows, deep = outline.task.data_rows, outline.deep
    drawn, batch = outline.task.output_rows, float(outline.rate * rows)
    levels = sum(size for size in outline.sizes.values() if size <= 256)
    train = outline.steps * batch * (levels * 24 + deep**2 * 24) * 1.2e-9
    draw = (levels * 40 + deep**2 * 12) * 1.5e-9
    weigh = 1 + POOL * draw + 0.02 * len(outline.task.soft) if outline.task.soft else 0.0
    memory = (
        max(rows, drawn) * len(outline.sizes) * 40
        + int(batch) * (levels + deep * 96) * 16
        + 600_000_000
    )
    return Forecast(
        seconds=round(10 + train + weigh + balanced.POOL * drawn * draw, 1), memory=memory
    )
