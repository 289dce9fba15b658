"""Noisy mean gradients, step by step, from the door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cloister.privacy.queries.clipped_gradients import Gradient, GradientSum, SampledRows
from cloister.privacy.queries.query import Door, TableRows


@dataclass(frozen=True, eq=False)
class NoisyGradients:
    """Mean gradients over Poisson samples: noisy sums, divided by the expected batch."""

    private: Door[TableRows]
    rows: SampledRows
    label: str

    @property
    def noise_variance(self) -> float:
        """The variance of each coordinate of a mean gradient, a public number."""
        mechanism = self.rows.mechanism
        return (float(mechanism.noise_multiplier) * mechanism.clip / self.rows.expected) ** 2

    def step(self, gradient: Gradient, shapes: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The noisy mean gradient over one Poisson sample, float32, by parameter name.

        See `GradientSum`.
        """
        query = GradientSum(self.rows, gradient, shapes)
        flat = self.private.answer(query, self.rows.mechanism, self.label) / self.rows.expected
        pieces = torch.split(torch.as_tensor(flat).float(), [t.numel() for t in shapes.values()])
        return {
            name: piece.reshape(shapes[name].shape)
            for name, piece in zip(shapes, pieces, strict=True)
        }
