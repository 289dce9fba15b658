"""Per-example gradients in the units of a learner, summed on a device, sums on the host.

A parameter that is learnt in units of ``gain`` changes as if it were written gain * x and x were
learnt: its gradient is multiplied by the gain before clipping, and so is its step. Units decide
how much of a clipped gradient, and so of the budget, each parameter gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor

from cloister.privacy.queries.clipped_gradients import (
    Factored,
    FactoredGradient,
    LayeredOuter,
    Lookup,
    Outer,
)


@dataclass(frozen=True)
class Dense:
    """Gradient i is ``values[i]``, written out: (b, ...) -> (...)."""

    values: Tensor

    def squared_norms(self) -> Tensor:
        return self.values.flatten(1).double().square().sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return torch.tensordot(weights, self.values.double(), dims=1)

    def take(self, examples: Tensor | slice) -> Dense:
        return Dense(self.values[examples])


@dataclass(frozen=True)
class HostSum:
    """The gradients of a block, whose sum is copied to the memory of the host."""

    block: Factored

    def squared_norms(self) -> Tensor:
        return self.block.squared_norms()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self.block.weighted_sum(weights).cpu()

    def take(self, examples: Tensor | slice) -> HostSum:
        return HostSum(self.block.take(examples))


@singledispatch
def in_units(block: Factored, gain: Tensor) -> Factored:  # noqa: ARG001
    """The gradients of a block multiplied by a gain, a number or one for each column."""
    raise TypeError(f"gradients of type {type(block).__name__} cannot be put in units")


@in_units.register
def _(block: Outer, gain: Tensor) -> Factored:
    return Outer(block.left, block.right * gain)


@in_units.register
def _(block: LayeredOuter, gain: Tensor) -> Factored:
    return LayeredOuter(block.left * gain, block.right, block.mask)


@in_units.register
def _(block: Lookup, gain: Tensor) -> Factored:
    return Lookup(block.index, block.values * gain, block.rows)


@in_units.register
def _(block: Dense, gain: Tensor) -> Factored:
    return Dense(block.values * gain)


def gradient_in_units(gradient: FactoredGradient, gains: Mapping[str, Tensor]) -> FactoredGradient:
    """A whole gradient in the units of its parameters, its sums on the host."""
    return {name: HostSum(in_units(block, gains[name])) for name, block in gradient.items()}
