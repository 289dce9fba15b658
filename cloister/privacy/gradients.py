"""Per-example gradients in factored form, so that clipping is exact without writing each gradient out.

The gradient of example i is *defined* by row i of the factors. Its norm and its share of the clipped sum follow from
the factors alone, so clipping holds whatever a model put in them, as long as row i of each factor depends on example i
only.

Source: norms from factors as in Goodfellow, "Efficient per-example gradient computations" (arXiv 1510.01799).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

NORM_ERROR = 1e-9
"""Relative error granted to a norm summed in float64; clipping is tighter by as much."""

LARGEST_BATCH = 65_536
"""Examples whose clipped gradients may be summed in float64 within the rounding that the mechanism allows for."""


class Factored(Protocol):
    """The per-example gradients of one parameter block, b examples."""

    def squared_norms(self) -> Tensor:
        """Squared L2 norm of each example's gradient, float64; shape (b,)."""
        ...

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Sum over examples of weight times gradient, float64, in the shape of the parameter block."""
        ...

    def take(self, examples: Tensor) -> Factored:
        """The gradients of some examples, by number."""
        ...


@dataclass(frozen=True)
class Outer:
    """Gradient i is the outer product of ``left[i]`` and ``right[i]``: (b, p), (b, q) -> (p, q)."""

    left: Tensor
    right: Tensor

    def squared_norms(self) -> Tensor:
        return self.left.double().square().sum(1) * self.right.double().square().sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return (self.left.double() * weights[:, None]).T @ self.right.double()

    def take(self, examples: Tensor) -> Outer:
        return Outer(self.left[examples], self.right[examples])


@dataclass(frozen=True)
class LayeredOuter:
    """Gradient i is, in each layer d, the masked outer product of ``left[i, :, d]`` and ``right[i, :, d]``.

    Shapes: (b, p, d), (b, q, d), mask (p, q) -> (p, q, d).
    """

    left: Tensor
    right: Tensor
    mask: Tensor

    def squared_norms(self) -> Tensor:
        reach = torch.einsum("bqd,pq->bpd", self.right.double().square(), self.mask.double())
        return (self.left.double().square() * reach).sum((1, 2))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        weighted = (self.left.double() * weights[:, None, None]).permute(2, 1, 0)
        product = torch.bmm(weighted, self.right.double().permute(2, 0, 1))
        return product.permute(1, 2, 0) * self.mask.double()[:, :, None]

    def take(self, examples: Tensor) -> LayeredOuter:
        return LayeredOuter(self.left[examples], self.right[examples], self.mask)


@dataclass(frozen=True)
class Lookup:
    """Gradient i is ``values[i]`` in row ``index[i]`` of a table and zero elsewhere: (b,), (b, q) -> (rows, q)."""

    index: Tensor
    values: Tensor
    rows: int

    def squared_norms(self) -> Tensor:
        return self.values.double().square().sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        table = torch.zeros(self.rows, self.values.shape[1], dtype=torch.float64, device=self.values.device)
        return table.index_add_(0, self.index, self.values.double() * weights[:, None])

    def take(self, examples: Tensor) -> Lookup:
        return Lookup(self.index[examples], self.values[examples], self.rows)


FactoredGradient = Mapping[str, Factored]


def clipped_sum(gradient: FactoredGradient, clip: float) -> dict[str, Tensor]:
    """Sum over examples of gradients clipped to L2 norm ``clip`` over all blocks together; float64.

    An example whose norm is not finite contributes nothing, nor do examples beyond ``LARGEST_BATCH``.
    """
    squared = torch.stack([block.squared_norms() for block in gradient.values()]).sum(0)
    finite = torch.isfinite(squared)
    if len(squared) > LARGEST_BATCH or not finite.all():
        kept = torch.nonzero(finite)[:LARGEST_BATCH, 0]
        return clipped_sum({name: block.take(kept) for name, block in gradient.items()}, clip)
    weights = clip / torch.clamp(torch.sqrt(squared) * (1.0 + NORM_ERROR), min=clip)
    return {name: block.weighted_sum(weights) for name, block in gradient.items()}
