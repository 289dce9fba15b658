"""The histograms of a fit: counted, pooled with those of an earlier release, and cut into bins."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cloister.models.discretization.bins import Bins, fine
from cloister.models.discretization.histograms import (
    HistogramCounts,
    TwoLevels,
    bin_deviations,
    bins_of_histogram,
    bins_of_values,
    count_histogram,
)
from cloister.models.mixture.fitting.optimizer import NoisyMarginal
from cloister.models.mixture.plan import MixtureParameters
from cloister.models.mixture.prior.pooling import pool_histograms, refine_bins
from cloister.models.mixture.prior.released import ReleasedNumbers
from cloister.models.task import Plan, Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.domain import declared_cells


@dataclass(frozen=True)
class Histograms:
    """The noisy counts of attributes, and the bins that they make.

    ``changes`` are those since an earlier release, of attributes that it has counted too.
    """

    counted: Mapping[str, HistogramCounts]
    bins: Mapping[str, Bins]
    changes: Mapping[str, float]

    def among(self, names: Collection[str]) -> Histograms:
        """Those of some attributes."""
        counted = {name: own for name, own in self.counted.items() if name in names}
        bins = {name: own for name, own in self.bins.items() if name in names}
        return Histograms(counted, bins, self.changes)

    def marginal(self, name: str, rows: int) -> NoisyMarginal:
        """The histogram of an attribute over its bins."""
        bins, counted = self.bins[name], self.counted[name]
        deviations = bin_deviations(bins, counted.levels, counted.deviation)
        return NoisyMarginal((fine(bins),), bins.mass * rows, deviations)


def measure_histograms(
    private: Door[TableRows],
    task: Task,
    plan: Plan[MixtureParameters],
    prior: ReleasedNumbers | None,
) -> Histograms:
    """The histograms of all attributes, pooled with those of a prior."""
    parameters = plan.parameters
    counted = {name: _count(private, task, name, parameters) for name in plan.sequence}
    changes: dict[str, float] = {}
    if prior:
        for name in counted.keys() & prior.histograms.keys():
            earlier, scale = prior.histograms[name], task.data_rows / prior.rows
            pooled = pool_histograms(counted[name], earlier, scale)
            counted[name], changes[name] = pooled.counted, pooled.change
    bins = {name: _bins_of(task, own, parameters, prior) for name, own in counted.items()}
    return Histograms(counted, bins, changes)


def _count(
    private: Door[TableRows], task: Task, name: str, parameters: MixtureParameters
) -> HistogramCounts:
    cells = DiscreteGaussian(parameters.histogram_noise[name])
    valued = name in parameters.valued
    values = DiscreteGaussian(parameters.noise["joint tables"]) if valued else cells
    declared = declared_cells(task.domain[name])
    return count_histogram(
        private,
        declared,
        cells,
        values if name in parameters.by_value else None,
        TwoLevels.of(declared) if name in parameters.two_levels else None,
    )


def _bins_of(
    task: Task,
    counted: HistogramCounts,
    parameters: MixtureParameters,
    prior: ReleasedNumbers | None,
) -> Bins:
    name = counted.cells.name
    make = bins_of_values if name in parameters.valued else bins_of_histogram
    bins = make(task, counted, parameters.groups)
    return refine_bins(prior.bins[name], bins) if prior and name in prior.bins else bins
