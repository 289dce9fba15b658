"""A mixture of products: rows belong to components, and inside a component all factors are independent.

A factor is an attribute, or several attributes that a support ties together, whose joint levels it
then lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.discretization.coarsening import Coarsening

Int = NDArray[np.int64]


@dataclass(frozen=True)
class Factor:
    """One factor: level m is the joint level ``levels[m]`` of ``attributes``.

    Shape (size, attributes).
    """

    attributes: tuple[str, ...]
    levels: Int

    @property
    def size(self) -> int:
        """Number of levels."""
        return len(self.levels)

    @classmethod
    def single(cls, name: str, size: int) -> Factor:
        """The factor of one attribute."""
        return cls((name,), np.arange(size, dtype=np.int64)[:, None])


@dataclass(frozen=True)
class View:
    """A factor seen through some of its attributes: level m of factor ``at`` is part ``index[m]`` of ``size``.

    ``index`` is None where the parts are the levels.
    """

    at: int
    index: Tensor | None
    size: int


@dataclass(frozen=True)
class Layout:
    """Which factors make up a row; ``sizes`` are those of the attributes."""

    factors: tuple[Factor, ...]
    sizes: Mapping[str, int]

    @cached_property
    def home(self) -> dict[str, int]:
        """The factor of each attribute."""
        return {name: at for at, factor in enumerate(self.factors) for name in factor.attributes}

    @cached_property
    def edges(self) -> list[int]:
        """Where each factor's levels begin among all levels; one more than factors."""
        return np.cumsum([0, *(factor.size for factor in self.factors)]).tolist()

    def views(self, readings: Sequence[Coarsening]) -> tuple[tuple[View, ...], tuple[int, ...]]:
        """One view for each factor that the readings' attributes lie in, small ones first.

        With the axes of a joint table of the readings in the order of the views.
        """
        homes: dict[int, list[int]] = {}
        for axis, reading in enumerate(readings):
            homes.setdefault(self.home[reading.name], []).append(axis)
        views = {
            at: self._view(at, [readings[axis] for axis in axes]) for at, axes in homes.items()
        }
        order = sorted(homes, key=lambda at: views[at].size)
        return tuple(views[at] for at in order), tuple(axis for at in order for axis in homes[at])

    def _view(self, at: int, readings: Sequence[Coarsening]) -> View:
        factor = self.factors[at]
        sizes = [reading.size for reading in readings]
        if len(factor.attributes) == 1 and readings[0].whole:
            return View(at, None, factor.size)
        columns = [r.parts[factor.levels[:, factor.attributes.index(r.name)]] for r in readings]
        index = torch.as_tensor(np.ravel_multi_index(columns, sizes).astype(np.int64))
        return View(at, index, int(np.prod(sizes)))


@dataclass(frozen=True)
class Mixture:
    """A mixture of products.

    Shapes: ``weights`` (components,), summing to 1; ``shares`` (levels of all factors, components),
    summing to 1 over the levels of each factor; float32.
    """

    layout: Layout
    weights: Tensor
    shares: Tensor

    def factor(self, at: int) -> Tensor:
        """Shares of the levels of one factor; shape (size, components)."""
        return self.shares[self.layout.edges[at] : self.layout.edges[at + 1]]

    def seen(self, view: View) -> Tensor:
        """Shares of the parts of one view; shape (size, components)."""
        shares = self.factor(view.at)
        if view.index is None:
            return shares
        return shares.new_zeros(view.size, shares.shape[1]).index_add_(0, view.index, shares)

    def marginal(self, readings: Sequence[Coarsening]) -> NDArray[np.float64]:
        """Joint share of the parts of some readings, one axis a reading."""
        views, axes = self.layout.views(readings)
        folded = self.weights[None]
        for view in views[:-1]:
            folded = (folded[:, None] * self.seen(view)[None]).flatten(0, 1)
        table = (folded @ self.seen(views[-1]).T).reshape([readings[axis].size for axis in axes])
        return table.permute(*np.argsort(axes).tolist()).double().numpy()

    def shares_of(self, name: str) -> Tensor:
        """Shares of one attribute's levels in each component; shape (size, components)."""
        at = self.layout.home[name]
        factor = self.layout.factors[at]
        index = torch.as_tensor(factor.levels[:, factor.attributes.index(name)])
        return torch.zeros(self.layout.sizes[name], len(self.weights)).index_add_(
            0, index, self.factor(at)
        )

    def logs(self, name: str) -> Tensor:
        """Log-shares of one attribute's levels in each component; shape (size, components)."""
        return torch.log(self.shares_of(name) + 1e-12)
