"""How the paper trains sub-models: as printed, one after the other, or side by side.

*As printed:* plain gradient descent, each sub-model starting from all parameters learnt so far
(Kamino Algorithm 2, lines 5 to 20). *In turn:* one sub-model after the other, with biases
calibrated to released histograms.

*Side by side* (section 4.1, last paragraph): each from its own start, all trained in the same
steps. A step is one query: the gradients of all sub-models for a row are one vector, clipped
together. All are computed as one batch of matrices: sub-models are so small that one thread each
would wait for the interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cloister.devices import Device
from cloister.models.kamino import training
from cloister.models.kamino.networks import Tensors
from cloister.models.kamino.paper.heads import LevelHead, Units
from cloister.models.kamino.paper.submodels import (
    SubModel,
    UnitChain,
    last_embeddings,
    submodels_of,
    with_one,
)
from cloister.models.kamino.recipe import Material
from cloister.models.protocol import Progress
from cloister.privacy.queries.clipped_gradients import FactoredGradient, Lookup, Outer

if TYPE_CHECKING:
    from cloister.privacy.queries.clipped_gradients import FactoredGradient


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
    for index, submodel in enumerate(submodels):
        known = last_embeddings(trained)

        def progress(done: int, _: int, before: int = index * steps) -> None:
            material.progress(before + done, total)

        start = submodel.initial(known, material.generator)
        trained.append(
            training.train_privately(
                submodel, start, gradients, material.schedule, material.device, progress
            )
        )
    return tuple(trained)


def calibrate_chain(chain: UnitChain, material: Material) -> UnitChain:
    """The chain with biases shifted so that each attribute has its released histogram."""
    codes = torch.zeros(training.CALIBRATION_ROWS, len(material.sizes), dtype=torch.long)
    parameters = [dict(tensors) for tensors in chain.parameters]
    for unit, run in enumerate(chain.units.runs):
        probabilities = chain.joint(unit, codes).expand(training.CALIBRATION_ROWS, -1)
        if unit and isinstance(chain.submodels[unit - 1].head, LevelHead):
            fitted = training.fit_bias(
                torch.log(probabilities),
                [torch.as_tensor(material.shares[position]) for position in run],
            )
            head = parameters[unit - 1]["head"].clone()
            head[:, -1] += fitted.bias
            parameters[unit - 1]["head"], probabilities = head, fitted.probabilities
        levels = torch.multinomial(probabilities, 1, generator=material.generator)[:, 0]
        codes[:, list(run)] = chain.units.separate(levels, unit)
    return UnitChain(
        chain.units, chain.submodels, tuple(parameters), chain.first, chain.shares, chain.recipe
    )


@dataclass(frozen=True)
class Stack:
    """All m sub-models of a chain as one learner; their attention is the softmax.

    Parameters: ``attention`` (m (m + 1) / 2,), the weights of one sub-model after the other;
    ``embed.a`` (levels of unit a, (m - a) width), the embeddings of unit a by each sub-model that
    reads it, side by side; ``head.j`` that of sub-model j, which predicts unit j + 1.
    """

    submodels: tuple[SubModel, ...]

    def gradient(self, parameters: Tensors, codes: Tensor) -> FactoredGradient:
        """Per-example gradients of the sum of the losses of all, from levels (b, k)."""
        rows, joint = len(codes), self.submodels[0].units.join(codes, self._count + 1)
        embedded = [
            parameters[f"embed.{unit}"].index_select(0, joint[:, unit]).reshape(rows, readers, -1)
            for unit, readers in enumerate(range(self._count, 0, -1))
        ]
        shares = torch.softmax(self._logits(parameters["attention"]), 1)
        vectors = torch.zeros_like(embedded[0])
        for unit, embedding in enumerate(embedded):
            vectors[:, unit:].addcmul_(embedding, shares[unit:, unit, None])
        inputs = [with_one(vector) for vector in vectors.unbind(1)]
        errors = self._errors(parameters, inputs, joint)
        back = torch.stack(
            [error @ parameters[f"head.{index}"][:, :-1] for index, error in enumerate(errors)], 1
        )
        blocks: dict[str, training.Dense | Outer | Lookup] = {
            "attention": training.Dense(self._to_attention(shares, embedded, back))
        }
        for index, (left, right) in enumerate(zip(errors, inputs, strict=True)):
            blocks[f"head.{index}"] = Outer(left, right)
        for unit, levels in enumerate(self._levels):
            reached = (back[:, unit:] * shares[unit:, unit, None]).flatten(1)
            blocks[f"embed.{unit}"] = Lookup(joint[:, unit], reached, levels)
        return blocks

    def gains(self) -> dict[str, Tensor]:
        """The units in which each parameter is learnt, the same for all sub-models."""
        gains = self.submodels[-1].gains()
        heads = {f"head.{index}": gains["head"] for index in range(self._count)}
        return {name: gain for name, gain in gains.items() if name != "head"} | heads

    def part(self, parameters: Tensors, index: int) -> dict[str, Tensor]:
        """The parameters of one sub-model, by its own names."""
        width = self.submodels[index].width
        start = index * (index + 1) // 2
        tensors = {
            "attention": parameters["attention"][start : start + index + 1],
            "head": parameters[f"head.{index}"],
        }
        for unit in range(index + 1):
            columns = slice((index - unit) * width, (index - unit + 1) * width)
            tensors[f"embed.{unit}"] = parameters[f"embed.{unit}"][:, columns].contiguous()
        return tensors

    def joined(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """The parameters of all sub-models together."""
        heads = {f"head.{index}": tensors["head"] for index, tensors in enumerate(parts)}
        embeddings = {
            name: torch.cat([tensors[name] for tensors in parts[unit:]], 1)
            for unit in range(self._count)
            if (name := f"embed.{unit}")
        }
        return (
            {"attention": torch.cat([tensors["attention"] for tensors in parts])}
            | heads
            | embeddings
        )

    @property
    def _count(self) -> int:
        return len(self.submodels)

    @property
    def _levels(self) -> tuple[int, ...]:
        """Levels of each unit that is a context."""
        return self.submodels[0].units.levels[: self._count]

    def _logits(self, weights: Tensor) -> Tensor:
        """The attention weights (m, m) of all sub-models; minus infinity for units not read."""
        rows, columns = torch.tril_indices(self._count, self._count, device=weights.device)
        square = weights.new_full((self._count, self._count), -torch.inf)
        square[rows, columns] = weights
        return square

    def _errors(
        self, parameters: Tensors, inputs: Sequence[Tensor], joint: Tensor
    ) -> tuple[Tensor, ...]:
        """Gradients (b, outputs) of each sub-model's loss, by its outputs."""
        outputs = [
            (vector @ parameters[f"head.{index}"].T).requires_grad_()
            for index, vector in enumerate(inputs)
        ]
        losses = [
            submodel.head.losses(output, joint[:, submodel.unit]).sum()
            for submodel, output in zip(self.submodels, outputs, strict=True)
        ]
        return torch.autograd.grad(losses, outputs)

    def _to_attention(self, shares: Tensor, embedded: Sequence[Tensor], back: Tensor) -> Tensor:
        """Gradients (b, weights) of the attention weights in use."""
        pulls = back.new_zeros(len(back), self._count, self._count)
        for unit, embedding in enumerate(embedded):
            pulls[:, unit:, unit] = (embedding * back[:, unit:]).sum(2)
        pulls *= shares
        gradients = pulls - shares * pulls.sum(2, keepdim=True)
        rows, columns = torch.tril_indices(self._count, self._count, device=back.device)
        return gradients[:, rows, columns]


def train_side_by_side(material: Material, recipe: Mapping[str, Any]) -> UnitChain:
    """The chain of sub-models that are trained together, each from its own start."""
    units = Units(material.runs, material.sizes)
    submodels = submodels_of(units, material.bins, recipe)
    trained: tuple[Tensors, ...] = ()
    if submodels:
        stack = Stack(submodels)
        start = stack.joined([submodel.initial({}, material.generator) for submodel in submodels])
        parameters = training.train_privately(
            stack,
            start,
            material.gradients(),
            material.schedule,
            material.device,
            material.progress,
        )
        trained = tuple(stack.part(parameters, index) for index in range(len(submodels)))
    chain = UnitChain(units, submodels, trained, material.first, material.shares, recipe)
    return calibrate_chain(chain, material)


def train_as_printed(material: Material, recipe: Mapping[str, Any]) -> UnitChain:
    """One sub-model after the other, each from all parameters learnt so far."""
    units = Units(material.runs, material.sizes)
    submodels = submodels_of(units, material.bins, recipe)
    gradients = material.gradients() if submodels else None
    steps, total = material.schedule.steps, material.schedule.steps * len(submodels)
    trained: list[Tensors] = []
    known: dict[str, Tensor] = {}
    for index, submodel in enumerate(submodels):
        assert gradients is not None

        def progress(done: int, _: int, before: int = index * steps) -> None:
            material.progress(before + done, total)

        start = submodel.initial(known, material.generator)
        fitted = descend(submodel, start, gradients, material.schedule, material.device, progress)
        trained.append(fitted)
        known |= fitted
    return UnitChain(units, submodels, tuple(trained), material.first, material.shares, recipe)


def descend(
    learner: training.Learner,
    start: Tensors,
    gradients: training.NoisyGradients,
    schedule: training.TrainingSchedule,
    device: Device,
    progress: Progress,
) -> dict[str, Tensor]:
    """Parameters after ``schedule.steps`` steps of plain gradient descent (lines 11 to 17)."""
    where = device.torch
    gains = {name: value.to(where) for name, value in learner.gains().items()}
    parameters = {name: value.to(where) for name, value in start.items()}
    for step in range(schedule.steps):
        gradient = training.GradientAt(learner, parameters, gains, where)
        noisy = gradients.step(gradient, parameters)
        parameters = {
            name: value - schedule.rate * noisy[name].to(where)
            for name, value in parameters.items()
        }
        progress(step + 1, schedule.steps)
    return {name: value.cpu() for name, value in parameters.items()}


def level_shares(chain: UnitChain, rows: int, generator: torch.Generator) -> list[Tensor]:
    """The share of rows at each level of the chain's attributes, in a sample of ``rows`` rows."""
    codes = torch.zeros(rows, len(chain.units.sizes), dtype=torch.long)
    for unit, run in enumerate(chain.units.runs):
        probabilities = chain.joint(unit, codes).expand(rows, -1)
        levels = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
        codes[:, list(run)] = chain.units.separate(levels, unit)
    return [
        torch.bincount(codes[:, index], minlength=size).double() / rows
        for index, size in enumerate(chain.units.sizes)
    ]
