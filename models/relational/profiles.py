"""The relaxed problem of relationships over distinct profiles, solved by projected gradient.

A joint table depends on a row only through the parts of its attributes, so rows of equal parts, a
profile, are interchangeable, and so are their unknowns. Unknown x[u, v] is the probability that a
row of child profile v refers to one certain row of parent profile u; for each v, the sum over u of
n_u x[u, v] is 1. Gradient, step and projection are those of the problem over pairs of rows, so the
iterates are too.

Source: arXiv 2405.18670, section 5 and algorithm 7; momentum and restarts by O'Donoghue and Candes
    (2015).

Parts of attributes are partitions by rows drawn from a fitted model: released facts alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.schema.columns import Column, Grid
from cloister.schema.partition import Partition, intervals, single_values
from cloister.schema.relations import ForeignKey, Schema, joined_domain

MOST_PARTS = 8
"""Parts of an attribute: two attributes then have 64 cells, and three 512."""

MOST_UNKNOWNS = 200_000
"""Most pairs of profiles in one problem; beyond, rows are sliced at random, as in section 6."""

_LARGEST_JOINT = 2**62
"""Greatest joint number that fits 64 bits; beyond it, only joint parts that occur are numbered."""

_STEPS = 80
"""Steps of the projected gradient; further ones move answers by less than the noise."""

POWER_STEPS = 12
"""Steps of the power iteration for the greatest eigenvalue; all entries are positive."""

POWER_MARGIN = 1.05
"""Factor on that eigenvalue, which power iteration approaches from below."""

_PROJECTIONS = 50
"""Most steps of a projection; each drops the rows that fall to zero, and few are needed."""


@dataclass(frozen=True)
class Workload:
    """A joint table: attributes of the parent, and of the row that refers to it."""

    parent: tuple[str, ...]
    child: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All attributes, in the order of the table's axes."""
        return (*self.parent, *self.child)


def parts_by(column: Column, codes: Integers, most: int = MOST_PARTS) -> Partition:
    """At most so many parts of about equal mass among drawn codes (n,) of an attribute.

    For a nominal attribute: the most frequent values, and all others. For an ordered one:
    ranges between quantiles, and one part for special and missing values, which follow the grid.
    """
    if column.size <= most:
        return parts_of(column, np.arange(column.size))
    if column.kind == "nominal":
        counts = np.bincount(codes, minlength=column.size)
        groups = np.full(column.size, most - 1)
        groups[np.argsort(-counts, kind="stable")[: most - 1]] = np.arange(most - 1)
        return parts_of(column, groups)
    apart = [0, column.steps] if isinstance(column, Grid) and column.steps < column.size else [0]
    inner = np.quantile(codes, np.arange(1, most - 1) / (most - 1), method="higher")
    return parts_of(column, np.unique([*apart, *inner.astype(np.int64).tolist()]))


def parts_of(column: Column, numbers: Integers) -> Partition:
    """The partition whose :func:`numbers_of` are given."""
    if column.kind == "nominal":
        return single_values(column).coarsen(numbers)
    return intervals(column, numbers)


def parts_across(
    schema: Schema, key: ForeignKey, codes: Mapping[str, Integers], most: int = MOST_PARTS
) -> dict[str, Partition]:
    """The parts of all attributes of both sides of a key, by drawn codes of each."""
    return {
        column.name: parts_by(column, codes[column.name], most)
        for side in joined_domain(schema, key)
        for column in side
    }


def joint_number(
    numbers: Sequence[NDArray[np.integer[Any]]], sizes: Sequence[int], rows: int
) -> Integers:
    """One number (rows,) for the numbers of several attributes, the last varying fastest.

    ``sizes`` are how many numbers each attribute has; without attributes all rows have 0.
    """
    joint = np.zeros(rows, dtype=np.int64)
    for codes, size in zip(numbers, sizes, strict=True):
        joint = joint * size + codes
    return joint


def numbers_of(parts: Partition) -> Integers:
    """The array from which a partition of a column is restored."""
    return parts.parts if parts.column.kind == "nominal" else parts.starts


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
        sizes = {name: int(codes.max(initial=0)) + 1 for name, codes in parts.items()}
        joint = np.zeros(rows, dtype=np.int64)
        for name, codes in parts.items():
            if int(joint.max(initial=0)) > _LARGEST_JOINT // sizes[name]:
                joint = np.unique(joint, return_inverse=True)[1].ravel()
            joint = joint * sizes[name] + codes
        _, first, inverse, counts = np.unique(
            joint, return_index=True, return_inverse=True, return_counts=True
        )
        names = {name: codes[first].astype(np.int64) for name, codes in parts.items()}
        return cls(inverse.ravel(), counts.astype(np.float64), names)

    @property
    def number(self) -> int:
        """Number of profiles."""
        return len(self.counts)

    def joint(self, names: Sequence[str], sizes: Mapping[str, int]) -> Integers:
        """The joint part (profiles,) of some attributes, the last varying fastest."""
        codes = [self.parts[name] for name in names]
        return joint_number(codes, [sizes[name] for name in names], self.number)


@dataclass(frozen=True, eq=False)
class ProfileTarget:
    """A measured joint table: the joint part of each profile, and the share of each cell.

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
        """The share of children times the rows of the parent, for each pair of profiles (U, V)."""
        shares = self.children.counts / self.children.counts.sum()
        return self.parents.counts[:, None] * shares[None]

    def solve(self) -> Floats:
        """The unknowns x (U, V)."""
        shape = (self.parents.number, self.children.number)
        unknowns = np.full(shape, 1 / self.parents.counts.sum())
        if not self.targets:
            return unknowns
        step = 1 / self._curvature(unknowns)
        ahead, age = unknowns, 1
        for _ in range(_STEPS):
            slope = self._gradient(ahead)
            new = project_columns(ahead - step * slope, self.parents.counts)
            move = new - unknowns
            age = 1 if float((slope * move * self._pairs).sum()) > 0 else age + 1
            ahead = new + (age - 1) / (age + 2) * move
            unknowns = new
        return unknowns

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
        """The gradient (U, V) by the unknown of one pair of rows, times the number of children."""
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
        """The greatest eigenvalue of the least squares; its inverse is the step size."""
        vector, greatest = start, 1.0
        for _ in range(POWER_STEPS):
            vector = vector / np.sqrt((vector**2 * self._pairs).sum())
            vector = self._back(self._answers(vector), vector.shape)
            greatest = float(np.sqrt((vector**2 * self._pairs).sum()))
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
    nearest = np.maximum(points - level, 0.0)
    return np.asarray(nearest / (weights @ nearest))
