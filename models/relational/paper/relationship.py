"""One relationship as the paper learns it: the bi-adjacency matrix of two drawn tables.

Source: arXiv 2405.18670, algorithms 1 and 4, section 6 (random slicing).

The relaxed problem over all pairs of rows is solved by projected gradient: sections 4 and 6,
algorithms 2 and 7, theorems 2 and 3, appendix C.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cloister.arrays import Floats, Integers
from cloister.models.relational.paper.joint_tables import Link, Side, Workload, joint_number

STEPS = 100
"""Steps of the projected gradient of a slice; the paper gives no number.

From equal shares 50 come close; from links, where most shares are at a bound, 100 halve the error
that 50 leave, and each round continues where the last ended.
"""

_CLOSE = 1e-9
"""Tolerance for sums of shares that should be whole numbers: floating-point error."""

_TRIALS = 60
"""Most values of nu tried, by bisection if need be: to the last digit of a share."""

_EXACT = 1e-12
"""Relative error of the sum of shares at which nu is accepted."""

_LINKED = 5
"""At least one in this many rows of a side of a slice has links: 20 % of a slice, section 8."""


_POWER_STEPS = 12
"""Steps of the power iteration for the greatest eigenvalue; all entries are positive."""

_POWER_MARGIN = 1.05
"""Factor on that eigenvalue, which power iteration approaches from below."""

_PROJECTIONS = 50
"""Most steps of a projection; each drops the rows that fall to zero, and few are needed."""


@dataclass(frozen=True, eq=False)
class Target:
    """A measured joint table: the joint part of each row, and the share of each cell.

    Shapes: ``parent`` (U,), ``child`` (V,), ``shares`` (cells of parents, cells of children).
    """

    parent: Integers
    child: Integers
    shares: Floats


@dataclass(frozen=True, eq=False)
class Pairs:
    """A slice of two tables: the cell of each row in each joint table, on either side.

    ``targets`` hold the cells of rows of the slice, and shares. ``one_parent``: each row that
    refers has exactly one parent.
    """

    targets: Sequence[Target]
    one_parent: bool

    def solve(self, shares: Floats) -> Floats:
        """Shares b (rows that refer, parents), of the same sum, from given ones.

        Algorithm 2: step size 1 / sigma_max squared, exact projections.
        """
        mass = float(shares.sum())
        if not self.targets or mass <= 0:
            return shares
        step = 1 / self._curvature(shares.shape)
        fitted = shares / mass
        for _ in range(STEPS):
            residuals = [
                answer - target.shares
                for answer, target in zip(self.answers(fitted), self.targets, strict=True)
            ]
            fitted = self._project((fitted - step * self._back(residuals)) * mass, mass) / mass
        return fitted * mass

    def answers(self, shares: Floats) -> list[Floats]:
        """The joint tables (cells of parents, cells of rows that refer) of shares."""
        return [
            _indicators(target.parent, target.shares.shape[0]).T
            @ shares.T
            @ _indicators(target.child, target.shares.shape[1])
            for target in self.targets
        ]

    def _back(self, residuals: Sequence[Floats]) -> Floats:
        """The sum (rows that refer, parents) of the residuals of the cells of each pair."""
        total = sum(
            residual[target.parent][:, target.child]
            for residual, target in zip(residuals, self.targets, strict=True)
        )
        return np.asarray(total).T

    def _curvature(self, shape: tuple[int, ...]) -> float:
        """The square of the greatest singular value; its inverse is the step size."""
        vector, greatest = np.ones(shape), 1.0
        for _ in range(_POWER_STEPS):
            vector = self._back(self.answers(vector / np.linalg.norm(vector)))
            greatest = float(np.linalg.norm(vector))
        return _POWER_MARGIN * greatest

    def _project(self, points: Floats, mass: float) -> Floats:
        if self.one_parent:
            return project_columns(points.T).T
        return project_capped(points, mass)

    def round(self, shares: Floats, number: int, rng: np.random.Generator) -> tuple[Integers, ...]:
        """The rows that refer and the parents of links drawn without bias.

        Algorithm 7, one draw for each row, or algorithm 3, ``number`` of all pairs.
        """
        if self.one_parent:
            heights = np.cumsum(shares, axis=1)
            marks = rng.random(len(shares)) * heights[:, -1]
            parents = (heights <= marks[:, None]).sum(1).clip(max=shares.shape[1] - 1)
            return np.arange(len(shares)), parents
        chosen = np.sort(sample_exactly(shares.ravel(), number, rng))
        return chosen // shares.shape[1], chosen % shares.shape[1]


def project_columns(points: Floats) -> Floats:
    """The nearest x >= 0 (U, V) to points (U, V) whose columns add up to 1.

    Algorithm 7: the simplex of each child; x = max(points - nu, 0), nu found exactly by leaving out
    what falls below it.
    """
    active = np.ones(points.shape, dtype=bool)
    for _ in range(_PROJECTIONS):
        level = (np.where(active, points, 0.0).sum(0) - 1) / active.sum(0)
        fewer = active & (points > level)
        if (fewer == active).all():
            break
        active = fewer
    nearest = np.maximum(points - level, 0.0)
    return np.asarray(nearest / nearest.sum(0))


def project_capped(points: Floats, mass: float) -> Floats:
    """The nearest b to points with 0 <= b <= 1 and sum ``mass``: clip(points - nu, 0, 1).

    Theorem 2; nu by Newton's method inside a bisection, starting at 0, which is close to it.
    """
    low, high = float(points.min()) - 1, float(points.max())
    nu = 0.0 if low < 0 < high else (low + high) / 2
    for _ in range(_TRIALS):
        shares = np.clip(points - nu, 0.0, 1.0)
        excess = float(shares.sum()) - mass
        if abs(excess) <= _EXACT * mass:
            break
        low, high = (nu, high) if excess > 0 else (low, nu)
        free = int(np.count_nonzero((shares > 0) & (shares < 1)))
        nu += excess / max(free, 1)
        if not (free and low < nu < high):
            nu = (low + high) / 2
    return np.clip(points - nu, 0.0, 1.0)


def _indicators(cells: Integers, number: int) -> Floats:
    """Which cell (rows, cells) each row is in."""
    indicators = np.zeros((len(cells), number))
    indicators[np.arange(len(cells)), cells] = 1.0
    return indicators


@dataclass(frozen=True)
class Slicing:
    """How the matrix is learned: ``fitted`` tables at once, on ``slices`` of ``rows`` per side."""

    fitted: int
    slices: int
    rows: int


@dataclass(eq=False)
class Relationship:
    """The matrix b (rows that refer, parents) of links, which learns from measured tables.

    ``matrix`` holds zeros and ones. The paper leaves its start open: here links are drawn uniformly
    at random.
    """

    link: Link
    parents: Side
    children: Side
    number: int
    one_parent: bool
    slicing: Slicing
    rng: np.random.Generator
    matrix: Floats = field(init=False)

    def __post_init__(self) -> None:
        shape = (self.children.rows, self.parents.rows)
        self.number = min(self.number, math.prod(shape))
        self.matrix = self._rounded(np.full(shape, self.number / math.prod(shape)), self.number)

    def learn(self, link: Link) -> None:
        """Fit the worst-fitting tables of the link, slice by slice.

        As many links as a slice had are drawn from its shares without bias, and replace them in
        the matrix before the next slice.
        """
        self.link = link
        worst = sorted(link.measured, key=lambda table: -self._error(table.workload, link))
        targets = [self._target(table.workload, link) for table in worst[: self.slicing.fitted]]
        for children, parents in self._slices():
            targets_of_slice = [
                Target(each.parent[parents], each.child[children], each.shares) for each in targets
            ]
            block = np.ix_(children, parents)
            links = round(float(self.matrix[block].sum()))
            shares = Pairs(targets_of_slice, self.one_parent).solve(self.matrix[block])
            self.matrix[block] = self._rounded(shares, links)

    def answers(self, tables: Sequence[Workload]) -> list[Floats]:
        """The expected counts of joint tables, one axis per attribute."""
        counts = []
        for workload in tables:
            (answer,) = Pairs([self._cells(workload)], self.one_parent).answers(self.matrix)
            sizes = [self.link.parts[name].size for name in workload.names]
            counts.append(answer.reshape(sizes))
        return counts

    def links(self) -> tuple[Integers, ...]:
        """The rows that refer, and the parents, of all links."""
        return np.nonzero(self.matrix)

    def _rounded(self, shares: Floats, number: int) -> Floats:
        """Shares rounded to zeros and ones: ``number`` links."""
        links = np.zeros_like(shares)
        links[Pairs((), self.one_parent).round(shares, number, self.rng)] = 1.0
        return links

    def _slices(self) -> Iterator[tuple[Integers, Integers]]:
        """All rows if they are few; else random ones of both sides, some of them linked.

        Where each row has one parent, a slice has all parents: a row has one link in it.
        """
        most = self.slicing.rows
        sizes = self.matrix.shape
        if max(sizes) <= most:
            yield np.arange(sizes[0]), np.arange(sizes[1])
        elif self.one_parent:
            for part in np.array_split(self.rng.permutation(sizes[0]), -(-sizes[0] // most)):
                yield part, np.arange(sizes[1])
        else:
            for _ in range(self.slicing.slices):
                links = self.rng.permutation(np.argwhere(self.matrix))
                rows, columns = (
                    self._chosen(links[:, side], size) for side, size in enumerate(sizes)
                )
                yield rows, columns

    def _chosen(self, linked: Integers, size: int) -> Integers:
        """Rows of one side of a slice: the first of those ``linked``, then random ones."""
        most = self.slicing.rows
        first = pd.unique(linked)[: most // _LINKED]
        rest = np.setdiff1d(np.arange(size), first)
        return np.append(first, self.rng.permutation(rest)[: most - len(first)])

    def _error(self, workload: Workload, link: Link) -> float:
        target = self._target(workload, link)
        (answer,) = Pairs([target], self.one_parent).answers(self.matrix)
        return float(np.abs(answer / self.number - target.shares).sum())

    def _target(self, workload: Workload, link: Link) -> Target:
        cells = self._cells(workload)
        (table,) = (measured for measured in link.measured if measured.workload == workload)
        shares = table.counts.reshape(cells.shares.shape) / self.number
        return Target(cells.parent, cells.child, shares)

    def _cells(self, workload: Workload) -> Target:
        """The cell of each row of both sides; shares are left zero."""
        parents = self._cell_of_rows(self.parents, workload.parent)
        children = self._cell_of_rows(self.children, workload.child)
        shape = [
            math.prod(self.link.parts[name].size for name in names)
            for names in (workload.parent, workload.child)
        ]
        return Target(parents, children, np.zeros(shape))

    def _cell_of_rows(self, side: Side, names: Sequence[str]) -> Integers:
        """The joint part (rows,) of each row of a side."""
        parts = [self.link.parts[name] for name in names]
        numbers = [partition.index(side.codes[partition.name]) for partition in parts]
        return joint_number(numbers, [partition.size for partition in parts], side.rows)


def sample_exactly(shares: Floats, number: int, rng: np.random.Generator) -> Integers:
    """``number`` different indices, each chosen with the probability of its share (n,).

    Shares lie in [0, 1] and add up to ``number``. Algorithm 3: shares in random order are merged
    into groups of at most 1, the groups to leave out are chosen by their complements, and each
    other group gives one index.
    """
    if number == 0:
        return np.zeros(0, dtype=np.int64)
    if number == len(shares):
        return np.arange(number)
    order = rng.permutation(len(shares))
    heights = np.cumsum(shares[order])
    ends = np.array([len(order)]) if number == 1 else _ends_of_groups(heights)
    starts = np.append(0, ends[:-1])
    tops = heights[ends - 1]
    bottoms = np.append(0.0, tops[:-1])
    complements = (1 - (tops - bottoms)).clip(0, 1)
    left_out = sample_exactly(complements, len(ends) - number, rng)
    groups = np.setdiff1d(np.arange(len(ends)), left_out)
    marks = bottoms[groups] + rng.random(len(groups)) * (tops - bottoms)[groups]
    places = np.searchsorted(heights, marks, side="right")
    return order[np.clip(places, starts[groups], ends[groups] - 1)]


def _ends_of_groups(heights: Floats) -> Integers:
    """Ends of groups of consecutive shares, each as long as its sum is at most 1."""
    ends, base = [0], 0.0
    while ends[-1] < len(heights):
        end = int(np.searchsorted(heights, base + 1 + _CLOSE, side="right"))
        ends.append(max(end, ends[-1] + 1))
        base = float(heights[ends[-1] - 1])
    return np.array(ends[1:])
