"""The stages that several methods share: histograms, and joint tables of hard constraints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloister.models.discretization.bins import NUMERIC_BINS, Bins, bin_cells, bin_values
from cloister.models.discretization.histograms import HistogramCounts, count_histogram
from cloister.models.discretization.two_levels import TwoLevels
from cloister.models.sampling.supports.expected_shares import JointTable
from cloister.models.task import Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.query import Door, Partition, TableRows
from cloister.schema.domain import declared_cells


def measure_histogram(
    private: Door[TableRows],
    task: Task,
    name: str,
    mechanism: DiscreteGaussian,
    by_value: DiscreteGaussian | None,
    most: int = NUMERIC_BINS,
    levels: TwoLevels | None = None,
) -> Bins:
    """The bins of one attribute, at most ``most`` of a numeric one, from its noisy histogram.

    ``mechanism`` counts the cells, and the wide cells of ``levels``, ``by_value`` every single
    value too.

    Privacy: one to three partitions of the rows, each with the noise of its mechanism.
    """
    declared = declared_cells(task.domain[name])
    counted = count_histogram(private, declared, mechanism, by_value, levels)
    return bins_of_histogram(task, counted, most)


def bins_of_histogram(task: Task, counted: HistogramCounts, most: int = NUMERIC_BINS) -> Bins:
    """The bins of an attribute, at most ``most`` of a numeric one, from its noisy counts.

    Values of attributes in hard constraints are not merged.
    """
    cells, shares = counted.estimate(task.data_rows)
    constrained = any(cells.name in constraint.attributes for constraint in task.hard)
    return bin_cells(cells, shares, counted.deviation / task.data_rows, constrained, most)


def measure_values(
    private: Door[TableRows],
    task: Task,
    name: str,
    mechanism: DiscreteGaussian,
    by_value: DiscreteGaussian | None,
    most: int,
    levels: TwoLevels | None = None,
) -> Bins:
    """The bins of a numeric attribute whose values matter; see :func:`measure_histogram`."""
    declared = declared_cells(task.domain[name])
    counted = count_histogram(private, declared, mechanism, by_value, levels)
    return bins_of_values(task, counted, most)


def bins_of_values(task: Task, counted: HistogramCounts, most: int = NUMERIC_BINS) -> Bins:
    """The bins of a numeric attribute whose values matter, from its noisy counts."""
    cells, shares = counted.estimate(task.data_rows)
    deviation = counted.deviation if counted.values is None else counted.value_deviation
    return bin_values(cells, shares, deviation / task.data_rows, most)


def measure_joint_table(
    private: Door[TableRows],
    partitions: Sequence[Partition],
    mechanism: DiscreteGaussian,
    label: str,
) -> JointTable:
    """The noisy joint table of some attributes.

    Privacy: a partition of the rows, with the noise of ``mechanism``.
    """
    counts = private.answer(PartitionCounts(tuple(partitions)), mechanism, label).astype(np.float64)
    names = tuple(partition.name for partition in partitions)
    return JointTable(names, counts, mechanism.scale(private.neighbours.partition))
