"""Bins of an attribute's public cells: the coarse domain on which joint models work.

A bin is refined at the end by the attribute's released one-way histogram. Binning is
post-processing: its inputs are public or already released.

A coarsening of an attribute is its bins, or fewer parts made of them, to keep joint tables small.
Parts are made from released histograms: neighbouring bins of about equal mass where values have an
order, the rare ones together where they have none. Missing and special values of a number stay
apart: that a value is missing may tell more than the value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cloister.arrays import TINY, Booleans, Floats, Integers
from cloister.models.feasible_sets.feasible_set import Levels
from cloister.schema.columns import Codes, Column, Grid
from cloister.schema.partition import Partition, intervals, single_values, tree_of

NUMERIC_BINS = 20
"""Bins of a numeric attribute at most, special and missing values apart."""

MOST_VALUES = 1_000
"""Values of a numeric attribute at most that have bins of their own."""

MOST_CODES = 256
"""Bins of codes in a tree at most, so that joint models have them, see `planning`."""

_LEAST_MASS = 1e-12
"""Mass that is divided by at least, where there is no noise or nothing in ordinary cells."""

NOISE_DEVIATIONS = 3.0
"""A part whose share is below this many standard deviations of its noise is merged with others."""

_LEAST_ORDINARY_MASS = 1e-12
"""Mass that is divided by at least, where all of it is in missing and special values."""

PARTS_BY_MASS = 8
"""Parts of an attribute by drawn rows: two attributes then have 64 cells, and three 512."""


@dataclass(frozen=True, eq=False)
class Histogram(Partition):
    """A partition whose parts are bins, with the released shares of rows of its cells.

    Shape: ``shares`` (cells,), summing to 1. Bins of a numeric attribute are contiguous. Parts made
    of them are on one side of a public ``threshold``, on the scale of the column's comparable
    numbers, if there is one.
    """

    shares: Floats
    threshold: float | None = None

    @classmethod
    def over(cls, cells: Partition, bins: Integers, shares: Floats) -> Histogram:
        """Cell c of a partition lies in bin ``bins[c]`` and holds ``shares[c]`` of the rows."""
        return cls(cells.column, cells.starts, bins, shares)

    def split_at(self, threshold: float, least: float) -> Histogram:
        """The bins of a number, in two where a threshold divides one into parts of ``least`` mass.

        A cell is on the side on which it begins; special and missing values are on none.
        """
        split = replace(self, threshold=threshold)
        sides = 2 * self.parts + split._above
        mass = np.bincount(sides, weights=self.shares, minlength=2 * self.size).reshape(-1, 2)
        divided: Booleans = np.all(mass >= least, axis=1)
        begins = np.diff(np.where(divided[self.parts], sides, 2 * self.parts), prepend=-1) != 0
        return replace(split, parts=np.cumsum(begins) - 1)

    @property
    def _above(self) -> Booleans:
        """Whether each cell's numbers are above the threshold; shape (cells,)."""
        if self.threshold is None:
            return np.zeros(self.cells, dtype=bool)
        above: Booleans = self.column.comparable(self.starts) > self.threshold
        return above & ~self.apart

    @cached_property
    def above(self) -> Booleans:
        """Whether more of each bin's mass is above the threshold than not; shape (size,)."""
        side = np.where(self._above, 1.0, -1.0) * (self.shares + _LEAST_MASS)
        return np.bincount(self.parts, weights=side, minlength=self.size) > 0

    @cached_property
    def mass(self) -> Floats:
        """Released share of rows in each bin; shape (size,)."""
        return np.bincount(self.parts, weights=self.shares, minlength=self.size).astype(np.float64)

    @cached_property
    def levels(self) -> Levels:
        """The bins as levels for feasible sets."""
        first, last = _bounds(self.parts, self.size)
        start, stop = self.starts[first], self.stops[last]
        point = self._points()
        column = self.column
        null = column.null_code
        return Levels(
            name=self.name,
            low=column.comparable(start),
            high=column.comparable(stop - 1),
            start=start,
            stop=stop,
            point=point,
            value=column.comparable(point),
            null=None if null is None else int(self.index(np.array([null]))[0]),
        )

    @cached_property
    def only_values(self) -> Codes | None:
        """The one fine code of each bin, (size,); None if a bin has several."""
        if self.cells != self.size or self.cells != self.column.size:
            return None
        return self.starts[np.argsort(self.parts)]

    @cached_property
    def value_shares(self) -> Floats:
        """The share of each fine code in its bin, as :meth:`refine` draws them; (column size,)."""
        cells = self.cell_index(np.arange(self.column.size))
        mass = self.shares + _LEAST_MASS
        whole = np.bincount(self.parts, weights=mass, minlength=self.size)
        return np.asarray((mass / self.widths / whole[self.parts])[cells])

    def refine(self, bins: Codes, quantile: Floats) -> Codes:
        """Fine codes (n,) inside bins (n,), by the histogram, at quantiles (n,) in [0, 1)."""
        if self.only_values is not None:
            return self.only_values[bins]
        cells = self._cell_at(bins, quantile)
        width = self.widths[cells]
        inside = self._within(bins, cells, quantile)
        return self.starts[cells] + np.minimum((inside * width).astype(np.int64), width - 1)

    def refine_box(self, boxes: Codes, quantile: Floats) -> Codes:
        """Fine codes (n,) inside ranges (n, 2) of fine codes, by the histogram, at quantiles (n,).

        Monotone in them.
        """
        knots, heights = self._heights()
        low, high = np.interp(boxes[:, 0], knots, heights), np.interp(boxes[:, 1], knots, heights)
        codes = np.floor(np.interp(low + quantile * (high - low), heights, knots)).astype(np.int64)
        return np.clip(codes, boxes[:, 0], boxes[:, 1] - 1)

    def quantile_in_box(self, boxes: Codes, codes: Codes) -> Floats:
        """The quantiles (n,) at which :meth:`refine_box` gives fine codes (n,) inside their boxes.

        Of a code that covers a range, the middle; of one outside its box, the nearer end.
        """
        knots, heights = self._heights()
        low, high = np.interp(boxes[:, 0], knots, heights), np.interp(boxes[:, 1], knots, heights)
        inside = np.clip(codes, boxes[:, 0], boxes[:, 1] - 1)
        return (np.interp(inside + 0.5, knots, heights) - low) / np.maximum(high - low, TINY)

    def _heights(self) -> tuple[Floats, Floats]:
        """The released distribution function: fine codes, and shares of rows below them."""
        knots = np.append(self.starts, self.column.size).astype(np.float64)
        floor = 1e-9 * self.widths / self.column.size
        return knots, np.concatenate([[0.0], np.cumsum(self.shares + floor)])

    def _points(self) -> Codes:
        density = self.shares / self.widths
        order = np.lexsort((-density, self.parts))
        heaviest = order[np.searchsorted(self.parts[order], np.arange(self.size))]
        return self.starts[heaviest] + self.widths[heaviest] // 2

    @cached_property
    def _by_bin(self) -> tuple[Codes, Floats]:
        order = np.argsort(self.parts, kind="stable")
        floored = self.shares[order] + _LEAST_MASS
        return order, np.cumsum(floored)

    def _bounds_of(self, bins: Codes) -> tuple[Floats, Floats]:
        order, heights = self._by_bin
        edges = np.searchsorted(self.parts[order], np.arange(self.size + 1))
        sums = np.append(0.0, heights)
        return sums[edges[bins]], sums[edges[bins + 1]]

    def _cell_at(self, bins: Codes, quantile: Floats) -> Codes:
        order, heights = self._by_bin
        low, high = self._bounds_of(bins)
        ranks = np.searchsorted(heights, low + quantile * (high - low), side="right")
        first, last = _bounds(self.parts[order], self.size)
        return order[np.clip(ranks, first[bins], last[bins])]

    def _within(self, bins: Codes, cells: Codes, quantile: Floats) -> Floats:
        order, heights = self._by_bin
        low, high = self._bounds_of(bins)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        before, after = np.append(0.0, heights)[rank[cells]], heights[rank[cells]]
        return np.clip((low + quantile * (high - low) - before) / (after - before), 0.0, 1.0)


def _bounds(parts: Codes, size: int) -> tuple[Codes, Codes]:
    first = np.full(size, len(parts), dtype=np.int64)
    last = np.zeros(size, dtype=np.int64)
    np.minimum.at(first, parts, np.arange(len(parts)))
    np.maximum.at(last, parts, np.arange(len(parts)))
    return first, last


def bin_cells(
    cells: Partition, shares: Floats, noise: float, keep: bool, most: int = NUMERIC_BINS
) -> Histogram:
    """The bins of one attribute, from its released histogram.

    Numeric attributes: at most ``most`` runs of about equal mass, special values and missing
    apart. Listed ones: values below three standard deviations of the noise are merged, unless
    ``keep`` (the attribute is in a hard constraint, where each value matters). Groups of codes
    stay; of very many, the rarer ones below a node of their tree are merged.

    Args:
        shares: shape (cells,), released share of rows in each cell.
        noise: standard deviation of a share.
    """
    if isinstance(cells.column, Grid):
        return Histogram.over(cells, _equal_mass_runs(cells, shares, noise, most), shares)
    if not (keep or cells.separate):
        return Histogram.over(cells, _merge_codes(cells, shares), shares)
    if keep or cells.size <= 3:
        return Histogram.over(cells, cells.parts, shares)
    return Histogram.over(cells, _merge_rare(cells, shares, noise), shares)


def _equal_mass_runs(cells: Partition, shares: Floats, noise: float, most: int) -> Codes:
    if cells.size <= most:
        return np.arange(cells.size, dtype=np.int64)
    alone = cells.apart
    rest = np.where(alone, 0.0, shares)
    run, target = _equal_runs(rest, noise, most)
    heavy = alone | (rest > target)
    begins = np.diff(run, prepend=-1) != 0
    begins |= heavy | np.append(False, heavy[:-1])
    return _join_outer(np.cumsum(begins) - 1, rest, alone, noise)


def _equal_runs(rest: Floats, noise: float, most: int) -> tuple[Codes, float]:
    """Runs of cells of equal mass ``rest`` (cells,), ``most`` of them or fewer, and their mass.

    A run's mass is at least three standard deviations of the noise, where there is that much.
    """
    total = float(rest.sum())
    count = max(min(most, int(total / max(NOISE_DEVIATIONS * noise, _LEAST_MASS))), 1)
    target = max(total / count, _LEAST_MASS)
    run = np.floor((np.cumsum(rest) - rest / 2) / target).astype(np.int64)
    return np.minimum(run, count - 1), target


def _join_outer(parts: Codes, rest: Floats, alone: Booleans, noise: float) -> Codes:
    """The bins, the outermost joined to their neighbours where they have less mass than noise.

    Such a bin may go on to the end of a range that nothing reaches: a few rows that a model puts
    there by noise would lie far from all others. Cells that are ``alone`` (cells,) stay so.
    """
    mass = np.bincount(parts, weights=rest)
    ordinary = np.flatnonzero(np.bincount(parts, weights=alone) == 0)
    begins = np.diff(parts, prepend=-1) != 0
    for outer, inner in (ordinary[:2], ordinary[:-3:-1]) if len(ordinary) > 1 else ():
        if mass[outer] < NOISE_DEVIATIONS * noise and abs(outer - inner) == 1:
            begins[np.searchsorted(parts, max(outer, inner))] = False
    return np.cumsum(begins) - 1


def bin_values(
    cells: Partition, shares: Floats, noise: float, most: int = NUMERIC_BINS
) -> Histogram:
    """The bins of a numeric attribute whose values matter, from its released histogram.

    Of ``most`` cells or fewer each has a bin of its own. Of more, a value above three standard
    deviations of the noise has a bin that goes on to the next one; where much lies between them,
    there are further bins, about ``most`` in all.

    Args:
        shares: shape (cells,), released share of rows in each cell.
        noise: standard deviation of a share.
    """
    if cells.size <= most:
        return Histogram.over(cells, cells.parts, shares)
    alone = cells.apart
    known = np.flatnonzero((cells.widths == 1) & (shares > NOISE_DEVIATIONS * noise) & ~alone)
    single = alone.copy()
    single[known[np.argsort(-shares[known], kind="stable")[:MOST_VALUES]]] = True
    rest = np.where(single, 0.0, shares)
    run, _ = _equal_runs(rest, noise, most)
    begins = single | np.append(False, alone[:-1]) | (np.diff(run, prepend=-1) != 0)
    return Histogram.over(cells, np.cumsum(begins) - 1, shares)


def _merge_rare(cells: Partition, shares: Floats, noise: float) -> Codes:
    rare = (shares < NOISE_DEVIATIONS * noise) & ~cells.apart
    if rare.sum() < 2:
        return np.arange(cells.size, dtype=np.int64)
    bins = np.cumsum(~rare) - 1
    bins[rare] = (~rare).sum()
    return bins


def _merge_codes(cells: Partition, shares: Floats) -> Integers:
    """The bins (cells,) of groups of codes: the heaviest alone, others below a node together."""
    if cells.size <= MOST_CODES:
        return cells.parts
    levels = tree_of(cells.column)
    level = next((each for each in levels[::-1] if each.size <= MOST_CODES // 2), levels[0])
    order = np.lexsort((shares, cells.parts))
    heads = order[np.diff(cells.parts[order], append=-1) != 0]
    rank = np.argsort(np.argsort(-shares[heads], kind="stable"))
    alone = rank < MOST_CODES - level.size
    nodes = cells.size + level.index(cells.starts[heads])
    bins = np.unique(np.where(alone, np.arange(cells.size), nodes), return_inverse=True)[1]
    return bins.astype(np.int64)[cells.parts]


def coarse(bins: Histogram, most: int) -> Partition:
    """At most ``most`` parts, beside those of missing and special values of a number."""
    if bins.size <= most:
        return bins
    if bins.column.kind == "nominal":
        return _coarse_tree(bins, most)
    separate = bins.alone
    if separate.sum() > most:
        separate = np.zeros(bins.size, dtype=bool)
    return bins.coarsen(_runs_of_sides(bins, bins.mass, separate, most))


def coarse_by_spread(bins: Histogram, most: int) -> Partition:
    """At most ``most`` parts of a number's bins, beside those of missing and special values.

    Each part has about as much as another of the mass and of the variance together, so that tails
    have parts of their own, however few rows they hold.
    """
    weights = bins.mass / max(float(bins.mass[~bins.alone].sum()), _LEAST_ORDINARY_MASS)
    return bins.coarsen(_runs_of_sides(bins, weights + variance_shares(bins), bins.alone, most))


def variance_shares(bins: Histogram) -> Floats:
    """The share (bins,) of a number's variance that lies in each bin, by its histogram."""
    shares = np.where(bins.apart, 0.0, bins.shares)
    middles = (bins.starts + bins.stops) / 2
    mean = float(shares @ middles) / max(float(shares.sum()), _LEAST_ORDINARY_MASS)
    squares = shares * (np.square(middles - mean) + np.square(bins.widths) / 12)
    variance = np.bincount(bins.parts, weights=squares, minlength=bins.size)
    return np.asarray(variance / max(float(variance.sum()), _LEAST_ORDINARY_MASS))


def runs_of(weights: Floats, separate: Booleans, most: int) -> Integers:
    """Runs of bins of about equal weight, ``most`` of them, and a part per ``separate`` bin."""
    weights = np.where(separate, 0.0, weights)
    middle = (np.cumsum(weights) - weights / 2) / max(float(weights.sum()), _LEAST_ORDINARY_MASS)
    parts = np.minimum((middle * most).astype(np.int64), most - 1)
    parts[separate] = most + np.arange(separate.sum())
    return np.unique(parts, return_inverse=True)[1].astype(np.int64)


def _runs_of_sides(bins: Histogram, weights: Floats, separate: Booleans, most: int) -> Integers:
    """As :func:`runs_of`, the run in two that the bins' threshold divides."""
    sides = len(np.unique(bins.above[~separate]))
    runs = runs_of(weights, separate, max(most + 1 - sides, 1))
    return np.unique(2 * runs + bins.above, return_inverse=True)[1].astype(np.int64)


def _coarse_tree(bins: Histogram, most: int) -> Partition:
    """The finest level of a tree with at most ``most`` nodes; else its heaviest, and the rest."""
    nodes = np.arange(bins.size)
    for level in reversed(tree_of(bins.column)):
        of_bin = level.index(bins.levels.point)
        nodes = np.unique(of_bin, return_inverse=True)[1].astype(np.int64)
        if nodes.max() < most:
            return bins.coarsen(nodes)
    mass = np.bincount(nodes, weights=bins.mass)
    parts = np.full(len(mass), most - 1, dtype=np.int64)
    parts[np.argsort(-mass, kind="stable")[: most - 1]] = np.arange(most - 1)
    return bins.coarsen(parts[nodes])


def parts_by(column: Column, codes: Integers, most: int = PARTS_BY_MASS) -> Partition:
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
