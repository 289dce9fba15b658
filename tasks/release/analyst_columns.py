"""What a release tells of one column: groups of its values with intervals, the mean, its quartiles.

Made of the saved model, its spec and the released rows, so post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cloister.arrays import TINY, Integers
from cloister.evaluation.dependence import ordinary
from cloister.figures import count_of
from cloister.models.answers.answer import answer_question, shares_of_parts
from cloister.models.answers.question import Question
from cloister.models.core.bins import Histogram
from cloister.models.protocol import CountedRows
from cloister.schema.columns import Codes, Column, Grid
from cloister.schema.domain import Table
from cloister.schema.partition import Partition, declared_cells

_MOST_VALUES = 12
"""Values of a list that are shown: the commonest, and all others together."""


_MOST_RANGES = 16
"""Ranges of a number, or of a long ordered list, that are shown."""


TAIL = 0.005
"""Share of the rows at either end of a number that one range holds, however long it is."""


_ROWS_COUNTED = 2**16
"""Rows that are counted at a time: their numbers take 512 KiB."""


_NORMAL = 1.96
"""Standard deviations on either side of its mean that hold 95 % of a normal number."""


ERRORS = (0.25, 0.10)
"""Relative errors for which the smallest group is told."""


REST = "all others"
"""The label of all values of a list that are not shown."""


@dataclass(frozen=True)
class Group:
    """Some values of a column: their share of the released rows, 0 to 1.

    ``low`` and ``high`` are the ends of a 95 % interval for their share of the real rows; None
    where the model keeps no noisy counts of them. ``extent`` are fine codes of a drawn range.
    """

    label: str
    share: float
    low: float | None = None
    high: float | None = None
    extent: tuple[float, float] | None = None


@dataclass(frozen=True)
class ColumnFacts:
    """A column: groups of its values, those of special and missing ones ``apart``.

    ``mean`` is that of the real rows with the ends of its 95 % interval, as text, special and
    missing values left out; empty where counts do not tell. ``quartiles`` are of the released rows,
    as text; empty without an order. ``least`` are the smallest groups whose count is within each of
    `ERRORS`, in rows; empty where noise is unknown.
    """

    name: str
    groups: tuple[Group, ...]
    apart: tuple[Group, ...]
    quartiles: tuple[str, ...]
    least: tuple[int, ...]
    mean: tuple[str, ...] = ()


def column_facts(rows: Table, name: str, counted: CountedRows | None) -> ColumnFacts:
    """The facts of a column of released rows, by what was counted of it."""
    column, codes = rows.domain[name], rows.stored[name]
    histogram = histogram_of(counted, column) if counted else None
    noisy = counted and counted.released and counted.released.histograms.get(counted.name_of(name))
    known = counted is not None and counted.shares_known(name)
    parts = _parts(column, histogram or declared_cells(column), codes)
    shares = _counted(parts.index, codes, parts.size) / max(rows.rows, 1)
    ends: Ends = [None] * parts.size
    if counted and known and histogram:
        ends = _intervals(parts, histogram, counted)
    groups: list[Group] = []
    apart: list[Group] = []
    for part, (label, first, last) in enumerate(_labelled(parts)):
        low, high = ends[part] or (None, None)
        ranged = isinstance(column, Grid) and not parts.apart[first]
        extent = (float(parts.starts[first]), float(parts.stops[last])) if ranged else None
        group = Group(label, float(shares[part]), low, high, extent)
        (apart if parts.apart[first] else groups).append(group)
    if column.kind == "nominal":
        groups.sort(key=lambda group: (group.label.startswith(REST), -group.share))
    least = noisy and known and counted and not counted.number
    return ColumnFacts(
        name,
        tuple(groups),
        tuple(apart),
        _quartiles(column, codes),
        smallest_groups(noisy.cells.noise) if noisy and least else (),
        _mean_of(counted, column) if counted and known else (),
    )


def histogram_of(counted: CountedRows, column: Column) -> Histogram | None:
    """The released histogram of a column; of units without rows it has no cell."""
    histogram = counted.histograms.get(counted.name_of(column.name))
    if histogram is None or not counted.number:
        return histogram
    rows = histogram.starts < column.size
    parts = np.unique(histogram.parts[rows], return_inverse=True)[1].astype(np.int64)
    shares = histogram.shares[rows]
    cells = Partition(column, histogram.starts[rows], parts)
    return Histogram.over(cells, parts, shares / max(float(shares.sum()), TINY))


def smallest_groups(deviation: float) -> tuple[int, ...]:
    """The smallest groups, in rows, whose count is within each of `ERRORS` in 95 cases of 100.

    A released count of c rows has the variance of the noise, and c for drawing as many rows at
    random: c^2 r^2 = 1.96^2 (deviation^2 + c) for a relative error r.
    """
    square = _NORMAL**2
    return tuple(
        math.ceil((square + math.sqrt(square**2 + 4 * r**2 * square * deviation**2)) / (2 * r**2))
        for r in ERRORS
    )


Ends = list[tuple[float, float] | None]
"""The ends of the 95 % interval of the share of each part; None where counts do not tell."""


def _intervals(parts: Partition, histogram: Histogram, counted: CountedRows) -> Ends:
    """The ends of the intervals of the shares of the real rows."""
    assert counted.released is not None
    if counted.number:
        return shares_of_parts(counted, parts)
    shown = Histogram.over(parts, parts.parts, histogram.shares)
    noisy = counted.released.histograms[parts.name]
    spread = _NORMAL * noisy.deviations(shown) / counted.released.rows
    ends = (np.clip(shown.mass + side * spread, 0.0, 1.0).tolist() for side in (-1, 1))
    return list(zip(*ends, strict=True))


def _counted(index: Callable[[Codes], Codes], codes: Codes, size: int) -> Integers:
    """How many of the codes have each number below ``size`` by an index; in blocks of rows."""
    counts = np.zeros(size, dtype=np.int64)
    for first in range(0, len(codes), _ROWS_COUNTED):
        counts += np.bincount(index(codes[first : first + _ROWS_COUNTED]), minlength=size)
    return counts


def _parts(column: Column, cells: Partition, codes: Codes) -> Partition:
    """The cells, joined to as many parts as can be shown; special and missing values stay apart."""
    counts = _counted(cells.cell_index, codes, cells.cells)
    numbers = np.arange(cells.cells)
    if column.kind == "nominal":
        rank = np.empty(cells.cells, dtype=np.int64)
        rank[np.lexsort((numbers, -counts, cells.apart))] = numbers
        joined = np.where((rank >= _MOST_VALUES) & ~cells.apart, _MOST_VALUES, rank)
        few = int((~cells.apart).sum()) <= _MOST_VALUES + 1
        joined = numbers if few else joined
    else:
        joined = np.where(cells.apart, cells.cells + numbers, _ranges(cells, counts))
    parts = np.unique(joined, return_inverse=True)[1].astype(np.int64)
    return Partition(column, cells.starts, parts)


def _ranges(cells: Partition, counts: Integers) -> Integers:
    """The range (cells,) of each cell: even ones between the tails of the rows, and the tails."""
    rest = np.where(cells.apart, 0, counts)
    if int((~cells.apart).sum()) <= _MOST_RANGES or not rest.sum():
        return np.arange(cells.cells)
    below = np.cumsum(rest) / rest.sum()
    first, last = np.searchsorted(below, [TAIL, 1.0 - TAIL])
    inside = slice(first, last + 1)
    begin, end = cells.starts[first], cells.stops[last]
    middles = (cells.starts[inside] + cells.stops[inside]) / 2
    ranges = np.zeros(cells.cells, dtype=np.int64)
    ranges[inside] = 1 + (middles - begin) * _MOST_RANGES // (end - begin)
    ranges[last + 1 :] = _MOST_RANGES + 1
    return ranges


def _labelled(parts: Partition) -> Iterator[tuple[str, int, int]]:
    """The values of each part as text, and the first and the last of its cells."""
    column, first = parts.column, np.unique(parts.parts, return_index=True)[1]
    last = parts.cells - 1 - np.unique(parts.parts[::-1], return_index=True)[1]
    ends = np.stack([parts.starts[first], parts.stops[last] - 1])
    texts = np.array(_texts(column, ends.ravel()), dtype=object).reshape(ends.shape)
    values = np.bincount(parts.parts, weights=parts.widths).astype(np.int64)
    for part, (begin, end) in enumerate(texts.T):
        label = begin if begin == end else f"{begin} to {end}"
        if ends[0, part] == column.null_code:
            label = "missing"
        elif column.kind == "nominal" and values[part] > 1:
            label = f"{REST} ({count_of(int(values[part]), 'value')})"
        yield label, int(first[part]), int(last[part])


def _texts(column: Column, codes: Codes) -> list[str]:
    """Values as text, decimal numbers with all of their declared places."""
    values, places = column.decode(codes), getattr(column.attribute, "decimals", None)
    return [f"{value:.{places}f}" for value in values] if places else [*values.astype(str)]


def _mean_of(counted: CountedRows, column: Column) -> tuple[str, ...]:
    """The mean of a number in the real rows and the ends of its interval, by the noisy counts."""
    if column.kind != "numeric" or counted.name_of(column.name) not in counted.histograms:
        return ()
    question = Question(f"mean of {column.name}", "mean", (column,))
    (answer,) = answer_question(question, counted, "table").records()
    ends = [answer[end] for end in ("estimate", "low", "high")]
    if None in ends:
        return ()
    if any(isinstance(end, str) for end in ends):
        return tuple(map(str, ends))
    width = max(ends[2] - ends[1], 1e-9 + abs(ends[0]) / 1e6)
    places = 1 - math.floor(math.log10(width))
    return tuple(f"{round(end, places):.{max(places, 0)}f}" for end in ends)


def _quartiles(column: Column, codes: Codes) -> tuple[str, ...]:
    """The quartiles of ordinary values, as text; none without an order."""
    if column.kind not in ("numeric", "ordered"):
        return ()
    values = codes[ordinary(column, codes)]
    if not len(values):
        return ()
    ranks = [len(values) // 4, len(values) // 2, 3 * len(values) // 4]
    middle = np.partition(values, ranks)[ranks].astype(np.int64)
    return tuple(_texts(column, middle))
