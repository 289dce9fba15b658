"""Joint counts from rows drawn of a model, for columns that no released table holds together.

Privacy: released numbers alone, so post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np

from cloister.arrays import Integers
from cloister.models.answers.evidence import FittedCounts
from cloister.models.answers.groups import SEED
from cloister.models.core.bins import Histogram
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.protocol import Model
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table
from cloister.schema.partition import Partition

DRAWN_ROWS = 20_000
"""Rows that are drawn: they add a tenth of a point to the deviation of a share of 1 in 50."""

_MOST_CELLS = 200_000
"""Cells of the joint counts at most; of more the columns are in bins."""

_LEAST_SHARE = 1e-3
"""Share of a part at least, as which it counts in a contingency: noise would be divided by less."""

_TYPICAL = 0.1
"""Squared difference of a count from its expectation, as a share of it, in the variance of one."""


def draw_rows(model: Model) -> Table:
    """The same rows of a model for every question.

    Raises:
        SampleError: the rows cannot be drawn.
    """
    rows = min(DRAWN_ROWS, model.capacity or DRAWN_ROWS)
    return model.sample(rows, SamplingSource(SEED))


def drawn_counts(
    model: Model, rows: int, names: Sequence[str], slices: Mapping[str, Histogram], missed: float
) -> FittedCounts:
    """The counts of some columns among drawn rows, scaled to a table of ``rows`` rows.

    The variance is that of the draw; ``missed`` is the dependence that the model may have missed.

    Raises:
        SampleError: the rows cannot be drawn.
    """
    table = draw_rows(model)
    drawn = table.rows
    partitions = tuple(_partition(slices[name], len(names)) for name in names)
    number: Integers = np.zeros(drawn, np.int64)
    for partition in partitions:
        number = number * partition.size + partition.index(table.codes[partition.name])
    size = math.prod(partition.size for partition in partitions)
    scale = rows / drawn
    counts = np.bincount(number, minlength=size).astype(np.float64) * scale
    sums = np.zeros((0, size))
    return FittedCounts(
        slices, partitions, counts, counts * scale, sums, dependence=missed, together=False
    )


def dependence_of_pairs(
    released: ReleasedCounts, number: str = "", first: Collection[str] = ()
) -> float:
    """How much columns that no table holds together may depend on each other: as the strongest.

    The root mean-square contingency of a table is phi with phi^2 = sum (x - e)^2 / (n e), of counts
    x and those e of independent columns, less what noise adds. No function of the one column has a
    greater correlation with one of the other. It is the greatest of counted pairs, each less two
    deviations of its noise, or their mean by inverse variance, if that is greater. Rounds count the
    pairs that the model explains worst (McKenna et al., AIM, arXiv 2201.12677, section 6), so that
    those left out are missed by no more, as a rule. 0 where no pair was counted. Of the ``number``
    of a unit's rows and a column of its ``first`` row it is by such pairs, if any was counted.
    """
    pairs = [(table, pair) for table in released.tables for pair in combinations(table.names, 2)]
    pairs = [
        (table, pair) for table, pair in pairs if number in pair and not set(first).isdisjoint(pair)
    ] or pairs
    figures = [_contingency(table.project(pair), released) for table, pair in pairs]
    if not figures:
        return 0.0
    squares, variances = np.array(figures).T
    mean = float(np.average(squares, weights=1 / variances))
    return math.sqrt(min(max(mean, float((squares - 2 * np.sqrt(variances)).max()), 0.0), 1.0))


def _contingency(pair: NoisyTable, released: ReleasedCounts) -> tuple[float, float]:
    """The mean-square contingency of a pair, and the variance that noise gives it."""
    shares = [
        np.maximum(
            np.bincount(partition.joined, weights=released.bins[partition.name].mass),
            _LEAST_SHARE,
        )
        for partition in pair.partitions
    ]
    rows, expected = float(released.rows), released.rows * np.outer(*shares)
    weights, variances = 1 / (rows * expected), pair.variances
    square = float((weights * (np.square(pair.counts - expected) - variances)).sum())
    noise = 2 * np.square(variances) + 4 * variances * expected * _TYPICAL
    return square, float((np.square(weights) * noise).sum())


def _partition(slices: Histogram, columns: int) -> Partition:
    """The slices; of many, runs of neighbours of about equal mass."""
    most = int(_MOST_CELLS ** (1 / columns))
    if slices.size <= most:
        return slices
    ends = np.cumsum(slices.mass) * most
    parts = np.unique(np.minimum(ends.astype(np.int64), most - 1), return_inverse=True)[1]
    return slices.coarsen(parts.astype(np.int64))
