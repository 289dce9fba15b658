"""Partitions of a column's fine codes into numbered parts, and those that a spec declares.

A part is a bin, a single value, a special value or the missing value, or several of these. Made
from public facts or from released ones, so that counting rows by part is one query.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Integers
from cloister.schema.columns import Codes, Column, Grid, Listed

PartNumbers = NDArray[np.integer[Any]]


_MOST_WHOLE_VALUES = 256
"""Values of the longest grid that gets one cell for each value, if its spec declares no bins."""

_DEFAULT_BINS = 128
"""Bins of a longer grid, if its spec declares none."""

_LONG = 10_000
"""Values of the longest grid that gets equal bins, if its spec declares none."""

GROWTH = 1_000.0
"""How many times wider the widest bin on a logarithmic scale is than the one at zero.

Half of the bins then cover the first thirtieth of a range from zero.
"""

_GEOMETRIC_BINS = 96
"""Bins of a geometric grid at most: of a year in seconds, each is a fifth wider than the last."""

_ROUNDED_GROUPS = 4
"""Groups of cells in which rounded values are counted apart: large amounts are rounder than small
ones. A group more divides what is little, such as ten values of five thousand, once more."""

_KNOTS = 2_000
"""Points on either side of zero by which a logarithmic scale is inverted."""


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition: cell c holds the fine codes starts[c], ..., starts[c + 1] - 1, in part parts[c].

    Shapes: ``starts`` (cells,) int64, increasing, starting at 0; ``parts`` (cells,) int64, numbers
    from 0 that all occur.
    """

    column: Column
    starts: Codes
    parts: Integers

    @property
    def name(self) -> str:
        """The attribute."""
        return self.column.name

    @cached_property
    def size(self) -> int:
        """Number of parts."""
        return int(self.parts.max()) + 1

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.starts)

    @property
    def stops(self) -> Codes:
        """One past the last fine code of each cell; shape (cells,)."""
        return np.append(self.starts[1:], self.column.size)

    @property
    def widths(self) -> Codes:
        """Number of fine codes in each cell; shape (cells,)."""
        return self.stops - self.starts

    @cached_property
    def apart(self) -> Booleans:
        """Cells without neighbours, those of special and of missing values; shape (cells,)."""
        mask = np.zeros(self.cells, dtype=bool)
        if isinstance(self.column, Grid) and self.column.special_codes:
            mask[self.cell_index(np.array(self.column.special_codes))] = True
        if self.column.null_code is not None:
            mask[-1] = True
        return mask

    @cached_property
    def alone(self) -> Booleans:
        """Parts that hold nothing but special or missing values; shape (size,)."""
        return np.bincount(self.parts[~self.apart], minlength=self.size) == 0

    @cached_property
    def separate(self) -> bool:
        """Whether cell c is part c."""
        return np.array_equal(self.parts, np.arange(self.cells))

    @property
    def joined(self) -> Integers:
        """The part of each part of the partition that it was made of: of itself, if of none."""
        return np.arange(self.size, dtype=np.int64)

    @property
    def whole(self) -> bool:
        """Whether it has the parts of the partition that it was made of, in their order."""
        return True

    def index(self, codes: Codes) -> Codes:
        """Parts (n,) of fine codes (n,) of any type of whole numbers."""
        cells = self.cell_index(codes)
        return cells if self.separate else self.parts[cells]

    def cell_index(self, codes: Codes) -> Codes:
        """Cells (n,) of fine codes (n,)."""
        if self.cells == self.column.size:
            return codes.astype(np.int64)
        return np.searchsorted(self.starts, codes, side="right") - 1

    def draw(self, cells: PartNumbers, rng: np.random.Generator) -> Codes:
        """Fine codes (n,) drawn evenly inside cells (n,)."""
        return self.starts[cells] + rng.integers(0, self.widths[cells])

    def coarsen(self, parts: Integers) -> Coarsening:
        """Parts p of this partition joined to ``parts[p]``; shape (size,)."""
        return Coarsening(self.column, self.starts, parts[self.parts], parts)


@dataclass(frozen=True, eq=False)
class Coarsening(Partition):
    """A partition made of a finer one, whose part p lies in part ``groups[p]``; shape (parts,)."""

    groups: Integers

    @property
    def joined(self) -> Integers:
        """See :class:`Partition`."""
        return self.groups

    @property
    def whole(self) -> bool:
        """See :class:`Partition`."""
        return np.array_equal(self.groups, np.arange(len(self.groups)))


def intervals(column: Column, starts: Codes) -> Partition:
    """The partition into ranges of fine codes that begin at ``starts`` (size,)."""
    return Partition(column, starts, np.arange(len(starts), dtype=np.int64))


def single_values(column: Column) -> Partition:
    """Every fine code is a part."""
    return intervals(column, np.arange(column.size, dtype=np.int64))


@dataclass(frozen=True)
class RoundedValues:
    """Fine codes of a number in runs that begin at ``starts``, by how round their values are.

    Shapes: ``groups`` and ``levels`` (runs,): the group of neighbouring cells that a run lies in,
    and the first of the roundings of which its value is a multiple, or their number if of none.
    """

    column: Grid
    starts: Codes
    groups: Integers
    levels: Integers

    @classmethod
    def of(cls, column: Grid) -> RoundedValues:
        """The values of a column; special and missing ones are in groups of their own."""
        cells, periods = declared_cells(column), column.roundings
        firsts = [-column.origin // column.stride % period for period in periods]
        multiples = [
            np.arange(first, column.steps, period, dtype=np.int64)
            for first, period in zip(firsts, periods, strict=True)
        ]
        rounded = np.concatenate(multiples)
        # sorted: numpy's unique takes ten times as long for a million
        starts = np.sort(np.concatenate([cells.starts, rounded, rounded + 1]))
        starts = starts[(np.diff(starts, prepend=-1) > 0) & (starts < column.size)]
        of, levels = cells.index(starts), np.full(len(starts), len(periods), dtype=np.int64)
        for level in reversed(range(len(periods))):
            levels[np.searchsorted(starts, multiples[level])] = level
        levels[cells.apart[of]] = len(periods)
        ordinary = np.cumsum(~cells.apart) - 1
        groups = ordinary * _ROUNDED_GROUPS // max(int(ordinary[-1]) + 1, 1)
        groups[cells.apart] = _ROUNDED_GROUPS + np.arange(cells.apart.sum())
        return cls(column, starts, groups[of], levels)

    @property
    def partition(self) -> Partition:
        """A part for each level that values of a group have."""
        parts = np.searchsorted(self.joint_levels, self._joint)
        return Partition(self.column, self.starts, parts.astype(np.int64))

    @cached_property
    def joint_levels(self) -> Integers:
        """The place of each part in a table (groups, levels)."""
        return np.flatnonzero(np.bincount(self._joint))

    @property
    def _joint(self) -> Integers:
        return self.groups * (int(self.levels.max()) + 1) + self.levels


def counted_values(column: Column) -> Partition:
    """What values are counted by: how round they are, if that is declared, or each alone."""
    if isinstance(column, Grid) and column.roundings:
        return RoundedValues.of(column).partition
    return single_values(column)


def tree_of(column: Column) -> tuple[Partition, ...]:
    """The levels of a declared tree above the values, coarse first; the missing value is apart."""
    levels = column.levels if isinstance(column, Listed) else ()
    apart = range(column.attribute.nullable)
    nodes = (np.array([*numbers, *(max(numbers) + 1 for _ in apart)]) for numbers in levels)
    return tuple(single_values(column).coarsen(numbers) for numbers in nodes)


def nearest_of(known: Booleans, levels: list[Integers]) -> Integers:
    """The nearest ``known`` cell of each cell (cells,), in the same part of the finest level.

    ``levels``, coarse first, are the parts (cells,) of each cell. Each part of the coarsest has a
    known cell.
    """
    size = len(known)
    cells = np.arange(size, dtype=np.int64)
    nearest = np.where(known, cells, -1)
    for parts in reversed(levels):
        keys = parts * size + cells
        ends = np.sort(keys[known])
        right = np.searchsorted(ends, keys)
        sides = ends[np.clip([right - 1, right], 0, len(ends) - 1)]
        far = np.where(sides // size == parts, np.abs(sides - keys), size)
        near = np.where(far.min(0) < size, sides[far.argmin(0), cells] % size, -1)
        nearest = np.where(nearest < 0, near, nearest)
    return nearest


def one_part(column: Column) -> Partition:
    """All values together: what counts rows."""
    return intervals(column, np.zeros(1, dtype=np.int64))


def declared_cells(column: Column) -> Partition:
    """The cells that a spec declares.

    Each listed value is a cell. Numbers get ``bins`` bins, and a cell for each special value;
    without ``bins``, each value of a grid of at most 256 is a cell, and a longer grid gets 128
    bins. Bins are equal, or grow away from zero if their ``scale`` is log; those of more than
    10,000 numbers without declared bins are halfway between.
    """
    if not isinstance(column, Grid):
        return single_values(column)
    return _with_apart(column, _bin_starts(column))


def equal_cells(column: Column, most: int) -> Partition:
    """The listed values, or ``most`` equal parts of a number's range at most.

    Special and missing values of a number are cells of their own.
    """
    if not isinstance(column, Grid):
        return single_values(column)
    return _with_apart(column, _equal_starts(column, most))


def _with_apart(column: Grid, starts: Codes) -> Partition:
    """The cells between starts, with one for each special value and the missing one."""
    points = np.array(
        [code for special in column.special_codes for code in (special, special + 1)],
        dtype=np.int64,
    )
    tail = np.arange(column.steps, column.size, dtype=np.int64)
    starts = np.unique(np.concatenate([starts, points, tail]))
    return intervals(column, starts[starts < column.size])


def _bin_starts(column: Grid) -> Codes:
    declared: int | None = getattr(column.attribute, "bins", None)
    bins = declared or (column.steps if column.steps <= _MOST_WHOLE_VALUES else _DEFAULT_BINS)
    bins = min(bins, column.steps)
    if column.geometric:
        return _geometric_starts(column.steps)
    growing = growing_part(column)
    if growing:
        return _growing_starts(column, bins, growing)
    return _equal_starts(column, bins)


def _equal_starts(column: Grid, bins: int) -> Codes:
    bins = min(bins, column.steps)
    # Python's integers: the product of bins and microseconds may exceed 64 bits
    return np.array([index * column.steps // bins for index in range(bins)], dtype=np.int64)


def _geometric_starts(steps: int) -> Codes:
    """Starts of bins that grow by a constant factor, the first ones of one value each."""
    starts = np.floor(np.geomspace(1.0, steps + 1.0, _GEOMETRIC_BINS + 1)[:-1] + 1e-9)
    return np.unique(starts.astype(np.int64)) - 1


def growing_part(column: Grid) -> float:
    """The part of the bins that are on a logarithmic scale; the others are equal."""
    if getattr(column.attribute, "scale", None) == "log":
        return 1.0
    undeclared = getattr(column.attribute, "bins", None) is None
    return 0.5 * (
        undeclared and column.steps > _LONG and column.attribute.type in ("integer", "float")
    )


def _growing_starts(column: Grid, bins: int, growing: float) -> Codes:
    """Starts of bins, a part of them on a logarithmic scale of the distance from zero."""
    zero = -column.origin / column.stride
    span = max(abs(zero), abs(column.steps - zero))
    away = np.append(0.0, np.geomspace(span * 1e-3 / GROWTH, span, _KNOTS))
    near = np.concatenate([zero - away[::-1], zero + away, [0.0, column.steps]])
    codes = np.unique(np.clip(near, 0.0, column.steps))
    logs = np.sign(codes - zero) * np.log1p(np.abs(codes - zero) * (GROWTH - 1) / span)
    heights = growing * (logs - logs[0]) / (logs[-1] - logs[0]) + (1 - growing) * codes / codes[-1]
    starts = np.interp(np.arange(bins) / bins, heights, codes)
    return np.unique(np.floor(starts + 1e-9).astype(np.int64))
