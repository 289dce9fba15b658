"""How many rows share a value of one attribute, and how alike such rows are.

Which values occur is not asked: a value that few of very many have is a key, whose groups of rows
have sizes, and rows that go together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from cloister.arrays import Array, Integers
from cloister.hashing import Words, mix
from cloister.privacy.events import Relation, Sensitivity
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import Query, TableRows
from cloister.privacy.queries.transformations import occurrences
from cloister.schema.partition import Partition

_LOTS = b"pairs of rows that share a value"
"""Public key of the lots by which rows are paired: no guarantee rests on it."""


@dataclass(frozen=True)
class SizesOfGroups:
    """The sizes of groups as counts: up to ``most`` one after the other, beyond it by rank.

    ``ranks`` begin at 0 and increase: of the groups by size, the greatest first, those from one of
    them to the next are together.
    """

    most: int
    ranks: tuple[int, ...]

    @classmethod
    def of(cls, most: int, rows: int) -> SizesOfGroups:
        """Those of so many rows; the first groups alone, later ones in growing numbers."""
        beyond = max(rows // most, 1)
        ranks = [0]
        while ranks[-1] + max(ranks[-1] // 4, 1) < beyond:
            ranks.append(ranks[-1] + max(ranks[-1] // 4, 1))
        return cls(most, tuple(ranks))

    def counts(self, sizes: Integers) -> Integers:
        """Groups (most,) with 1, 2, ... rows at least, then rows beyond ``most`` by rank.

        Of groups of some ``sizes`` (groups,); their sum is the number of rows.
        """
        ordered = np.sort(sizes)[::-1]
        reached = np.searchsorted(-ordered, -np.arange(1, self.most + 1), side="right")
        beyond = np.append(np.maximum(ordered - self.most, 0), 0)
        ends = np.minimum(np.append(self.ranks, len(ordered)), len(ordered))
        heights = np.append(0, np.cumsum(beyond))[ends]
        return np.concatenate([reached, np.diff(heights)]).astype(np.int64)


@dataclass(frozen=True)
class GroupSizes(Query[TableRows, Sensitivity, Integers]):
    """How many groups of rows that share a value of a column have which size.

    Proof: the groups, the greatest first, are the rows of a diagram, with a box for each row of
    the table. A row more makes one group greater by one: put the first of those of that size, the
    others keep their boxes and one box comes, at the end of a row of the diagram; where the group
    is new, in a row of its own. Each count is that of the boxes of a part of the diagram: of a
    column up to ``most``, or of some rows beyond it; the parts are disjoint. So a row is in one
    count, as in a partition of rows, and a unit of m rows changes counts by m in all.
    """

    name: ClassVar[str] = "group sizes"
    column: str
    sizes: SizesOfGroups

    def request(self) -> Mapping[str, Any]:
        return {"of": self.column, "most": self.sizes.most, "ranks": list(self.sizes.ranks)}

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return neighbours.partition

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:  # noqa: ARG002
        _, counts = np.unique(rows.table.stored[self.column], return_counts=True)
        return self.sizes.counts(counts)

    def outcome(self, noisy: Array) -> Integers:
        return noisy


@dataclass(frozen=True, eq=False)
class AgreeingPairs(Query[TableRows, Sensitivity, Integers]):
    """Pairs of rows that share a value of a column: their number, and how many agree on others.

    They agree on an attribute where both are in one part of its partition, and on one of ``whole``
    where they have the same value. Within a group rows lie
    in a binary tree by their lots, hashes of 64 bits of a row and of its number among equal ones:
    two rows are a pair where a node of the tree holds these two alone. So a row is in one pair at
    most, and about a third as many pairs as rows are counted, from groups of any size.

    Proof: equal rows are interchangeable, so a table is how often each row occurs, and a row more
    adds one lot to one group. The nodes above it are nested. A pair goes only if it has no node of
    its own left; then one of its nodes is above the lot. Of two such pairs one node would lie in
    the other, so that it would hold both pairs: at most one goes. A pair comes only with the new
    row, in nodes above its lot; of two, one node would lie in the other and hold both: at most one
    comes. Thus each number changes by one at most, where a unit has one row; where it has m, or
    gives way to another, by as many as rows come and go.
    """

    name: ClassVar[str] = "agreeing pairs"
    column: str
    partitions: tuple[Partition, ...]
    whole: tuple[str, ...] = ()

    def request(self) -> Mapping[str, Any]:
        parts = {part.name: part.size for part in self.partitions}
        return {"of": self.column, "agreeing on": parts, "by value": list(self.whole)}

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return agreeing_pairs_sensitivity(len(self.partitions) + len(self.whole), neighbours)

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:  # noqa: ARG002
        table = rows.table
        lots = mix(table.keyed_hashes(_LOTS) ^ mix(occurrences(table).astype(np.uint64)))
        first, second = pairs_by_lot(table.stored[self.column], lots)
        indices = (part.index(table.stored[part.name]) for part in self.partitions)
        values = (table.stored[name] for name in self.whole)
        agreeing = (int((each[first] == each[second]).sum()) for each in chain(indices, values))
        return np.array([len(first), *agreeing], dtype=np.int64)

    def outcome(self, noisy: Array) -> Integers:
        return noisy


def agreeing_pairs_sensitivity(ways: int, neighbours: Neighbours) -> Sensitivity:
    """That of `AgreeingPairs` that are compared in so many ways."""
    sides = 1 if neighbours.relation is Relation.ADD_REMOVE else 2
    return Sensitivity.box(ways + 1, sides * neighbours.max_rows)


def pairs_by_lot(groups: Array, lots: Words) -> tuple[Integers, Integers]:
    """The numbers (pairs,) of the two rows of each pair of rows of one group (n,), by lots (n,).

    See `AgreeingPairs`.
    """
    order = np.lexsort((lots, groups))
    apart = np.diff(groups[order].astype(np.int64)) != 0
    # the bits from the first one on in which neighbours differ: the height of their lowest node
    heights = _bits(lots[order][1:] ^ lots[order][:-1])
    heights[apart] = _BITS + 1
    around = np.concatenate([[_BITS + 1], heights, [_BITS + 1]])
    pairs = np.flatnonzero(~apart & (heights < around[:-2]) & (heights < around[2:]))
    return order[pairs], order[pairs + 1]


_BITS = 64
"""Bits of a lot, and so levels of the tree; two rows below a node of the last have one lot."""


def _bits(words: Words) -> Integers:
    """The bits (n,) that words (n,) have from their first one on; 0 for none."""
    bits = np.zeros(len(words), dtype=np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        high = words >> np.uint64(step) != 0
        bits += step * high
        words = np.where(high, words >> np.uint64(step), words)
    return bits + (words != 0)
