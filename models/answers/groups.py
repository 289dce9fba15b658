"""The groups of rows that a question is of, and the weights of its conditions and numbers.

A column is cut into slices: inside one all values are in the same cell, bin and group, and fulfil
the same conditions. What shares of the rows its slices might have had, a bootstrap says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import prod
from typing import cast

import numpy as np

from cloister.arrays import Floats
from cloister.constraints.denial import holds
from cloister.errors import InputError
from cloister.models.answers.question import Clause, Filter, Question
from cloister.models.core.bins import Histogram, coarse
from cloister.models.core.histograms import HistogramCounts
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.core.released_counts import ReleasedCounts
from cloister.schema.columns import Column, Grid
from cloister.schema.partition import Partition, declared_cells, intervals, single_values

_MOST_GROUPS = 2_000
"""Groups of a question at most: what a page can hold, and a minute can answer."""

_MOST_SINGLE = 24
"""Values of a number at most that are groups of their own; others are in ranges."""

_RANGES = 8
"""Ranges of a number that groups are made of, of about equally many rows."""

REPLICATES = 25
"""Bootstrap samples of a histogram: they give a deviation to about a seventh of it."""

SEED = 20_261_126
"""Public seed of all that is drawn, so that a question has one answer."""


def slices_of(bins: Histogram, cuts: Sequence[int], cells: Partition) -> Histogram:
    """A column in slices: each lies in one bin, one declared cell, and on one side of each cut."""
    starts = np.unique(np.concatenate([bins.starts, cells.starts, np.asarray(cuts, np.int64)]))
    slices = intervals(bins.column, starts[starts < bins.column.size])
    whole = bins.cell_index(slices.starts)
    shares = bins.shares[whole] * slices.widths / bins.widths[whole]
    return Histogram.over(slices, np.arange(slices.cells, dtype=np.int64), shares)


@dataclass(frozen=True)
class Replicates:
    """Bootstrap samples of a histogram: ``shares`` (samples, slices) with drawn noise.

    ``noise`` (samples, cells) is that of each table of the histogram.
    """

    shares: Floats
    noise: Sequence[tuple[NoisyTable, Floats]]


DrawReplicates = Mapping[str, Callable[[], Replicates]]
"""What draws the bootstrap samples of columns, once."""


@dataclass(frozen=True)
class Weight:
    """What each slice of a column counts for: the mean and the mean square over its values.

    Shapes (slices,).
    """

    mean: Floats
    square: Floats

    @classmethod
    def of(cls, numbers: Floats) -> Weight:
        """The same number for all values of a slice."""
        return cls(numbers, np.square(numbers))

    def times(self, other: Weight) -> Weight:
        """The product of two weights, one of which does not vary within slices."""
        return Weight(self.mean * other.mean, self.square * other.square)


Weights = Mapping[str, Weight]
"""The weight of a row: the product of those of its columns; of one left out it is 1."""


@dataclass(frozen=True)
class RowGroup:
    """A group: its values in words, the weights of its rows, and of those ``chosen`` among them.

    What is chosen of a share are the rows that it is of, else all.
    """

    group: Mapping[str, str]
    rows: Weights
    chosen: Weights


def cut_slices(bins: Histogram, question: Question) -> Histogram:
    """The slices of a column, cut where a condition of the question begins or ends to hold."""
    cuts = [
        cut
        for clause in (*question.where.clauses, *question.having.clauses)
        for predicate in clause.predicates
        if clause.column.name == bins.name and isinstance(predicate.right, float)
        for cut in _cuts(bins.column, predicate.right)
    ]
    return slices_of(bins, cuts, declared_cells(bins.column))


def _cuts(column: Column, constant: float) -> tuple[int, ...]:
    """The codes from which on a number is at least a constant, and greater."""
    if not isinstance(column, Grid):
        return ()
    codes = range(column.steps)

    def number(code: int) -> float:
        return float(column.comparable(np.array([code]))[0])

    return bisect_left(codes, constant, key=number), bisect_right(codes, constant, key=number)


def cases_of(
    question: Question, bins: Mapping[str, Histogram], slices: Mapping[str, Histogram]
) -> tuple[RowGroup, ...]:
    """The groups of a question, by the bins of its columns; of a table its cells too.

    Raises:
        InputError: there are too many.
    """
    cells = question.of if question.kind == "table" else ()
    columns = (*question.by, *cells)
    groups = [
        list(_groups(bins[column.name], slices[column.name], column.size)) for column in columns
    ]
    if (number := prod(map(len, groups))) > _MOST_GROUPS:
        raise InputError(
            f"the question has {number:,} groups, more than {_MOST_GROUPS:,}; ask by fewer "
            "columns, or of some of their values with where"
        )
    where = conditions(question.where, slices)
    having = conditions(question.having, slices)
    return tuple(
        _case(columns, chosen, len(question.by), where, having) for chosen in product(*groups)
    )


def _case(
    columns: Sequence[Column],
    chosen: Sequence[tuple[str, Floats]],
    by: int,
    where: Mapping[str, Floats],
    having: Mapping[str, Floats],
) -> RowGroup:
    named = list(zip((column.name for column in columns), chosen, strict=True))
    masks = [(name, mask) for name, (_, mask) in named]
    rows = _joined([*where.items(), *masks[:by]])
    cells = _joined([*where.items(), *masks, *having.items()])
    return RowGroup({name: words for name, (words, _) in named}, rows, cells)


def _joined(masks: Sequence[tuple[str, Floats]]) -> Weights:
    """Weights of rows that all masks admit."""
    joined: dict[str, Floats] = {}
    for name, mask in masks:
        joined[name] = joined.get(name, 1.0) * mask
    return {name: Weight.of(mask) for name, mask in joined.items()}


def conditions(condition: Filter, slices: Mapping[str, Histogram]) -> dict[str, Floats]:
    """Where a condition on columns holds, 1 or 0, in each of their slices."""
    masks: dict[str, Floats] = {}
    for clause in condition.clauses:
        mask = _holding(clause, slices[clause.column.name])
        join = np.maximum if condition.either else np.minimum
        masks[clause.column.name] = join(masks.get(clause.column.name, mask), mask)
    return masks


def _holding(clause: Clause, slices: Histogram) -> Floats:
    """Where a clause holds, 1 or 0, in each slice of its column."""
    numbers = slices.column.comparable(slices.starts)
    holding = [
        holds(predicate.op, numbers, cast("float | None", predicate.right))
        for predicate in clause.predicates
    ]
    inside = np.any(holding, axis=0) if clause.either else np.all(holding, axis=0)
    return np.asarray(inside, dtype=np.float64)


def _groups(bins: Histogram, slices: Histogram, size: int) -> Iterator[tuple[str, Floats]]:
    """The groups of a column: words, and where it is, 1 or 0, in each slice.

    Codes from ``size`` on no row has: they are those of units without rows.
    """
    parts = _group_parts(bins).index(slices.starts)
    for part in dict.fromkeys(parts.tolist()):
        inside = np.flatnonzero(parts == part)
        if slices.starts[inside[0]] >= size:
            continue
        ends = slices.starts[inside[0]], slices.stops[inside[-1]] - 1
        yield _words(slices.column, *ends), (parts == part).astype(np.float64)


def _group_parts(bins: Histogram) -> Partition:
    """The values of a list, or of a short grid; else ranges, special and missing values apart."""
    column = bins.column
    if not isinstance(column, Grid) or column.steps <= _MOST_SINGLE:
        return single_values(column)
    return coarse(bins, _RANGES)


def _words(column: Column, first: int, last: int) -> str:
    low, high = (_word(column, code) for code in (first, last))
    return low if first == last else f"{low} to {high}"


def _word(column: Column, code: int) -> str:
    if code == column.null_code:
        return "missing"
    return str(column.decode(np.array([code], dtype=np.int64)).iloc[0])


def mean_weights(slices: Histogram) -> tuple[Weight, Weight]:
    """The numbers of a column's slices, and 1 where there is one: neither special nor missing."""
    present = (~slices.apart).astype(np.float64)
    first = np.nan_to_num(slices.column.comparable(slices.starts))
    last = np.nan_to_num(slices.column.comparable(slices.stops - 1))
    width = slices.widths.astype(np.float64)
    # of a number that is even over w values from a to b
    spread = np.square(last - first) * (width + 1) / (12 * np.maximum(width - 1, 1))
    mean = (first + last) / 2 * present
    return Weight(mean, (np.square(mean) + spread) * present), Weight.of(present)


def counting_weight(slices: Histogram) -> Weight:
    """The numbers of rows of units, in slices of the column that holds them."""
    first, last = (
        np.rint(slices.column.comparable(codes)) for codes in (slices.starts, slices.stops - 1)
    )
    spread = np.square(last - first) / 12
    mean = (first + last) / 2
    return Weight(mean, np.square(mean) + spread)


def weighed(case: RowGroup, number: str, weight: Weight, names: Mapping[str, str]) -> RowGroup:
    """A group of units that count as many times as they have rows: their ``number``.

    Its columns have other ``names``.
    """
    group = {names.get(name, name): words for name, words in case.group.items()}
    return RowGroup(group, {number: weight, **case.rows}, {number: weight, **case.chosen})


def times(first: Weights, second: Weights) -> Weights:
    """The products of weights, by column."""
    return {**first, **second} | {
        name: first[name].times(second[name]) for name in first if name in second
    }


def value_at(slices: Histogram, number: int, part: float) -> float:
    """The value at a part of a slice's values, from its first on."""
    width = int(slices.widths[number])
    code = slices.starts[number] + min(max(int(part * width), 0), width - 1)
    return float(slices.column.comparable(np.array([code]))[0])


def replicates_of(
    released: ReleasedCounts, names: Sequence[str], slices: Mapping[str, Histogram]
) -> DrawReplicates:
    """What draws the bootstrap samples of the histograms of columns that are numbers."""
    numbers = [name for name in names if isinstance(slices[name].column, Grid)]
    return {name: cache(partial(_replicates, released, slices[name])) for name in numbers}


def _replicates(released: ReleasedCounts, slices: Histogram) -> Replicates:
    """Shares of slices, estimated again from the noisy counts with noise added anew.

    Not from the estimated shares, where counts that noise made negative are zero: there shares
    that are estimated again stay too near ("Inconsistency of the bootstrap when a parameter is on
    the boundary of the parameter space", Andrews, Econometrica 2000). These move by too much.
    """
    rng, counted = np.random.default_rng(SEED), released.histograms[slices.name]
    single = counted.values is not None and counted.values.partitions[0].separate
    values = counted.values if single else None
    tables = [*counted.coarser, counted.cells, *([values] if values else [])]
    noise = [rng.normal(0, table.noise, (REPLICATES, len(table.counts))) for table in tables]
    shares = []
    for sample in range(REPLICATES):
        again = [
            table.with_counts(table.counts + drawn[sample])
            for table, drawn in zip(tables, noise, strict=True)
        ]
        cells, coarser = again[len(counted.coarser)], tuple(again[: len(counted.coarser)])
        histogram = HistogramCounts(cells, coarser, again[-1] if values else counted.values)
        shares.append(_over_slices(slices, *histogram.shares(released.rows)))
    return Replicates(np.array(shares), list(zip(tables, noise, strict=True)))


def _over_slices(slices: Histogram, cells: Partition, shares: Floats) -> Floats:
    """Shares of cells, even inside cells, as shares of slices."""
    whole = cells.cell_index(slices.starts)
    return np.asarray(shares[whole] * slices.widths / cells.widths[whole])
