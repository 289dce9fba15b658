"""Private training on per-example gradients, and calibration to released histograms.

Source: Kamino Algorithm 2, lines 11 to 17. The optimiser is Adam with the known variance of the
noise taken out of the second moment (Tang, Shpilevskiy, Lecuyer, "DP-AdamBC", 2023), a cosine
schedule, and weights averaged over the second half. Parameters are learnt in units of their own
(:mod:`cloister.models.kamino.blocks`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cloister.arrays import Floats
from cloister.devices import Device
from cloister.models.kamino.blocks import gradient_in_units
from cloister.models.kamino.gradients import NoisyGradients
from cloister.models.kamino.networks.network import Tensors, TupleNetwork
from cloister.models.protocol import Progress
from cloister.privacy.queries.clipped_gradients import FactoredGradient

_FIRST_DECAY = 0.9
"""Decay of Adam's first moment a step; Adam's usual value."""

_SECOND_DECAY = 0.999
"""Decay of Adam's second moment a step; Adam's usual value."""

_FLOOR = 0.3
"""Least second moment, in variances of the noise, once the noise has been taken out of it."""

_PASSES = 25
"""Passes of iterative proportional fitting."""

_CHANGE = (0.2, 5.0)
"""Factors by which one pass changes a ratio at least and at most, so that passes converge."""

_LEAST_SHARE = 1e-7
"""Share of a level at least, where it is divided by."""

CALIBRATION_ROWS = 20_000
"""Rows drawn from the model to calibrate its biases to released histograms."""


class Learner(Protocol):
    """A model that can be trained on per-example gradients."""

    def gradient(self, parameters: Tensors, codes: Tensor) -> FactoredGradient:
        """Per-example gradients of the loss of rows of levels (b, k).

        Row i of each factor depends on example i only.
        """
        ...

    def gains(self) -> Mapping[str, Tensor]:
        """The units in which each parameter is learnt."""
        ...


@dataclass(frozen=True)
class TrainingSchedule:
    """How long and how fast to train: noisy ``steps``, and the learning ``rate`` at the start."""

    steps: int
    rate: float


class Adam:
    """Adam on gradients whose noise variance is known."""

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
        now = parameters

        def gradient(codes: Tensor, now: Tensors = now) -> FactoredGradient:
            return gradient_in_units(learner.gradient(now, codes.to(where)), gains)

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
    """The ``bias`` (size,) under which a conditional has a released histogram on average.

    ``probabilities`` (n, size) are those of the rows under it.
    """

    bias: Tensor
    probabilities: Tensor

    def draw(self, generator: torch.Generator) -> Tensor:
        """One level a row, (n,)."""
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
            tilted = probabilities * ratio.flatten()
            mean = (tilted / tilted.sum(1, keepdim=True)).mean(0).reshape(shape)
            others = [other for other in range(len(shape)) if other != axis]
            marginal = mean.sum(others, keepdim=True) if others else mean
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
) -> dict[str, Tensor]:
    """The parameters with biases moved so that each attribute has its released shares of levels.

    Attribute by attribute, on ``CALIBRATION_ROWS`` rows drawn from those before it;
    post-processing.
    """
    moved = {name: value.clone() for name, value in parameters.items()}
    codes = torch.zeros(CALIBRATION_ROWS, len(shares), dtype=torch.long)
    for place, share in enumerate(shares):
        fitted = fit_bias(network.logits(moved, codes, place), [torch.as_tensor(share)])
        moved[f"head.{place}"][:, -1] += fitted.bias
        codes[:, place] = fitted.draw(generator)
    return moved
