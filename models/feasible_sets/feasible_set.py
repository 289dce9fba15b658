"""Feasible sets: joint levels inside which no two rows can violate a hard constraint.

*What one is.* Levels are bins of an attribute's values. A feasible set lists joint levels of the
attributes of a constraint (the rows of ``levels``); a level of a number may be narrowed to a box of
its values, and two numbers may be coupled, so that inside a box one is a monotone function of the
other.

*What it guarantees.* Any two values that the listed levels and boxes allow, and any value with
itself, satisfy the constraint. So rows drawn inside the set satisfy it whatever their number and
order: they are drawn independently and in parallel, where checking each row against all rows before
is quadratic and lets early rows restrict late ones. Where no predicate holds on a missing value all
joint levels with one are in the set. A draw inside several sets follows them level by level
(`Trie`); only sets that share attributes can leave a dead end. It is a promise by construction, and
the violations in the output are counted all the same.

*When an attribute set gets one.*

- A functional dependency: one right side, a single value, for each left side; those of several
  dependencies are chosen together.
- A strict order rule (``greater here, less there``): a chain, that is a monotone lattice path, for
  each value of what is equal.
- A rule on one row: all joint levels in which some value satisfies it; values are checked later.
- Any other rule on pairs, of up to 20,000 joint levels: greedily, each level that conflicts with
  none taken before.
- None for a key, which leaves each joint value to one row, and for more than 2,000,000 joint levels
  (of a dependency, joint left sides): such rules are checked against the accepted rows.

*Which of many.* A maximal set without conflict is an independent set of a graph, of which the
heaviest is NP-hard to find. Mass is that of released statistics: the heaviest right side, or the
likeliest that has room; the heaviest path, by dynamic programming; else the greedy choice. Where
the sets of connected constraints leave less than one row in a hundred together, one set takes their
place that lists whole rows.

*Cost*, for m joint levels: linear in m for dependencies and for a chain's path; m times the levels
that are taken for the greedy choice, quadratic at most. A step of a draw inside a set is a binary
search.

Source: Ge, Mohapatra, He, Ilyas, "Kamino: constraint-aware differentially private data synthesis"
(VLDB 2021), Algorithm 3, for the draw, in which it counts violations; the sets are Cloister's own.

Privacy: a set is chosen from public inputs and released noisy statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np

from cloister.arrays import Booleans, Floats, Integers


@dataclass(frozen=True)
class Levels:
    """The levels of one attribute, as feasible sets use them.

    Shapes: ``low`` and ``high`` (size,) float64, the least and greatest comparable number in each
    level, NaN for the missing level; ``start`` and ``stop`` (size,) int64, its fine codes;
    ``point`` (size,) the fine code that represents the level where a single value is needed, and
    ``value`` (size,) its number; ``null``, the missing level.
    """

    name: str
    low: Floats
    high: Floats
    start: Integers
    stop: Integers
    point: Integers
    value: Floats
    null: int | None

    @property
    def size(self) -> int:
        """Number of levels, the missing one included."""
        return len(self.low)

    @property
    def wide(self) -> Booleans:
        """Whether a level holds more than one value; shape (size,)."""
        return self.high > self.low

    @property
    def pointed(self) -> Levels:
        """The same levels, each narrowed to the one value that represents it."""
        return replace(self, low=self.value, high=self.value, start=self.point, stop=self.point + 1)

    @property
    def point_boxes(self) -> Integers:
        """Each level narrowed to the one value that represents it; shape (size, 2)."""
        return np.stack([self.point, self.point + 1], axis=1)

    @property
    def present(self) -> Integers:
        """The levels that are not missing."""
        levels = np.arange(self.size, dtype=np.int64)
        return levels if self.null is None else levels[levels != self.null]


@dataclass(frozen=True)
class Coupling:
    """Inside a box, ``second`` is a monotone function of ``first``; falling if ``sign`` is -1."""

    first: str
    second: str
    sign: int


@dataclass(frozen=True)
class FeasibleSet:
    """Allowed joint levels of some attributes.

    Shapes: ``levels`` (m, k) int64, distinct rows; ``boxes[name]`` (m, 2) int64, the fine codes
    [start, stop) that an allowed row may take on a numeric attribute.
    """

    attributes: tuple[str, ...]
    levels: Integers
    boxes: Mapping[str, Integers] = field(default_factory=dict)
    couplings: tuple[Coupling, ...] = ()

    def reorder(self, sequence: Sequence[str]) -> FeasibleSet:
        """The same set, its attributes in the order of a schema sequence, its rows sorted."""
        positions = {name: position for position, name in enumerate(sequence)}
        columns = sorted(
            range(len(self.attributes)), key=lambda column: positions[self.attributes[column]]
        )
        levels = self.levels[:, columns]
        rows = np.lexsort(levels.T[::-1])
        boxes = {name: box[rows] for name, box in self.boxes.items()}
        return FeasibleSet(
            tuple(self.attributes[column] for column in columns),
            levels[rows],
            boxes,
            self.couplings,
        )


class Trie:
    """The prefixes of a feasible set, for drawing one attribute after the other.

    A node at depth d is a tuple of levels of the first d attributes that can be completed. Depth 0
    has the one node 0; nodes of the last depth are the rows of the feasible set.
    """

    def __init__(self, feasible_set: FeasibleSet, sizes: Sequence[int]) -> None:
        self.feasible_set = feasible_set
        self.sizes = tuple(sizes)
        self._keys: list[Integers] = []
        parent = np.zeros(len(feasible_set.levels), dtype=np.int64)
        for depth, size in enumerate(sizes):
            keys, parent = np.unique(
                parent * size + feasible_set.levels[:, depth], return_inverse=True
            )
            self._keys.append(keys)

    def fertility(self, depth: int, nodes: Integers) -> Integers:
        """How many levels of attribute ``depth`` can follow each node (n,)."""
        first, last = self._edges(depth, nodes)
        return last - first

    def children(self, depth: int, nodes: Integers) -> tuple[Integers, Integers]:
        """All levels of attribute ``depth`` that can follow nodes (n,).

        Returns two arrays (c,): the position of the parent in ``nodes``, and the level.
        """
        first, last = self._edges(depth, nodes)
        counts = last - first
        entries = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return np.repeat(np.arange(len(nodes)), counts), self._keys[depth][entries] % self.sizes[
            depth
        ]

    def _edges(self, depth: int, nodes: Integers) -> tuple[Integers, Integers]:
        size, keys = self.sizes[depth], self._keys[depth]
        return np.searchsorted(keys, nodes * size), np.searchsorted(keys, (nodes + 1) * size)

    def allows(self, depth: int, nodes: Integers, levels: Integers) -> Booleans:
        """Whether levels (n,) of attribute ``depth`` can follow nodes (n,)."""
        keys, wanted = self._keys[depth], nodes * self.sizes[depth] + levels
        return keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted

    def step(self, depth: int, nodes: Integers, levels: Integers) -> Integers:
        """The nodes (n,) after nodes (n,) when attribute ``depth`` takes allowed levels (n,)."""
        successors = np.searchsorted(self._keys[depth], nodes * self.sizes[depth] + levels)
        return np.minimum(successors, len(self._keys[depth]) - 1)


def grid(sizes: Sequence[int]) -> Integers:
    """All joint levels of some sizes, in lexicographic order; shape (product, k)."""
    return np.indices(tuple(sizes), dtype=np.int64).reshape(len(sizes), int(np.prod(sizes))).T


def with_missing(levels: Sequence[Levels], feasible_set: FeasibleSet) -> FeasibleSet:
    """The set with all joint levels that have a missing value: no predicate holds on those."""
    parts = [
        _fixed(levels, position, level.null)
        for position, level in enumerate(levels)
        if level.null is not None
    ]
    if not parts:
        return feasible_set
    missing = np.unique(np.concatenate(parts), axis=0)
    boxes = {
        name: np.vstack([box, _whole(levels, name, feasible_set, missing)])
        for name, box in feasible_set.boxes.items()
    }
    return FeasibleSet(
        feasible_set.attributes,
        np.vstack([feasible_set.levels, missing]),
        boxes,
        feasible_set.couplings,
    )


def _fixed(levels: Sequence[Levels], position: int, level: int) -> Integers:
    joint = grid([1 if index == position else axis.size for index, axis in enumerate(levels)])
    joint[:, position] = level
    return joint


def _whole(
    levels: Sequence[Levels], name: str, feasible_set: FeasibleSet, rows: Integers
) -> Integers:
    position = feasible_set.attributes.index(name)
    return np.stack(
        [levels[position].start[rows[:, position]], levels[position].stop[rows[:, position]]],
        axis=1,
    )


class _OfAttributes(Protocol):
    @property
    def attributes(self) -> tuple[str, ...]: ...


_Rule = TypeVar("_Rule", bound=_OfAttributes)


def connected(rules: Sequence[_Rule]) -> list[list[_Rule]]:
    """The rules, or feasible sets, in groups that share no attribute."""
    groups: list[tuple[set[str], list[_Rule]]] = []
    for rule in rules:
        names, members = set(rule.attributes), [rule]
        apart = []
        for group in groups:
            if names.isdisjoint(group[0]):
                apart.append(group)
            else:
                names, members = names | group[0], [*group[1], *members]
        groups = [*apart, (names, members)]
    return [members for _, members in groups]
