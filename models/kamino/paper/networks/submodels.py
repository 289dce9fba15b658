"""One discriminative sub-model a unit, trained one after the other.

Source: Kamino Algorithm 2: sub-model j predicts unit j from the units before it. Each starts from
the embeddings of the one before (lines 7 and 19), or from its own, so that all are trained at once
(section 4.1, last paragraph).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.func import grad, vmap

from cloister.models.kamino.blocks import Dense
from cloister.models.kamino.networks.network import (
    BIAS_GAIN,
    EMBEDDING_GAIN,
    GATE_GAIN,
    HEAD_GAIN,
    Tensors,
)
from cloister.models.kamino.paper.hyper_attributes import Units
from cloister.models.kamino.paper.networks.attention import Attention
from cloister.models.kamino.paper.networks.heads import Head
from cloister.models.kamino.sizes import EMBEDDING_WIDTH
from cloister.privacy.queries.clipped_gradients import FactoredGradient, Lookup, Outer


@dataclass(frozen=True)
class SubModel:
    """Predicts one unit from all units before it.

    Parameters: ``embed.a`` (levels of unit a, width) for each unit before; ``attention``; ``head``
    (outputs, width + 1), the last column the bias.
    """

    unit: int
    units: Units
    attention: Attention
    head: Head
    width: int = EMBEDDING_WIDTH

    def initial(self, known: Tensors, generator: torch.Generator) -> dict[str, Tensor]:
        """Starting parameters: ``known`` embeddings, random ones for others, a head at its bias."""
        bias = self.head.bias[:, None]
        parameters = {
            "attention": self.attention.initial(self.unit, self.width),
            "head": torch.cat([torch.zeros(len(bias), self.width), bias], 1),
        }
        for name, levels in self._tables.items():
            fresh = torch.randn(levels, self.width, generator=generator)
            parameters[name] = known.get(name, fresh)
        return parameters

    def gains(self) -> dict[str, Tensor]:
        """The units in which each parameter is learnt."""
        column = torch.full((self.width + 1,), HEAD_GAIN)
        column[-1] = BIAS_GAIN
        gains = {"attention": torch.tensor(GATE_GAIN), "head": column}
        return gains | {name: torch.tensor(EMBEDDING_GAIN) for name in self._tables}

    def outputs(self, parameters: Tensors, joint: Tensor) -> Tensor:
        """Outputs (n, outputs) of the head, given joint levels (n, unit or more) of units."""
        vector = self.attention.vector(parameters["attention"], self._embedded(parameters, joint))
        return with_one(vector) @ parameters["head"].T

    def gradient(self, parameters: Tensors, codes: Tensor) -> FactoredGradient:
        """Per-example gradients of the head's loss, from levels of attributes (b, k)."""
        joint = self.units.join(codes, self.unit + 1)
        embedded = self._embedded(parameters, joint)
        vectors = self.attention.vector(parameters["attention"], embedded)
        outputs = with_one(vectors) @ parameters["head"].T
        errors = grad(lambda given: self.head.losses(given, joint[:, self.unit]).sum())(outputs)
        back = errors @ parameters["head"][:, :-1]
        to_attention, to_embedded = vmap(
            grad(self._projection, argnums=(0, 1)), in_dims=(None, 0, 0)
        )(parameters["attention"], embedded, back)
        blocks: dict[str, Dense | Outer | Lookup] = {
            "attention": Dense(to_attention),
            "head": Outer(errors, with_one(vectors)),
        }
        for at, (name, levels) in enumerate(self._tables.items()):
            blocks[name] = Lookup(joint[:, at], to_embedded[:, at], levels)
        return blocks

    @cached_property
    def _tables(self) -> dict[str, int]:
        return {f"embed.{at}": levels for at, levels in enumerate(self.units.levels[: self.unit])}

    def _embedded(self, parameters: Tensors, joint: Tensor) -> Tensor:
        return torch.stack(
            [parameters[name][joint[:, at]] for at, name in enumerate(self._tables)], 1
        )

    def _projection(self, weights: Tensor, embedded: Tensor, back: Tensor) -> Tensor:
        return (self.attention.vector(weights, embedded) * back).sum()


def with_one(vectors: Tensor) -> Tensor:
    """Vectors (n, d) with a one behind each, (n, d + 1)."""
    return torch.cat([vectors, torch.ones_like(vectors[:, :1])], 1)


def last_embeddings(trained: Sequence[Tensors]) -> Mapping[str, Tensor]:
    """What the next sub-model starts from: the embeddings of the last."""
    return {
        name: value
        for own in trained[-1:]
        for name, value in own.items()
        if name.startswith("embed.")
    }
