"""Supports: joint levels inside which no two rows can violate a hard constraint.

A support is chosen once, from public inputs and already released noisy statistics; rows are then
drawn inside it independently, in parallel, in any number, with no violation by construction. Levels
are bins of an attribute's fine codes; a level of a numeric attribute may be narrowed to a box, and
two attributes may be coupled so that inside a box one is a monotone function of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cloister.arrays import Booleans, Floats, Integers


@dataclass(frozen=True)
class Levels:
    """The levels of one attribute, as supports use them.

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
class Support:
    """Allowed joint levels of some attributes.

    Shapes: ``levels`` (m, k) int64, distinct rows; ``boxes[name]`` (m, 2) int64, the fine codes
    [start, stop) that an allowed row may take on a numeric attribute.
    """

    attributes: tuple[str, ...]
    levels: Integers
    boxes: Mapping[str, Integers] = field(default_factory=dict)
    couplings: tuple[Coupling, ...] = ()

    def reorder(self, sequence: Sequence[str]) -> Support:
        """The same support, its attributes in the order of a schema sequence, its rows sorted."""
        positions = {name: position for position, name in enumerate(sequence)}
        columns = sorted(
            range(len(self.attributes)), key=lambda column: positions[self.attributes[column]]
        )
        levels = self.levels[:, columns]
        rows = np.lexsort(levels.T[::-1])
        boxes = {name: box[rows] for name, box in self.boxes.items()}
        return Support(
            tuple(self.attributes[column] for column in columns),
            levels[rows],
            boxes,
            self.couplings,
        )


class Trie:
    """The prefixes of a support, for drawing one attribute after the other.

    A node at depth d is a tuple of levels of the first d attributes that can be completed. Depth 0
    has the one node 0; nodes of the last depth are the rows of the support.
    """

    def __init__(self, support: Support, sizes: Sequence[int]) -> None:
        self.support = support
        self.sizes = tuple(sizes)
        self._keys: list[Integers] = []
        parent = np.zeros(len(support.levels), dtype=np.int64)
        for depth, size in enumerate(sizes):
            keys, parent = np.unique(parent * size + support.levels[:, depth], return_inverse=True)
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


def with_missing(levels: Sequence[Levels], support: Support) -> Support:
    """A support with all joint levels that have a missing value: no predicate holds on those."""
    parts = [
        _fixed(levels, position, level.null)
        for position, level in enumerate(levels)
        if level.null is not None
    ]
    if not parts:
        return support
    missing = np.unique(np.concatenate(parts), axis=0)
    boxes = {
        name: np.vstack([box, _whole(levels, name, support, missing)])
        for name, box in support.boxes.items()
    }
    return Support(
        support.attributes, np.vstack([support.levels, missing]), boxes, support.couplings
    )


def _fixed(levels: Sequence[Levels], position: int, level: int) -> Integers:
    joint = grid([1 if index == position else axis.size for index, axis in enumerate(levels)])
    joint[:, position] = level
    return joint


def _whole(levels: Sequence[Levels], name: str, support: Support, rows: Integers) -> Integers:
    position = support.attributes.index(name)
    return np.stack(
        [levels[position].start[rows[:, position]], levels[position].stop[rows[:, position]]],
        axis=1,
    )
