"""Sub-models as AimNet has them: a value's embedding serves as context and as target.

A level is scored by the product of the context vector with the level's own embedding, which is
handed on and serves as context afterwards (Algorithm 2, lines 8 and 19). A number is embedded by a
projection of its standardised value.

Source: Wu et al., "Attention-based Learning for Missing Data Imputation in HoloClean" (MLSys 2020),
section 4; Kamino section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap

from cloister.models.kamino.blocks import Dense
from cloister.models.kamino.networks.network import Tensors
from cloister.models.kamino.paper.networks.heads import Head, NormalHead
from cloister.models.kamino.paper.networks.submodels import SubModel, with_one
from cloister.privacy.queries.clipped_gradients import FactoredGradient, Lookup, Outer

_START = 0.1
"""Deviation of a starting embedding, so that products of two are small beside a bias of one."""


@dataclass(frozen=True)
class TiedSubModel(SubModel):
    """Predicts one unit from all units before it; ``heads`` are those of all units up to it.

    Parameters: ``embed.a`` of each unit before, (levels, width), or (width, 2) of a number;
    ``attention``; of a target of levels its own ``embed`` and a ``bias`` (levels, 1), of a number
    ``head`` (2, width + 1).
    """

    heads: tuple[Head, ...] = ()

    def initial(self, known: Tensors, generator: torch.Generator) -> dict[str, Tensor]:
        """Starting parameters: what is ``known`` from the sub-model before, and small new ones."""
        logits = torch.zeros(self.unit)
        before = known.get("attention", logits[:0])
        logits[: len(before)] = before
        parameters = {"attention": logits}
        for at in range(self.unit + (not self._numeric(self.unit))):
            shape = (self.width, 2) if self._numeric(at) else (self.units.levels[at], self.width)
            fresh = _START * torch.randn(*shape, generator=generator)
            parameters[f"embed.{at}"] = known.get(f"embed.{at}", fresh)
        if self._numeric(self.unit):
            return parameters | {"head": torch.zeros(2, self.width + 1)}
        return parameters | {"bias": torch.zeros(self.units.levels[self.unit], 1)}

    def gains(self) -> dict[str, Tensor]:
        """Every parameter is learnt in units of one."""
        names = self.initial({}, torch.Generator())
        return dict.fromkeys(names, torch.tensor(1.0))

    def outputs(self, parameters: Tensors, joint: Tensor) -> Tensor:
        """Outputs (n, outputs) of the head, given joint levels (n, unit or more) of units."""
        vectors = self.attention.vector(parameters["attention"], self._context(parameters, joint))
        return self._scores(parameters, vectors)

    def gradient(self, parameters: Tensors, codes: Tensor) -> FactoredGradient:
        """Per-example gradients of the head's loss, from levels of attributes (b, k)."""
        joint = self.units.join(codes, self.unit + 1)
        embedded = self._context(parameters, joint)
        vectors = self.attention.vector(parameters["attention"], embedded)
        outputs = self._scores(parameters, vectors)
        errors = grad(lambda given: self.head.losses(given, joint[:, self.unit]).sum())(outputs)
        numeric = self._numeric(self.unit)
        table = parameters["head"][:, :-1] if numeric else parameters[f"embed.{self.unit}"]
        to_attention, to_embedded = vmap(
            grad(self._projection, argnums=(0, 1)), in_dims=(None, 0, 0)
        )(parameters["attention"], embedded, errors @ table)
        blocks: dict[str, Dense | Outer | Lookup] = {"attention": Dense(to_attention)}
        for at in range(self.unit):
            blocks[f"embed.{at}"] = self._of_context(at, joint[:, at], to_embedded[:, at])
        return blocks | self._of_target(errors, vectors)

    def _of_context(self, at: int, levels: Tensor, back: Tensor) -> Outer | Lookup:
        if self._numeric(at):
            return Outer(back, self._values(at, levels))
        return Lookup(levels, back, self.units.levels[at])

    def _of_target(self, errors: Tensor, vectors: Tensor) -> dict[str, Dense | Outer | Lookup]:
        if self._numeric(self.unit):
            return {"head": Outer(errors, with_one(vectors))}
        ones = torch.ones_like(vectors[:, :1])
        return {f"embed.{self.unit}": Outer(errors, vectors), "bias": Outer(errors, ones)}

    def _scores(self, parameters: Tensors, vectors: Tensor) -> Tensor:
        if self._numeric(self.unit):
            return with_one(vectors) @ parameters["head"].T
        return vectors @ parameters[f"embed.{self.unit}"].T + parameters["bias"][:, 0]

    def _context(self, parameters: Tensors, joint: Tensor) -> Tensor:
        """Embedded units before the target (n, unit, width)."""
        embedded = [
            self._values(at, joint[:, at]) @ parameters[f"embed.{at}"].T
            if self._numeric(at)
            else parameters[f"embed.{at}"][joint[:, at]]
            for at in range(self.unit)
        ]
        return torch.stack(embedded, 1)

    def _values(self, at: int, levels: Tensor) -> Tensor:
        """Standardised values of a number beside ones, (n, 2)."""
        head = self.heads[at]
        assert isinstance(head, NormalHead)
        points = torch.as_tensor(head.points, dtype=torch.float32, device=levels.device)
        return with_one(points[levels][:, None])

    def _numeric(self, at: int) -> bool:
        return isinstance(self.heads[at], NormalHead)
