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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import runs_of
from cloister.schema.columns import Column, Grid
from cloister.schema.partition import Partition, declared_cells, intervals, single_values

MOST_PARTS = 8
"""Parts of an attribute: two attributes then have 64 cells, and three 512."""

MOST_UNKNOWNS = 200_000
"""Most pairs of profiles in one problem; beyond, rows are sliced at random, as in section 6."""

RESOLUTIONS = (2, 4, MOST_PARTS)
"""Parts of an attribute in a candidate. Of ordered ones two say most where noise is strong: that of
a correlation falls with the root of cells, and a line through two means keeps all of it. Steps of 3
and 6 beside them: no better.
"""

_FARTHEST = 2.0
"""Distances of two means that their line goes on for, so that heavy tails do not take all."""

_LEAST, _LEAST_FACTOR = 1e-6, 0.05
"""Rows of an empty cell, and least factor of a line on a cell: shares stay positive."""

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


@dataclass(frozen=True, eq=False)
class CoarseParts:
    """Parts of an attribute joined to fewer, and how the parts lie among these.

    A value of each joined part is one of each part by ``lines`` (parts, joined).
    """

    partition: Partition
    lines: Floats

    @classmethod
    def of(cls, parts: Partition, codes: Integers, most: int) -> CoarseParts:
        """At most so many, beside those of special and missing values, by drawn codes (n,).

        The most frequent parts of a nominal attribute, and all others; ranges of an ordered one,
        each with about as much of the mass and of the variance. There values lie on lines between
        the means of the ranges, and beyond them.
        """
        index = parts.index(codes)
        mass = np.bincount(index, minlength=parts.size).astype(np.float64)
        if parts.size <= most:
            return cls(parts.coarsen(np.arange(parts.size)), np.eye(parts.size))
        if parts.column.kind == "nominal":
            groups = np.full(parts.size, most - 1)
            groups[np.argsort(-mass, kind="stable")[: most - 1]] = np.arange(most - 1)
            return cls(parts.coarsen(groups), np.eye(most)[groups])
        values = codes.astype(np.float64)
        middles = np.bincount(index, values, parts.size) / np.maximum(mass, 1.0)
        squares = np.where(parts.alone[index], 0.0, (values - np.mean(values)) ** 2)
        spread = np.bincount(index, squares, parts.size)
        weights = mass / max(mass[~parts.alone].sum(), 1.0) + spread / max(spread.sum(), 1.0)
        groups = runs_of(weights, parts.alone, most)
        return cls(parts.coarsen(groups), _lines(groups, middles, mass * ~parts.alone))

    @classmethod
    def of_column(cls, column: Column, codes: Integers) -> Partition:
        """The finest parts of an attribute, as joined ones of the cells that its spec declares."""
        cells = declared_cells(column)
        groups = cls.of(cells, codes, MOST_PARTS).partition.joined
        if column.kind == "nominal":
            return parts_of(column, groups)
        return intervals(column, cells.starts[np.diff(groups, prepend=-1) != 0])

    @property
    def sums(self) -> Floats:
        """Which parts each joined one has: (joined, parts)."""
        return np.eye(self.lines.shape[1])[self.partition.joined].T


def _lines(groups: Integers, middles: Floats, mass: Floats) -> Floats:
    """The lines through the means of groups (groups,) of parts with a mass, at their middles."""
    lines = np.eye(int(groups.max()) + 1)[groups]
    masses = mass @ lines
    known, some = np.flatnonzero(masses), np.flatnonzero(mass)
    if len(known) < 2:
        return lines
    means = (mass * middles) @ lines[:, known] / masses[known]
    left = np.clip(np.searchsorted(means, middles[some]) - 1, 0, len(known) - 2)
    along = (middles[some] - means[left]) / (means[left + 1] - means[left])
    along = np.clip(along, -_FARTHEST, 1 + _FARTHEST)
    lines[some] = 0.0
    lines[some, known[left]], lines[some, known[left + 1]] = 1 - along, along
    return lines


def along_axes(table: Floats, matrices: Iterable[Floats]) -> Floats:
    """The product of a table's axes and as many matrices (new, old)."""
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, (1, axis)), 0, axis)
    return table


@dataclass(frozen=True, eq=False)
class CoarseTable:
    """A joint table in joined parts, and the rows ``expected`` in all parts."""

    workload: Workload
    expected: Floats
    parts: tuple[CoarseParts, ...]

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The joined parts of each attribute."""
        return tuple(each.partition for each in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of joined parts of each attribute."""
        return tuple(partition.size for partition in self.partitions)

    @property
    def sums(self) -> Floats:
        """The rows expected in joined parts."""
        return along_axes(self.expected, [each.sums for each in self.parts])

    def measured(self, counts: Integers) -> Floats:
        """Rows of all parts by the ``counts`` (flat) of joined ones.

        What is more than expected, as a factor, goes on inside joined parts along their lines; a
        step there would lose half of a weak correlation.
        """
        known, near = counts.reshape(self.shape), self.expected.clip(_LEAST)
        sums, lines = ([getattr(each, name) for each in self.parts] for name in ("sums", "lines"))
        more = along_axes(known / np.maximum(along_axes(near, sums), 1.0) - 1, lines)
        tilted = near * np.maximum(1 + more, _LEAST_FACTOR)
        factors = known / along_axes(tilted, sums)
        return np.asarray(tilted * along_axes(factors, [each.T for each in sums]))


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
class TargetGroup:
    """Joint tables of the same parts of parents, side by side: one pass over pairs is for all.

    Shapes: ``parent`` (U,), the joint part of each profile; ``columns`` (V, cells of children), 1
    in the cell of each table that a profile is in; ``shares`` (cells of parents and of children).
    """

    parent: Integers
    columns: NDArray[np.floating[Any]]
    shares: Floats

    @classmethod
    def of(cls, targets: Sequence[ProfileTarget]) -> TargetGroup:
        """The group of some tables."""
        columns = [np.eye(target.shares.shape[1])[target.child] for target in targets]
        shares = np.hstack([target.shares for target in targets])
        return cls(targets[0].parent, np.hstack(columns), shares)

    def take(self, parents: Integers, children: Integers) -> TargetGroup:
        """The group of some parents and children, for weights of single precision."""
        columns = self.columns[children].astype(np.float32)
        return replace(self, parent=self.parent[parents], columns=columns)

    def sums(self, weights: NDArray[Any]) -> NDArray[Any]:
        """The sum of weights (U, V) in each cell, in the shape of the shares."""
        rows = np.eye(len(self.shares), dtype=weights.dtype)[self.parent]
        return np.asarray(rows.T @ weights @ self.columns)

    def spread(self, cells: NDArray[Any]) -> NDArray[Any]:
        """The sum (U, V) of the cells that each pair of profiles is in."""
        return np.asarray((cells @ self.columns.T)[self.parent])


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
    def groups(self) -> list[TargetGroup]:
        """The joint tables, those of the same parts of parents in one group."""
        alike: dict[tuple[bytes, int], list[ProfileTarget]] = {}
        for target in self.targets:
            alike.setdefault((target.parent.tobytes(), len(target.shares)), []).append(target)
        return [TargetGroup.of(targets) for targets in alike.values()]

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

    def _gradient(self, unknowns: Floats) -> Floats:
        """The gradient (U, V) by the unknown of one pair of rows, times the number of children."""
        weights = unknowns * self._pairs
        slopes = [group.spread(group.sums(weights) - group.shares) for group in self.groups]
        return np.sum(slopes, axis=0)

    def _curvature(self, start: Floats) -> float:
        """The greatest eigenvalue of the least squares; its inverse is the step size."""
        vector, greatest = start, 1.0
        for _ in range(POWER_STEPS):
            vector = vector / np.sqrt((vector**2 * self._pairs).sum())
            weights = vector * self._pairs
            vector = np.sum([group.spread(group.sums(weights)) for group in self.groups], axis=0)
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
