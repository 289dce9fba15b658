"""One relationship as the paper learns it: the bi-adjacency matrix of two drawn tables.

Source: arXiv 2405.18670, algorithms 1 and 4, section 6 (random slicing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cloister.arrays import Floats, Integers
from models.relational.candidates import Workload
from models.relational.link import Link, Side
from models.relational.matching.profiles import ProfileTarget
from models.relational.paper.pairs import Pairs
from models.relational.parts import joint_number


@dataclass(frozen=True)
class Slicing:
    """How the matrix is learned: ``fitted`` tables at once, on ``slices`` of ``rows`` a side."""

    fitted: int
    slices: int
    rows: int


@dataclass(eq=False)
class Relationship:
    """The matrix b (rows that refer, parents) of shares, which learns from measured tables."""

    link: Link
    parents: Side
    children: Side
    number: int
    one_parent: bool
    slicing: Slicing
    rng: np.random.Generator
    shares: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.number = min(self.number, self.parents.rows * self.children.rows)
        pairs = self.children.rows * self.parents.rows
        self.shares = np.full((self.children.rows, self.parents.rows), self.number / pairs)

    def learn(self, link: Link) -> None:
        """Fit the tables of the link that fit worst, slice by slice."""
        self.link = link
        worst = sorted(link.measured, key=lambda own: -self._error(own.workload, link))
        targets = [self._target(own.workload, link) for own in worst[: self.slicing.fitted]]
        for children, parents in self._slices():
            own = [
                ProfileTarget(each.parent[parents], each.child[children], each.shares)
                for each in targets
            ]
            at = np.ix_(children, parents)
            self.shares[at] = Pairs(own, self.one_parent).solve(self.shares[at])

    def answers(self, tables: Sequence[Workload]) -> list[Floats]:
        """The expected counts of joint tables, one axis an attribute."""
        found = []
        for workload in tables:
            (answer,) = Pairs([self._cells(workload)], self.one_parent).answers(self.shares)
            sizes = [self.link.parts[name].size for name in workload.names]
            found.append(answer.reshape(sizes))
        return found

    def links(self) -> tuple[Integers, ...]:
        """The rows that refer, and the parents, of links drawn without bias."""
        return Pairs((), self.one_parent).round(self.shares, self.number, self.rng)

    def _slices(self) -> list[tuple[Integers, Integers]]:
        """All rows if they are few; else random ones of both sides.

        Where each row has one parent, a slice has all parents: a row's shares add up to one.
        """
        most = self.slicing.rows
        sizes = (self.children.rows, self.parents.rows)
        if max(sizes) <= most:
            return [(np.arange(sizes[0]), np.arange(sizes[1]))]
        if self.one_parent:
            parts = np.array_split(self.rng.permutation(sizes[0]), -(-sizes[0] // most))
            return [(part, np.arange(sizes[1])) for part in parts]
        found = []
        for _ in range(self.slicing.slices):
            rows, columns = (self.rng.permutation(size)[:most] for size in sizes)
            found.append((rows, columns))
        return found

    def _error(self, workload: Workload, link: Link) -> float:
        target = self._target(workload, link)
        (answer,) = Pairs([target], self.one_parent).answers(self.shares)
        return float(np.abs(answer / self.number - target.shares).sum())

    def _target(self, workload: Workload, link: Link) -> ProfileTarget:
        cells = self._cells(workload)
        (table,) = (own for own in link.measured if own.workload == workload)
        shares = table.counts.reshape(cells.shares.shape) / self.number
        return ProfileTarget(cells.parent, cells.child, shares)

    def _cells(self, workload: Workload) -> ProfileTarget:
        """The cell of each row of both sides; shares are of no table."""
        parents = self._cell_of_rows(self.parents, workload.parent)
        children = self._cell_of_rows(self.children, workload.child)
        shape = [
            math.prod(self.link.parts[name].size for name in names)
            for names in (workload.parent, workload.child)
        ]
        return ProfileTarget(parents, children, np.zeros(shape))

    def _cell_of_rows(self, side: Side, names: Sequence[str]) -> Integers:
        """The joint part (rows,) of each row of a side."""
        parts = [self.link.parts[name] for name in names]
        numbers = [own.of(side.codes[own.name]) for own in parts]
        return joint_number(numbers, [own.size for own in parts], side.rows)
