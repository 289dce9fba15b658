"""The sum of clipped gradients of a Poisson sample of rows: one step of DP-SGD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from cloister.arrays import Array, Floats, Integers
from cloister.privacy.mechanisms.clipping import (
    FactoredGradient,
    block_size,
    clipped_sum,
    in_blocks,
)
from cloister.privacy.mechanisms.counts import ClippedSum, GaussianGradient, Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import Query
from cloister.privacy.queries.table_rows import Partition, TableRows

Gradient = Callable[[Tensor], FactoredGradient]


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Which attributes gradients are of, and how rows are sampled.

    ``expected`` is the batch size at the declared number of rows.
    """

    partitions: tuple[Partition, ...]
    mechanism: GaussianGradient
    expected: float

    @cached_property
    def block(self) -> int:
        """Rows that are computed at once: a public number, whatever the sample."""
        return block_size(self.expected)


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
        mechanism = self.rows.mechanism
        codes = torch.as_tensor(rows.part_matrix(self.rows.partitions))
        total = np.zeros(sum(shape.numel() for shape in self.shapes.values()), dtype=np.int64)
        for block in in_blocks(codes, mechanism.batch(len(codes), source), self.rows.block):
            sums = clipped_sum(block.of(self.gradient(block.codes)), mechanism.clip)
            total += mechanism.on_grid(
                np.concatenate([sums[name].numpy().ravel() for name in self.shapes])
            )
        return total

    def outcome(self, rows: TableRows, noisy: Array) -> Floats:  # noqa: ARG002
        return noisy
