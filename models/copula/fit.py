"""One fit of the copula, as by default and as printed: counts through the door, then no data.

By default histograms, conjunctions and joint tables are counted through the door.

As the paper prints it, algorithms 1 to 3 go from noisy counts to the correlation matrix.

Counts below zero become 0, correlations come from every pair of binary columns, those of one
attribute included, and nothing is shrunk. What algorithm 4 draws is `PrintedCopula.binary_sampler`.

Source: Asghar et al., sections 3.1 to 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np

from cloister.arrays import Floats
from cloister.models.constrained import CUT_OFF, estimated_histograms
from cloister.models.copula.copula import (
    Copula,
    copula_of,
    fit_copula_to,
    pairwise_correlations,
    thresholds,
)
from cloister.models.copula.correlations import shrink_conjunctions
from cloister.models.copula.model import CopulaModel, LinearChain, PrintedCopula
from cloister.models.copula.plan import (
    CONJUNCTIONS,
    HISTOGRAMS,
    JOINT,
    CopulaParameters,
    paper_coding,
    public_coding,
)
from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import HistogramCounts, count_histogram, counted_by_rounding
from cloister.models.core.noisy_table import NoisyTable, NoisyTables, count_table, to_shares
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.feasible_sets.builder import compile_constraints
from cloister.models.feasible_sets.expected_shares import ExpectedShares
from cloister.models.protocol import Progress
from cloister.models.task import Plan, Task
from cloister.privacy.queries.counts import ConjunctionCounts, DummyCoding, PartitionCounts
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.partition import Partition, declared_cells

_SEED = 20_190_206
"""Public seed of the choice of feasible sets."""

_SHRUNK = (
    "noisy conjunctions of pairs of values move towards independence, as far as noise requires",
    "conjunctions are fitted to the released histograms",
    "correlations of normal scores are found for the conjunctions, and made a correlation matrix",
)

_IDENTITY = ("all scores are uncorrelated, whatever the data",)

_ONES = (
    "scores of different attributes are as strongly correlated as they can be, whatever the data",
)

_PRINTED = (
    CUT_OFF,
    "correlations of normal scores are found for all pairs of binary columns",
    "the nearest correlation matrix takes their place",
)


def fit_copula(
    private: Door[TableRows], task: Task, plan: Plan[CopulaParameters], progress: Progress
) -> CopulaModel:
    """All counts, then the copula of the shrunk conjunctions, then the feasible sets."""
    counted, bins = _count_bins(private, task, plan, progress)
    coding, means = _coded(task, plan, bins)
    shares = _count_conjunctions(private, task, plan, bins, coding, means)
    copula = fit_copula_to(shares, means, coding, task.data_rows)
    steps, tables = (
        (*estimated_histograms(bins), *_SHRUNK),
        _count_joint_tables(private, plan, bins),
    )
    model = constrained_model(task, plan, bins, copula, steps, tables)
    return _with_counts(model, counted, tables)


def fit_identity(
    private: Door[TableRows], task: Task, plan: Plan[CopulaParameters], progress: Progress
) -> CopulaModel:
    """Histograms, and uncorrelated scores: cop-ID of the paper's section 4.3.1."""
    return _fit_given(private, task, plan, progress, _uncorrelated, _IDENTITY)


def fit_ones(
    private: Door[TableRows], task: Task, plan: Plan[CopulaParameters], progress: Progress
) -> CopulaModel:
    """Histograms, and perfectly correlated attributes: cop-1 of the paper's section 4.3.1.

    Not within an attribute: all its values would share the highest score.
    """
    return _fit_given(private, task, plan, progress, _correlated_across, _ONES)


def _uncorrelated(coding: DummyCoding) -> Floats:
    return np.eye(coding.width)


def _correlated_across(coding: DummyCoding) -> Floats:
    return np.asarray(coding.pairs | coding.pairs.T | np.eye(coding.width, dtype=bool), np.float64)


def _fit_given(
    private: Door[TableRows],
    task: Task,
    plan: Plan[CopulaParameters],
    progress: Progress,
    correlations: Callable[[DummyCoding], Floats],
    steps: tuple[str, ...],
) -> CopulaModel:
    counted, bins = _count_bins(private, task, plan, progress)
    coding, means = _coded(task, plan, bins)
    copula = copula_of(correlations(coding), means, coding, task.data_rows)
    tables = _count_joint_tables(private, plan, bins)
    steps = (*estimated_histograms(bins), *steps)
    model = constrained_model(task, plan, bins, copula, steps, tables)
    return _with_counts(model, counted, tables)


def _with_counts(
    model: CopulaModel, counted: Mapping[str, HistogramCounts], tables: NoisyTables
) -> CopulaModel:
    """The model with its noisy counts; conjunctions are no whole tables, and are left out."""
    rows, bins = model.task.data_rows, model.bins
    return replace(model, released_counts=ReleasedCounts(rows, counted, bins, (*tables.values(),)))


def _count_bins(
    private: Door[TableRows], task: Task, plan: Plan[CopulaParameters], progress: Progress
) -> tuple[dict[str, HistogramCounts], dict[str, Histogram]]:
    """The noisy histogram of every attribute, and the bins that it makes."""
    mechanism, most = plan.parameters.mechanism(HISTOGRAMS), plan.parameters.groups
    counted, rounded = {}, counted_by_rounding(task.domain, plan.sequence)
    for done, name in enumerate(plan.sequence, start=1):
        values = mechanism if name in rounded else None
        cells = declared_cells(task.domain[name])
        counted[name] = count_histogram(private, cells, mechanism, values)
        progress(done, len(plan.sequence) + 1)
    return counted, {name: counts.bins(task, most) for name, counts in counted.items()}


def _coded(
    task: Task, plan: Plan[CopulaParameters], bins: Mapping[str, Histogram]
) -> tuple[DummyCoding, Floats]:
    """The binary columns of the bins, and the released share of ones in each."""
    names = plan.sequence[: plan.parameters.coded]
    public = public_coding(task, names, plan.parameters.groups)
    coding = DummyCoding(tuple(bins[name].size for name in names), public.single)
    return coding, coding.margins([bins[name].mass for name in names])


def _count_conjunctions(
    private: Door[TableRows],
    task: Task,
    plan: Plan[CopulaParameters],
    bins: Mapping[str, Histogram],
    coding: DummyCoding,
    means: Floats,
) -> Floats:
    """Estimated shares of rows with a 1 in two columns; without pairs, those of independence."""
    if CONJUNCTIONS not in plan.parameters.noise:
        return np.outer(means, means)
    mechanism = plan.parameters.mechanism(CONJUNCTIONS)
    partitions = tuple(bins[name] for name in plan.sequence[: len(coding.sizes)])
    query = ConjunctionCounts(partitions, coding)
    noisy = private.answer(query, mechanism, CONJUNCTIONS)
    deviation = mechanism.deviation(query.sensitivity(private.neighbours))
    return shrink_conjunctions(noisy, means, deviation, task.data_rows, coding)


def _count_joint_tables(
    private: Door[TableRows], plan: Plan[CopulaParameters], bins: Mapping[str, Histogram]
) -> dict[tuple[str, ...], NoisyTable]:
    """The joint tables of hard constraints."""
    return {
        names: count_table(
            private,
            [bins[name] for name in names],
            plan.parameters.mechanism(JOINT),
            f"joint {', '.join(names)}",
        )
        for names in plan.parameters.joint_tables
    }


def constrained_model(
    task: Task,
    plan: Plan[CopulaParameters],
    bins: Mapping[str, Histogram],
    copula: Copula,
    steps: tuple[str, ...],
    tables: NoisyTables,
    kind: type[CopulaModel] = CopulaModel,
) -> CopulaModel:
    """The model of a ``kind``, with feasible sets and rules that enforce every hard constraint."""
    chain = LinearChain(plan.sequence, bins, copula.coding, copula.means, copula.moments)
    shares = ExpectedShares(
        sequence=plan.sequence,
        bins=bins,
        model=chain,
        networked=len(copula.coding.sizes),
        measured=tables.values(),
        seed=_SEED,
    )
    rules = compile_constraints(task, shares)
    return kind(task, plan.sequence, bins, copula, steps, rules)


def fit_paper(
    private: Door[TableRows], task: Task, plan: Plan[CopulaParameters], progress: Progress
) -> CopulaModel:
    """One-way and two-way counts of all attributes, then their correlations, without shrinkage."""
    counted = [
        _count(private, plan.parameters, HISTOGRAMS, (declared_cells(task.domain[name]),))
        for name in plan.sequence
    ]
    bins = {
        name: _bins(declared_cells(task.domain[name]), counts, task.data_rows)
        for name, counts in zip(plan.sequence, counted, strict=True)
    }
    coding = paper_coding(task, plan.sequence)
    limits = thresholds(np.concatenate(counted) / task.data_rows)
    shares = np.zeros((coding.width, coding.width))
    tables: dict[tuple[str, ...], NoisyTable] = {}
    pairs = list(combinations(range(len(plan.sequence)), 2))
    for done, (first, second) in enumerate(pairs, start=1):
        names = (plan.sequence[first], plan.sequence[second])
        counts = _count(private, plan.parameters, CONJUNCTIONS, tuple(bins[n] for n in names))
        shares[coding.block(first), coding.block(second)] = counts / task.data_rows
        if names in plan.mapped:
            partitions = (bins[names[0]], bins[names[1]])
            tables[names] = NoisyTable(partitions, counts, plan.mapped[names])
        progress(done, len(pairs))
    every = np.triu(np.ones_like(shares, dtype=bool), 1)
    correlations = pairwise_correlations(shares, limits, every, most=1.0)
    means = coding.margins([bins[name].mass for name in plan.sequence])
    copula = replace(copula_of(correlations, means, coding, task.data_rows), limits=limits)
    return constrained_model(task, plan, bins, copula, _PRINTED, tables, PrintedCopula)


def _count(
    private: Door[TableRows],
    parameters: CopulaParameters,
    kind: str,
    partitions: tuple[Partition, ...],
) -> Floats:
    """Noisy counts, none below zero.

    Source: algorithms 1 and 2, on original attributes (lemmas 1 and 2).
    """
    label = " x ".join(part.name for part in partitions)
    counts = private.answer(PartitionCounts(partitions), parameters.mechanism(kind), label)
    return np.maximum(counts.astype(np.float64), 0.0)


def _bins(cells: Partition, counts: Floats, rows: int) -> Histogram:
    """A bin for each cell, with the shares nearest to the counts that sum to 1."""
    return Histogram.over(cells, cells.parts, to_shares(counts, rows))
