"""The relaxed problem of relationships over distinct profiles, solved by projected gradient.

A joint table depends on a row only through the parts of its attributes, so rows of equal parts, a
profile, are interchangeable, and so are their unknowns. Unknown x[u, v] is the probability that a
row of child profile v refers to one certain row of parent profile u; for each v, the sum over u of
n_u x[u, v] is 1. Gradient, step and projection are those of the problem over pairs of rows, so the
iterates are too.

Source: arXiv 2405.18670, section 5 and algorithm 7; momentum and restarts by O'Donoghue and Candes
    (2015).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models.relational.parts import joint_number

MOST_UNKNOWNS = 200_000
"""Pairs of profiles in one problem; of more, rows are sliced at random, as in section 6."""

_LARGEST_JOINT = 2**62
"""Greatest number of a joint part that 64 bits hold; beyond it, only those that occur count."""

_STEPS = 80
"""Steps of the projected gradient; more change answers by less than noise does."""

POWER_STEPS = 12
"""Steps of the power iteration for the greatest eigenvalue; all entries are positive."""

POWER_MARGIN = 1.05
"""Factor on that eigenvalue, which power iteration approaches from below."""

_PROJECTIONS = 50
"""Steps of a projection at most; each finds rows to leave out, and few are needed."""


@dataclass(frozen=True, eq=False)
class Profiles:
    """Rows by the parts of their attributes.

    Shapes: ``of_rows`` (n,), the profile of each row; ``counts`` (profiles,), rows of each;
    ``parts[name]`` (profiles,).
    """

    of_rows: Integers
    counts: Floats
    parts: Mapping[str, Integers]

    @classmethod
    def of(cls, parts: Mapping[str, Integers], rows: int) -> Profiles:
        """The profiles of rows, by the parts (rows,) of each attribute."""
        if not parts:
            return cls(np.zeros(rows, dtype=np.int64), np.array([float(rows)]), {})
        sizes = {name: int(own.max(initial=0)) + 1 for name, own in parts.items()}
        joint = np.zeros(rows, dtype=np.int64)
        for name, own in parts.items():
            if int(joint.max(initial=0)) > _LARGEST_JOINT // sizes[name]:
                joint = np.unique(joint, return_inverse=True)[1].ravel()
            joint = joint * sizes[name] + own
        _, first, inverse, counts = np.unique(
            joint, return_index=True, return_inverse=True, return_counts=True
        )
        names = {name: own[first].astype(np.int64) for name, own in parts.items()}
        return cls(inverse.ravel(), counts.astype(np.float64), names)

    @property
    def number(self) -> int:
        """Number of profiles."""
        return len(self.counts)

    def joint(self, names: Sequence[str], sizes: Mapping[str, int]) -> Integers:
        """The joint part (profiles,) of some attributes, the last varying fastest."""
        own = [self.parts[name] for name in names]
        return joint_number(own, [sizes[name] for name in names], self.number)


@dataclass(frozen=True, eq=False)
class ProfileTarget:
    """A joint table that is known: the joint part of each profile, and the share of each cell.

    Shapes: ``parent`` (U,), ``child`` (V,), ``shares`` (cells of parents, cells of children).
    """

    parent: Integers
    child: Integers
    shares: Floats


@dataclass(frozen=True, eq=False)
class Problem:
    """Least squares of the answers of relationships to known joint tables."""

    parents: Profiles
    children: Profiles
    targets: tuple[ProfileTarget, ...]

    @property
    def unknowns(self) -> int:
        """Pairs of profiles."""
        return self.parents.number * self.children.number

    @cached_property
    def _cells(self) -> list[NDArray[np.int32]]:
        return [
            (target.parent[:, None] * target.shares.shape[1] + target.child[None])
            .astype(np.int32)
            .ravel()
            for target in self.targets
        ]

    @cached_property
    def _pairs(self) -> Floats:
        """The share of children times the rows of the parent, of each pair of profiles (U, V)."""
        shares = self.children.counts / self.children.counts.sum()
        return self.parents.counts[:, None] * shares[None]

    def solve(self) -> Floats:
        """The unknowns x (U, V)."""
        shape = (self.parents.number, self.children.number)
        found = np.full(shape, 1 / self.parents.counts.sum())
        if not self.targets:
            return found
        step = 1 / self._curvature(found)
        ahead, age = found, 1
        for _ in range(_STEPS):
            slope = self._gradient(ahead)
            new = project_columns(ahead - step * slope, self.parents.counts)
            move = new - found
            age = 1 if float((slope * move * self._pairs).sum()) > 0 else age + 1
            ahead = new + (age - 1) / (age + 2) * move
            found = new
        return found

    def shares(self, unknowns: Floats) -> Floats:
        """The share of relationships between each pair of profiles (U, V)."""
        return np.asarray(unknowns * self._pairs)

    def _answers(self, unknowns: Floats) -> list[Floats]:
        """The shares (cells,) of each joint table."""
        weights = (unknowns * self._pairs).ravel()
        return [
            np.bincount(cells, weights, minlength=target.shares.size).astype(np.float64)
            for cells, target in zip(self._cells, self.targets, strict=True)
        ]

    def _gradient(self, unknowns: Floats) -> Floats:
        """The gradient (U, V) by the unknown of one pair of rows, times the rows that refer."""
        return self._back(
            [
                answer - target.shares.ravel()
                for answer, target in zip(self._answers(unknowns), self.targets, strict=True)
            ],
            unknowns.shape,
        )

    def _back(self, residuals: list[Floats], shape: tuple[int, ...]) -> Floats:
        """The sum (U, V) of the residuals of the cells that each pair of profiles is in."""
        total = np.zeros(shape[0] * shape[1])
        for cells, residual in zip(self._cells, residuals, strict=True):
            total += residual[cells]
        return total.reshape(shape)

    def _curvature(self, start: Floats) -> float:
        """The greatest eigenvalue of the least squares, of which a step is the inverse."""
        found, greatest = start, 1.0
        for _ in range(POWER_STEPS):
            found = found / np.sqrt((found**2 * self._pairs).sum())
            found = self._back(self._answers(found), found.shape)
            greatest = float(np.sqrt((found**2 * self._pairs).sum()))
        return POWER_MARGIN * greatest


def project_columns(points: Floats, weights: Floats) -> Floats:
    """The nearest x >= 0 (U, V) to points (U, V) with sum over u of weights_u x[u, v] = 1.

    Distances are weighted by the weights (U,), the rows of each profile. Algorithm 7: the simplex
    of each child; x = max(points - nu, 0), nu found exactly by leaving out what falls below it.
    """
    active = np.ones(points.shape, dtype=bool)
    for _ in range(_PROJECTIONS):
        mass = weights @ active
        level = (weights @ np.where(active, points, 0.0) - 1) / mass
        fewer = active & (points > level)
        if (fewer == active).all():
            break
        active = fewer
    found = np.maximum(points - level, 0.0)
    return np.asarray(found / (weights @ found))
