"""The joint counts of some columns: by least squares of all noisy tables.

The counts of the cells of a released table are unknown numbers x, observed as y = x + noise with
known variances D. Every other released table that shares columns with it observes sums of them, h =
A x + noise of variances V, at the finest parts that both tables have. The least-squares estimate of
x and its covariance are::

    x + D A' (V + A D A')^-1 (h - A y),        D - D A' (V + A D A')^-1 A D

which takes no more than a matrix of the size of the sums. No count is made positive: estimates stay
unbiased, and their noise is normal with a known covariance. (The noise of a count is discrete
Gaussian or Laplace; sums over cells are near normal.) Source: Gauss-Markov; for noisy histograms
Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through
consistency" (VLDB 2010).

Values inside a part of a table follow the released histogram of their column, whatever the other
columns are. How far the histogram may be off is estimated by a parametric bootstrap: noise is drawn
again around the released shares, and shares are estimated again. Source: Ferrando, Wang, Sheldon,
"Parametric bootstrap for differentially private confidence intervals" (AISTATS 2022, arXiv
2006.07749).

Privacy: released numbers alone, so post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import HistogramCounts, ReleasedCounts
from cloister.models.core.noisy_table import NoisyTable
from cloister.schema.columns import Grid
from cloister.schema.partition import Partition, intervals

_MOST_SUMS = 600
"""Most sums that other tables observe: their square is solved, in a tenth of a second."""

_MOST_NUMBERS = 4_000_000
"""Most sums times cells: 32 MB. Of a larger table only sums of few parts are used."""

_FLOOR = 1e-9
"""Share added to each slice in proportion to its width, so that parts without mass have weights."""


_REPLICATES = 25
"""Bootstrap samples of a histogram: they give a deviation to about a seventh of it."""

SEED = 20_261_126
"""Public seed of all that is drawn, so that a question has one answer."""


Numbers = Mapping[str, Floats]
"""Numbers of the slices of columns, (slices,) each, whose product a row counts for."""


Replicates = Mapping[str, Callable[[], Floats]]
"""What draws the bootstrap shares (samples, slices) of columns, once."""


@dataclass(frozen=True, eq=False)
class FittedCounts:
    """Least-squares counts of a table over ``slices``, one axis a column.

    ``counts`` (cells,) have the covariance ``diag(variances) - known' known``; shape of ``known``:
    (sums, cells). ``replicates`` give the shares of slices (bootstrap samples, slices) that columns
    might have had; they are drawn where they are needed. ``dependence`` is how much columns may
    depend on each other beyond the counts, the root of a mean-square contingency; 0 of counted
    tables.
    """

    slices: Mapping[str, Histogram]
    partitions: tuple[Partition, ...]
    counts: Floats
    variances: Floats
    known: Floats
    replicates: Replicates = field(default_factory=dict)
    dependence: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in the order of the axes."""
        return tuple(partition.name for partition in self.partitions)

    @cached_property
    def parts(self) -> Mapping[str, Integers]:
        """The part of the table that each slice of a column lies in; shapes (slices,)."""
        return {
            partition.name: partition.index(self.slices[partition.name].starts)
            for partition in self.partitions
        }

    def over_cells(self, numbers: Mapping[str, Floats]) -> Floats:
        """The mean (cells,) in each cell of a product of ``numbers`` (slices,) of columns."""
        product = np.ones(())
        for name in self.names:
            product = np.multiply.outer(product, self._means(name, numbers.get(name)))
        return product.ravel()

    def total(self, weights: Floats) -> float:
        """The sum over rows of weights (cells,)."""
        return float(weights @ self.counts)

    def noise(self, first: Mapping[str, Floats], second: Mapping[str, Floats]) -> float:
        """The covariance, by noise alone, of the sums of two products of numbers of slices."""
        one, two = self.over_cells(first), self.over_cells(second)
        both = float((one * self.variances) @ two - (self.known @ one) @ (self.known @ two))
        for name in self.replicates:
            if name in first and name in second:
                both += float((self.replicated(name, first) * self.replicated(name, second)).mean())
        return both

    def replicated(self, name: str, numbers: Mapping[str, Floats]) -> Floats:
        """How much a sum differs with each replicate (bootstrap samples,) of a column's shares.

        Not at all where all values of a part count for the same.
        """
        if name not in numbers or self.resolves(name, numbers[name]):
            return np.zeros(_REPLICATES)
        replicates = self.replicates[name]()
        axis = self.names.index(name)
        counts = self.counts.reshape([partition.size for partition in self.partitions])
        for summed in reversed(range(counts.ndim)):
            if summed != axis:
                column = self.names[summed]
                counts = np.moveaxis(counts, summed, -1) @ self._means(column, numbers.get(column))
        usual = self._means(name, numbers[name])
        parts, floor = self.parts[name], _FLOOR * self.slices[name].widths
        weights = replicates + floor / self.slices[name].column.size
        onto = np.zeros((len(parts), len(usual)))
        onto[np.arange(len(parts)), parts] = 1.0
        means = ((weights * numbers[name]) @ onto) / (weights @ onto)
        return np.asarray((means - usual) @ counts)

    def resolves(self, name: str, numbers: Floats) -> bool:
        """Whether all values of each part of a column have the same number."""
        parts = self.parts[name]
        first = np.unique(parts, return_index=True)[1]
        return bool((numbers == numbers[first][parts]).all())

    def _means(self, name: str, numbers: Floats | None) -> Floats:
        """The mean number (parts,) in each part of a column; 1 where it has none."""
        slices, parts = self.slices[name], self.parts[name]
        if numbers is None:
            return np.ones(int(parts.max()) + 1)
        shares = slices.shares + _FLOOR * slices.widths / slices.column.size
        return np.bincount(parts, weights=shares * numbers) / np.bincount(parts, weights=shares)


def joint_counts(
    released: ReleasedCounts,
    names: Sequence[str],
    slices: Mapping[str, Histogram],
    replicates: Replicates,
) -> FittedCounts | None:
    """The least-squares counts of the finest released table of all these columns; None without any.

    What other tables say enters as sums, so that they lower its noise. To take the table with the
    narrowest intervals instead would prefer coarse parts, and so what lies inside them unseen: 89 %
    of 72 intervals of a mean held it in place of 95 % of 103.
    """
    tables = [*_histograms(released), *released.tables]
    bases = [(table.project(names), table) for table in tables if set(names) <= set(table.names)]
    if not bases:
        return None
    finest, whole = max(bases, key=lambda base: (base[0].counts.size, -base[0].variance))
    joint = _combined(finest, [table for table in tables if table is not whole], slices)
    inside = {name: replicates[name] for name in names if name in replicates}
    return replace(joint, replicates=inside)


def replicates_of(
    released: ReleasedCounts, names: Sequence[str], slices: Mapping[str, Histogram]
) -> Replicates:
    """What draws the bootstrap shares (samples, slices) of the columns that are numbers."""

    def drawn(name: str) -> Floats:
        return _over_slices(slices[name], _replicates(released, name))

    return {
        name: cache(partial(drawn, name)) for name in names if isinstance(slices[name].column, Grid)
    }


def _replicates(released: ReleasedCounts, name: str) -> list[tuple[Partition, Floats]]:
    """Cells of a column and their shares, estimated again from the released ones with new noise."""
    rng, counted, bins = np.random.default_rng(SEED), released.histograms[name], released.bins[name]
    single = counted.values is not None and counted.values.partitions[0].separate
    values = counted.values if single else None
    tables = [*counted.coarser, counted.cells, *([values] if values else [])]
    expected = [_expected(table, bins, released.rows) for table in tables]
    samples = []
    for _ in range(_REPLICATES):
        again = [
            table.with_counts(counts + rng.normal(0, table.noise, len(counts)))
            for table, counts in zip(tables, expected, strict=True)
        ]
        cells, coarser = again[len(counted.coarser)], tuple(again[: len(counted.coarser)])
        histogram = HistogramCounts(cells, coarser, again[-1] if values else counted.values)
        samples.append(histogram.shares(released.rows))
    return samples


def _expected(table: NoisyTable, bins: Histogram, rows: int) -> Floats:
    """The counts (cells,) of a histogram's table by the released shares, without noise."""
    (partition,) = table.partitions
    starts = np.sort(np.concatenate([partition.starts, bins.starts]), kind="stable")
    pieces = intervals(bins.column, starts[np.diff(starts, prepend=-1) > 0])
    whole = bins.cell_index(pieces.starts)
    shares = bins.shares[whole] * pieces.widths / bins.widths[whole]
    index = partition.index(pieces.starts)
    counts = np.bincount(index, weights=shares, minlength=partition.size)
    return np.asarray(rows * counts, dtype=np.float64)


def _over_slices(slices: Histogram, samples: Sequence[tuple[Partition, Floats]]) -> Floats:
    """Shares of cells of several partitions, even inside cells, as shares of slices."""
    wholes = [cells.cell_index(slices.starts) for cells, _ in samples]
    return np.array(
        [
            shares[whole] * slices.widths / cells.widths[whole]
            for (cells, shares), whole in zip(samples, wholes, strict=True)
        ]
    )


def _histograms(released: ReleasedCounts) -> list[NoisyTable]:
    """The tables of single columns, but for those of single values."""
    counted = released.histograms.values()
    return [table for each in counted for table in (each.cells, *each.coarser)]


def _combined(
    base: NoisyTable, tables: Sequence[NoisyTable], slices: Mapping[str, Histogram]
) -> FittedCounts:
    sums = _sums(base, tables, slices)
    counts, variances = base.counts.ravel().astype(np.float64), base.variances.ravel()
    known = np.zeros((0, len(counts)))
    if sums:
        matrix = np.concatenate([each.matrix for each in sums])
        spread = matrix * variances
        covariance = spread @ matrix.T + np.diag(np.concatenate([each.variances for each in sums]))
        root = cholesky(covariance, lower=True)
        known = solve_triangular(root, spread, lower=True)
        missing = np.concatenate([each.counts for each in sums]) - matrix @ counts
        counts = counts + known.T @ solve_triangular(root, missing, lower=True)
    return FittedCounts(slices, base.partitions, counts, variances, known)


@dataclass(frozen=True)
class _Sums:
    """Sums of cells that another table observes; shapes (sums, cells), (sums,), (sums,)."""

    matrix: Floats
    counts: NDArray[Any]
    variances: NDArray[Any]


def _sums(
    base: NoisyTable, tables: Sequence[NoisyTable], slices: Mapping[str, Histogram]
) -> list[_Sums]:
    """What other tables say of sums of cells: those of most columns and least noise first."""
    shared = [(table, [name for name in base.names if name in table.names]) for table in tables]
    projected = [table.project(names) for table, names in shared if names]
    order = sorted(projected, key=lambda table: (-len(table.names), table.variance))
    room = min(_MOST_SUMS, _MOST_NUMBERS // base.counts.size)
    chosen: list[_Sums] = []
    for table in order:
        joint = {name: _common(base, table, slices[name], name) for name in table.names}
        size = math.prod(int(common[0].max()) + 1 for common in joint.values())
        if size <= room:
            chosen.append(_observed(base, table, joint))
            room -= size
    return chosen


Common = tuple[Integers, Integers]
"""The common part of each part of one partition, and of each part of another."""


def _common(base: NoisyTable, table: NoisyTable, slices: Histogram, name: str) -> Common:
    """The finest parts that are whole parts of both tables."""
    first, second = (
        next(partition for partition in each.partitions if partition.name == name)
        for each in (base, table)
    )
    size = first.size + second.size
    ends = first.index(slices.starts), first.size + second.index(slices.starts)
    links = coo_array((np.ones(slices.cells), ends), shape=(size, size))
    labels = connected_components(links, directed=False)[1].astype(np.int64)
    return labels[: first.size], labels[first.size :]


def _observed(base: NoisyTable, table: NoisyTable, joint: Mapping[str, Common]) -> _Sums:
    """The sums of cells of a base, by their ``joint`` parts with a table that shares all of its."""
    parts = [joint[partition.name][1] for partition in table.partitions]
    number = _numbered(parts)
    size = int(number.max()) + 1
    of_cell = _numbered(
        [
            joint[partition.name][0] if partition.name in joint else np.zeros(partition.size, int)
            for partition in base.partitions
        ]
    )
    matrix = np.zeros((size, base.counts.size))
    matrix[of_cell, np.arange(base.counts.size)] = 1.0
    counts = np.bincount(number, weights=table.counts.ravel())
    return _Sums(matrix, counts, np.bincount(number, weights=table.variances.ravel()))


def _numbered(parts: Sequence[Integers]) -> Integers:
    """A number for each cell (cells,) of axes whose parts are so numbered, in their order."""
    number = np.zeros((), np.int64)
    for of_axis in parts:
        number = np.add.outer(number * (int(of_axis.max()) + 1), of_axis)
    return np.asarray(number, np.int64).ravel()
