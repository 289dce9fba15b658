"""The chain of one sub-model a unit, as the paper trains it: released parameters only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cloister.arrays import TINY, Floats, Integers
from cloister.models.discretization.bins import Bins
from cloister.models.kamino.networks.network import Tensors
from cloister.models.kamino.paper.hyper_attributes import Units
from cloister.models.kamino.paper.networks.attention import ATTENTIONS
from cloister.models.kamino.paper.networks.heads import HEADS
from cloister.models.kamino.paper.networks.submodels import SubModel
from cloister.models.kamino.paper.networks.tied import TiedSubModel
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.chain import Probabilities


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

    def conditional(self, place: int, context: Integers) -> Probabilities:
        if place >= self.networked:
            return self.shares[place][None]
        unit, member = self.units.at(place)
        known = torch.as_tensor(context)
        joint = self.joint(unit, known).reshape(-1, *self.units.shape(unit))
        return _member(joint, known[:, place - member : place]).numpy()

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
            f"net.{at}.{name}": value.numpy()
            for at, own in enumerate(self.parameters)
            for name, value in own.items()
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


def with_even_shares(bins: Bins) -> Bins:
    """The bins with shares by their widths: what is known of an attribute without its data."""
    return replace(bins, shares=bins.cells.widths / bins.cells.widths.sum())


def submodels_of(
    units: Units, bins: Sequence[Bins], recipe: Mapping[str, Any]
) -> tuple[SubModel, ...]:
    """The sub-models of all units but the first."""
    attention, head_of = ATTENTIONS[recipe["attention"]], HEADS[recipe["heads"]]
    tied = recipe.get("tied", False)
    heads = tuple(
        head_of(*(with_even_shares(bins[place]) if tied else bins[place] for place in run))
        for run in units.runs
    )
    if tied:
        return tuple(
            TiedSubModel(at, units, attention, heads[at], recipe["width"], heads[: at + 1])
            for at in range(1, len(units.runs))
        )
    return tuple(
        SubModel(at, units, attention, heads[at], recipe["width"])
        for at in range(1, len(units.runs))
    )


def restore_unit_chain(meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Bins]) -> UnitChain:
    """The chain that `UnitChain.state` wrote, over bins of attributes in schema sequence."""
    runs = tuple(map(tuple, meta["runs"]))
    units = Units(runs, tuple(bins[place].size for run in runs for place in run))
    recipe = {key: meta[key] for key in ("attention", "heads", "width", "tied") if key in meta}
    submodels = submodels_of(units, bins, recipe)
    parameters = tuple(_named(arrays, f"net.{at}.") for at in range(len(submodels)))
    shares = tuple(own.mass for own in bins)
    return UnitChain(units, submodels, parameters, np.asarray(arrays["net.first"]), shares, recipe)


def _named(arrays: Arrays, prefix: str) -> dict[str, Tensor]:
    return {
        name[len(prefix) :]: torch.as_tensor(v)
        for name, v in arrays.items()
        if name.startswith(prefix)
    }
