"""What the attributes inside a factor tell of each other beyond what their support forces on them.

A factor lists joint levels, and a fit of tables that hold single attributes of it leaves open how
these go together. Of joint shares with the same shares of each attribute, those that are products
of one number for each attribute's level have the greatest entropy: quasi-independence.

Source: Darroch, Ratcliff, "Generalized iterative scaling for log-linear models" (1972); Csiszár,
    "I-divergence geometry" (1975).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cloister.models.mixture.fitting.products import Factor, Layout

_LEAST = 1e-12
"""Share of a level at least, so that its logarithm is finite."""


@dataclass(frozen=True)
class _Attribute:
    """One attribute of a factor: its level m has the attribute's level ``index[m]`` of ``size``."""

    index: Tensor
    size: int

    def shares(self, joint: Tensor) -> Tensor:
        """The shares (size,) of the attribute's levels, of joint shares (levels,)."""
        return joint.new_zeros(self.size).index_add_(0, self.index, joint)


class QuasiIndependence:
    """The products nearest to the shares of one factor, followed from step to step of a fit.

    ``levels`` is the factor's range among all levels of its layout.
    """

    def __init__(self, factor: Factor, levels: slice, device: torch.device) -> None:
        self.levels = levels
        self._attributes = [
            _Attribute(torch.as_tensor(column).to(device), int(column.max()) + 1)
            for column in factor.levels.T
        ]
        self._logs = torch.zeros(factor.size, device=device)

    def excess(self, shares: Tensor) -> Tensor:
        """Log-ratios (levels,) of joint shares to the products of the same shares of attributes.

        The slope, up to a constant, of the least divergence of the shares from any such product.
        One sweep of iterative proportional fitting, from the products of the call before.
        """
        for attribute in self._attributes:
            wanted, found = attribute.shares(shares), attribute.shares(torch.softmax(self._logs, 0))
            self._logs += torch.log((wanted + _LEAST) / (found + _LEAST))[attribute.index]
        return torch.log(shares + _LEAST) - torch.log_softmax(self._logs, 0)


def joint_factors(layout: Layout, device: torch.device) -> tuple[QuasiIndependence, ...]:
    """One for each factor of several attributes."""
    return tuple(
        QuasiIndependence(factor, slice(layout.edges[at], layout.edges[at + 1]), device)
        for at, factor in enumerate(layout.factors)
        if len(factor.attributes) > 1
    )
