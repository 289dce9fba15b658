"""Training one sub-model after the other, and moving their biases to released histograms.

Source: Kamino Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cloister.models.kamino.networks.network import Tensors
from cloister.models.kamino.paper.hyper_attributes import Units
from cloister.models.kamino.paper.networks.heads import LevelHead
from cloister.models.kamino.paper.networks.submodels import SubModel, last_embeddings
from cloister.models.kamino.paper.unit_chain import UnitChain, submodels_of
from cloister.models.kamino.trainers import Material
from cloister.models.kamino.training import CALIBRATION_ROWS, fit_bias, train_privately


def train_chain(material: Material, steps: int, recipe: Mapping[str, Any]) -> UnitChain:
    """The chain of sub-models that are each trained for ``steps``, by the names of a recipe."""
    units = Units(material.runs, material.sizes)
    submodels = submodels_of(units, material.bins, recipe)
    trained = _train_in_turn(submodels, material, steps) if submodels else ()
    chain = UnitChain(units, submodels, trained, material.first, material.shares, recipe)
    return calibrate_chain(chain, material)


def _train_in_turn(
    submodels: Sequence[SubModel], material: Material, steps: int
) -> tuple[Tensors, ...]:
    trained: list[dict[str, Tensor]] = []
    total = len(submodels) * steps
    gradients = material.gradients()
    for at, submodel in enumerate(submodels):
        known = last_embeddings(trained)

        def progress(done: int, _: int, before: int = at * steps) -> None:
            material.progress(before + done, total)

        start = submodel.initial(known, material.generator)
        trained.append(
            train_privately(
                submodel, start, gradients, material.schedule, material.device, progress
            )
        )
    return tuple(trained)


def calibrate_chain(chain: UnitChain, material: Material) -> UnitChain:
    """The chain with biases moved so that each attribute has its released shares."""
    codes = torch.zeros(CALIBRATION_ROWS, len(material.sizes), dtype=torch.long)
    parameters = [dict(own) for own in chain.parameters]
    for unit, run in enumerate(chain.units.runs):
        probabilities = chain.joint(unit, codes).expand(CALIBRATION_ROWS, -1)
        if unit and isinstance(chain.submodels[unit - 1].head, LevelHead):
            fitted = fit_bias(
                torch.log(probabilities), [torch.as_tensor(material.shares[place]) for place in run]
            )
            head = parameters[unit - 1]["head"].clone()
            head[:, -1] += fitted.bias
            parameters[unit - 1]["head"], probabilities = head, fitted.probabilities
        levels = torch.multinomial(probabilities, 1, generator=material.generator)[:, 0]
        codes[:, list(run)] = chain.units.separate(levels, unit)
    return UnitChain(
        chain.units, chain.submodels, tuple(parameters), chain.first, chain.shares, chain.recipe
    )
