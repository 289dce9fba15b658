"""The measurements of a fit: histograms, then joint tables chosen round by round.

Histograms are counted, pooled with those of a previous release, and cut into bins.

*Candidates:* the joint tables that may be measured, and their expectations under the model: all
pairs and small triples on coarse domains, each at several resolutions. Those that the model
explains worst are selected.

Source: McKenna, Mullins, Sheldon, Miklau, "AIM" (arXiv 2201.12677), algorithm 1. Several tables are
chosen before the next fit where there are many attributes, and then such as join attributes that
none of them joined yet, as in Kruskal's algorithm: McKenna, Miklau, Sheldon, "Winning the NIST
contest" (arXiv 2108.04978), section 4 of which measures a spanning tree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloister.models.core import histograms
from cloister.models.core.bins import Histogram, coarse, coarse_by_spread, variance_shares
from cloister.models.core.costs import PAIR_CELLS
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.mixture.plan import MixtureParameters
from cloister.models.mixture.prior import pool_histograms, refine_bins
from cloister.models.mixture.products import Mixture
from cloister.models.mixture.schedule import MOST_CANDIDATES
from cloister.models.task import Plan, Task
from cloister.privacy.mechanisms.selection import Exponential, PermuteAndFlip
from cloister.privacy.queries.distances import Candidate, CandidateScores, PairScores
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.columns import Grid
from cloister.schema.partition import Partition, declared_cells, tree_of

TRIPLE_CELLS = 1_500
"""Most cells of a candidate triple."""

_RESOLUTIONS = (32, 8)
"""Parts of an attribute in candidates, in addition to its bins if it has twice as many.

At epsilon 0.1, four parts instead of eight, or in addition, were no better (docs/papers.md).
"""

_FEW_PARTS = 4
"""Parts of an attribute in further candidates where the noise of tables is strong.

A choice among 3,000 candidates is off by 1,300 of 3,500 rows there (encounters, epsilon 1). A pair
of correlation 0.5 scores 370 rows in 48 cells, 1,200 in 16, and some releases never chose it.
"""

_FEW_TABLES = 8
"""Pairs for each table that is measured, above which a choice that noise decides finds none.

Of 13 attributes (loans, epsilon 0.2) a third of the pairs are measured, and candidates of four
parts had a 2-way error of 0.058 in place of 0.056 (four releases of the same noise).
"""

_DEPENDENCE = 0.25
"""Share of the rows that a pair of dependent attributes puts elsewhere, as in tables across keys.

Where noise would add as much to a pair of the fewest parts above, its score says nothing.
"""

_TAIL_RESOLUTIONS = (16, 8)
"""Parts of a number in candidate pairs that cut tails by value as well as by mass."""

_HEAVY = 0.25
"""Share of a number's variance in one bin above which its tail is heavy.

The outer ones of 32 bins of equal mass have a tenth of a uniform variance, a sixth of a normal one,
a third of an exponential one. Including all numbers was no better on Adult at epsilon 0.2.
"""

_MOST_VISITS = 4_000_000_000
"""Most rows times candidates: bounds the time to count them."""

Coarsenings = tuple[Partition, ...]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Histograms:
    """The noisy counts of attributes, and the bins that they make.

    ``changes`` are those since an earlier release, of attributes that it has counted too.
    """

    counted: Mapping[str, histograms.HistogramCounts]
    bins: Mapping[str, Histogram]
    changes: Mapping[str, float]

    def marginal(self, name: str, rows: int) -> NoisyTable:
        """The histogram of an attribute over its bins."""
        bins, counted = self.bins[name], self.counted[name]
        return NoisyTable((bins,), bins.mass * rows, counted.deviations(bins))


def measure_histograms(
    private: Door[TableRows],
    task: Task,
    plan: Plan[MixtureParameters],
    prior: ReleasedCounts | None,
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
    bins = {name: _bins_of(task, counts, parameters, prior) for name, counts in counted.items()}
    return Histograms(counted, bins, changes)


def _count(
    private: Door[TableRows], task: Task, name: str, parameters: MixtureParameters
) -> histograms.HistogramCounts:
    cells = parameters.law.counts(parameters.histogram_noise[name])
    valued = name in parameters.valued
    values = parameters.law.counts(parameters.noise["joint tables"]) if valued else cells
    nodes = [parameters.law.counts(noise) for noise in parameters.tree_noise.get(name, ())]
    return histograms.count_histogram(
        private,
        declared_cells(task.domain[name]),
        cells,
        values if name in parameters.by_value else None,
        [cells] if name in parameters.two_levels else nodes,
    )


def _bins_of(
    task: Task,
    counted: histograms.HistogramCounts,
    parameters: MixtureParameters,
    prior: ReleasedCounts | None,
) -> Histogram:
    name = counted.partition.name
    make = counted.value_bins if name in parameters.valued else counted.bins
    threshold = task.targets.get(name)
    bins = make(task, parameters.groups - (threshold is not None))
    if threshold is not None:
        bins = bins.split_at(threshold, counted.least_mass(task.data_rows))
    return refine_bins(prior.bins[name], bins) if prior and name in prior.bins else bins


def few_parts_pay(attributes: int, rows: int, tables: int, noise_of_cell: float) -> bool:
    """Whether pairs of few parts are to be among the candidates; ``tables`` are measured.

    ``noise_of_cell`` is what the noise of measuring a cell adds to its error, in rows.
    """
    noisy = noise_of_cell * min(_RESOLUTIONS) ** 2 > _DEPENDENCE * rows
    return noisy and _FEW_TABLES * tables < math.comb(attributes, 2)


def candidate_tables(
    bins: Mapping[str, Histogram], rows: int, seed: int, few_parts: bool = False
) -> tuple[Coarsenings, ...]:
    """All pairs and triples of small joint size, of bins or parts; singles if there is no pair.

    If there are too many to count, a random choice of them, pairs first. With ``few_parts`` also
    pairs that have less than others.
    """
    sizes = (*_RESOLUTIONS, *((_FEW_PARTS,) if few_parts else ()))
    levels = {name: _levels(histogram, sizes) for name, histogram in bins.items()}
    most = max(min(MOST_CANDIDATES, _MOST_VISITS // max(rows, 1)), 1)
    chosen = even_choice(_sets(levels, 2, PAIR_CELLS) + _tail_pairs(bins), most, seed)
    if len(chosen) < most:
        chosen += even_choice(_sets(levels, 3, TRIPLE_CELLS), most - len(chosen), seed)
    return tuple(chosen) or tuple((coarsenings[0],) for coarsenings in levels.values())


def _levels(bins: Histogram, sizes: Sequence[int]) -> list[Partition]:
    """The coarsenings of one attribute, finest first."""
    return [bins, *(coarse(bins, most) for most in sizes if _worthwhile(bins, most))]


def _tail_pairs(bins: Mapping[str, Histogram]) -> list[Coarsenings]:
    """Pairs of heavy-tailed numbers in parts that are small in tails."""
    numbers = [
        number
        for number in bins.values()
        if isinstance(number.column, Grid) and variance_shares(number).max() >= _HEAVY
    ]
    return [
        pair
        for most in _TAIL_RESOLUTIONS
        for pair in combinations(
            [coarse_by_spread(number, most) for number in numbers if _worthwhile(number, most)], 2
        )
        if math.prod(number.size for number in pair) <= PAIR_CELLS
    ]


def _worthwhile(bins: Histogram, most: int) -> bool:
    twice = most == max(_RESOLUTIONS) and not tree_of(bins.column)
    return bins.size > (2 * most if twice else most)


def _sets(levels: Mapping[str, Sequence[Partition]], ways: int, cells: int) -> list[Coarsenings]:
    """Sets of ``ways`` attributes, at every combination of their coarsenings."""
    sets = (
        coarsenings
        for chosen in combinations(levels.values(), ways)
        for coarsenings in product(*chosen)
    )
    return [table for table in sets if math.prod(partition.size for partition in table) <= cells]


def even_choice(sets: list[_T], most: int, seed: int) -> list[_T]:
    """At most ``most`` of them, chosen uniformly, in their order."""
    if len(sets) <= most:
        return sets
    chosen = np.random.default_rng(seed).choice(len(sets), most, replace=False)
    return [sets[index] for index in np.sort(chosen)]


def expected_shares(
    mixture: Mixture, tables: Sequence[Coarsenings]
) -> dict[Coarsenings, NDArray[np.float32]]:
    """The model's joint shares of each table, one axis a coarsening.

    Those of attributes in different factors that differ in the last coarsening only are computed
    together.
    """
    shares: dict[Partition, Tensor] = {}
    for coarsening in (
        partition for table in tables for partition in table if partition not in shares
    ):
        (view,), _ = mixture.layout.views([coarsening])
        shares[coarsening] = mixture.view_shares(view)
    lasts: dict[Coarsenings, list[Partition]] = {}
    expected: dict[Coarsenings, NDArray[np.float32]] = {}
    for table in tables:
        if mixture.layout.apart([partition.name for partition in table]):
            lasts.setdefault(table[:-1], []).append(table[-1])
        else:
            expected[table] = mixture.marginal(table).astype(np.float32)
    for firsts, finals in lasts.items():
        folded = mixture.weights[None]
        for coarsening in firsts:
            folded = (folded[:, None] * shares[coarsening][None]).flatten(0, 1)
        together = folded @ torch.cat([shares[final] for final in finals]).T
        parts = torch.split(together, [final.size for final in finals], 1)
        shape = [coarsening.size for coarsening in firsts]
        expected |= {
            (*firsts, final): part.reshape(*shape, -1).numpy()
            for final, part in zip(finals, parts, strict=True)
        }
    return expected


@dataclass(frozen=True)
class TableChoice:
    """How tables are chosen by a mechanism, for data of ``rows`` rows.

    The score of a table is the L1 distance, in rows, of its counts from those that the model
    expects, less ``noise_of_cell`` for each cell: what the noise of measuring it would add.
    """

    mechanism: Exponential | PermuteAndFlip
    rows: int
    noise_of_cell: float


class RoundCandidates(Protocol):
    """The tables that a round may measure."""

    def choose(
        self, private: Door[TableRows], mixture: Mixture, by: TableChoice, labels: Sequence[str]
    ) -> tuple[Coarsenings, ...]:
        """One table per label, each by one answer of the door."""
        ...


@dataclass(frozen=True)
class ListedTables:
    """Tables of one to three attributes, each a candidate."""

    tables: tuple[Coarsenings, ...]

    def choose(
        self, private: Door[TableRows], mixture: Mixture, by: TableChoice, labels: Sequence[str]
    ) -> tuple[Coarsenings, ...]:
        """See `RoundCandidates`; each by the same scores."""
        shares = expected_shares(mixture, self.tables)
        scores = CandidateScores(
            tuple(
                Candidate(table, by.rows * shares[table], by.noise_of_cell * shares[table].size)
                for table in self.tables
            )
        )
        return tuple(self.tables[private.answer(scores, by.mechanism, label)] for label in labels)


@dataclass(frozen=True)
class AllPairs:
    """All pairs of attributes, each at one coarsening: too many tables to list."""

    coarsenings: tuple[Partition, ...]

    def choose(
        self, private: Door[TableRows], mixture: Mixture, by: TableChoice, labels: Sequence[str]
    ) -> tuple[Coarsenings, ...]:
        """See `RoundCandidates`; pairs that close no cycle with those chosen before."""
        views = [mixture.layout.views([coarsening])[0][0] for coarsening in self.coarsenings]
        shares = torch.cat([mixture.view_shares(view) for view in views])
        expected = (by.rows * (shares * mixture.weights) @ shares.T).numpy()
        self._within_factors(mixture, expected, by.rows)
        sizes = np.array([coarsening.size for coarsening in self.coarsenings])
        penalties = by.noise_of_cell * np.outer(sizes, sizes)
        pairs = np.triu(np.ones(penalties.shape, dtype=bool), 1)
        tree, chosen = np.arange(len(sizes)), list[Coarsenings]()
        for label in labels:
            apart = pairs & (tree[:, None] != tree)
            scores = PairScores(
                self.coarsenings, expected, penalties, apart if apart.any() else pairs
            )
            first, second = private.answer(scores, by.mechanism, label)
            tree[tree == tree[second]] = tree[first]
            chosen.append((self.coarsenings[first], self.coarsenings[second]))
        return tuple(chosen)

    def _within_factors(self, mixture: Mixture, expected: NDArray[np.float32], rows: int) -> None:
        """Set the expected counts of pairs in one factor, which are not independent in it."""
        ends = np.cumsum([0, *(coarsening.size for coarsening in self.coarsenings)])
        places = {c.name: slice(*ends[i : i + 2]) for i, c in enumerate(self.coarsenings)}
        for first, second in combinations(self.coarsenings, 2):
            if not mixture.layout.apart([first.name, second.name]):
                table = rows * mixture.marginal([first, second])
                expected[places[first.name], places[second.name]] = table
                expected[places[second.name], places[first.name]] = table.T
