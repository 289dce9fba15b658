"""Public partitions of a column's fine codes into contiguous ranges.

A range is a bin, a single value, a special value or the missing value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloister.schema.columns import Codes, Column, Grid

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

_KNOTS = 2_000
"""Points on either side of zero by which a logarithmic scale is inverted."""


@dataclass(frozen=True)
class Cells:
    """Contiguous ranges of fine codes: cell c holds the codes starts[c], ..., starts[c + 1] - 1.

    Shapes: ``starts`` (size,) int64, increasing, starting at 0; ``stops`` (size,).
    """

    column: Column
    starts: Codes

    @property
    def name(self) -> str:
        """The attribute."""
        return self.column.name

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.starts)

    @property
    def stops(self) -> Codes:
        """One past the last fine code of each cell."""
        return np.append(self.starts[1:], self.column.size)

    @property
    def widths(self) -> Codes:
        """Number of fine codes in each cell."""
        return self.stops - self.starts

    def of(self, codes: Codes) -> NDArray[np.int32]:
        """Cells (n,) of fine codes (n,)."""
        if self.size == self.column.size:
            return codes.astype(np.int32)
        return (np.searchsorted(self.starts, codes, side="right") - 1).astype(np.int32)

    def draw(self, cells: NDArray[np.integer], rng: np.random.Generator) -> Codes:
        """Fine codes (n,) drawn evenly inside the cells (n,)."""
        return self.starts[cells] + rng.integers(0, self.widths[cells])


def declared_cells(column: Column) -> Cells:
    """The cells that a spec declares.

    Each listed value is a cell. Numbers get ``bins`` bins, and a cell for each special value;
    without ``bins``, each value of a grid of at most 256 is a cell, and a longer grid gets 128
    bins. Bins are equal, or grow away from zero if their ``scale`` is log; those of more than
    10,000 numbers without declared bins are halfway between.
    """
    if not isinstance(column, Grid):
        return Cells(column, np.arange(column.size, dtype=np.int64))
    return _with_apart(column, _bin_starts(column))


def equal_cells(column: Column, most: int) -> Cells:
    """The listed values, or ``most`` equal parts of a number's range at most.

    Special and missing values of a number are cells of their own.
    """
    if not isinstance(column, Grid):
        return Cells(column, np.arange(column.size, dtype=np.int64))
    return _with_apart(column, _equal_starts(column, most))


def _with_apart(column: Grid, starts: Codes) -> Cells:
    """The cells between starts, with one for each special value and the missing one."""
    points = np.array(
        [code for special in column.special_codes for code in (special, special + 1)],
        dtype=np.int64,
    )
    tail = np.arange(column.steps, column.size, dtype=np.int64)
    starts = np.unique(np.concatenate([starts, points, tail]))
    return Cells(column, starts[starts < column.size])


def _bin_starts(column: Grid) -> Codes:
    declared: int | None = getattr(column.attribute, "bins", None)
    bins = declared or (column.steps if column.steps <= _MOST_WHOLE_VALUES else _DEFAULT_BINS)
    bins = min(bins, column.steps)
    if column.geometric:
        return _geometric_starts(column.steps)
    growing = _growing_part(column)
    if growing:
        return _growing_starts(column, bins, growing)
    return _equal_starts(column, bins)


def _equal_starts(column: Grid, bins: int) -> Codes:
    bins = min(bins, column.steps)
    # Python's integers: the product of bins and microseconds may exceed 64 bits
    return np.array([place * column.steps // bins for place in range(bins)], dtype=np.int64)


def _geometric_starts(steps: int) -> Codes:
    """Starts of bins that grow by a constant factor, the first ones of one value each."""
    starts = np.floor(np.geomspace(1.0, steps + 1.0, _GEOMETRIC_BINS + 1)[:-1] + 1e-9)
    return np.unique(starts.astype(np.int64)) - 1


def _growing_part(column: Grid) -> float:
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
