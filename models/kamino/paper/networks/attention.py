"""How a sub-model reads the attributes before its own: Kamino's section 2.3, after AimNet.

Source: Wu et al., "Attention-based Learning for Missing Data Imputation in HoloClean" (MLSys 2020):
one learned logit for each (target, context attribute), a softmax over the context. Gates are ours:
one factor a dimension as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor


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
