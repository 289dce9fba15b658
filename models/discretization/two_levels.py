"""Histograms that are counted twice: in wide cells, and in the declared cells, which split these.

A range of wide cells sums few noisy counts, so the distribution function and everything measured
over coarse bins gain; inside a wide cell the declared ones say how its rows are spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.models.discretization.bins import Bins
from cloister.models.discretization.denoising import (
    Estimate,
    NoisyCells,
    apart,
    estimate_shares,
    neighbourhood_means,
    project_counts,
    stein_risk,
)
from cloister.schema.columns import Codes, Grid
from cloister.schema.domain import Cells

Counts = Integers | Floats

_WIDE = 16
"""Wide cells of an attribute, special and missing values apart."""

MOST_ONCE = 24
"""Ordinary cells of an attribute at most that are counted once: more gain by wide cells."""

_LEAST_ROWS = 1e-6
"""Rows of a wide cell below which how they are spread does not matter."""

_LEAST_SHARE = 1e-12
"""Share of all rows that each cell has at least where shares are weights."""


@dataclass(frozen=True)
class TwoLevels:
    """The ``cells`` of an ordered attribute, and ``wide`` ones that hold several of them each."""

    cells: Cells
    wide: Cells

    @classmethod
    def of(cls, cells: Cells) -> TwoLevels | None:
        """Wide cells of about equally many cells; None where there are too few cells."""
        alone = apart(cells)
        ordinary = int((~alone).sum())
        if not isinstance(cells.column, Grid) or ordinary <= MOST_ONCE:
            return None
        wide = (np.cumsum(~alone) - 1) * _WIDE // ordinary
        begins = alone | (np.diff(np.where(alone, -1, wide), prepend=-2) != 0)
        return cls(cells, Cells(cells.column, cells.starts[begins]))

    @cached_property
    def of_cell(self) -> Codes:
        """The wide cell of each cell; shape (cells,)."""
        return self.wide.of(self.cells.starts).astype(np.int64)

    @cached_property
    def members(self) -> Floats:
        """The number of cells in each wide cell; shape (wide cells,)."""
        return np.bincount(self.of_cell).astype(np.float64)

    def total_deviations(self, deviation: float) -> Floats:
        """Standard deviations (wide cells,) of totals that both counts give together.

        ``deviation`` is that of a single count of either kind.
        """
        return deviation * np.sqrt(self.members / (self.members + 1.0))

    def estimate_shares(
        self, counts: Counts, wide_counts: Counts, deviation: float, rows: int
    ) -> Floats:
        """The share of rows in each cell, (cells,), from noisy counts of both kinds.

        Totals of wide cells are means weighted by inverse variance. All noise has the standard
        deviation ``deviation``, in rows, and ``rows`` is the public number of rows.
        """
        sums = np.bincount(self.of_cell, weights=counts)
        totals = (wide_counts + sums / self.members) / (1.0 + 1.0 / self.members)
        typical = float(np.sqrt(np.mean(np.square(self.total_deviations(deviation)))))
        held = estimate_shares(totals, typical, self.wide, rows) * rows
        corrected = counts + ((held - sums) / self.members)[self.of_cell]
        split = self._split(NoisyCells(corrected, apart(self.cells), None, deviation, rows), held)
        return split / split.sum()

    def _split(self, noisy: NoisyCells, held: Floats) -> Floats:
        """Counts (cells,) of the rows ``held`` (wide cells,) in each wide cell."""
        smooth, weights = neighbourhood_means(noisy.counts, noisy.deviation, noisy.alone)
        curved = self._curved(held)
        counts = held[self.of_cell] / self.members[self.of_cell]
        for at in np.flatnonzero((held > _LEAST_ROWS) & (self.members > 1)):
            own = self.of_cell == at
            counts[own] = best_split(
                noisy.counts[own],
                noisy.deviation,
                float(held[at]),
                (smooth[own], float(weights[own].sum() - weights[own].mean())),
                curved[own],
            )
        return counts

    def _curved(self, held: Floats) -> Floats:
        """Counts (cells,) that follow a parabola in each wide cell and have its rows, ``held``.

        At its ends the density is the mean of its own and its neighbour's, or goes on straight.
        """
        of_cell, density = self.of_cell, held / self.members
        left, right = _ends(density, apart(self.wide))
        bend = 3 * (left + right) - 6 * density
        first = np.searchsorted(of_cell, np.arange(len(held)))
        place = (np.arange(self.cells.size) - first[of_cell] + 0.5) / self.members[of_cell]
        heights = left[of_cell] + place * ((right - left - bend)[of_cell] + place * bend[of_cell])
        heights = np.maximum(heights, 0.0) + _LEAST_ROWS
        return heights * (held / np.bincount(of_cell, weights=heights))[of_cell]


def best_split(
    noisy: Floats, deviation: float, rows: float, smooth: tuple[Floats, float], curved: Floats
) -> Floats:
    """How ``rows`` rows of a wide cell are spread over its cells: the estimate of least risk.

    Of their ``noisy`` counts (cells,), these smoothed, with their degrees of freedom, a ``curved``
    shape (cells,) that the wide cells suggest, and no shape at all. Source of the risk:
    :mod:`cloister.models.discretization.denoising`.
    """
    means, freedom = smooth
    candidates = (
        (project_counts(means, deviation, rows).counts, freedom),
        (curved, 0.0),
        (np.full(len(noisy), rows / len(noisy)), 0.0),
    )
    estimates = [
        Estimate(counts, stein_risk(noisy, counts, deviation, free)) for counts, free in candidates
    ]
    own = project_counts(noisy, deviation, rows)
    return min((own, *estimates), key=lambda estimate: estimate.risk).counts


def _ends(density: Floats, alone: Booleans) -> tuple[Floats, Floats]:
    """The density at the left and the right end of each wide cell; shapes (wide cells,)."""
    joined = ~(alone[1:] | alone[:-1])
    between = np.where(joined, (density[1:] + density[:-1]) / 2, np.nan)
    left, right = np.append(np.nan, between), np.append(between, np.nan)
    straight = [np.where(np.isnan(other), density, 2 * density - other) for other in (right, left)]
    return (
        np.where(np.isnan(left), straight[0], left),
        np.where(np.isnan(right), straight[1], right),
    )


def bin_deviations(bins: Bins, levels: TwoLevels | None, deviation: float) -> Floats:
    """Standard deviations (bins,) of the noise of the bins' counts, in rows.

    ``deviation`` is that of a single count. A bin of whole wide cells has the noise of their
    totals, a part of one also that of the cells which split it. What holds little counts for
    little: in a tail, whose rows are known as well as those of the few cells at its beginning.
    """
    if levels is None:
        owner, totals = np.arange(bins.cells.size), np.full(bins.cells.size, deviation)
    else:
        owner = levels.wide.of(bins.cells.starts).astype(np.int64)
        totals = levels.total_deviations(deviation)
    shares = bins.shares + _LEAST_SHARE
    both, piece = np.unique(bins.of_cell * len(totals) + owner, return_inverse=True)
    of_bin, of_owner = np.divmod(both, len(totals))
    mass = np.bincount(piece, weights=shares)
    part = mass / np.bincount(owner, weights=shares)[of_owner]
    cells = np.square(mass) / np.bincount(piece, weights=np.square(shares))
    variance = np.square(part * totals[of_owner]) + deviation**2 * cells * (1.0 - part)
    weighted, squared, whole = (
        np.bincount(of_bin, weights=values) for values in (mass * variance, np.square(mass), mass)
    )
    return np.sqrt(weighted * whole / squared)
