"""One fit of the network: histograms, joint tables, structure, tables, feasible sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from cloister.arrays import Floats
from cloister.models.constrained import estimated_histograms
from cloister.models.core.bins import Histogram, coarse
from cloister.models.core.costs import POOL_ROWS
from cloister.models.core.histograms import HistogramCounts, count_histogram
from cloister.models.core.noisy_table import NoisyTable, NoisyTables, count_table
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.deniability import network_plan
from cloister.models.deniability.network import (
    BayesianNetwork,
    Correlations,
    NetworkModel,
    ParentLimits,
    Parents,
    choose_parents,
    dependence,
    dependency_order,
    in_steps,
)
from cloister.models.feasible_sets.builder import compile_constraints
from cloister.models.feasible_sets.expected_shares import ExpectedShares
from cloister.models.protocol import Progress
from cloister.models.task import Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian, GridNoise
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.distances import Distances, ExpectedTable, distance_sensitivity
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.partition import Partition, declared_cells

_SEED = 20_170_101
"""Public seed of everything random that follows the noise."""

_ESTIMATED = (
    "parents of each attribute are chosen by noisy distances of pairs from independence",
    "conditional tables are posterior means of Dirichlet distributions, given noisy counts",
)

_CLEAR = 2.0
"""Standard deviations of noise above which a correlation counts."""


@dataclass(frozen=True)
class NetworkDoors:
    """The doors that the network is learned through: of structure and of parameters."""

    structure: Door[TableRows]
    parameters: Door[TableRows]


@dataclass(frozen=True)
class NetworkFit:
    """The steps of a fit of the network that query the data."""

    doors: NetworkDoors
    task: Task
    sequence: tuple[str, ...]
    parameters: network_plan.NetworkParameters
    progress: Progress

    def train(self) -> NetworkModel:
        """Histograms, joint tables, structure and conditional tables, then the feasible sets."""
        counted = {name: self._count(name) for name in self.sequence}
        bins = {name: self._bins(counts) for name, counts in counted.items()}
        tables = self._joint_tables(bins)
        coarsenings = {
            name: coarse(bins[name], network_plan.PARENT_PARTS) for name in self.parameters.inside
        }
        parents = self._parents(bins, coarsenings)
        families = self._families(bins, coarsenings, parents)
        network = self._network(bins, coarsenings, parents, families)
        steps = (*estimated_histograms(bins), *_ESTIMATED)
        model = constrain(self.task, network, len(self.parameters.inside), tables, steps)
        joint = (*tables.values(), *families.values())
        counts = ReleasedCounts(self.parameters.parameter_rows, counted, bins, joint)
        return replace(model, released_counts=counts)

    def _count(self, name: str) -> HistogramCounts:
        mechanism = DiscreteGaussian(self.parameters.noise["histograms"])
        by_value = mechanism if name in self.parameters.by_value else None
        cells = declared_cells(self.task.domain[name])
        return count_histogram(self.doors.parameters, cells, mechanism, by_value)

    def _bins(self, counted: HistogramCounts) -> Histogram:
        valued = counted.partition.name in self.parameters.valued
        make = counted.value_bins if valued else counted.bins
        return make(self._learned, network_plan.NETWORK_BINS)

    def _joint_tables(self, bins: Mapping[str, Histogram]) -> dict[tuple[str, ...], NoisyTable]:
        if not self.parameters.joint_tables:
            return {}
        mechanism = DiscreteGaussian(self.parameters.noise["joint tables"])
        return {
            names: count_table(
                self.doors.parameters,
                [bins[name] for name in names],
                mechanism,
                f"joint {' x '.join(names)}",
            )
            for names in self.parameters.joint_tables
        }

    def _parents(
        self, bins: Mapping[str, Histogram], coarsenings: Mapping[str, Partition]
    ) -> Parents:
        """The structure, from noisy distances of pairs of coarsened attributes."""
        names = self.parameters.inside
        if "structure" not in self.parameters.noise:
            return {}
        listed = [coarsenings[name] for name in names]
        pairs = list(combinations(listed, 2))
        noise = GridNoise(DiscreteGaussian(self.parameters.noise["structure"]))
        tables = tuple(ExpectedTable(pair, self._independent(*pair, bins)) for pair in pairs)
        rows = self.doors.structure.answer(Distances(tables), noise, "dependence")
        sensitivity = distance_sensitivity(len(tables), self.doors.structure.neighbours)
        related = np.zeros((len(names), len(names)))
        upper = np.triu_indices(len(names), 1)
        dependences = [dependence(r, t.expected) for r, t in zip(rows, tables, strict=True)]
        related[upper] = dependences
        related += related.T
        least = _CLEAR * noise.deviation(sensitivity, 1.0) / (2 * self.parameters.structure_rows)
        limits = ParentLimits(
            [one.size for one in listed],
            [self.parameters.most_cells / bins[name].size for name in names],
            np.full_like(related, least),
        )
        return choose_parents(Correlations(names, related, related), limits)

    def _independent(
        self, first: Partition, second: Partition, bins: Mapping[str, Histogram]
    ) -> Floats:
        """The rows of each joint part, flat, if two attributes were independent."""
        shares = [np.bincount(c.joined, weights=bins[c.name].mass) for c in (first, second)]
        expected = np.outer(*shares).ravel() * self.parameters.structure_rows
        return np.asarray(expected, dtype=np.float64)

    def _families(
        self, bins: Mapping[str, Histogram], coarsenings: Mapping[str, Partition], parents: Parents
    ) -> dict[str, NoisyTable]:
        """The noisy table of each attribute with its parents, if they are counted."""
        inside = self.parameters.inside if "parameters" in self.parameters.noise else ()
        return {
            name: self._table(bins[name], [coarsenings[p] for p in parents[name]])
            for name in inside
        }

    def _network(
        self,
        bins: Mapping[str, Histogram],
        coarsenings: Mapping[str, Partition],
        parents: Parents,
        families: Mapping[str, NoisyTable],
    ) -> BayesianNetwork:
        shares = {name: bins[name].mass[None] for name in self.sequence}
        for name, family in families.items():
            shares[name] = family.conditional(bins[name].mass).reshape(-1, bins[name].size)
        order = dependency_order(parents, self.sequence)
        tables = {name: in_steps(table) for name, table in shares.items()}
        return BayesianNetwork(order, bins, coarsenings, parents, tables)

    def _table(self, child: Histogram, parents: list[Partition]) -> NoisyTable:
        mechanism = DiscreteGaussian(self.parameters.noise["parameters"])
        partitions: list[Partition] = [*parents, child]
        label = f"table {' x '.join(part.name for part in partitions)}"
        return count_table(self.doors.parameters, partitions, mechanism, label)

    @property
    def _learned(self) -> Task:
        return replace(self.task, data_rows=self.parameters.parameter_rows)


def weigh_network(
    private: Door[TableRows],
    task: Task,
    parameters: network_plan.NetworkParameters,
    model: NetworkModel,
) -> NetworkModel:
    """The network with weights of its soft constraints, by noisy counts of violating pairs."""
    if not task.soft:
        return model
    learned = replace(task, data_rows=parameters.parameter_rows)
    pool = model.pool(POOL_ROWS, SamplingSource(_SEED))
    rng = np.random.default_rng(_SEED)
    noise = parameters.noise.get("soft constraints")
    return replace(
        model, reweighting=network_plan.WEIGHER.weigh(private, learned, noise, pool, rng)
    )


def constrain(
    task: Task,
    network: BayesianNetwork,
    networked: int,
    tables: NoisyTables,
    steps: tuple[str, ...],
) -> NetworkModel:
    """The model, with feasible sets of its hard constraints; ``steps`` led to the network."""
    shares = ExpectedShares(
        sequence=network.sequence,
        bins=network.bins,
        model=network,
        networked=networked,
        measured=tables.values(),
        seed=_SEED,
    )
    return NetworkModel.of(task, network, compile_constraints(task, shares), steps)
