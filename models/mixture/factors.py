"""Feasible sets as factors: feasible sets that share attributes become one factor of the mixture.

The factor lists the joint levels that all of them allow. Rows of the mixture then satisfy the
constraints in every component, and the fit corrects for the levels that are left out. Attributes
whose joint feasible set is too large are drawn afterwards, given their parents.

A factor lists joint levels, and a fit of tables that hold single attributes of it leaves open how
these go together. Of joint shares with the same shares of each attribute, those that are products
of one number for each attribute's level have the greatest entropy: quasi-independence. What the
attributes tell of each other beyond it is penalised.

Source: Darroch, Ratcliff, "Generalized iterative scaling for log-linear models" (1972); Csiszár,
    "I-divergence geometry" (1975).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cloister.arrays import Integers
from cloister.models.feasible_sets.branches import Branches
from cloister.models.feasible_sets.feasible_set import FeasibleSet
from cloister.models.mixture.products import (
    BranchFactor,
    DependentAttribute,
    Factor,
    Layout,
    Mixture,
    without,
)

_MOST_FACTOR_LEVELS = 4_000
"""Most joint levels of a factor: each has a share in every component."""

_MOST_OUTSIDE = 2_000_000
"""Most joint levels of an attribute outside the mixture and its parents."""

_MOST_INSIDE = 20_000
"""Most joint levels of an attribute inside the mixture and its parents, if drawn afterwards."""

_LEAST = 1e-12
"""Least share of a level, so that its logarithm is finite."""


@dataclass(frozen=True)
class Arrangement:
    """A layout whose factors satisfy feasible sets; ``dependents`` in drawing order."""

    layout: Layout
    dependents: tuple[DependentAttribute, ...] = ()


def separate_factors(sizes: Mapping[str, int], branched: Sequence[Branches] = ()) -> Layout:
    """The layout in which each attribute is a factor of its own, but for those in branches."""
    return _with_others(sizes, [*map(BranchFactor, branched)])


def arrange_factors(
    sizes: Mapping[str, int],
    inside: Sequence[str],
    feasible_sets: Sequence[FeasibleSet],
    branched: Sequence[Branches] = (),
) -> Arrangement | None:
    """Factors over the attributes ``inside`` a mixture that satisfy feasible sets, and dependents.

    Attributes outside are dependent; of those inside one after the other, the largest first, until
    the feasible sets of the rest can be joined. None if they never can. Branches are factors
    as they are, and satisfy the feasible sets over their attributes.
    """
    partial: _Partial | None = _Partial(
        tuple(
            Factor(feasible_set.attributes, feasible_set.levels) for feasible_set in feasible_sets
        )
    )
    for name in sizes:
        if partial and name not in inside and partial.containing(name):
            partial = partial.detach(name, sizes, _MOST_OUTSIDE)
    size_of = {name: sizes[name] for name in inside}
    partial = partial and partial.outside(branched)
    while partial:
        layout = join_feasible_sets(size_of, partial.factors, branched)
        if layout:
            return Arrangement(layout, partial.dependents)
        loose = partial.detachable(inside)
        largest = max(loose, key=size_of.__getitem__, default=None)
        partial = partial.detach(largest, sizes, _MOST_INSIDE) if largest is not None else None
    return None


@dataclass(frozen=True)
class _Partial:
    """Feasible sets as factors, not yet joined, without the ``dependents``, in order of drawing."""

    factors: tuple[Factor, ...]
    dependents: tuple[DependentAttribute, ...] = ()

    def outside(self, branched: Sequence[Branches]) -> _Partial:
        """Those that are not over attributes of branches, with all dependents."""
        left = (
            f for f in self.factors if not any({*f.attributes} <= {*b.attributes} for b in branched)
        )
        return _Partial(tuple(left), self.dependents)

    def containing(self, name: str) -> list[Factor]:
        """The factors that an attribute is in."""
        return [factor for factor in self.factors if name in factor.attributes]

    def detachable(self, names: Sequence[str]) -> list[str]:
        """The attributes that are in one factor only, which also has others."""
        factors_of = {name: self.containing(name) for name in names}
        return [
            name
            for name in names
            if len(factors_of[name]) == 1 and len(factors_of[name][0].attributes) > 1
        ]

    def detach(self, name: str, sizes: Mapping[str, int], most: int) -> _Partial | None:
        """Take an attribute out of its factors and make it dependent on their others.

        None if there are no joint levels with these, or more than ``most``.
        """
        containing = self.containing(name)
        whole: Factor | None = containing[0]
        for further in containing[1:]:
            whole = _join(whole, further, most) if whole else None
        if whole is None or not 0 < whole.size <= most:
            return None
        remaining = tuple(factor for factor in self.factors if name not in factor.attributes)
        rest = without(name, whole)
        left = _add(rest, remaining) if rest.attributes else remaining
        return _Partial(left, (DependentAttribute.of(name, whole, sizes), *self.dependents))


def _add(rest: Factor, factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """The factors and one more, which only filters a factor that has all its attributes."""
    for index, factor in enumerate(factors):
        filtered = (
            _join(factor, rest, factor.size)
            if set(rest.attributes) <= set(factor.attributes)
            else None
        )
        if filtered is not None:
            return (*factors[:index], filtered, *factors[index + 1 :])
    return (*factors, rest)


def join_feasible_sets(
    sizes: Mapping[str, int], feasible_sets: Sequence[Factor], branched: Sequence[Branches] = ()
) -> Layout | None:
    """The layout whose factors are those of feasible sets, joined where they share attributes.

    Those of branches come first. All other attributes are factors of their own. None if a joint
    factor would be empty or large.
    """
    factors: list[Factor] = []
    for feasible_set in feasible_sets:
        joined: Factor | None = feasible_set
        for overlapping in [
            f for f in factors if not set(f.attributes).isdisjoint(feasible_set.attributes)
        ]:
            factors.remove(overlapping)
            joined = _join(overlapping, joined, _MOST_FACTOR_LEVELS) if joined else None
        if joined is None or not 0 < joined.size <= _MOST_FACTOR_LEVELS:
            return None
        factors.append(joined)
    return _with_others(sizes, [*map(BranchFactor, branched), *factors])


def _with_others(sizes: Mapping[str, int], factors: Sequence[Factor | BranchFactor]) -> Layout:
    taken = {name for factor in factors for name in factor.attributes}
    alone = [Factor.single(name, size) for name, size in sizes.items() if name not in taken]
    return Layout((*factors, *alone), dict(sizes))


def _join(first: Factor, second: Factor, most: int) -> Factor | None:
    """The joint levels that both factors allow; None if there are more than ``most``."""
    shared = [name for name in first.attributes if name in second.attributes]
    left, right = _keys(first, second, shared)
    order = np.argsort(right, kind="stable")
    begin, end = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    counts = end - begin
    if counts.sum() > most:
        return None
    of_first = np.repeat(np.arange(len(left)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    of_second = order[np.repeat(begin, counts) + within]
    new = [index for index, name in enumerate(second.attributes) if name not in shared]
    levels = np.hstack([first.levels[of_first], second.levels[of_second][:, new]])
    return Factor((*first.attributes, *(second.attributes[index] for index in new)), levels)


def _keys(first: Factor, second: Factor, shared: Sequence[str]) -> tuple[Integers, Integers]:
    """Joint numbers of the shared attributes, for each level of both factors."""
    sides = [f.levels[:, [f.attributes.index(name) for name in shared]] for f in (first, second)]
    _, keys = np.unique(np.vstack(sides), axis=0, return_inverse=True)
    return keys.ravel()[: first.size], keys.ravel()[first.size :]


def transfer(mixture: Mixture, layout: Layout) -> Mixture:
    """The mixture on another layout: in each component, a factor's levels by their old product.

    Those of branches, which both have, stay as they are.
    """
    parts = []
    for factor in layout.factors:
        if isinstance(factor, BranchFactor):
            parts.append(mixture.factor(mixture.layout.factor_of[factor.attributes[0]]))
            continue
        logs = [
            mixture.logs(name)[factor.levels[:, index]]
            for index, name in enumerate(factor.attributes)
        ]
        parts.append(torch.softmax(torch.stack(logs).sum(0), 0))
    return Mixture(layout, mixture.weights, torch.cat(parts))


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
            wanted, fitted = (
                attribute.shares(shares),
                attribute.shares(torch.softmax(self._logs, 0)),
            )
            self._logs += torch.log((wanted + _LEAST) / (fitted + _LEAST))[attribute.index]
        return torch.log(shares + _LEAST) - torch.log_softmax(self._logs, 0)


def joint_factors(layout: Layout, device: torch.device) -> tuple[QuasiIndependence, ...]:
    """One for each factor of several attributes."""
    return tuple(
        QuasiIndependence(factor, slice(layout.edges[index], layout.edges[index + 1]), device)
        for index, factor in enumerate(layout.factors)
        if isinstance(factor, Factor) and len(factor.attributes) > 1
    )
