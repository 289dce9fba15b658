"""The fit as the paper prints it: algorithms 1 to 3, from noisy counts to the correlation matrix.

Counts below zero become 0, correlations come from every pair of binary columns, those of one
attribute included, and nothing is shrunk. What algorithm 4 draws is `PrintedModel.binary_sampler`.

Source: Asghar et al., sections 3.1 to 3.3.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from cloister.arrays import Floats
from cloister.models.constrained import CUT_OFF
from cloister.models.copula.copula import copula_of, pairwise_correlations
from cloister.models.copula.decoding import thresholds
from cloister.models.copula.fit import constrained_model
from cloister.models.copula.model import CopulaModel, PrintedModel
from cloister.models.copula.plan import CONJUNCTIONS, HISTOGRAMS, CopulaParameters, paper_coding
from cloister.models.discretization.bins import Bins
from cloister.models.discretization.denoising import to_shares
from cloister.models.protocol import Progress
from cloister.models.sampling.expected_shares import JointTable
from cloister.models.task import Plan, Task
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.query import Door, Partition, TableRows
from cloister.schema.domain import Cells, declared_cells

_PRINTED = (
    CUT_OFF,
    "correlations of normal scores are found for all pairs of binary columns",
    "the nearest correlation matrix takes their place",
)


def fit_paper(
    private: Door[TableRows], task: Task, plan: Plan[CopulaParameters], progress: Progress
) -> CopulaModel:
    """One-way and two-way counts of all attributes, then their correlations, as they are."""
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
    tables: dict[tuple[str, ...], JointTable] = {}
    pairs = list(combinations(range(len(plan.sequence)), 2))
    for done, (first, second) in enumerate(pairs, start=1):
        names = (plan.sequence[first], plan.sequence[second])
        counts = _count(private, plan.parameters, CONJUNCTIONS, tuple(bins[n] for n in names))
        shares[coding.block(first), coding.block(second)] = counts / task.data_rows
        if names in plan.mapped:
            tables[names] = JointTable(names, counts, plan.mapped[names])
        progress(done, len(pairs))
    every = np.triu(np.ones_like(shares, dtype=bool), 1)
    correlations = pairwise_correlations(shares, limits, every, most=1.0)
    means = coding.margins([bins[name].mass for name in plan.sequence])
    copula = replace(copula_of(correlations, means, coding, task.data_rows), limits=limits)
    return constrained_model(task, plan, bins, copula, _PRINTED, tables, PrintedModel)


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


def _bins(cells: Cells, counts: Floats, rows: int) -> Bins:
    """A bin for each cell, with shares of records that are nearest to the counts and sum to 1."""
    return Bins(cells, np.arange(cells.size, dtype=np.int64), to_shares(counts, rows))
