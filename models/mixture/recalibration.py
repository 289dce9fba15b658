"""Numbers that nearly follow each other: rows that the fit puts far off are drawn less often.

A mixture spreads a nearly functional pair: a part of its mass lies in cells where a measured table
has next to nothing. Each of these cells holds less than the noise, all of them together far more.
So the cells of a measured table are put into groups by their lift, the mass that the model expects
over that of independent numbers, and each group's mass is moved to the measured one as far as noise
does not explain the difference. Rows are thinned by what that changes. Post-processing.

Sources: James, Stein, "Estimation with quadratic loss" (1961), for how far; Deming, Stephan, "On a
least squares adjustment of a sampled frequency table" (1940), for the histograms, which stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.discretization.bins import Bins, Coarsening, fine
from cloister.models.mixture.fitting.optimizer import NoisyMarginal
from cloister.models.mixture.fitting.products import Mixture
from cloister.models.mixture.within_bins import related_numbers
from cloister.models.sampling.whole_tables import PairChange

_LEAST_CORRELATION = 0.8
"""Correlation of normal scores from which on two numbers nearly follow each other."""

_GROUPS = 12
"""Groups of cells of a table; with 6 and with 24 correlations differed by less than 0.005."""

_SURE = 3.0
"""Deviations of the noise above which a cell certainly holds rows."""

_MOST_TIMES = 4.0
"""Times by which a cell may become more frequent at most: the pool has few more of its rows."""

_TURNS = 50
"""Turns of the fit to both histograms."""

_LEAST_MASS = 1e-12
"""Mass, or rows, that are divided by at least."""


@dataclass(frozen=True)
class MeasuredPair:
    """A noisy joint table of two attributes, over parts of their bins.

    Shapes: ``first`` and ``second`` the part of each bin, ``counts`` and ``variances`` (parts,
    parts), in rows.
    """

    first: Integers
    second: Integers
    counts: Floats
    variances: Floats

    @classmethod
    def of(cls, table: NoisyMarginal, first: str, second: str) -> MeasuredPair:
        """The sums of a table over all attributes but two."""
        axes = {own.name: axis for axis, own in enumerate(table.coarsenings)}
        others = tuple(axis for name, axis in axes.items() if name not in (first, second))
        variances = np.broadcast_to(np.square(table.deviation), table.counts.shape)
        counts, variances = table.counts.sum(others), variances.sum(others)
        if axes[first] > axes[second]:
            counts, variances = counts.T, variances.T
        parts: list[Coarsening] = [table.coarsenings[axes[name]] for name in (first, second)]
        return cls(parts[0].parts, parts[1].parts, counts, variances)

    def expected(self, shares: Floats) -> Floats:
        """The parts' sums (parts, parts) of joint shares (bins, bins)."""
        sums = np.zeros(self.counts.shape)
        np.add.at(sums, (self.first[:, None], self.second[None]), shares)
        return sums


def recalibrate(shares: Floats, tables: Sequence[MeasuredPair], rows: int) -> Floats:
    """Joint shares (bins, bins) of a model of ``rows`` rows, nearer to measured tables.

    Their histograms stay as they are.
    """
    found = shares
    for table in tables:
        times = _times_by_lift(table.expected(found) * rows, table, rows)
        moved = found * times[table.first[:, None], table.second[None]]
        found = _with_histograms(moved, shares.sum(1), shares.sum(0))
    return found


def _times_by_lift(expected: Floats, table: MeasuredPair, rows: int) -> Floats:
    """How much more frequent each cell (parts, parts) of ``expected`` rows becomes."""
    alone = np.outer(expected.sum(1), expected.sum(0)) / rows
    lift = (expected / np.maximum(alone, _LEAST_MASS)).ravel()
    group = np.empty(lift.size, dtype=np.int64)
    group[np.argsort(lift, kind="stable")] = np.arange(lift.size) * _GROUPS // lift.size
    group[(table.counts > _SURE * np.sqrt(table.variances)).ravel()] += _GROUPS
    sums, counts, variances = (
        np.bincount(group, weights=own.ravel(), minlength=2 * _GROUPS)
        for own in (expected, table.counts, table.variances)
    )
    error = counts - sums
    believed = 1.0 - np.minimum(variances / np.maximum(np.square(error), _LEAST_MASS), 1.0)
    wanted = np.maximum(sums + believed * error, 0.0)
    times = np.where(sums > _LEAST_MASS, wanted / np.maximum(sums, _LEAST_MASS), 1.0)
    return np.asarray(times[group].reshape(expected.shape))


def _with_histograms(shares: Floats, first: Floats, second: Floats) -> Floats:
    """Joint shares (bins, bins) in proportion to others, with histograms (bins,) of their own."""
    for _ in range(_TURNS):
        shares = shares * (first / np.maximum(shares.sum(1), _LEAST_MASS))[:, None]
        shares = shares * (second / np.maximum(shares.sum(0), _LEAST_MASS))
    return shares


def pair_changes(
    mixture: Mixture,
    bins: Mapping[str, Bins],
    names: Collection[str],
    tables: Sequence[NoisyMarginal],
    rows: int,
) -> tuple[PairChange, ...]:
    """What measured tables change of pairs of numbers, of ``names``, that nearly follow each other.

    ``tables`` are those that the mixture of ``rows`` rows was fitted to. A number is in one pair at
    most; what a hard constraint joins is exact.
    """
    factor_of = mixture.layout.factor_of
    taken: set[str] = set()
    changes = []
    for first, second in related_numbers(mixture, bins, _LEAST_CORRELATION):
        held = [MeasuredPair.of(own, first, second) for own in tables if _has(own, first, second)]
        free = {first, second} <= set(names) and taken.isdisjoint((first, second))
        if held and free and factor_of[first] != factor_of[second]:
            taken |= {first, second}
            shares = mixture.marginal([fine(bins[first]), fine(bins[second])])
            times = recalibrate(shares, held, rows) / np.maximum(shares, _LEAST_MASS)
            sides = [mixture.layout.factors[factor_of[name]].attributes for name in (first, second)]
            changes.append(PairChange(first, second, np.minimum(times, _MOST_TIMES), *sides))
    return tuple(changes)


def _has(table: NoisyMarginal, *names: str) -> bool:
    return set(names) <= {own.name for own in table.coarsenings}
