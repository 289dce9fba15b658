"""A mixture of products: rows belong to components; in a component all factors are independent.

A factor is an attribute, or several attributes that a feasible set joins, whose joint levels it
lists, or those of branches: a branch is drawn, then each attribute among the levels that it has
there, independently.

Dependent attributes are drawn after those that, by a feasible set, decide which levels are allowed.

A feasible set becomes a factor of the mixture where that is small. Where it is not, an attribute
that is in no other feasible set can be drawn afterwards, given its parents: the feasible set
shrinks to the levels of the parents that allow some level of the attribute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from cloister.arrays import Booleans, Floats, Integers
from cloister.models.feasible_sets.branches import Branches
from cloister.models.feasible_sets.feasible_set import grid
from cloister.schema.partition import Partition

Coarsening = tuple[str, Integers, int]
"""An attribute, the part (levels,) of each of its levels, and the number of parts."""


@dataclass(frozen=True)
class Products:
    """Products of sums of a factor's shares.

    Share ``levels[i]`` adds to sum ``sums[i]`` of ``size``; product m is that of the sums
    ``rows[m]``. Shape of ``rows``: (m, k).
    """

    levels: Tensor
    sums: Tensor
    size: int
    rows: Tensor


@dataclass(frozen=True)
class FactorView:
    """Some attributes of a factor, coarsened: its level m is in part ``index[m]`` of ``size``.

    ``index`` is None where the parts are the levels. Where there are ``products``, these are what
    parts hold, in place of levels.
    """

    factor: int
    index: Tensor | None
    size: int
    products: Products | None = None


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

    @property
    def stored(self) -> Integers:
        """The levels, as a model's state has them."""
        return self.levels

    @property
    def edges(self) -> list[int]:
        """Where shares that sum to 1 begin and end: all of them do."""
        return [0, self.size]

    def view(self, number: int, coarsenings: Sequence[Coarsening]) -> FactorView:
        """The view of some attributes of this factor, which has a ``number``."""
        columns = [
            joined[self.levels[:, self.attributes.index(name)]] for name, joined, _ in coarsenings
        ]
        sizes = [size for _, _, size in coarsenings]
        index = np.ravel_multi_index(columns, sizes).astype(np.int64)
        return FactorView(number, torch.as_tensor(index), math.prod(sizes))

    @classmethod
    def single(cls, name: str, size: int) -> Factor:
        """The factor of one attribute."""
        return cls((name,), np.arange(size, dtype=np.int64)[:, None])


@dataclass(frozen=True)
class BranchFactor:
    """The attributes of ``branches``: given the branch, they are independent in a component.

    Its shares are first those of the branches, then, for each attribute, those of the levels in
    each of its different sets.
    """

    branches: Branches

    @classmethod
    def restored(cls, names: tuple[str, ...], stored: Booleans, sizes: Sequence[int]) -> Self:
        """The factor whose :attr:`stored` is given, of attributes of some sizes."""
        return cls(Branches(names, tuple(np.split(stored, np.cumsum(sizes)[:-1], axis=1))))

    @property
    def stored(self) -> Booleans:
        """The allowed levels of all attributes side by side; shape (branches, sum of sizes)."""
        return np.concatenate(self.branches.allowed, axis=1)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of the branches."""
        return self.branches.attributes

    @cached_property
    def _sets(self) -> list[list[Integers]]:
        """The levels in each set of each attribute."""
        return [[np.flatnonzero(one) for one in sets] for sets, _ in self.branches.variants]

    @cached_property
    def edges(self) -> list[int]:
        """Where shares that sum to 1 begin and end: of branches, then of each set of levels."""
        sizes = [len(levels) for sets in self._sets for levels in sets]
        return np.cumsum([0, self.branches.count, *sizes]).tolist()

    @property
    def size(self) -> int:
        """Number of shares."""
        return self.edges[-1]

    @cached_property
    def _begins(self) -> list[Integers]:
        """Where the shares of each attribute begin in each branch; shape (branches,)."""
        first, begins = 1, []
        for sets, variant in self.branches.variants:
            begins.append(np.asarray(self.edges)[first + variant])
            first += len(sets)
        return begins

    @cached_property
    def reached(self) -> tuple[Integers, Integers]:
        """The numbers of the shares of each level, and of a branch that has it: each pair once."""
        pairs = [
            (begins[branch] + np.arange(len(sets[variant[branch]])), branch)
            for sets, begins, (_, variant) in zip(
                self._sets, self._begins, self.branches.variants, strict=True
            )
            for branch in range(self.branches.count)
        ]
        levels = np.concatenate([shares for shares, _ in pairs])
        return levels, np.concatenate([np.full(len(shares), branch) for shares, branch in pairs])

    def levels_in(self, name: str) -> tuple[Integers, Integers, Integers]:
        """Each level of an attribute in each branch: branches, numbers of shares, levels (m,)."""
        column = self.attributes.index(name)
        sets = [self._sets[column][variant] for variant in self.branches.variants[column][1]]
        branches = np.repeat(np.arange(self.branches.count), [len(levels) for levels in sets])
        shares = [
            begin + np.arange(len(levels))
            for begin, levels in zip(self._begins[column], sets, strict=True)
        ]
        return branches, np.concatenate(shares), np.concatenate(sets)

    def view(self, number: int, coarsenings: Sequence[Coarsening]) -> FactorView:
        """The view of some attributes of this factor, which has a ``number``.

        Branches in which they have the same sets of levels are one, and the levels of a set are
        joined before shares are multiplied.
        """
        columns = [self.attributes.index(name) for name, _, _ in coarsenings]
        variants = np.stack([self.branches.variants[column][1] for column in columns], axis=1)
        kinds, kind = np.unique(variants, axis=0, return_inverse=True)
        levels, sums, end = [np.arange(self.branches.count)], [kind.ravel()], len(kinds)
        cells: list[list[tuple[int, Integers]]] = []
        for column, (_, joined, _) in zip(columns, coarsenings, strict=True):
            cells.append([])
            for variant, allowed in enumerate(self._sets[column]):
                parts, part = np.unique(joined[allowed], return_inverse=True)
                branch = np.argmax(self.branches.variants[column][1] == variant)
                levels.append(self._begins[column][branch] + np.arange(len(allowed)))
                sums.append(end + part.ravel())
                cells[-1].append((end, parts))
                end += len(parts)
        rows, index = _joint_cells(kinds, cells)
        sizes = [size for _, _, size in coarsenings]
        parts = np.ravel_multi_index([*index.T], sizes).astype(np.int64)
        products = Products(
            torch.as_tensor(np.concatenate(levels)),
            torch.as_tensor(np.concatenate(sums)),
            end,
            torch.as_tensor(rows),
        )
        return FactorView(number, torch.as_tensor(parts), math.prod(sizes), products)


def _joint_cells(
    kinds: Integers, cells: Sequence[Sequence[tuple[int, Integers]]]
) -> tuple[Integers, Integers]:
    """The sums (m, 1 + k) that multiply, and the parts (m, k) of attributes, of all joint cells.

    ``kinds`` (n, k) are variants of the attributes that occur together; each variant has the number
    of its first sum, and the part of each of its sums, in ``cells``.
    """
    rows, index = [], []
    for number, kind in enumerate(kinds.tolist()):
        sets = [variants[variant] for variants, variant in zip(cells, kind, strict=True)]
        joint = grid([len(parts) for _, parts in sets])
        rows.append(np.column_stack([np.full(len(joint), number), joint + [n for n, _ in sets]]))
        columns = [parts[cell] for (_, parts), cell in zip(sets, joint.T, strict=True)]
        index.append(np.column_stack(columns))
    return np.concatenate(rows), np.concatenate(index)


@dataclass(frozen=True)
class Layout:
    """The factors of a row; ``sizes`` are those of the attributes."""

    factors: tuple[Factor | BranchFactor, ...]
    sizes: Mapping[str, int]

    @property
    def branched(self) -> tuple[Branches, ...]:
        """The branches of its factors."""
        return tuple(f.branches for f in self.factors if isinstance(f, BranchFactor))

    @cached_property
    def _known(self) -> dict[tuple[Partition, ...], FactorView]:
        """Views of factors that were asked for before: rounds ask for the same ones."""
        return {}

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

    @cached_property
    def ranges(self) -> list[slice]:
        """The shares that sum to 1 in each component."""
        return [
            slice(begin + first, begin + last)
            for begin, factor in zip(self.edges, self.factors, strict=False)
            for first, last in pairwise(factor.edges)
        ]

    def apart(self, names: Sequence[str]) -> bool:
        """Whether some attributes are in different factors."""
        return len({self.factor_of[name] for name in names}) == len(names)

    @cached_property
    def reached(self) -> tuple[Tensor, Tensor] | None:
        """The numbers of the shares of levels in branches, and of the branch; None without any."""
        pairs = [
            [begin + numbers for numbers in factor.reached]
            for begin, factor in zip(self.edges, self.factors, strict=False)
            if isinstance(factor, BranchFactor)
        ]
        if not pairs:
            return None
        levels, branches = (
            torch.as_tensor(np.concatenate(side)) for side in zip(*pairs, strict=True)
        )
        return levels, branches

    def whole(self, name: str) -> FactorView:
        """The view of the levels of one attribute."""
        size = self.sizes[name]
        number = self.factor_of[name]
        return self.factors[number].view(number, [(name, np.arange(size), size)])

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
            number: self._view_of(number, [coarsenings[axis] for axis in axes])
            for number, axes in axes_of.items()
        }
        order = sorted(axes_of, key=lambda number: views[number].size)
        return tuple(views[number] for number in order), tuple(
            axis for number in order for axis in axes_of[number]
        )

    def _view_of(self, number: int, coarsenings: Sequence[Partition]) -> FactorView:
        first, factor, key = coarsenings[0], self.factors[number], tuple(coarsenings)
        alone = isinstance(factor, Factor) and len(factor.attributes) == 1
        if alone and first.whole and factor.size == first.size:
            return FactorView(number, None, first.size)
        if key not in self._known:
            parts = [(each.name, each.joined, each.size) for each in coarsenings]
            self._known[key] = factor.view(number, parts)
        return self._known[key]


@dataclass(frozen=True)
class Mixture:
    """A mixture of products.

    Shapes: ``weights`` (components,), summing to 1; ``shares`` (levels of all factors, components),
    summing to 1 over each of the layout's ranges; float32.
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
        if view.products is not None:
            shares = _products(view.products, shares)
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
        return self.view_shares(self.layout.whole(name))

    def in_branches(self, name: str) -> Tensor:
        """Shares of an attribute's levels in each branch; shape (size, branches, components)."""
        number = self.layout.factor_of[name]
        factor, shares = self.layout.factors[number], self.factor(number)
        assert isinstance(factor, BranchFactor)
        table = shares.new_zeros(self.layout.sizes[name], factor.branches.count, shares.shape[1])
        branches, numbers, levels = factor.levels_in(name)
        table[levels, branches] = shares[numbers]
        return table

    def logs(self, name: str) -> Tensor:
        """Log-shares of one attribute's levels in each component; shape (size, components)."""
        return torch.log(self.shares_of(name) + 1e-12)


def multiplied(factors: Sequence[Tensor]) -> Tensor:
    """The product of some tables, cell by cell: ``Tensor.prod`` takes several times as long."""
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return product


def _products(products: Products, shares: Tensor) -> Tensor:
    sums = shares.new_zeros(products.size, shares.shape[1])
    sums.index_add_(0, products.sums, shares[products.levels])
    return multiplied([sums[number] for number in products.rows.T])


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
