"""One discriminative sub-model per unit, and their chain; only released parameters once trained.

Source: Kamino Algorithm 2: sub-model j predicts unit j from the units before it. Each starts from
the embeddings of the one before (lines 7 and 19), or from its own, so that all are trained at once
(section 4.1, last paragraph).

Tied sub-models are those of AimNet: a value's embedding serves as context and as target.

A level is scored by the product of the context vector with the level's own embedding, which is
handed on and serves as context afterwards (Algorithm 2, lines 8 and 19). A number is embedded by a
projection of its standardised value.

Source: Wu et al., "Attention-based Learning for Missing Data Imputation in HoloClean" (MLSys 2020),
section 4; Kamino section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from cloister.arrays import TINY, Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.kamino.networks import BIAS_GAIN, EMBEDDING_GAIN, GATE_GAIN, HEAD_GAIN, Tensors
from cloister.models.kamino.paper.heads import ATTENTIONS, HEADS, Attention, Head, NormalHead, Units
from cloister.models.kamino.recipe import EMBEDDING_WIDTH
from cloister.models.kamino.training import Dense
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.chain import Probabilities
from cloister.privacy.queries.clipped_gradients import FactoredGradient, Lookup, Outer

_START = 0.1
"""Deviation of initial embeddings: products of two are small compared with a bias of one."""


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
        for unit, (name, levels) in enumerate(self._tables.items()):
            blocks[name] = Lookup(joint[:, unit], to_embedded[:, unit], levels)
        return blocks

    @cached_property
    def _tables(self) -> dict[str, int]:
        return {
            f"embed.{unit}": levels for unit, levels in enumerate(self.units.levels[: self.unit])
        }

    def _embedded(self, parameters: Tensors, joint: Tensor) -> Tensor:
        return torch.stack(
            [parameters[name][joint[:, unit]] for unit, name in enumerate(self._tables)], 1
        )

    def _projection(self, weights: Tensor, embedded: Tensor, back: Tensor) -> Tensor:
        return (self.attention.vector(weights, embedded) * back).sum()


def with_one(vectors: Tensor) -> Tensor:
    """Vectors (n, d) with a one behind each, (n, d + 1)."""
    return torch.cat([vectors, torch.ones_like(vectors[:, :1])], 1)


def last_embeddings(trained: Sequence[Tensors]) -> Mapping[str, Tensor]:
    """The embeddings from which the next sub-model starts: those of the last."""
    return {
        name: value
        for tensors in trained[-1:]
        for name, value in tensors.items()
        if name.startswith("embed.")
    }


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
        for unit in range(self.unit + (not self._numeric(self.unit))):
            shape = (
                (self.width, 2) if self._numeric(unit) else (self.units.levels[unit], self.width)
            )
            fresh = _START * torch.randn(*shape, generator=generator)
            parameters[f"embed.{unit}"] = known.get(f"embed.{unit}", fresh)
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
        for unit in range(self.unit):
            blocks[f"embed.{unit}"] = self._of_context(unit, joint[:, unit], to_embedded[:, unit])
        return blocks | self._of_target(errors, vectors)

    def _of_context(self, unit: int, levels: Tensor, back: Tensor) -> Outer | Lookup:
        if self._numeric(unit):
            return Outer(back, self._values(unit, levels))
        return Lookup(levels, back, self.units.levels[unit])

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
            self._values(unit, joint[:, unit]) @ parameters[f"embed.{unit}"].T
            if self._numeric(unit)
            else parameters[f"embed.{unit}"][joint[:, unit]]
            for unit in range(self.unit)
        ]
        return torch.stack(embedded, 1)

    def _values(self, unit: int, levels: Tensor) -> Tensor:
        """Standardised values of a number beside ones, (n, 2)."""
        head = self.heads[unit]
        assert isinstance(head, NormalHead)
        points = torch.as_tensor(head.points, dtype=torch.float32, device=levels.device)
        return with_one(points[levels][:, None])

    def _numeric(self, unit: int) -> bool:
        return isinstance(self.heads[unit], NormalHead)


@dataclass(frozen=True)
class UnitChain:
    """A sub-model for each unit but the first, whose levels follow the released ``first`` shares.

    ``parameters[j]`` belong to ``submodels[j]``, which predicts unit j + 1; ``recipe`` names
    attention and heads. Shapes: ``first`` (levels of the first unit,).
    """

    units: Units
    submodels: tuple[SubModel, ...]
    parameters: tuple[Tensors, ...]
    first: Floats
    shares: tuple[Floats, ...]
    recipe: Mapping[str, Any]

    @property
    def networked(self) -> int:
        return len(self.units.sizes)

    def conditional(self, position: int, context: Integers) -> Probabilities:
        if position >= self.networked:
            return self.shares[position][None]
        unit, member = self.units.unit_of(position)
        known = torch.as_tensor(context)
        joint = self.joint(unit, known).reshape(-1, *self.units.shape(unit))
        return _member(joint, known[:, position - member : position]).numpy()

    def joint(self, unit: int, codes: Tensor) -> Tensor:
        """Probabilities of a unit's joint levels, given levels of the attributes before it.

        Shape (n, levels); (1, levels) for the first unit.
        """
        if unit == 0:
            return torch.as_tensor(self.first)[None]
        with torch.no_grad():
            submodel = self.submodels[unit - 1]
            outputs = submodel.outputs(self.parameters[unit - 1], self.units.join(codes, unit))
            return torch.softmax(submodel.head.logits(outputs).double(), 1)

    def state(self) -> ModelState:
        arrays = {
            f"net.{index}.{name}": value.numpy()
            for index, tensors in enumerate(self.parameters)
            for name, value in tensors.items()
        }
        meta = {"chain": "units", "runs": [list(run) for run in self.units.runs], **self.recipe}
        return meta, arrays | {"net.first": self.first}


def _member(joint: Tensor, known: Tensor) -> Tensor:
    """Probabilities (n, size) of a unit's next attribute, given the ``known`` levels (n, k) before.

    ``joint`` holds the joint probabilities of the unit, (n or 1, *shape).
    """
    rows = torch.arange(len(known)) if known.shape[1] else slice(None)
    chosen = joint.expand(len(known), *joint.shape[1:]) if known.shape[1] else joint
    for column in range(known.shape[1]):
        chosen = chosen[rows, known[:, column]]
    shares = chosen.flatten(2).sum(2) if chosen.dim() > 2 else chosen
    shares = shares + TINY
    return shares / shares.sum(1, keepdim=True)


def with_even_shares(bins: Histogram) -> Histogram:
    """The bins with shares by their widths: what is known of an attribute without data."""
    return replace(bins, shares=bins.widths / bins.widths.sum())


def submodels_of(
    units: Units, bins: Sequence[Histogram], recipe: Mapping[str, Any]
) -> tuple[SubModel, ...]:
    """The sub-models of all units but the first."""
    attention, head_of = ATTENTIONS[recipe["attention"]], HEADS[recipe["heads"]]
    tied = recipe.get("tied", False)
    heads = tuple(
        head_of(*(with_even_shares(bins[position]) if tied else bins[position] for position in run))
        for run in units.runs
    )
    if tied:
        return tuple(
            TiedSubModel(unit, units, attention, heads[unit], recipe["width"], heads[: unit + 1])
            for unit in range(1, len(units.runs))
        )
    return tuple(
        SubModel(unit, units, attention, heads[unit], recipe["width"])
        for unit in range(1, len(units.runs))
    )


def restore_unit_chain(
    meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Histogram]
) -> UnitChain:
    """The chain that `UnitChain.state` wrote, over bins of attributes in schema sequence."""
    runs = tuple(map(tuple, meta["runs"]))
    units = Units(runs, tuple(bins[position].size for run in runs for position in run))
    recipe = {key: meta[key] for key in ("attention", "heads", "width", "tied") if key in meta}
    submodels = submodels_of(units, bins, recipe)
    parameters = tuple(_named(arrays, f"net.{index}.") for index in range(len(submodels)))
    shares = tuple(histogram.mass for histogram in bins)
    return UnitChain(units, submodels, parameters, np.asarray(arrays["net.first"]), shares, recipe)


def _named(arrays: Arrays, prefix: str) -> dict[str, Tensor]:
    return {
        name[len(prefix) :]: torch.as_tensor(v)
        for name, v in arrays.items()
        if name.startswith(prefix)
    }
