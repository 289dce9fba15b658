"""One fit of the copula: histograms, conjunctions and joint tables are counted through the door.

All else is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cloister.arrays import Floats
from cloister.models.constrained import estimated_histograms
from cloister.models.copula.chain import LinearChain
from cloister.models.copula.copula import Copula, copula_of, fit_copula_to
from cloister.models.copula.correlations.shrinkage import shrink_conjunctions
from cloister.models.copula.model import CopulaModel
from cloister.models.copula.plan import (
    CONJUNCTIONS,
    HISTOGRAMS,
    JOINT,
    CopulaParameters,
    deviation_of,
    public_coding,
)
from cloister.models.discretization.bins import Bins, bin_cells
from cloister.models.discretization.denoising import estimate_shares
from cloister.models.protocol import Progress
from cloister.models.sampling.expected_shares import JointTable
from cloister.models.sampling.support_builder import compile_constraints
from cloister.models.task import Plan, Task
from cloister.privacy.queries.counts import ConjunctionCounts, DummyCoding, PartitionCounts
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.domain import declared_cells

_SEED = 20_190_206
"""Public seed of everything random about the supports."""

_SHRUNK = (
    "noisy conjunctions of pairs of values are moved towards independence, as their noise asks",
    "conjunctions are fitted to the released histograms",
    "correlations of normal scores are found for the conjunctions, and made a correlation matrix",
)
_IDENTITY = ("all scores are uncorrelated, whatever the data",)
_ONES = (
    "scores of different attributes are as strongly correlated as they can be, whatever the data",
)


def fit_copula(
    private: Door[TableRows], task: Task, plan: Plan[CopulaParameters], progress: Progress
) -> CopulaModel:
    """All counts, then the copula of the shrunk conjunctions, then the supports."""
    bins = _count_bins(private, task, plan, progress)
    coding, means = _coded(task, plan, bins)
    shares = _count_conjunctions(private, task, plan, bins, coding, means)
    copula = fit_copula_to(shares, means, coding, task.data_rows)
    return constrained_model(
        task,
        plan,
        bins,
        copula,
        (*estimated_histograms(bins), *_SHRUNK),
        _count_joint_tables(private, plan, bins),
    )


def fit_identity(
    private: Door[TableRows], task: Task, plan: Plan[CopulaParameters], progress: Progress
) -> CopulaModel:
    """Histograms, and uncorrelated scores: cop-ID of the paper's section 4.3.1."""
    return _fit_given(private, task, plan, progress, _uncorrelated, _IDENTITY)


def fit_ones(
    private: Door[TableRows], task: Task, plan: Plan[CopulaParameters], progress: Progress
) -> CopulaModel:
    """Histograms, and perfectly correlated attributes: cop-1 of the paper's section 4.3.1.

    Within an attribute scores are not: all its values would have the highest one.
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
    bins = _count_bins(private, task, plan, progress)
    coding, means = _coded(task, plan, bins)
    copula = copula_of(correlations(coding), means, coding, task.data_rows)
    return constrained_model(
        task,
        plan,
        bins,
        copula,
        (*estimated_histograms(bins), *steps),
        _count_joint_tables(private, plan, bins),
    )


def _count_bins(
    private: Door[TableRows], task: Task, plan: Plan[CopulaParameters], progress: Progress
) -> dict[str, Bins]:
    """The bins of every attribute, from its noisy histogram."""
    mechanism, rows = plan.parameters.mechanism(HISTOGRAMS), task.data_rows
    deviation = deviation_of(mechanism, private.neighbours.partition)
    constrained = {name for rule in task.hard for name in rule.attributes}
    bins = {}
    for done, name in enumerate(plan.sequence, start=1):
        cells = declared_cells(task.domain[name])
        counts = private.answer(PartitionCounts((cells,)), mechanism, f"histogram {name}")
        shares = estimate_shares(counts, deviation, cells, rows)
        kept = name in constrained
        bins[name] = bin_cells(cells, shares, deviation / rows, kept, plan.parameters.groups)
        progress(done, len(plan.sequence) + 1)
    return bins


def _coded(
    task: Task, plan: Plan[CopulaParameters], bins: Mapping[str, Bins]
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
    bins: Mapping[str, Bins],
    coding: DummyCoding,
    means: Floats,
) -> Floats:
    """Estimated shares of rows with a 1 in two columns; those of independence without a pair."""
    if CONJUNCTIONS not in plan.parameters.noise:
        return np.outer(means, means)
    mechanism = plan.parameters.mechanism(CONJUNCTIONS)
    partitions = tuple(bins[name] for name in plan.sequence[: len(coding.sizes)])
    query = ConjunctionCounts(partitions, coding)
    noisy = private.answer(query, mechanism, CONJUNCTIONS)
    deviation = deviation_of(mechanism, query.sensitivity(private.neighbours))
    return shrink_conjunctions(noisy, means, deviation, task.data_rows, coding)


def _count_joint_tables(
    private: Door[TableRows], plan: Plan[CopulaParameters], bins: Mapping[str, Bins]
) -> dict[tuple[str, ...], JointTable]:
    """The joint tables of hard constraints."""
    found = {}
    for names in plan.parameters.joint_tables:
        mechanism = plan.parameters.mechanism(JOINT)
        query = PartitionCounts(tuple(bins[name] for name in names))
        counts = private.answer(query, mechanism, f"joint {', '.join(names)}")
        deviation = deviation_of(mechanism, private.neighbours.partition)
        found[names] = JointTable(names, counts.astype(np.float64), deviation)
    return found


def constrained_model(
    task: Task,
    plan: Plan[CopulaParameters],
    bins: Mapping[str, Bins],
    copula: Copula,
    steps: tuple[str, ...],
    tables: Mapping[tuple[str, ...], JointTable],
    kind: type[CopulaModel] = CopulaModel,
) -> CopulaModel:
    """The model of a ``kind``, with supports and rules that enforce every hard constraint."""
    chain = LinearChain(plan.sequence, bins, copula.coding, copula.means, copula.moments)
    rules = compile_constraints(
        task, plan.sequence, bins, chain, len(copula.coding.sizes), tables, _SEED
    )
    return kind(task, plan.sequence, bins, copula, steps, rules)
