"""One relationship as the paper learns it: the bi-adjacency matrix of two drawn tables.

Source: arXiv 2405.18670, algorithms 1 and 4, section 6 (random slicing).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cloister.arrays import Floats, Integers
from cloister.models.relational.candidates import Workload
from cloister.models.relational.link import Link, Side
from cloister.models.relational.matching.profiles import ProfileTarget
from cloister.models.relational.paper.pairs import Pairs
from cloister.models.relational.parts import joint_number

_LINKED = 5
"""One in so many rows of a side of a slice at least has links in it: 20 % of a slice, section 8."""


@dataclass(frozen=True)
class Slicing:
    """How the matrix is learned: ``fitted`` tables at once, on ``slices`` of ``rows`` a side."""

    fitted: int
    slices: int
    rows: int


@dataclass(eq=False)
class Relationship:
    """The matrix b (rows that refer, parents) of links, which learns from measured tables.

    ``matrix`` holds zeros and ones. The paper does not say what it is at first: here links drawn at
    random, all equally likely.
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
        """Fit the tables of the link that fit worst, slice by slice.

        The links of a slice are drawn from its shares without bias, as many as it had, and take
        their place in the matrix before the next slice.
        """
        self.link = link
        worst = sorted(link.measured, key=lambda own: -self._error(own.workload, link))
        targets = [self._target(own.workload, link) for own in worst[: self.slicing.fitted]]
        for children, parents in self._slices():
            own = [
                ProfileTarget(each.parent[parents], each.child[children], each.shares)
                for each in targets
            ]
            at = np.ix_(children, parents)
            links = round(float(self.matrix[at].sum()))
            shares = Pairs(own, self.one_parent).solve(self.matrix[at])
            self.matrix[at] = self._rounded(shares, links)

    def answers(self, tables: Sequence[Workload]) -> list[Floats]:
        """The expected counts of joint tables, one axis an attribute."""
        found = []
        for workload in tables:
            (answer,) = Pairs([self._cells(workload)], self.one_parent).answers(self.matrix)
            sizes = [self.link.parts[name].size for name in workload.names]
            found.append(answer.reshape(sizes))
        return found

    def links(self) -> tuple[Integers, ...]:
        """The rows that refer, and the parents, of all links."""
        return np.nonzero(self.matrix)

    def _rounded(self, shares: Floats, number: int) -> Floats:
        """Zeros and ones in the place of shares: so many links."""
        links = np.zeros_like(shares)
        links[Pairs((), self.one_parent).round(shares, number, self.rng)] = 1.0
        return links

    def _slices(self) -> Iterator[tuple[Integers, Integers]]:
        """All rows if they are few; else random ones of both sides, a part of them linked.

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
        others = np.setdiff1d(np.arange(size), first)
        return np.append(first, self.rng.permutation(others)[: most - len(first)])

    def _error(self, workload: Workload, link: Link) -> float:
        target = self._target(workload, link)
        (answer,) = Pairs([target], self.one_parent).answers(self.matrix)
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
