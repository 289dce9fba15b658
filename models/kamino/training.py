"""Private training on per-example gradients, and calibration to released histograms.

Source: Kamino Algorithm 2, lines 11 to 17. The optimiser is Adam with the known variance of the
noise taken out of the second moment (Tang, Shpilevskiy, Lecuyer, "DP-AdamBC", 2023), a cosine
schedule, and weights averaged over the second half. Noisy mean gradients come from the door, step
by step.

Per-example gradients are in the units of a learner, summed on a device, sums on the host.

A parameter learnt in units of ``gain`` changes as if it were gain * x and x were learnt: its
gradient is multiplied by the gain before clipping, and so is its step. Units decide what part of a
clipped gradient, and so of the budget, each parameter gets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Protocol

import torch
from torch import Tensor

from cloister.arrays import Booleans, Floats, Integers
from cloister.devices import Device
from cloister.models.kamino.networks import Tensors, TupleNetwork
from cloister.models.protocol import Progress
from cloister.privacy.queries import clipped_gradients
from cloister.privacy.queries.query import Door, TableRows

_FIRST_DECAY = 0.9
"""Decay of Adam's first moment per step; Adam's default."""

_SECOND_DECAY = 0.999
"""Decay of Adam's second moment per step; Adam's default."""

_FLOOR = 0.3
"""Least second moment after the noise is subtracted, in variances of the noise."""

_PASSES = 25
"""Passes of iterative proportional fitting."""

_CHANGE = (0.2, 5.0)
"""Bounds on the factor by which one pass changes a ratio, so that passes converge."""

_LEAST_SHARE = 1e-7
"""Least share of a level in a denominator."""

CALIBRATION_ROWS = 20_000
"""Rows drawn from the model to calibrate its biases to released histograms."""


@dataclass(frozen=True, eq=False)
class NoisyGradients:
    """Mean gradients over Poisson samples: noisy sums, divided by the expected batch."""

    private: Door[TableRows]
    rows: clipped_gradients.SampledRows
    label: str

    @property
    def noise_variance(self) -> float:
        """The variance of each coordinate of a mean gradient, a public number."""
        mechanism = self.rows.mechanism
        return (float(mechanism.noise_multiplier) * mechanism.clip / self.rows.expected) ** 2

    def step(
        self, gradient: clipped_gradients.Gradient, shapes: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """The noisy mean gradient over one Poisson sample, float32, by parameter name.

        See `GradientSum`.
        """
        query = clipped_gradients.GradientSum(self.rows, gradient, shapes)
        flat = self.private.answer(query, self.rows.mechanism, self.label) / self.rows.expected
        pieces = torch.split(torch.as_tensor(flat).float(), [t.numel() for t in shapes.values()])
        return {
            name: piece.reshape(shapes[name].shape)
            for name, piece in zip(shapes, pieces, strict=True)
        }


@dataclass(frozen=True)
class Dense:
    """Gradient i is ``values[i]``, written out: (b, ...) -> (...)."""

    values: Tensor

    def squared_norms(self) -> Tensor:
        return self.values.flatten(1).double().square().sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return torch.tensordot(weights, self.values.double(), dims=1)

    def take(self, examples: Tensor | slice) -> Dense:
        return Dense(self.values[examples])


@dataclass(frozen=True)
class HostSum:
    """The gradients of a block, with its sum copied to host memory."""

    block: clipped_gradients.Factored

    def squared_norms(self) -> Tensor:
        return self.block.squared_norms()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self.block.weighted_sum(weights).cpu()

    def take(self, examples: Tensor | slice) -> HostSum:
        return HostSum(self.block.take(examples))


@singledispatch
def in_units(block: clipped_gradients.Factored, gain: Tensor) -> clipped_gradients.Factored:  # noqa: ARG001
    """The gradients of a block multiplied by a gain, a number or one for each column."""
    raise TypeError(f"gradients of type {type(block).__name__} cannot be put in units")


@in_units.register
def _(block: clipped_gradients.Outer, gain: Tensor) -> clipped_gradients.Factored:
    return clipped_gradients.Outer(block.left, block.right * gain)


@in_units.register
def _(block: clipped_gradients.LayeredOuter, gain: Tensor) -> clipped_gradients.Factored:
    return clipped_gradients.LayeredOuter(block.left * gain, block.right, block.mask)


@in_units.register
def _(block: clipped_gradients.Lookup, gain: Tensor) -> clipped_gradients.Factored:
    return clipped_gradients.Lookup(block.index, block.values * gain, block.rows)


@in_units.register
def _(block: Dense, gain: Tensor) -> clipped_gradients.Factored:
    return Dense(block.values * gain)


def gradient_in_units(
    gradient: clipped_gradients.FactoredGradient, gains: Mapping[str, Tensor]
) -> clipped_gradients.FactoredGradient:
    """A whole gradient in the units of its parameters, its sums on the host."""
    return {name: HostSum(in_units(block, gains[name])) for name, block in gradient.items()}


class Learner(Protocol):
    """A model that can be trained on per-example gradients."""

    def gradient(self, parameters: Tensors, codes: Tensor) -> clipped_gradients.FactoredGradient:
        """Per-example gradients of the loss of rows of levels (b, k).

        Row i of each factor depends on example i only.
        """
        ...

    def gains(self) -> Mapping[str, Tensor]:
        """The units in which each parameter is learnt."""
        ...


@dataclass(frozen=True, eq=False)
class GradientAt:
    """The per-example gradients of a learner at some parameters, in its units, on a device.

    It can be sent to whoever holds rows: parameters are noisy, and so public.
    """

    learner: Learner
    parameters: Tensors
    gains: Tensors
    where: torch.device

    def __call__(self, codes: Tensor) -> clipped_gradients.FactoredGradient:
        """Of levels (b, k)."""
        gradient = self.learner.gradient(self.parameters, codes.to(self.where))
        return gradient_in_units(gradient, self.gains)


@dataclass(frozen=True)
class TrainingSchedule:
    """How long and how fast to train: noisy ``steps``, and the initial learning ``rate``."""

    steps: int
    rate: float


class Adam:
    """Adam on gradients with noise of known variance."""

    def __init__(self, parameters: Tensors, noise_variance: float) -> None:
        self._noise = noise_variance
        self._mean = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self._square = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self._step = 0

    def directions(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The direction of the next step, by parameter name."""
        self._step += 1
        return {name: self._direction(name, gradient) for name, gradient in gradients.items()}

    def _direction(self, name: str, gradient: Tensor) -> Tensor:
        self._mean[name] = _FIRST_DECAY * self._mean[name] + (1 - _FIRST_DECAY) * gradient
        self._square[name] = (
            _SECOND_DECAY * self._square[name] + (1 - _SECOND_DECAY) * gradient.square()
        )
        mean = self._mean[name] / (1 - _FIRST_DECAY**self._step)
        square = self._square[name] / (1 - _SECOND_DECAY**self._step) - self._noise
        return mean / (torch.sqrt(torch.clamp(square, min=_FLOOR * self._noise)) + 1e-8)


class Average:
    """The running mean of parameters."""

    def __init__(self) -> None:
        self._count = 0
        self.mean: dict[str, Tensor] = {}

    def add(self, parameters: Tensors) -> None:
        """Add one more set of parameters."""
        self._count += 1
        before = self.mean or parameters
        self.mean = {
            name: before[name] + (value - before[name]) / self._count
            for name, value in parameters.items()
        }


def train_privately(
    learner: Learner,
    start: Tensors,
    training: NoisyGradients,
    schedule: TrainingSchedule,
    device: Device,
    progress: Progress,
) -> dict[str, Tensor]:
    """Parameters after ``schedule.steps`` noisy steps, averaged over the second half.

    Gradients, their norms and clipped sums are computed on the device; the noise is added to the
    sums on the host, where the parameters are returned.
    """
    where = device.torch
    gains = _moved(learner.gains(), where)
    parameters, average = _moved(start, where), Average()
    adam = Adam(parameters, training.noise_variance)
    for step in range(schedule.steps):
        gradient = GradientAt(learner, parameters, gains, where)
        directions = adam.directions(_moved(training.step(gradient, parameters), where))
        rate = schedule.rate * 0.5 * (1 + math.cos(math.pi * step / schedule.steps))
        parameters = {
            name: value - rate * gains[name] * directions[name]
            for name, value in parameters.items()
        }
        if step >= schedule.steps // 2:
            average.add(parameters)
        progress(step + 1, schedule.steps)
    return _moved(average.mean, torch.device("cpu"))


def _moved(tensors: Mapping[str, Tensor], where: torch.device) -> dict[str, Tensor]:
    return {name: value.to(where) for name, value in tensors.items()}


@dataclass(frozen=True)
class BiasFit:
    """The ``bias`` (size,) under which a conditional matches a released histogram on average.

    ``probabilities`` (n, size) are those of the rows under it.
    """

    bias: Tensor
    probabilities: Tensor

    def draw(self, generator: torch.Generator) -> Tensor:
        """One level per row, (n,)."""
        return torch.multinomial(self.probabilities, 1, generator=generator)[:, 0]


def fit_bias(logits: Tensor, shares: Sequence[Tensor]) -> BiasFit:
    """The bias under which rows of ``logits`` (n, levels) have the given shares on average.

    The levels are those of one attribute, or of several together, the last fastest: ``shares``
    holds one (size,) for each. Iterative proportional fitting.
    """
    shape = [len(share) for share in shares]
    probabilities = torch.softmax(logits, 1).double()
    ratio = torch.ones(shape, dtype=torch.float64)
    for _ in range(_PASSES):
        for axis, share in enumerate(shares):
            weighed = probabilities * ratio.flatten()
            mean = (weighed / weighed.sum(1, keepdim=True)).mean(0).reshape(shape)
            rest = [dimension for dimension in range(len(shape)) if dimension != axis]
            marginal = mean.sum(rest, keepdim=True) if rest else mean
            wanted = share.reshape(marginal.shape)
            ratio = ratio * torch.clamp(
                (wanted + _LEAST_SHARE) / (marginal + _LEAST_SHARE), *_CHANGE
            )
    return BiasFit(torch.log(ratio.flatten()).float(), probabilities * ratio.flatten())


def calibrate_biases(
    network: TupleNetwork,
    parameters: Tensors,
    shares: list[Floats],
    generator: torch.Generator,
    allowed: Callable[[int, Integers], Booleans | None],
) -> dict[str, Tensor]:
    """The parameters with biases shifted so that each attribute has its released histogram.

    Attribute by attribute, on ``CALIBRATION_ROWS`` rows drawn from those before it, of which rules
    leave the ``allowed`` levels (n, size), or all; post-processing.
    """
    moved = {name: value.clone() for name, value in parameters.items()}
    codes = torch.zeros(CALIBRATION_ROWS, len(shares), dtype=torch.long)
    for position, share in enumerate(shares):
        logits, left = network.logits(moved, codes, position), allowed(position, codes.numpy())
        if left is not None:
            logits = torch.where(torch.as_tensor(left), logits, -torch.inf)
        fitted = fit_bias(logits, [torch.as_tensor(share)])
        moved[f"head.{position}"][:, -1] += fitted.bias
        codes[:, position] = fitted.draw(generator)
    return moved
