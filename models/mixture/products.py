"""A mixture of products: rows belong to components; in a component all factors are independent.

A factor is an attribute, or several attributes that a feasible set joins, whose joint levels it
lists.

Dependent attributes are drawn after those that, by a feasible set, decide which levels are allowed.

A feasible set becomes a factor of the mixture where that is small. Where it is not, an attribute
that is in no other feasible set can be drawn afterwards, given its parents: the feasible set
shrinks to the levels of the parents that allow some level of the attribute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cloister.arrays import Floats, Integers
from cloister.schema.partition import Partition


@dataclass(frozen=True)
class Factor:
    """One factor: level m is the joint level ``levels[m]`` of ``attributes``.

    Shape (size, attributes).
    """

    attributes: tuple[str, ...]
    levels: Integers

    @property
    def size(self) -> int:
        """Number of levels."""
        return len(self.levels)

    @classmethod
    def single(cls, name: str, size: int) -> Factor:
        """The factor of one attribute."""
        return cls((name,), np.arange(size, dtype=np.int64)[:, None])


@dataclass(frozen=True)
class FactorView:
    """Some attributes of factor ``at``, coarsened: its level m is in part ``index[m]`` of ``size``.

    ``index`` is None where the parts are the levels.
    """

    factor: int
    index: Tensor | None
    size: int

    def to(self, device: torch.device) -> FactorView:
        """The same view with its index on a device."""
        if self.index is None:
            return self
        return FactorView(self.factor, self.index.to(device), self.size)


@dataclass(frozen=True)
class Layout:
    """The factors of a row; ``sizes`` are those of the attributes."""

    factors: tuple[Factor, ...]
    sizes: Mapping[str, int]

    @cached_property
    def factor_of(self) -> dict[str, int]:
        """The number of the factor of each attribute."""
        return {
            name: number for number, factor in enumerate(self.factors) for name in factor.attributes
        }

    @cached_property
    def edges(self) -> list[int]:
        """Where each factor's levels begin among all levels, and where the last ones end."""
        return np.cumsum([0, *(factor.size for factor in self.factors)]).tolist()

    def views(
        self, coarsenings: Sequence[Partition]
    ) -> tuple[tuple[FactorView, ...], tuple[int, ...]]:
        """One view for each factor of the coarsenings' attributes, small ones first.

        With the axes of a joint table of the coarsenings, in the order of the views.
        """
        axes_of: dict[int, list[int]] = {}
        for axis, coarsening in enumerate(coarsenings):
            axes_of.setdefault(self.factor_of[coarsening.name], []).append(axis)
        views = {
            number: self._view(number, [coarsenings[axis] for axis in axes])
            for number, axes in axes_of.items()
        }
        order = sorted(axes_of, key=lambda number: views[number].size)
        return tuple(views[number] for number in order), tuple(
            axis for number in order for axis in axes_of[number]
        )

    def _view(self, number: int, coarsenings: Sequence[Partition]) -> FactorView:
        factor = self.factors[number]
        sizes = [coarsening.size for coarsening in coarsenings]
        whole = coarsenings[0].whole and factor.size == coarsenings[0].size
        if len(factor.attributes) == 1 and whole:
            return FactorView(number, None, factor.size)
        columns = [r.joined[factor.levels[:, factor.attributes.index(r.name)]] for r in coarsenings]
        index = torch.as_tensor(np.ravel_multi_index(columns, sizes).astype(np.int64))
        return FactorView(number, index, int(np.prod(sizes)))


@dataclass(frozen=True)
class Mixture:
    """A mixture of products.

    Shapes: ``weights`` (components,), summing to 1; ``shares`` (levels of all factors, components),
    summing to 1 over the levels of each factor; float32.
    """

    layout: Layout
    weights: Tensor
    shares: Tensor

    def to(self, device: torch.device) -> Mixture:
        """The same mixture on a device."""
        return Mixture(self.layout, self.weights.to(device), self.shares.to(device))

    def factor(self, number: int) -> Tensor:
        """Shares of the levels of one factor; shape (size, components)."""
        return self.shares[self.layout.edges[number] : self.layout.edges[number + 1]]

    def view_shares(self, view: FactorView, scratch: Tensor | None = None) -> Tensor:
        """Shares of the parts of one view, in ``scratch`` if given; shape (size, components)."""
        shares = self.factor(view.factor)
        if view.index is None:
            return shares
        if scratch is None:
            scratch = shares.new_empty(view.size, shares.shape[1])
        return scratch.zero_().index_add_(0, view.index, shares)

    def marginal(self, coarsenings: Sequence[Partition]) -> Floats:
        """Joint shares of the parts of some coarsenings, one axis a coarsening."""
        views, axes = self.layout.views(coarsenings)
        folded = self.weights[None]
        for view in views[:-1]:
            folded = (folded[:, None] * self.view_shares(view)[None]).flatten(0, 1)
        table = (folded @ self.view_shares(views[-1]).T).reshape(
            [coarsenings[axis].size for axis in axes]
        )
        return table.permute(*np.argsort(axes).tolist()).double().numpy()

    def shares_of(self, name: str) -> Tensor:
        """Shares of one attribute's levels in each component; shape (size, components)."""
        number = self.layout.factor_of[name]
        factor = self.layout.factors[number]
        index = torch.as_tensor(factor.levels[:, factor.attributes.index(name)])
        return torch.zeros(self.layout.sizes[name], len(self.weights)).index_add_(
            0, index, self.factor(number)
        )

    def logs(self, name: str) -> Tensor:
        """Log-shares of one attribute's levels in each component; shape (size, components)."""
        return torch.log(self.shares_of(name) + 1e-12)


@dataclass(frozen=True)
class DependentAttribute:
    """An attribute whose levels depend on its parents': ``keys[p]`` allows some ``children``.

    Shapes: ``keys`` (p,) increasing numbers of the parents' joint levels; ``begins`` (p + 1,) where
    the children of each begin among ``children`` (c,). ``sizes`` are those of the parents.
    """

    name: str
    parents: tuple[str, ...]
    sizes: tuple[int, ...]
    keys: Integers
    begins: Integers
    children: Integers

    @classmethod
    def of(cls, name: str, factor: Factor, sizes: Mapping[str, int]) -> DependentAttribute:
        """One attribute of a factor, given the others."""
        parents = tuple(attribute for attribute in factor.attributes if attribute != name)
        parent_sizes = tuple(sizes[parent] for parent in parents)
        joint = joint_keys(
            factor.levels[:, [factor.attributes.index(parent) for parent in parents]], parent_sizes
        )
        order = np.argsort(joint, kind="stable")
        keys, counts = np.unique(joint, return_counts=True)
        begins = np.concatenate([[0], np.cumsum(counts)])
        return cls(
            name,
            parents,
            parent_sizes,
            keys,
            begins,
            factor.levels[order, factor.attributes.index(name)],
        )

    def key_index(self, levels: Integers) -> Integers:
        """The place among ``keys`` of the parents' levels (n, parents); shape (n,)."""
        return np.searchsorted(self.keys, joint_keys(levels, self.sizes))


def without(name: str, factor: Factor) -> Factor:
    """The joint levels of the other attributes for which a factor has some level of ``name``."""
    columns = [column for column, attribute in enumerate(factor.attributes) if attribute != name]
    return Factor(
        tuple(factor.attributes[column] for column in columns),
        np.unique(factor.levels[:, columns], axis=0),
    )


def joint_keys(levels: Integers, sizes: tuple[int, ...]) -> Integers:
    """A number for each joint level (n, k); all zero where there are no attributes."""
    number = np.zeros(len(levels), dtype=np.int64)
    for column, size in zip(levels.T, sizes, strict=True):
        number = number * size + column
    return number
