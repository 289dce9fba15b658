"""Training one sub-model after the other, as the paper does.

Source: Kamino Algorithm 2; section 4.1 for the variant in which each starts from its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from models.discretization.bins import Bins
from models.kamino.network import EMBEDDING_WIDTH, Tensors
from models.kamino.paper.heads import LevelHead
from models.kamino.paper.hyper_attributes import RUNS, Units
from models.kamino.paper.submodels import INHERITANCES, SubModel
from models.kamino.paper.unit_chain import UnitChain, restore_unit_chain, submodels_of
from models.kamino.trainers import Material, Runs
from models.kamino.training import CALIBRATION_ROWS, fit_bias, train_privately
from models.protocol import Arrays


@dataclass(frozen=True)
class OneByOne:
    """One run for each unit but the first; the parts are chosen by name.

    ``units`` of :data:`models.kamino.paper.hyper_attributes.RUNS`, ``heads`` of
    :data:`models.kamino.paper.heads.HEADS`, ``attention`` of
    :data:`models.kamino.paper.attention.ATTENTIONS`, ``inheritance`` of
    :data:`models.kamino.paper.submodels.INHERITANCES`.
    """

    units: str = "attributes"
    attention: str = "softmax"
    heads: str = "levels"
    inheritance: str = "embeddings"
    steps: int = 100
    width: int = field(default=EMBEDDING_WIDTH)

    def runs(self, sizes: Sequence[int]) -> Runs:
        return RUNS[self.units](sizes)

    def repeats(self, units: int) -> int:
        return max(units - 1, 0)

    def train(self, material: Material) -> UnitChain:
        units = Units(material.runs, material.sizes)
        submodels = submodels_of(units, material.bins, self._recipe)
        trained = self._train_in_turn(submodels, material) if submodels else ()
        chain = UnitChain(units, submodels, trained, material.first, material.shares, self._recipe)
        return _calibrate(chain, material)

    def restore(self, meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Bins]) -> UnitChain:
        return restore_unit_chain(meta, arrays, bins)

    def explain(self, units: int, attributes: int) -> str:
        return (
            f"{self.repeats(units)} runs of {self.steps} steps of DP-SGD, one a sub-model, "
            f"on {attributes} attributes"
        )

    @property
    def _recipe(self) -> Mapping[str, Any]:
        return {"attention": self.attention, "heads": self.heads, "width": self.width}

    def _train_in_turn(
        self, submodels: Sequence[SubModel], material: Material
    ) -> tuple[Tensors, ...]:
        trained: list[dict[str, Tensor]] = []
        total = len(submodels) * self.steps
        gradients = material.gradients()
        for at, submodel in enumerate(submodels):
            known = INHERITANCES[self.inheritance](trained)

            def progress(done: int, _: int, before: int = at * self.steps) -> None:
                material.progress(before + done, total)

            start = submodel.initial(known, material.generator)
            trained.append(train_privately(submodel, start, gradients, material.schedule, progress))
        return tuple(trained)


def _calibrate(chain: UnitChain, material: Material) -> UnitChain:
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
