"""The sum of clipped gradients of a Poisson sample of rows: one step of DP-SGD.

Per-example gradients are in factored form, and clipped exactly without computing each gradient.
The gradient of example i is *defined* by row i of the factors. Its norm and its share of the
clipped sum follow from the factors alone, so clipping holds whatever a model computes, as long as
row i of each factor depends on example i only.

Source: norms from factors as in Goodfellow, "Efficient per-example gradient computations" (arXiv
    1510.01799).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from cloister.arrays import Array, Floats, Integers
from cloister.devices import CPU, Device
from cloister.privacy.mechanisms.noise import ClippedSum, GaussianGradient, Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import Query, TableRows
from cloister.schema.domain import summed_here
from cloister.schema.partition import Partition, PartNumbers

_NORM_ERROR = 1e-9
"""Relative error assumed of a norm summed in float64; clipping is tighter by as much."""

_SMALLEST_BLOCK = 128
"""Least rows computed at once: enough to fill vector units."""

_LARGEST_BLOCK = 2048
"""Most rows computed at once: few enough that a float64 sum is off by less than 1e-9 clips."""

_LEAST_SPREAD = 50_000
"""Least rows of an expected batch whose blocks are computed where the rows lie."""

_BLOCKS_A_BATCH = 4
"""Blocks that an expected batch fills: the last is padded, which wastes an eighth of the work on
average."""


class Factored(Protocol):
    """The per-example gradients of one parameter block, b examples."""

    def squared_norms(self) -> Tensor:
        """Squared L2 norm of each example's gradient, float64; shape (b,)."""
        ...

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Sum over examples of weight times gradient, float64, of the parameter block's shape."""
        ...

    def take(self, examples: Tensor | slice) -> Factored:
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

    def take(self, examples: Tensor | slice) -> Outer:
        return Outer(self.left[examples], self.right[examples])


@dataclass(frozen=True)
class LayeredOuter:
    """Gradient i is, in each layer d, a masked outer product: of ``left`` and ``right`` [i, :, d].

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

    def take(self, examples: Tensor | slice) -> LayeredOuter:
        return LayeredOuter(self.left[examples], self.right[examples], self.mask)


@dataclass(frozen=True)
class Lookup:
    """Gradient i is ``values[i]`` in row ``index[i]`` of a table and zero elsewhere.

    Shapes: (b,), (b, q) -> (rows, q).
    """

    index: Tensor
    values: Tensor
    rows: int

    def squared_norms(self) -> Tensor:
        return self.values.double().square().sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        weighted = (
            self.values.double() * weights[:, None]
        ).cpu()  # an accelerator adds in no fixed order
        table = torch.zeros(self.rows, self.values.shape[1], dtype=torch.float64)
        return table.index_add_(0, self.index.cpu(), weighted)

    def take(self, examples: Tensor | slice) -> Lookup:
        return Lookup(self.index[examples], self.values[examples], self.rows)


FactoredGradient = Mapping[str, Factored]


def clipped_sum(gradient: FactoredGradient, clip: float) -> dict[str, Tensor]:
    """Sum over examples of gradients clipped to L2 norm ``clip`` over all blocks together; float64.

    An example whose norm is not finite contributes nothing.
    """
    squared = torch.stack([block.squared_norms() for block in gradient.values()]).sum(0)
    finite = torch.isfinite(squared)
    if not finite.all():
        return clipped_sum(_examples(gradient, torch.nonzero(finite)[:, 0]), clip)
    weights = clip / torch.clamp(torch.sqrt(squared) * (1.0 + _NORM_ERROR), min=clip)
    return {name: block.weighted_sum(weights) for name, block in gradient.items()}


def block_size(expected: float) -> int:
    """Rows of a block, a power of two, from the expected batch: public, whatever the batch is."""
    wanted = max(int(expected) // _BLOCKS_A_BATCH, _SMALLEST_BLOCK)
    return min(1 << (wanted - 1).bit_length(), _LARGEST_BLOCK)


def in_blocks(codes: PartNumbers, size: int) -> list[PartNumbers]:
    """Rows of codes (n, k) in blocks of ``size`` rows, of which the last, at least one, has fewer.

    Privacy: how a row is computed depends on its place and on the padded shape of its block, not on
    the other rows. Adding a row in a random order changes the place of at most one other row; see
    docs/privacy.md.
    """
    return [codes[start : start + size] for start in range(0, max(len(codes), 1), size)]


def _examples(gradient: FactoredGradient, examples: Tensor | slice) -> FactoredGradient:
    return {name: block.take(examples) for name, block in gradient.items()}


Gradient = Callable[[Tensor], FactoredGradient]


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Which attributes gradients are of, and how rows are sampled.

    ``expected`` is the batch size at the declared number of rows; gradients are of ``device``.
    """

    partitions: tuple[Partition, ...]
    mechanism: GaussianGradient
    expected: float
    device: Device = CPU

    @cached_property
    def block(self) -> int:
        """Rows that are computed at once: a public number, whatever the sample."""
        return block_size(self.expected)

    @property
    def spread(self) -> bool:
        """Whether blocks are computed where the rows lie: public, whatever the sample."""
        return self.device == CPU and self.expected >= _LEAST_SPREAD


@dataclass(frozen=True, eq=False)
class BlockSum:
    """The sum of the clipped gradients of a block of rows, in whole steps of the grid, flat.

    ``size`` is that of a whole block, ``names`` those of parameters, in order. It can be sent to
    whoever holds rows, if the gradient can: all that it has is public.
    """

    gradient: Gradient
    names: tuple[str, ...]
    mechanism: GaussianGradient
    size: int

    def __call__(self, codes: PartNumbers) -> Integers:
        """The sum for levels (n, k), which rows of zeros fill up to the size.

        Raises:
            PrivacyError: it is not finite.
        """
        padded = torch.zeros(self.size, codes.shape[1], dtype=torch.long)
        padded[: len(codes)] = torch.from_numpy(codes.astype(np.int64))
        gradient = _examples(self.gradient(padded), slice(len(codes)))
        sums = clipped_sum(gradient, self.mechanism.clip)
        return self.mechanism.on_grid(
            np.concatenate([sums[name].numpy().ravel() for name in self.names])
        )


@dataclass(frozen=True, eq=False)
class GradientSum(Query[TableRows, ClippedSum, Floats]):
    """The sum, flat, over one Poisson sample of gradients clipped to the norm of the mechanism.

    ``gradient`` maps levels (b, k) to per-example gradients; row i of each factor may depend on
    example i only. It is called for each block of one public size b, whatever the sample; rows of
    zeros fill the last one up. ``shapes`` holds a tensor of each parameter's shape.

    Proof: docs/privacy.md, DP-SGD: each gradient is clipped here, whatever was computed, so one
    additional row in the sample moves the sum by at most the clip and what rounding adds, which the
    noise allows for.
    """

    name: ClassVar[str] = "gradient"
    rows: SampledRows
    gradient: Gradient
    shapes: Mapping[str, Tensor]

    def request(self) -> Mapping[str, Any]:
        return {"parameters": sorted(self.shapes)}

    def sensitivity(self, neighbours: Neighbours) -> ClippedSum:
        return self.rows.mechanism.sums(neighbours.max_rows)

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:
        batch = self.rows.mechanism.batch(rows.table.rows, source)
        codes = rows.parts_of(batch, self.rows.partitions)
        kernel = BlockSum(self.gradient, tuple(self.shapes), self.rows.mechanism, self.rows.block)
        summed = rows.table.summed if self.rows.spread else summed_here
        return summed(kernel, in_blocks(codes, self.rows.block))

    def outcome(self, noisy: Array) -> Floats:
        return noisy
