"""The stages that several methods share: histograms, and joint tables of hard constraints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.queries.partition_counts import PartitionCounts
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import Partition, TableRows
from cloister.schema.cells import declared_cells
from models.discretization.bins import NUMERIC_BINS, Bins, bin_cells, bin_values
from models.discretization.histograms import released_histogram
from models.discretization.two_levels import TwoLevels
from models.sampling.expected_shares import JointTable
from models.task import Task


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

    Values of attributes in hard constraints are not merged. ``mechanism`` counts the cells, and the
    wide cells of ``levels``, ``by_value`` every single value too.

    Privacy: one to three partitions of the rows, each with the noise of its mechanism.
    """
    declared = declared_cells(task.domain[name])
    cells, shares = released_histogram(
        private, declared, mechanism, task.data_rows, by_value, levels
    )
    deviation = mechanism.scale(private.neighbours.partition) / task.data_rows
    constrained = any(name in constraint.attributes for constraint in task.hard)
    return bin_cells(cells, shares, deviation, constrained, most)


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
    cells, shares = released_histogram(
        private, declared, mechanism, task.data_rows, by_value, levels
    )
    counted = mechanism if by_value is None else by_value
    deviation = counted.scale(private.neighbours.partition) / task.data_rows
    return bin_values(cells, shares, deviation, most)


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
