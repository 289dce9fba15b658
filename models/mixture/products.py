"""A mixture of products: rows belong to components, and inside a component all factors are independent.

A factor is an attribute, or several attributes that a support ties together, whose joint levels it then lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Int = NDArray[np.int64]


@dataclass(frozen=True)
class Factor:
    """One factor: level m is the joint level ``levels[m]`` of ``attributes``; shape (size, attributes)."""

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

    def views(self, names: Sequence[str]) -> tuple[tuple[View, ...], tuple[int, ...]]:
        """One view for each factor that the attributes lie in, and the axes of a joint table in the views' order."""
        homes = list(dict.fromkeys(self.home[name] for name in names))
        members = {at: [axis for axis, name in enumerate(names) if self.home[name] == at] for at in homes}
        views = {at: self._view(at, [names[axis] for axis in axes]) for at, axes in members.items()}
        homes.sort(key=lambda at: views[at].size)
        return tuple(views[at] for at in homes), tuple(axis for at in homes for axis in members[at])

    def _view(self, at: int, names: Sequence[str]) -> View:
        factor = self.factors[at]
        if len(factor.attributes) == 1:
            return View(at, None, factor.size)
        sizes = [self.sizes[name] for name in names]
        columns = [factor.levels[:, factor.attributes.index(name)] for name in names]
        index = torch.as_tensor(np.ravel_multi_index(columns, sizes).astype(np.int64))
        return View(at, index, int(np.prod(sizes)))


@dataclass(frozen=True)
class Mixture:
    """A mixture of products.

    Shapes: ``weights`` (components,), summing to 1; ``shares`` (levels of all factors, components), summing to 1 over
    the levels of each factor; float32.
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
        return torch.zeros(view.size, shares.shape[1]).index_add_(0, view.index, shares)

    def marginal(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Joint share of some attributes' levels, one axis an attribute."""
        views, axes = self.layout.views(names)
        sizes = [self.layout.sizes[names[axis]] for axis in axes]
        folded = self.weights[None]
        for view in views[:-1]:
            folded = (folded[:, None] * self.seen(view)[None]).flatten(0, 1)
        table = (folded @ self.seen(views[-1]).T).reshape(sizes)
        return table.permute(*np.argsort(axes).tolist()).double().numpy()

    def logs(self, name: str) -> Tensor:
        """Log-shares of one attribute's levels in each component; shape (size, components)."""
        (view,), _ = self.layout.views([name])
        return torch.log(self.seen(view) + 1e-12)
