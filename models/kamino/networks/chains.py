"""Fitted chains of conditionals over bins: released parameters only.

A chain models the first ``networked`` places of the schema sequence jointly; attributes beyond
follow their released histograms, independently (Kamino section 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from cloister.arrays import Floats, Integers
from cloister.models.discretization.bins import Bins
from cloister.models.kamino.networks.network import Tensors, TupleNetwork
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.chain import Probabilities


class TrainedChain(Protocol):
    """A tuple model (:class:`cloister.models.sampling.chain.TupleModel`) that can be saved."""

    @property
    def networked(self) -> int:
        """How many places, from the front, are modelled jointly."""
        ...

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``place``; see `TupleModel`."""
        ...

    def state(self) -> ModelState:
        """The chain as JSON and arrays."""
        ...


@dataclass(frozen=True)
class NetworkChain:
    """One network for all sub-models."""

    network: TupleNetwork
    parameters: Tensors
    shares: tuple[Floats, ...]

    @property
    def networked(self) -> int:
        return len(self.network.sizes)

    def conditional(self, place: int, context: Integers) -> Probabilities:
        if place >= self.networked:
            return self.shares[place][None]
        with torch.no_grad():
            logits = self.network.logits(self.parameters, torch.as_tensor(context), place)
            return torch.softmax(logits.double(), 1).numpy()

    def state(self) -> ModelState:
        meta = {"networked": self.networked, "width": self.network.width}
        return {"chain": "network", **meta}, {
            f"net.{name}": value.numpy() for name, value in self.parameters.items()
        }


def restore_network_chain(
    meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Bins]
) -> NetworkChain:
    """The chain that `NetworkChain.state` wrote, over bins of attributes in schema sequence."""
    sizes = tuple(own.size for own in bins[: meta["networked"]])
    parameters = {
        name[4:]: torch.as_tensor(value)
        for name, value in arrays.items()
        if name.startswith("net.")
    }
    return NetworkChain(
        TupleNetwork(sizes, meta["width"]), parameters, tuple(own.mass for own in bins)
    )
