"""What a sub-model predicts: a level, or the mean and deviation of a number.

Source: Kamino section 4.1 (cross-entropy for categorical targets, a regression for numeric ones)
and section 4.2 (a numeric target is drawn from a normal distribution). The paper does not say where
its deviation comes from; here the network predicts it, from public points, with no further query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloister.schema.columns import Grid
from models.discretization.bins import Bins

NARROWEST, WIDEST = -3.0, 1.5
FEWEST_POINTS = 3


class Head(Protocol):
    """The outputs of a sub-model, and what they say of the target's levels."""

    @property
    def bias(self) -> Tensor:
        """Starting outputs (outputs,), whatever the context."""
        ...

    def losses(self, outputs: Tensor, truth: Tensor) -> Tensor:
        """Loss of each example (b,), from its outputs (b, outputs) and its true level (b,)."""
        ...

    def logits(self, outputs: Tensor) -> Tensor:
        """Unnormalised log-probabilities (n, levels) from outputs (n, outputs)."""
        ...


@dataclass(frozen=True)
class LevelHead:
    """One output a level, by cross-entropy; starts at the released ``shares`` (levels,)."""

    shares: NDArray[np.float64]

    @property
    def bias(self) -> Tensor:
        return torch.as_tensor(np.log(self.shares + 1e-5), dtype=torch.float32)

    def losses(self, outputs: Tensor, truth: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(outputs, truth, reduction="none")

    def logits(self, outputs: Tensor) -> Tensor:
        return outputs


@dataclass(frozen=True)
class NormalHead:
    """Mean and log-deviation of a standardised number, by the normal likelihood.

    Shapes: ``points`` (levels,) the standardised middle of each group, ``widths`` (levels,) its
    width. The candidates of section 4.2 are the groups' middles, all of them, each with the normal
    density times the width.
    """

    points: NDArray[np.float64]
    widths: NDArray[np.float64]

    @classmethod
    def of(cls, groups: Bins) -> NormalHead:
        """Standardised by the released histogram."""
        edges = np.stack([groups.levels.low, groups.levels.high], axis=1)
        middle = edges.mean(axis=1)
        mean = float(groups.mass @ middle)
        deviation = math.sqrt(max(float(groups.mass @ np.square(middle - mean)), 1e-12))
        step = float(np.diff(edges, axis=1).sum()) / max(len(middle), 1) / 100
        return cls(
            (middle - mean) / deviation, (edges[:, 1] - edges[:, 0] + max(step, 1e-9)) / deviation
        )

    @property
    def bias(self) -> Tensor:
        return torch.zeros(2)

    def losses(self, outputs: Tensor, truth: Tensor) -> Tensor:
        point = torch.as_tensor(self.points, dtype=torch.float32, device=outputs.device)[truth]
        return -_log_density(point, outputs[:, 0], outputs[:, 1])

    def logits(self, outputs: Tensor) -> Tensor:
        points = torch.as_tensor(self.points, dtype=torch.float32, device=outputs.device)
        widths = torch.as_tensor(np.log(self.widths), dtype=torch.float32, device=outputs.device)
        return _log_density(points, outputs[:, :1], outputs[:, 1:]) + widths


def _log_density(point: Tensor, mean: Tensor, log_deviation: Tensor) -> Tensor:
    spread = torch.clamp(log_deviation, NARROWEST, WIDEST)
    return -spread - 0.5 * ((point - mean) * torch.exp(-spread)).square()


def level_head(*groups: Bins) -> Head:
    """A level for every target.

    A hyper-attribute's levels start as if its attributes were independent.
    """
    return LevelHead(
        reduce(lambda joint, own: np.outer(joint, own.mass).ravel(), groups, np.ones(1))
    )


def normal_head(*groups: Bins) -> Head:
    """A normal distribution for a number that is never missing, levels for all else."""
    if len(groups) == 1 and groups[0].size >= FEWEST_POINTS:
        column = groups[0].cells.column
        if isinstance(column, Grid) and column.null_code is None:
            return NormalHead.of(groups[0])
    return level_head(*groups)


HEADS: Mapping[str, Callable[..., Head]] = {"levels": level_head, "normal": normal_head}
