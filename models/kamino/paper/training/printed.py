"""Algorithm 2 as printed: plain gradient descent, everything learnt is handed on.

Source: Kamino Algorithm 2, lines 5 to 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cloister.devices import Device
from cloister.models.kamino.blocks import gradient_in_units
from cloister.models.kamino.gradients import NoisyGradients
from cloister.models.kamino.networks.network import Tensors
from cloister.models.kamino.paper.hyper_attributes import Units
from cloister.models.kamino.paper.unit_chain import UnitChain, submodels_of
from cloister.models.kamino.trainers import Material
from cloister.models.kamino.training import Learner, TrainingSchedule
from cloister.models.protocol import Progress

if TYPE_CHECKING:
    from cloister.privacy.queries.clipped_gradients import FactoredGradient


def train_as_printed(material: Material, recipe: Mapping[str, Any]) -> UnitChain:
    """One sub-model after the other, each from all that those before it have learnt."""
    units = Units(material.runs, material.sizes)
    submodels = submodels_of(units, material.bins, recipe)
    gradients = material.gradients() if submodels else None
    steps, total = material.schedule.steps, material.schedule.steps * len(submodels)
    trained: list[Tensors] = []
    known: dict[str, Tensor] = {}
    for at, submodel in enumerate(submodels):
        assert gradients is not None

        def progress(done: int, _: int, before: int = at * steps) -> None:
            material.progress(before + done, total)

        start = submodel.initial(known, material.generator)
        own = descend(submodel, start, gradients, material.schedule, material.device, progress)
        trained.append(own)
        known |= own
    return UnitChain(units, submodels, tuple(trained), material.first, material.shares, recipe)


def descend(
    learner: Learner,
    start: Tensors,
    training: NoisyGradients,
    schedule: TrainingSchedule,
    device: Device,
    progress: Progress,
) -> dict[str, Tensor]:
    """Parameters after ``schedule.steps`` steps of plain gradient descent (lines 11 to 17)."""
    where = device.torch
    gains = {name: value.to(where) for name, value in learner.gains().items()}
    parameters = {name: value.to(where) for name, value in start.items()}
    for step in range(schedule.steps):
        now = parameters

        def gradient(codes: Tensor, now: Tensors = now) -> FactoredGradient:
            return gradient_in_units(learner.gradient(now, codes.to(where)), gains)

        noisy = training.step(gradient, parameters)
        parameters = {
            name: value - schedule.rate * noisy[name].to(where)
            for name, value in parameters.items()
        }
        progress(step + 1, schedule.steps)
    return {name: value.cpu() for name, value in parameters.items()}


def level_shares(chain: UnitChain, rows: int, generator: torch.Generator) -> list[Tensor]:
    """The share of rows of the chain at each level of its attributes, from so many drawn rows."""
    codes = torch.zeros(rows, len(chain.units.sizes), dtype=torch.long)
    for unit, run in enumerate(chain.units.runs):
        probabilities = chain.joint(unit, codes).expand(rows, -1)
        levels = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
        codes[:, list(run)] = chain.units.separate(levels, unit)
    return [
        torch.bincount(codes[:, at], minlength=size).double() / rows
        for at, size in enumerate(chain.units.sizes)
    ]
