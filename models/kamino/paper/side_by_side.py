"""Sub-models side by side: each from its own start, all trained in the same steps.

Source: Kamino section 4.1, last paragraph. A step asks the door once: the gradients of all
sub-models for a row are one vector, clipped together, so that the order of the noise does not
depend on which sub-model is ready first.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from joblib import cpu_count
from threadpoolctl import threadpool_limits
from torch import Tensor

from cloister.privacy.mechanisms.clipping import FactoredGradient
from models.kamino.network import Tensors
from models.kamino.paper.hyper_attributes import Units
from models.kamino.paper.in_turn import calibrate_chain
from models.kamino.paper.submodels import SubModel
from models.kamino.paper.unit_chain import UnitChain, submodels_of
from models.kamino.trainers import Material
from models.kamino.training import train_privately


@dataclass(frozen=True)
class Stack:
    """Several sub-models as one learner: parameter ``NUMBER.name`` is that of one of them.

    Gradients of a block of rows are computed by ``workers``, one sub-model at a time each.
    """

    submodels: tuple[SubModel, ...]
    workers: Executor

    def gradient(self, parameters: Tensors, codes: Tensor) -> FactoredGradient:
        """Per-example gradients of the losses of all sub-models, from levels (b, k)."""
        own = [self.part(parameters, at) for at in range(len(self.submodels))]
        found = self.workers.map(
            lambda submodel, its: submodel.gradient(its, codes), self.submodels, own
        )
        return {
            f"{at}.{name}": block
            for at, blocks in enumerate(found)
            for name, block in blocks.items()
        }

    def gains(self) -> dict[str, Tensor]:
        """The units in which each parameter is learnt."""
        return self.joined([submodel.gains() for submodel in self.submodels])

    def part(self, parameters: Tensors, at: int) -> dict[str, Tensor]:
        """The parameters of one sub-model."""
        prefix = f"{at}."
        return {
            name.removeprefix(prefix): value
            for name, value in parameters.items()
            if name.startswith(prefix)
        }

    def joined(self, parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """The parameters of all sub-models."""
        return {
            f"{at}.{name}": value for at, own in enumerate(parts) for name, value in own.items()
        }


def train_side_by_side(material: Material, recipe: Mapping[str, Any]) -> UnitChain:
    """The chain of sub-models that are trained together, each from its own start.

    They share the cores, a thread each; torch leaves the interpreter while it computes.
    """
    units = Units(material.runs, material.sizes)
    submodels = submodels_of(units, material.bins, recipe)
    trained: tuple[Tensors, ...] = ()
    if submodels:
        with threadpool_limits(1), ThreadPoolExecutor(min(cpu_count(), len(submodels))) as workers:
            stack = Stack(submodels, workers)
            start = stack.joined([own.initial({}, material.generator) for own in submodels])
            found = train_privately(
                stack,
                start,
                material.gradients(),
                material.schedule,
                material.device,
                material.progress,
            )
        trained = tuple(stack.part(found, at) for at in range(len(submodels)))
    chain = UnitChain(units, submodels, trained, material.first, material.shares, recipe)
    return calibrate_chain(chain, material)
