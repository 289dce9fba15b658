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

Values inside a part of a table follow the released histogram of their column. How far the histogram
may be off is estimated by a parametric bootstrap: noise is drawn again, and shares are estimated
again. The histogram is among the sums, so the same noise moves counts, and the two errors add up or
cancel. Source: Ferrando, Wang, Sheldon, "Parametric bootstrap for differentially private confidence
intervals" (AISTATS 2022, arXiv 2006.07749).

Privacy: released numbers alone, so post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from cloister.arrays import Floats, Integers
from cloister.models.answers.groups import REPLICATES, DrawReplicates
from cloister.models.core.bins import Histogram
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.core.released_counts import ReleasedCounts
from cloister.schema.partition import Partition

_MOST_SUMS = 600
"""Most sums that other tables observe: their square is solved, in a tenth of a second."""

_MOST_NUMBERS = 4_000_000
"""Most sums times cells: 32 MB. Of a larger table only sums of few parts are used."""

_FLOOR = 1e-9
"""Share added to each slice in proportion to its width, so that parts without mass have weights."""

_ROUNDING = 1e-12
"""Part of the largest number by which equal ones differ from their mean."""

Numbers = Mapping[str, Floats]
"""Numbers of the slices of columns, (slices,) each, whose product a row counts for."""


@dataclass(frozen=True, eq=False)
class FittedCounts:
    """Least-squares counts of a table over ``slices``, one axis a column.

    ``counts`` (cells,) have the covariance ``diag(variances) - known' known``; shape of ``known``:
    (sums, cells). ``replicates`` give the shares of slices that columns might have had, and
    ``moved`` by how much the counts (samples, cells) differ with the noise of such a sample; both
    are found where they are needed. ``dependence`` is how much columns may depend on each other
    beyond the counts, the root of a mean-square contingency: inside parts alone, if they were
    counted ``together``. ``placed`` gives the slice (slices,) in which all rows of a slice of a
    column are taken to lie; of a column without, each lies in its own.
    """

    slices: Mapping[str, Histogram]
    partitions: tuple[Partition, ...]
    counts: Floats
    variances: Floats
    known: Floats
    replicates: DrawReplicates = field(default_factory=dict)
    moved: Callable[[str], Floats] = field(default=lambda _: np.zeros(0))
    dependence: float = 0.0
    together: bool = True
    placed: Mapping[str, Integers] = field(default_factory=dict)

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

    def over_cells(self, numbers: Numbers) -> Floats:
        """The mean (cells,) in each cell of a product of ``numbers`` (slices,) of columns."""
        product = np.ones(())
        for name in self.names:
            product = np.multiply.outer(product, self._means(name, numbers.get(name)))
        return product.ravel()

    def total(self, weights: Floats) -> float:
        """The sum over rows of weights (cells,)."""
        return float(weights @ self.counts)

    def noise(self, first: Numbers, second: Numbers) -> float:
        """The covariance, by noise alone, of the sums of two products of numbers of slices."""
        one, two = self.over_cells(first), self.over_cells(second)
        both = float((one * self.variances) @ two - (self.known @ one) @ (self.known @ two))
        for name in self.replicates:
            if name in first and name in second:
                both += self._of_histogram(name, (first, one), (second, two))
        return both

    def _of_histogram(
        self, name: str, first: tuple[Numbers, Floats], second: tuple[Numbers, Floats]
    ) -> float:
        """What noise inside parts adds to a covariance of two sums: by numbers, and over cells."""
        inside = [self.replicated(name, numbers) for numbers, _ in (first, second)]
        if not any(each.any() for each in inside):
            return 0.0
        between = [self.moved(name) @ cells for _, cells in (first, second)]
        both = inside[0] * inside[1] + inside[0] * between[1] + between[0] * inside[1]
        return float(both.mean())

    def replicated(self, name: str, numbers: Numbers) -> Floats:
        """How much a sum differs with each replicate (bootstrap samples,) of a column's shares.

        Not at all where all values of a part count for the same.
        """
        if name not in numbers or self.resolves(name, numbers[name]):
            return np.zeros(REPLICATES)
        counts, usual = self._by_part(name, numbers), self._means(name, numbers[name])
        replicates = self.replicates[name]().shares
        parts, floor = self.parts[name], _FLOOR * self.slices[name].widths
        weights = replicates + floor / self.slices[name].column.size
        onto = np.zeros((len(parts), len(usual)))
        onto[np.arange(len(parts)), parts] = 1.0
        means = ((weights * self.numbers_at(name, numbers[name])) @ onto) / (weights @ onto)
        return np.asarray((means - usual) @ counts)

    def rows_of(self, name: str, numbers: Numbers) -> Floats:
        """The sum over rows (slices,) of ``numbers`` in each slice of a column."""
        parts, shares = self.parts[name], self._shares(name)
        whole = np.bincount(parts, weights=shares)[parts]
        remaining = {key: each for key, each in numbers.items() if key != name}
        counts = self._by_part(name, remaining)[parts] * shares / whole
        return np.asarray(counts * self.numbers_at(name, numbers.get(name, np.ones(len(parts)))))

    def with_rows_in(self, name: str, cell: Integers, chosen: int) -> FittedCounts:
        """The same counts, all rows of slices of a ``cell`` taken to lie in a ``chosen`` one."""
        placed = self.placed.get(name, np.arange(self.slices[name].cells)).copy()
        placed[cell] = chosen
        return replace(self, placed={**self.placed, name: placed})

    def spread_inside(self, name: str, numbers: Floats, remaining: Numbers) -> tuple[float, float]:
        """How numbers (slices,) of a column differ inside parts, summed over rows.

        The square of the difference from the part's mean, over all rows, and the greatest
        difference of a slice, over rows that count by the numbers ``remaining``.
        """
        parts, mean = self.parts[name], self._means(name, numbers)
        placed = self.numbers_at(name, numbers)
        away = np.abs(placed - mean[parts])
        away[away <= _ROUNDING * np.abs(placed).max(initial=0.0)] = 0.0
        farthest = np.zeros(len(mean))
        np.maximum.at(farthest, parts, away)
        squares = self._means(name, np.square(numbers)) - np.square(mean)
        inside = float(np.maximum(squares * self._by_part(name, {}), 0.0).sum())
        return inside, float(np.maximum(farthest * self._by_part(name, remaining), 0.0).sum())

    def _by_part(self, name: str, numbers: Numbers) -> Floats:
        """The sum over rows (parts,) in each part of a column of the numbers of all others."""
        axis = self.names.index(name)
        counts = self.counts.reshape([partition.size for partition in self.partitions])
        for summed in reversed(range(counts.ndim)):
            if summed != axis:
                column = self.names[summed]
                counts = np.moveaxis(counts, summed, -1) @ self._means(column, numbers.get(column))
        return np.asarray(counts, dtype=np.float64)

    def resolves(self, name: str, numbers: Floats) -> bool:
        """Whether all values of each part of a column have the same number."""
        parts, numbers = self.parts[name], self.numbers_at(name, numbers)
        first = np.unique(parts, return_index=True)[1]
        return bool((numbers == numbers[first][parts]).all())

    def _means(self, name: str, numbers: Floats | None) -> Floats:
        """The mean number (parts,) in each part of a column; 1 where it has none."""
        parts = self.parts[name]
        if numbers is None:
            return np.ones(int(parts.max()) + 1)
        shares, numbers = self._shares(name), self.numbers_at(name, numbers)
        return np.bincount(parts, weights=shares * numbers) / np.bincount(parts, weights=shares)

    def numbers_at(self, name: str, numbers: Floats) -> Floats:
        """The numbers (slices,) of where the rows of each slice are taken to lie."""
        return numbers[self.placed[name]] if name in self.placed else numbers

    def _shares(self, name: str) -> Floats:
        """The shares (slices,) of slices, none of them 0."""
        slices = self.slices[name]
        return np.asarray(slices.shares + _FLOOR * slices.widths / slices.column.size)


def joint_counts(
    released: ReleasedCounts,
    names: Sequence[str],
    slices: Mapping[str, Histogram],
    replicates: DrawReplicates,
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
    base, whole = max(bases, key=lambda base: (base[0].counts.size, -base[0].variance))
    sums = _sums(base, [table for table in tables if table is not whole], slices)
    solution = _Solution.of(base, sums)

    def moved(name: str) -> Floats:
        drawn = replicates[name]().noise

        def noise_of(table: NoisyTable, cells: int) -> Floats:
            none = np.zeros((REPLICATES, cells))
            return next((noise for each, noise in drawn if each is table), none)

        observed = [each.observe(noise_of(each.table, len(each.number))) for each in sums]
        return solution.settle(noise_of(whole, base.counts.size), observed)

    counts = solution.settle(base.counts.ravel(), [each.counts for each in sums])
    inside = {name: replicates[name] for name in names if name in replicates}
    variances = base.variances.ravel()
    return FittedCounts(
        slices, base.partitions, counts, variances, solution.known, inside, cache(moved)
    )


def _histograms(released: ReleasedCounts) -> list[NoisyTable]:
    """The tables of single columns, but for those of single values."""
    counted = released.histograms.values()
    return [table for each in counted for table in (each.cells, *each.coarser)]


@dataclass(frozen=True)
class _Sums:
    """Sums of cells that another ``table`` observes; shapes (sums, cells), (sums,), (sums,).

    ``number`` (cells of the table,) is the sum that each of its cells is in.
    """

    table: NoisyTable
    number: Integers
    matrix: Floats
    counts: Floats
    variances: Floats

    def observe(self, counts: Floats) -> Floats:
        """The sums (samples, sums) of counts (samples, cells of the table)."""
        samples = [np.bincount(self.number, each, len(self.counts)) for each in counts]
        return np.array(samples, dtype=np.float64)


@dataclass(frozen=True)
class _Solution:
    """The least squares of a base: ``matrix`` of all sums, the ``root`` of their covariance."""

    matrix: Floats
    root: Floats
    known: Floats

    @classmethod
    def of(cls, base: NoisyTable, sums: Sequence[_Sums]) -> _Solution:
        empty = np.zeros((0, base.counts.size))
        matrix = np.concatenate([empty, *(each.matrix for each in sums)])
        spread = matrix * base.variances.ravel()
        observed = np.concatenate([np.zeros(0), *(each.variances for each in sums)])
        root = cholesky(spread @ matrix.T + np.diag(observed), lower=True)
        return cls(matrix, root, solve_triangular(root, spread, lower=True))

    def settle(self, base: Floats, observed: Sequence[Floats]) -> Floats:
        """The least-squares counts (..., cells) of those of the base and of sums (..., sums)."""
        missing = np.concatenate([base[..., :0], *observed], axis=-1) - base @ self.matrix.T
        scaled = solve_triangular(self.root, missing.T, lower=True).T
        return np.asarray(base + scaled @ self.known, dtype=np.float64)


def _sums(
    base: NoisyTable, tables: Sequence[NoisyTable], slices: Mapping[str, Histogram]
) -> list[_Sums]:
    """What other tables say of sums of cells: those of most columns and least noise first."""
    shared = [(table, [name for name in base.names if name in table.names]) for table in tables]
    projected = [(table.project(names), table) for table, names in shared if names]
    order = sorted(projected, key=lambda both: (-len(both[0].names), both[0].variance))
    room = min(_MOST_SUMS, _MOST_NUMBERS // base.counts.size)
    chosen: list[_Sums] = []
    for table, whole in order:
        joint = {name: _common(base, table, slices[name], name) for name in table.names}
        size = math.prod(int(common[0].max()) + 1 for common in joint.values())
        if size <= room:
            chosen.append(_observed(base, table, whole, joint))
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


def _observed(
    base: NoisyTable, table: NoisyTable, whole: NoisyTable, joint: Mapping[str, Common]
) -> _Sums:
    """The sums of cells of a base, by their ``joint`` parts with a projection of a whole table."""
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
    counts, variances = (
        np.bincount(number, weights=each.ravel()).astype(np.float64)
        for each in (table.counts, table.variances)
    )
    return _Sums(whole, number, matrix, counts, variances)


def _numbered(parts: Sequence[Integers]) -> Integers:
    """A number for each cell (cells,) of axes whose parts are so numbered, in their order."""
    number = np.zeros((), np.int64)
    for of_axis in parts:
        number = np.add.outer(number * (int(of_axis.max()) + 1), of_axis)
    return np.asarray(number, np.int64).ravel()
