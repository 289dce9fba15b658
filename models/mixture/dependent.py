"""Dependent attributes: drawn after those that, by a support, decide which levels are allowed.

A support becomes a factor of the mixture where that is small. Where it is not, an attribute that is
in no other support can be drawn afterwards, given its parents: the support shrinks to the levels of
the parents that allow some level of the attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Integers
from cloister.models.mixture.fitting.products import Factor


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
        parents = tuple(other for other in factor.attributes if other != name)
        own = tuple(sizes[parent] for parent in parents)
        joint = joint_keys(
            factor.levels[:, [factor.attributes.index(parent) for parent in parents]], own
        )
        order = np.argsort(joint, kind="stable")
        keys, counts = np.unique(joint, return_counts=True)
        begins = np.concatenate([[0], np.cumsum(counts)])
        return cls(
            name, parents, own, keys, begins, factor.levels[order, factor.attributes.index(name)]
        )

    def place(self, levels: Integers) -> Integers:
        """The place among ``keys`` of the parents' levels (n, parents); shape (n,)."""
        return np.searchsorted(self.keys, joint_keys(levels, self.sizes))


def without(name: str, factor: Factor) -> Factor:
    """The joint levels of the other attributes for which a factor has some level of ``name``."""
    others = [at for at, other in enumerate(factor.attributes) if other != name]
    return Factor(
        tuple(factor.attributes[at] for at in others), np.unique(factor.levels[:, others], axis=0)
    )


def joint_keys(levels: Integers, sizes: tuple[int, ...]) -> Integers:
    """A number for each joint level (n, k); all zero where there are no attributes."""
    number = np.zeros(len(levels), dtype=np.int64)
    for column, size in zip(levels.T, sizes, strict=True):
        number = number * size + column
    return number
