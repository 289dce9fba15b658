"""Ways to train a chain of conditionals: all sub-models in one run, or one after the other.

Source: Kamino Algorithm 2 for `OneByOne`; section 4.1 for the variant that hands nothing on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.discretization.bins import Bins
from models.kamino.chains import Chain, NetworkChain, UnitChain, submodels_of
from models.kamino.gradients import NoisyGradients
from models.kamino.heads import LevelHead
from models.kamino.hyper_attributes import RUNS, Runs, Units
from models.kamino.network import WIDTH, Network, Parameters
from models.kamino.paper.submodels import INHERITANCES, SubModel
from models.kamino.training import SAMPLE, Schedule, calibrate, calibrated, train
from models.protocol import Progress


@dataclass(frozen=True)
class Material:
    """What a trainer works with.

    ``groups`` of all attributes in schema sequence, of which the first ``networked`` are modelled
    jointly in ``runs``; ``first`` the released shares of the first run's joint levels.
    """

    groups: Sequence[Bins]
    networked: int
    runs: Runs
    first: NDArray[np.float64]
    gradients: Callable[[], NoisyGradients]
    schedule: Schedule
    generator: torch.Generator
    progress: Progress

    @property
    def sizes(self) -> tuple[int, ...]:
        """Levels of each jointly modelled attribute."""
        return tuple(group.size for group in self.groups[: self.networked])

    @property
    def shares(self) -> tuple[NDArray[np.float64], ...]:
        """Released shares of the levels of every attribute."""
        return tuple(group.mass for group in self.groups)


class Trainer(Protocol):
    """A way to train."""

    @property
    def steps(self) -> int:
        """Steps of each run of DP-SGD."""
        ...

    def runs(self, sizes: Sequence[int]) -> Runs:
        """The units of attributes of these public sizes."""
        ...

    def repeats(self, units: int) -> int:
        """How many runs of DP-SGD so many units take."""
        ...

    def train(self, material: Material) -> Chain:
        """The fitted chain."""
        ...

    def explain(self, units: int, attributes: int) -> str:
        """What the training does, in words."""
        ...


@dataclass(frozen=True)
class Joint:
    """One run for all sub-models: the loss of a row is the sum of theirs."""

    steps: int = 200

    def runs(self, sizes: Sequence[int]) -> Runs:
        return RUNS["attributes"](sizes)

    def repeats(self, units: int) -> int:
        return int(units > 1)

    def train(self, material: Material) -> Chain:
        network = Network(material.sizes)
        shares = list(material.shares[: material.networked])
        start = network.initial(shares, material.generator)
        if not self.repeats(len(material.runs)):
            return NetworkChain(network, start, material.shares)
        trained = train(network, start, material.gradients(), material.schedule, material.progress)
        return NetworkChain(
            network, calibrate(network, trained, shares, material.generator), material.shares
        )

    def explain(self, units: int, attributes: int) -> str:  # noqa: ARG002
        return f"{self.steps} steps of DP-SGD on {attributes} attributes together"


@dataclass(frozen=True)
class OneByOne:
    """One run for each unit but the first; the parts are chosen by name.

    ``units`` of :data:`models.kamino.hyper_attributes.RUNS`, ``heads`` of
    :data:`models.kamino.heads.HEADS`, ``attention`` of :data:`models.kamino.attention.ATTENTIONS`,
    ``inheritance`` of :data:`models.kamino.paper.submodels.INHERITANCES`.
    """

    units: str = "attributes"
    attention: str = "softmax"
    heads: str = "levels"
    inheritance: str = "embeddings"
    steps: int = 100
    width: int = field(default=WIDTH)

    def runs(self, sizes: Sequence[int]) -> Runs:
        return RUNS[self.units](sizes)

    def repeats(self, units: int) -> int:
        return max(units - 1, 0)

    def train(self, material: Material) -> Chain:
        units = Units(material.runs, material.sizes)
        submodels = submodels_of(units, material.groups, self._recipe)
        trained = self._one_after_the_other(submodels, material) if submodels else ()
        chain = UnitChain(units, submodels, trained, material.first, material.shares, self._recipe)
        return _calibrated_chain(chain, material)

    def explain(self, units: int, attributes: int) -> str:
        return f"{self.repeats(units)} runs of {self.steps} steps of DP-SGD, one a sub-model, on {attributes} attributes"

    @property
    def _recipe(self) -> Mapping[str, Any]:
        return {"attention": self.attention, "heads": self.heads, "width": self.width}

    def _one_after_the_other(
        self, submodels: Sequence[SubModel], material: Material
    ) -> tuple[Parameters, ...]:
        trained: list[dict[str, Tensor]] = []
        total = len(submodels) * self.steps
        gradients = material.gradients()
        for at, submodel in enumerate(submodels):
            known = INHERITANCES[self.inheritance](trained)

            def progress(done: int, _: int, before: int = at * self.steps) -> None:
                material.progress(before + done, total)

            start = submodel.initial(known, material.generator)
            trained.append(train(submodel, start, gradients, material.schedule, progress))
        return tuple(trained)


def _calibrated_chain(chain: UnitChain, material: Material) -> UnitChain:
    codes = torch.zeros(SAMPLE, len(material.sizes), dtype=torch.long)
    parameters = [dict(own) for own in chain.parameters]
    for unit, run in enumerate(chain.units.runs):
        probabilities = chain.joint(unit, codes).expand(SAMPLE, -1)
        if unit and isinstance(chain.submodels[unit - 1].head, LevelHead):
            fitted = calibrated(
                torch.log(probabilities), [torch.as_tensor(material.shares[place]) for place in run]
            )
            head = parameters[unit - 1]["head"].clone()
            head[:, -1] += fitted.bias
            parameters[unit - 1]["head"], probabilities = head, fitted.probabilities
        levels = torch.multinomial(probabilities, 1, generator=material.generator)[:, 0]
        codes[:, list(run)] = chain.units.split(levels, unit)
    return UnitChain(
        chain.units, chain.submodels, tuple(parameters), chain.first, chain.shares, chain.recipe
    )
