"""One fit of structure and tables as the paper prints it.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), sections 3.3 and 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.arrays import Floats
from cloister.models.constrained import CUT_OFF
from cloister.models.core.bins import Histogram
from cloister.models.deniability.network import (
    BayesianNetwork,
    Correlations,
    NetworkModel,
    ParentLimits,
    Parents,
    choose_parents,
    dependency_order,
    in_steps,
    symmetrical_uncertainty,
)
from cloister.models.deniability.network_fit import NetworkDoors, constrain
from cloister.models.deniability.paper.plan import DeniabilityPaperParameters, most_costs
from cloister.models.task import Task
from cloister.privacy.mechanisms.noise import DiscreteLaplace, GridNoise
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.entropies import Entropies, paper_entropy_bound
from cloister.schema.partition import Partition, declared_cells, one_part

_SEED = 20_170_103
"""Public seed of the multinomials drawn after the noise: post-processing."""

_PRINTED = (
    CUT_OFF,
    "parents of each attribute are chosen by correlations from noisy entropies",
    "conditional tables are drawn from Dirichlet distributions, given noisy counts",
)

_BUCKETS = 8
"""Buckets of an attribute with ordered values, as the paper's for ages."""

_ALPHA = 1.0
"""Hyper-parameter of each value: a uniform Dirichlet distribution."""


@dataclass(frozen=True)
class PaperFit:
    """The steps of a fit that query the data."""

    doors: NetworkDoors
    task: Task
    sequence: tuple[str, ...]
    parameters: DeniabilityPaperParameters

    def train(self) -> NetworkModel:
        """The structure from noisy entropies, then the tables, then the feasible sets."""
        parents = self._parents()
        order = dependency_order(parents, self.sequence)
        rng = np.random.default_rng(_SEED)
        counts = {name: self._counts(name, parents[name]) for name in order}
        tables = {name: in_steps(drawn_multinomials(table, rng)) for name, table in counts.items()}
        bins = {name: _every_cell(self._cells[name], _shares(counts[name])) for name in order}
        coarsenings = {name: bucketise(histogram) for name, histogram in bins.items()}
        network = BayesianNetwork(order, bins, coarsenings, parents, tables)
        return constrain(self.task, network, len(order), {}, _PRINTED)

    @cached_property
    def _cells(self) -> dict[str, Partition]:
        return {name: declared_cells(self.task.domain[name]) for name in self.sequence}

    @cached_property
    def _buckets(self) -> dict[str, Partition]:
        """bkt() of each attribute, from public cells alone."""
        return {
            name: bucketise(_every_cell(partition, np.full(partition.size, 1 / partition.size)))
            for name, partition in self._cells.items()
        }

    def _parents(self) -> Parents:
        if not self.parameters.structure_rows:
            return dict.fromkeys(self.sequence, ())
        rows = self._noisy_rows()
        single = np.array([self._entropy((self._cells[n],), rows) for n in self.sequence])
        bucket = np.array([self._entropy((self._buckets[n],), rows) for n in self.sequence])
        joint = np.zeros((len(single), len(single)))
        for row, name in enumerate(self.sequence):
            for column, parent in enumerate(self.sequence):
                if row != column:
                    of = (self._cells[name], self._buckets[parent])
                    joint[row, column] = self._entropy(of, rows)
        target = symmetrical_uncertainty(single[:, None], bucket[None, :], joint)
        np.fill_diagonal(target, 0.0)
        sizes = [self._buckets[name].size for name in self.sequence]
        most = most_costs([self._cells[name].size for name in self.sequence])
        limits = ParentLimits(sizes, most, np.zeros_like(target))
        # of two parents, each with the other in buckets: the entropies that there are
        between = (target + target.T) / 2
        return choose_parents(Correlations(self.sequence, target, between), limits)

    def _noisy_rows(self) -> int:
        """The noisy number of rows, equation (10)."""
        first = self._cells[self.sequence[0]]
        everyone = one_part(first.column)
        mechanism = DiscreteLaplace(self.parameters.rows_epsilon)
        answer = self.doors.structure.answer(PartitionCounts((everyone,)), mechanism, "rows")
        return max(int(answer[0]), 3)

    def _entropy(self, of: tuple[Partition, ...], rows: int) -> float:
        """A noisy entropy, equations (8) and (9)."""
        noise = GridNoise(DiscreteLaplace(self.parameters.entropy_epsilon))
        query = Entropies((of,), rows, paper_entropy_bound(rows))
        label = f"entropy {' x '.join(f'{part.name} ({part.size})' for part in of)}"
        return float(self.doors.structure.answer(query, noise, label)[0])

    def _counts(self, name: str, parents: tuple[str, ...]) -> Floats:
        """The noisy counts (configurations, values) of one attribute, equation (14)."""
        partitions: list[Partition] = [*(self._buckets[p] for p in parents), self._cells[name]]
        mechanism = DiscreteLaplace(self.parameters.count_epsilon)
        label = f"table {' x '.join(part.name for part in partitions)}"
        query = PartitionCounts(tuple(partitions))
        noisy = self.doors.parameters.answer(query, mechanism, label)
        return np.maximum(noisy.reshape(-1, self._cells[name].size), 0).astype(np.float64)


def drawn_multinomials(counts: Floats, rng: np.random.Generator) -> Floats:
    """Shares (configurations, values) drawn from Dirichlet distributions, equations (11), (12)."""
    draws = rng.standard_gamma(counts + _ALPHA)
    return np.asarray(draws / draws.sum(axis=1, keepdims=True))


def bucketise(bins: Histogram) -> Partition:
    """bkt(): at most eight buckets of equal width of ordered values, besides missing ones."""
    column, size = bins.column, bins.size
    missing = 0 if column.null_code is None else 1
    if column.kind == "nominal" or size - missing <= _BUCKETS:
        return bins
    parts = np.arange(size, dtype=np.int64) * _BUCKETS // (size - missing)
    return bins.coarsen(np.minimum(parts, _BUCKETS - 1 + missing))


def _every_cell(cells: Partition, shares: Floats) -> Histogram:
    """Every declared cell as a bin."""
    return Histogram.over(cells, cells.parts, shares)


def _shares(counts: Floats) -> Floats:
    """The share of rows of each value, by the noisy counts of all configurations."""
    whole = counts.sum(axis=0) + _ALPHA
    return np.asarray(whole / whole.sum())
