"""Fitted chains of conditionals over groups: released parameters only.

A chain answers for the first ``networked`` places of the schema sequence; attributes beyond follow
their released histograms, independently (Kamino section 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloister.constraints.supports import Int
from models.discretization.bins import Bins
from models.kamino.attention import ATTENTIONS
from models.kamino.heads import HEADS
from models.kamino.hyper_attributes import Units
from models.kamino.network import Network, Parameters
from models.kamino.paper.submodels import SubModel
from models.protocol import Arrays
from models.sampling.sampler import Probabilities

Shares = tuple[NDArray[np.float64], ...]


class Chain(Protocol):
    """A tuple model (:class:`models.sampling.sampler.TupleModel`) that can be saved."""

    @property
    def networked(self) -> int:
        """How many places, from the front, are modelled jointly."""
        ...

    def conditional(self, place: int, context: Int) -> Probabilities:
        """Probabilities of the attribute at ``place``.

        See :class:`models.sampling.sampler.TupleModel`.
        """
        ...

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The chain as JSON and arrays."""
        ...


@dataclass(frozen=True)
class NetworkChain:
    """One network for all sub-models."""

    network: Network
    parameters: Parameters
    shares: Shares

    @property
    def networked(self) -> int:
        return len(self.network.sizes)

    def conditional(self, place: int, context: Int) -> Probabilities:
        if place >= self.networked:
            return self.shares[place][None]
        with torch.no_grad():
            logits = self.network.logits(self.parameters, torch.as_tensor(context), place)
            return torch.softmax(logits.double(), 1).numpy()

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        meta = {"networked": self.networked, "width": self.network.width}
        return {"chain": "network", **meta}, {
            f"net.{name}": value.numpy() for name, value in self.parameters.items()
        }


@dataclass(frozen=True)
class UnitChain:
    """A sub-model for each unit but the first, whose levels follow the released ``first`` histogram.

    ``parameters[j]`` belong to ``submodels[j]``, which predicts unit j + 1; ``recipe`` names
    attention and heads.
    """

    units: Units
    submodels: tuple[SubModel, ...]
    parameters: tuple[Parameters, ...]
    first: NDArray[np.float64]
    shares: Shares
    recipe: Mapping[str, Any]

    @property
    def networked(self) -> int:
        return len(self.units.sizes)

    def conditional(self, place: int, context: Int) -> Probabilities:
        if place >= self.networked:
            return self.shares[place][None]
        unit, member = self.units.at(place)
        known = torch.as_tensor(context)
        joint = self.joint(unit, known).reshape(-1, *self.units.shape(unit))
        return _member(joint, known[:, place - member : place]).numpy()

    def joint(self, unit: int, codes: Tensor) -> Tensor:
        """Probabilities (n, levels) of a unit's joint levels, given levels of attributes; (1, levels) for the first."""
        if unit == 0:
            return torch.as_tensor(self.first)[None]
        with torch.no_grad():
            submodel = self.submodels[unit - 1]
            outputs = submodel.outputs(self.parameters[unit - 1], self.units.joined(codes, unit))
            return torch.softmax(submodel.head.logits(outputs).double(), 1)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays = {
            f"net.{at}.{name}": value.numpy()
            for at, own in enumerate(self.parameters)
            for name, value in own.items()
        }
        meta = {"chain": "units", "runs": [list(run) for run in self.units.runs], **self.recipe}
        return meta, arrays | {"net.first": self.first}


def _member(joint: Tensor, known: Tensor) -> Tensor:
    """Probabilities (n, size) of the next attribute of a unit, from joint ones (n or 1, *shape) and levels known."""
    rows = torch.arange(len(known)) if known.shape[1] else slice(None)
    chosen = joint.expand(len(known), *joint.shape[1:]) if known.shape[1] else joint
    for column in range(known.shape[1]):
        chosen = chosen[rows, known[:, column]]
    shares = chosen.flatten(2).sum(2) if chosen.dim() > 2 else chosen
    shares = shares + 1e-300
    return shares / shares.sum(1, keepdim=True)


def submodels_of(
    units: Units, groups: Sequence[Bins], recipe: Mapping[str, Any]
) -> tuple[SubModel, ...]:
    """The sub-models of all units but the first."""
    attention, head_of = ATTENTIONS[recipe["attention"]], HEADS[recipe["heads"]]
    heads = [head_of(*(groups[place] for place in run)) for run in units.runs]
    return tuple(
        SubModel(at, units, attention, heads[at], recipe["width"])
        for at in range(1, len(units.runs))
    )


def restore_chain(meta: Mapping[str, Any], arrays: Arrays, groups: Sequence[Bins]) -> Chain:
    """The chain whose :meth:`Chain.state` is given, over attributes in schema sequence."""
    return RESTORERS[meta["chain"]](meta, arrays, groups)


def _network_chain(meta: Mapping[str, Any], arrays: Arrays, groups: Sequence[Bins]) -> Chain:
    sizes = tuple(group.size for group in groups[: meta["networked"]])
    parameters = {
        name[4:]: torch.as_tensor(value)
        for name, value in arrays.items()
        if name.startswith("net.")
    }
    return NetworkChain(
        Network(sizes, meta["width"]), parameters, tuple(group.mass for group in groups)
    )


def _unit_chain(meta: Mapping[str, Any], arrays: Arrays, groups: Sequence[Bins]) -> Chain:
    runs = tuple(map(tuple, meta["runs"]))
    units = Units(runs, tuple(groups[place].size for run in runs for place in run))
    recipe = {key: meta[key] for key in ("attention", "heads", "width")}
    submodels = submodels_of(units, groups, recipe)
    parameters = tuple(_named(arrays, f"net.{at}.") for at in range(len(submodels)))
    shares = tuple(group.mass for group in groups)
    return UnitChain(units, submodels, parameters, np.asarray(arrays["net.first"]), shares, recipe)


def _named(arrays: Arrays, prefix: str) -> dict[str, Tensor]:
    return {
        name[len(prefix) :]: torch.as_tensor(v)
        for name, v in arrays.items()
        if name.startswith(prefix)
    }


RESTORERS = {"network": _network_chain, "units": _unit_chain}
