"""The parts of a sub-model: units, attention over the units before, and what it predicts.

*Units* of the schema sequence are single attributes, or hyper-attributes made of runs of small ones
(Kamino section 4.3, "Optimizations for extreme domain sizes").

*Attention* over the attributes before a unit's own: Kamino's section 2.3, after Wu et al.,
"Attention-based Learning for Missing Data Imputation in HoloClean" (MLSys 2020): one learned logit
for each (target, context attribute), a softmax over the context. Gates are ours: one factor a
dimension as well.

*Heads* predict a level, or the mean and deviation of a number.

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
from torch import Tensor

from cloister.arrays import Floats
from cloister.models.core.bins import Histogram
from cloister.models.kamino.recipe import Runs
from cloister.schema.columns import Grid

_NARROWEST = -3.0
"""Log of the least deviation of a standardised number: bounds the likelihood."""

_WIDEST = 1.5
"""Log of the greatest deviation of a standardised number; that of the column is 0."""

_FEWEST_POINTS = 3
"""Fewest bins of a number with a normal head; numbers with fewer get levels."""


@dataclass(frozen=True)
class Units:
    """A partition of the positions 0..k-1 into runs, over attributes of ``sizes`` (k,) levels."""

    runs: Runs
    sizes: tuple[int, ...]

    @property
    def levels(self) -> tuple[int, ...]:
        """Number of joint levels of each unit."""
        return tuple(math.prod(self.shape(unit)) for unit in range(len(self.runs)))

    def shape(self, unit: int) -> tuple[int, ...]:
        """Levels of each attribute of a unit."""
        return tuple(self.sizes[position] for position in self.runs[unit])

    def unit_of(self, position: int) -> tuple[int, int]:
        """The unit at a position, and which of its attributes that is."""
        unit = next(index for index, run in enumerate(self.runs) if position in run)
        return unit, self.runs[unit].index(position)

    def join(self, codes: Tensor, units: int) -> Tensor:
        """Joint levels (n, units) of the first ``units`` units, from levels (n, positions)."""
        columns = [self._join(codes, run) for run in self.runs[:units]]
        return torch.stack(columns, 1) if columns else codes[:, :0]

    def separate(self, levels: Tensor, unit: int) -> Tensor:
        """Levels of the attributes of one unit (n, attributes), from its joint levels (n,)."""
        return torch.stack(torch.unravel_index(levels, self.shape(unit)), 1)

    def _join(self, codes: Tensor, run: tuple[int, ...]) -> Tensor:
        joint = torch.zeros_like(codes[:, 0])
        for position in run:
            joint = joint * self.sizes[position] + codes[:, position]
        return joint


class Attention(Protocol):
    """A context vector from embedded context attributes."""

    def initial(self, context: int, width: int) -> Tensor:
        """Starting weights for ``context`` attributes."""
        ...

    def vector(self, weights: Tensor, embedded: Tensor) -> Tensor:
        """The context vector (..., width) of embedded attributes (..., context, width)."""
        ...


class Softmax:
    """The mean of the embedded attributes, weighted by the softmax of one logit each."""

    def initial(self, context: int, width: int) -> Tensor:  # noqa: ARG002
        return torch.zeros(context)

    def vector(self, weights: Tensor, embedded: Tensor) -> Tensor:
        return (torch.softmax(weights, 0)[:, None] * embedded).sum(-2)


class Gates:
    """The hyperbolic tangent of a weighted sum of the embedded attributes, dimension by dimension.

    Each attribute has one factor a dimension.
    """

    def initial(self, context: int, width: int) -> Tensor:
        return torch.ones(context, width)

    def vector(self, weights: Tensor, embedded: Tensor) -> Tensor:
        return torch.tanh((weights * embedded).sum(-2) / math.sqrt(max(len(weights), 1)))


ATTENTIONS: Mapping[str, Attention] = {"softmax": Softmax(), "gates": Gates()}


class Head(Protocol):
    """The outputs of a sub-model, and the probabilities of the target's levels in them."""

    @property
    def bias(self) -> Tensor:
        """Starting outputs (outputs,), the same for any context."""
        ...

    def losses(self, outputs: Tensor, truth: Tensor) -> Tensor:
        """Loss of each example (b,), from its outputs (b, outputs) and its true level (b,)."""
        ...

    def logits(self, outputs: Tensor) -> Tensor:
        """Unnormalised log-probabilities (n, levels) from outputs (n, outputs)."""
        ...


@dataclass(frozen=True)
class LevelHead:
    """One output per level, by cross-entropy; starts at the released ``shares`` (levels,)."""

    shares: Floats

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

    Shapes: ``points`` (levels,) the standardised middle of each bin, ``widths`` (levels,) its
    width. The candidates of section 4.2 are the middles of all bins, each with the normal density
    times the width.
    """

    points: Floats
    widths: Floats

    @classmethod
    def of(cls, bins: Histogram) -> NormalHead:
        """Standardised by the released histogram."""
        edges = np.stack([bins.levels.low, bins.levels.high], axis=1)
        middle = edges.mean(axis=1)
        mean = float(bins.mass @ middle)
        deviation = math.sqrt(max(float(bins.mass @ np.square(middle - mean)), 1e-12))
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
    spread = torch.clamp(log_deviation, _NARROWEST, _WIDEST)
    return -spread - 0.5 * ((point - mean) * torch.exp(-spread)).square()


def level_head(*bins: Histogram) -> Head:
    """A level for every target.

    A hyper-attribute's levels start as if its attributes were independent.
    """
    return LevelHead(
        reduce(lambda joint, histogram: np.outer(joint, histogram.mass).ravel(), bins, np.ones(1))
    )


def normal_head(*bins: Histogram) -> Head:
    """A normal distribution for a number that is never missing, else levels."""
    if len(bins) == 1 and bins[0].size >= _FEWEST_POINTS:
        column = bins[0].column
        if isinstance(column, Grid) and column.null_code is None:
            return NormalHead.of(bins[0])
    return level_head(*bins)


HEADS: Mapping[str, Callable[..., Head]] = {"levels": level_head, "normal": normal_head}
