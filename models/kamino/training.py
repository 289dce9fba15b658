"""Private training of the tuple network, and its calibration to the released histograms.

Source: Kamino Algorithm 2. The optimiser is Adam with the known variance of the noise taken out of the second moment
(Tang, Shpilevskiy, Lecuyer, "DP-AdamBC", 2023), a cosine schedule, and weights averaged over the second half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloister.privacy.private import Training
from models.kamino.network import Network

FIRST, SECOND = 0.9, 0.999
FLOOR = 0.3
PASSES = 25
SAMPLE = 20_000


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train: ``steps`` noisy gradients, learning ``rate`` at the start."""

    steps: int
    rate: float


class Adam:
    """Adam on gradients whose noise variance is known."""

    def __init__(self, parameters: Mapping[str, Tensor], noise_variance: float) -> None:
        self._noise = noise_variance
        self._mean = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self._square = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self._step = 0

    def update(
        self, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor], rate: float
    ) -> dict[str, Tensor]:
        """The parameters after one step."""
        self._step += 1
        return {name: value - rate * self._direction(name, gradients[name]) for name, value in parameters.items()}

    def _direction(self, name: str, gradient: Tensor) -> Tensor:
        self._mean[name] = FIRST * self._mean[name] + (1 - FIRST) * gradient
        self._square[name] = SECOND * self._square[name] + (1 - SECOND) * gradient.square()
        mean = self._mean[name] / (1 - FIRST**self._step)
        square = self._square[name] / (1 - SECOND**self._step) - self._noise
        return mean / (torch.sqrt(torch.clamp(square, min=FLOOR * self._noise)) + 1e-8)


def train(
    network: Network,
    start: Mapping[str, Tensor],
    training: Training,
    schedule: Schedule,
    progress: Callable[[int, int], None],
) -> dict[str, Tensor]:
    """Parameters after ``schedule.steps`` noisy steps, averaged over the second half."""
    parameters, average, averaged = dict(start), dict(start), 0
    adam = Adam(parameters, training.noise_variance)
    for step in range(schedule.steps):
        noisy = training.step(partial(network.gradient, parameters), parameters)
        rate = schedule.rate * 0.5 * (1 + math.cos(math.pi * step / schedule.steps))
        parameters = adam.update(parameters, noisy, rate)
        if step >= schedule.steps // 2:
            averaged += 1
            average = {name: average[name] + (value - average[name]) / averaged for name, value in parameters.items()}
        progress(step + 1, schedule.steps)
    return average


def calibrate(
    network: Network, parameters: Mapping[str, Tensor], shares: list[NDArray[np.float64]], generator: torch.Generator
) -> dict[str, Tensor]:
    """The parameters with biases moved so that each attribute's share of levels is the released one.

    Attribute by attribute, on ``SAMPLE`` rows drawn from those before it; post-processing.
    """
    calibrated = {name: value.clone() for name, value in parameters.items()}
    codes = torch.zeros(SAMPLE, len(shares), dtype=torch.long)
    for place, share in enumerate(shares):
        probabilities = torch.softmax(network.logits(calibrated, codes, place), 1).double()
        ratio = _ratio(probabilities, torch.as_tensor(share))
        calibrated[f"head.{place}"][:, -1] += torch.log(ratio).float()
        tilted = probabilities * ratio
        codes[:, place] = torch.multinomial(tilted, 1, generator=generator)[:, 0]
    return calibrated


def _ratio(probabilities: Tensor, share: Tensor) -> Tensor:
    ratio = torch.ones_like(share)
    for _ in range(PASSES):
        tilted = probabilities * ratio
        mean = (tilted / tilted.sum(1, keepdim=True)).mean(0)
        ratio = ratio * torch.clamp((share + 1e-7) / (mean + 1e-7), 0.2, 5.0)
    return ratio
