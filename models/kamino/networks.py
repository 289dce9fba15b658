"""The tuple network: one conditional per attribute, from embeddings of the attributes before it.

Source: Kamino section 2.3 and Algorithm 2 (tuple embedding, attention over the context, one
discriminative sub-model an attribute). Here attention is a learned gate for each (target, context
attribute, dimension), and the losses of all sub-models of a row are summed, so that one DP-SGD run
trains them together.

A fitted chain holds released parameters only. It models the first ``networked`` attributes of the
schema sequence jointly; attributes beyond follow their released histograms, independently (Kamino
section 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.kamino.recipe import EMBEDDING_WIDTH
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.chain import Probabilities
from cloister.privacy.queries.clipped_gradients import FactoredGradient, LayeredOuter, Lookup, Outer

EMBEDDING_GAIN = 3.0
"""Unit in which embeddings are learnt; see `Network.gains`."""

GATE_GAIN = 3.0
"""Unit in which gates, or weights of attention, are learnt."""

HEAD_GAIN = 0.6
"""Unit in which heads are learnt: small, so that they do not fill the clipped gradient."""

BIAS_GAIN = 0.3
"""Unit in which biases are learnt: they start at released shares and are calibrated at the end."""

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class TupleNetwork:
    """The shape of a tuple network over attributes of ``sizes`` levels, in schema sequence.

    Parameters: ``embed.a`` (sizes[a], width); ``gates`` (k, k, width), target by context;
    ``head.t`` (sizes[t], width + 1), the last column the bias.
    """

    sizes: tuple[int, ...]
    width: int = EMBEDDING_WIDTH

    @property
    def context(self) -> Tensor:
        """Mask (k, k) of visible context: 1 where the column comes before the row."""
        return torch.tril(torch.ones(len(self.sizes), len(self.sizes)), diagonal=-1)

    def initial(self, shares: list[Floats], generator: torch.Generator) -> dict[str, Tensor]:
        """Starting parameters: random embeddings, gates of one, biases at the log of ``shares``.

        ``shares`` holds the released shares (size,) of each attribute's levels.
        """
        k = len(self.sizes)
        parameters = {"gates": torch.ones(k, k, self.width)}
        for index, size in enumerate(self.sizes):
            parameters[f"embed.{index}"] = torch.randn(size, self.width, generator=generator)
            bias = torch.as_tensor(np.log(shares[index] + 1e-5), dtype=torch.float32)[:, None]
            parameters[f"head.{index}"] = torch.cat([torch.zeros(size, self.width), bias], 1)
        return parameters

    def gains(self) -> dict[str, Tensor]:
        """The units in which each parameter is learnt; see :mod:`cloister.models.kamino.training`.

        Heads and biases would take most of a clipped gradient and leave the rest to the noise, so
        they are learnt in smaller units.
        """
        gains = {"gates": torch.tensor(GATE_GAIN)}
        column = torch.full((self.width + 1,), HEAD_GAIN)
        column[-1] = BIAS_GAIN
        for index in range(len(self.sizes)):
            gains |= {f"embed.{index}": torch.tensor(EMBEDDING_GAIN), f"head.{index}": column}
        return gains

    def context_vector(self, parameters: Tensors, embedded: Tensor, target: int) -> Tensor:
        """The context vector of one target, from embedded context (b, target, width).

        Shape (b, width + 1).
        """
        gates = parameters["gates"][target, :target]
        vector = torch.tanh(
            torch.einsum("bad,ad->bd", embedded, gates) / math.sqrt(len(self.sizes))
        )
        return torch.cat([vector, torch.ones_like(vector[:, :1])], 1)

    def embed(self, parameters: Tensors, codes: Tensor) -> Tensor:
        """Embedded levels (b, j) of the first j attributes; shape (b, j, width)."""
        return torch.stack(
            [parameters[f"embed.{index}"][codes[:, index]] for index in range(codes.shape[1])], 1
        )

    def logits(self, parameters: Tensors, codes: Tensor, target: int) -> Tensor:
        """Unnormalised log-probabilities (b, size) of a target, given levels (b, target) before."""
        if target == 0:
            return parameters["head.0"][:, -1].expand(len(codes), -1)
        return (
            self.context_vector(parameters, self.embed(parameters, codes[:, :target]), target)
            @ parameters[f"head.{target}"].T
        )

    def gradient(self, parameters: Tensors, codes: Tensor) -> FactoredGradient:
        """Per-example gradients, in factored form, of the summed cross-entropy of rows (b, k)."""
        k, scale = len(self.sizes), math.sqrt(len(self.sizes))
        gates = parameters["gates"] * self.context.to(codes.device)[:, :, None]
        embedded = self.embed(parameters, codes)
        vectors = torch.tanh(_layered(embedded, gates) / scale)
        ones = torch.ones_like(vectors[:, 0, :1])
        errors = [
            _error(torch.cat([vectors[:, t], ones], 1) @ parameters[f"head.{t}"].T, codes[:, t])
            for t in range(k)
        ]
        back = torch.stack([errors[t] @ parameters[f"head.{t}"][:, :-1] for t in range(k)], 1)
        back = back * (1 - vectors.square()) / scale
        to_embedded = _layered(back, gates.transpose(0, 1))
        blocks: dict[str, Any] = {
            "gates": LayeredOuter(back, embedded, self.context.to(codes.device))
        }
        for t in range(k):
            blocks[f"embed.{t}"] = Lookup(codes[:, t], to_embedded[:, t], self.sizes[t])
            blocks[f"head.{t}"] = Outer(errors[t], torch.cat([vectors[:, t], ones], 1))
        return blocks


def _layered(vectors: Tensor, gates: Tensor) -> Tensor:
    """Sum over a of vectors[b, a, d] gates[t, a, d]; shape (b, t, d)."""
    return torch.bmm(vectors.permute(2, 0, 1), gates.permute(2, 1, 0)).permute(1, 2, 0)


def _error(logits: Tensor, truth: Tensor) -> Tensor:
    error = torch.softmax(logits, 1)
    error[torch.arange(len(truth), device=truth.device), truth] -= 1.0
    return error


class TrainedChain(Protocol):
    """A tuple model (:class:`cloister.models.sampling.chain.TupleModel`) that can be saved."""

    @property
    def networked(self) -> int:
        """How many attributes, from the front, are modelled jointly."""
        ...

    def conditional(self, position: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``position``; see `TupleModel`."""
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

    def conditional(self, position: int, context: Integers) -> Probabilities:
        if position >= self.networked:
            return self.shares[position][None]
        with torch.no_grad():
            logits = self.network.logits(self.parameters, torch.as_tensor(context), position)
            return torch.softmax(logits.double(), 1).numpy()

    def state(self) -> ModelState:
        meta = {"networked": self.networked, "width": self.network.width}
        return {"chain": "network", **meta}, {
            f"net.{name}": value.numpy() for name, value in self.parameters.items()
        }


def restore_network_chain(
    meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Histogram]
) -> NetworkChain:
    """The chain that `NetworkChain.state` wrote, over bins of attributes in schema sequence."""
    sizes = tuple(histogram.size for histogram in bins[: meta["networked"]])
    parameters = {
        name[4:]: torch.as_tensor(value)
        for name, value in arrays.items()
        if name.startswith("net.")
    }
    return NetworkChain(
        TupleNetwork(sizes, meta["width"]), parameters, tuple(histogram.mass for histogram in bins)
    )
