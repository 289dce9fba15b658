"""The stages that several methods share: histograms, and joint tables of hard constraints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.queries.partition_counts import PartitionCounts
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import Partition, TableRows
from cloister.schema.cells import declared_cells
from models.discretization.bins import NUMERIC_BINS, Bins, bin_cells
from models.discretization.histograms import released_histogram
from models.protocol import Task
from models.sampling.support_builder import JointTable


def measure_histogram(
    private: Door[TableRows],
    task: Task,
    name: str,
    mechanism: DiscreteGaussian,
    by_value: bool,
    most: int = NUMERIC_BINS,
) -> Bins:
    """The bins of one attribute, at most ``most`` of a numeric one, from its noisy histogram.

    Values of attributes in hard constraints are not merged. ``by_value`` measures the count of
    every single value too.

    Privacy: one or two partitions of the rows, each with the noise of ``mechanism``.
    """
    declared = declared_cells(task.domain[name])
    cells, shares = released_histogram(private, declared, mechanism, task.data_rows, by_value)
    deviation = mechanism.scale(private.neighbours.partition) / task.data_rows
    constrained = any(name in constraint.attributes for constraint in task.hard)
    return bin_cells(cells, shares, deviation, constrained, most)


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
