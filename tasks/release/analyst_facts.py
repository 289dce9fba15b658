"""What a release tells its analysts: columns, pairs, losses, and how far each can be trusted.

Made of the saved model, its spec and the released rows: all are as public as the release, so what
is made of them is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.constraints import functional_dependency
from cloister.evaluation.dependence import dependence, ordinary, rank_correlation
from cloister.figures import count_of, figure
from cloister.models.answers.answer import answer_question
from cloister.models.answers.question import Question
from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import HistogramCounts, ReleasedCounts
from cloister.models.protocol import DatabaseModel, Model, counts_of
from cloister.models.quality import DependencyForecast, forecast_dependencies
from cloister.models.task import DatabaseTask, Task
from cloister.schema.columns import Codes, Column, Grid
from cloister.schema.domain import Table
from cloister.schema.partition import Partition, declared_cells
from cloister.schema.relations import (
    Database,
    ForeignKey,
    joined_domain,
    joined_table,
    joined_tables,
    parent_rows,
    row_tables,
)

_MOST_VALUES = 12
"""Values of a list that are shown: the commonest, and all others together."""

_MOST_RANGES = 16
"""Ranges of a number, or of a long ordered list, that are shown."""

TAIL = 0.005
"""Share of the rows at either end of a number that one range holds, however long it is."""

_NORMAL = 1.96
"""Standard deviations on either side of its mean that hold 95 % of a normal number."""

ERRORS = (0.25, 0.10)
"""Relative errors for which the smallest group is told."""

FAINT = 0.1
"""A strength below which a pair is no news: of 3,000 rows of independent numbers .05 occurs."""

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


@dataclass(frozen=True)
class Pair:
    """Two columns: how strongly they go together, 0 to 1, and the rank correlation of numbers.

    ``counted`` says whether a noisy table holds both; None where the model does not tell.
    """

    first: str
    second: str
    strength: float
    correlation: float | None
    counted: bool | None


@dataclass(frozen=True)
class Loss:
    """Something that the rows are known not to have, in words, and the columns that it is of."""

    words: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableFacts:
    """A table: its columns, its pairs from the strongest on, and what it is known to have lost.

    ``strengths`` (k, k) are of the columns ``names``, ``counted`` the pairs in noisy tables, if the
    model tells; ``least_of_pairs`` is as that of a column.
    """

    name: str
    rows: int
    columns: tuple[ColumnFacts, ...]
    names: tuple[str, ...]
    strengths: Floats
    pairs: tuple[Pair, ...]
    counted: frozenset[frozenset[str]] | None
    least_of_pairs: tuple[int, ...]
    losses: tuple[Loss, ...]

    def counts(self, first: str, second: str) -> bool | None:
        """Whether a noisy table holds two columns; None where the model does not tell."""
        return None if self.counted is None else frozenset((first, second)) in self.counted


@dataclass(frozen=True)
class LinkFacts:
    """A foreign key: ``rows`` that name a parent, and the most and the mean rows of a parent.

    ``pairs`` are of a column of the row and one of its parent, the strongest first.
    """

    table: str
    column: str
    parent: str
    rows: int
    most: int
    mean: float
    pairs: tuple[Pair, ...]


_MOST_PAIRS = 200
"""Pairs of columns that are listed, the strongest first."""


_MOST_ACROSS = 12
"""Pairs of columns of a row and its parent that are listed."""


def table_facts(
    task: DatabaseTask, model: DatabaseModel, released: Database
) -> tuple[TableFacts, ...]:
    """The facts of each table of a release of these rows.

    A table of references alone has no columns here, and no model.
    """
    tables = row_tables(released)
    return tuple(
        _of_table(name, number, task.tables[name], model.models.get(name), tables[name])
        for name, number in released.rows.items()
    )


def link_facts(released: Database) -> tuple[LinkFacts, ...]:
    """The facts of each foreign key of released rows."""
    if not released.schema.keys:
        return ()
    joined = joined_tables(released)
    return tuple(_of_link(released, key, joined[joined_table(key)]) for key in released.schema.keys)


def _of_link(released: Database, key: ForeignKey, rows: Table) -> LinkFacts:
    """Those of a key whose joined rows are given."""
    parents = parent_rows(released, key)
    degrees = np.bincount(parents[parents >= 0], minlength=released.rows[key.parent])
    parent = set(joined_domain(released.schema, key)[1].names)
    pairs = _strongest(rows, dependence(rows), None)
    across = [pair for pair in pairs if (pair.first in parent) != (pair.second in parent)]
    return LinkFacts(
        key.table,
        key.column,
        key.parent,
        int(degrees.sum()),
        int(degrees.max(initial=0)),
        float(degrees.mean()) if len(degrees) else 0.0,
        tuple(pair for pair in across if pair.strength >= FAINT)[:_MOST_ACROSS],
    )


def _of_table(name: str, number: int, task: Task, model: Model | None, rows: Table) -> TableFacts:
    counts = counts_of(model) if model else None
    histograms = {**(model.histograms if model else {}), **(counts.bins if counts else {})}
    counted, names = _counted_pairs(counts), rows.domain.modelled
    means = {name: _mean(model, task, name) for name in names if counts and name in counts.bins}
    strengths = dependence(rows)
    noise = [table.noise for table in counts.tables if len(table.names) == 2] if counts else []
    return TableFacts(
        name,
        number,
        tuple(
            replace(_column(rows, each, histograms.get(each), counts), mean=means.get(each, ()))
            for each in names
        ),
        names,
        strengths,
        _strongest(rows, strengths, counted),
        counted,
        smallest_groups(float(np.median(noise))) if noise else (),
        tuple(_losses(task, histograms, counts, _alone(names, strengths, counted))),
    )


def _counted_pairs(counts: ReleasedCounts | None) -> frozenset[frozenset[str]] | None:
    if counts is None or not counts.tables:
        return None
    pairs = (pair for table in counts.tables for pair in combinations(table.names, 2))
    return frozenset(map(frozenset, pairs))


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


def _column(
    rows: Table, name: str, histogram: Histogram | None, counts: ReleasedCounts | None
) -> ColumnFacts:
    column, codes = rows.domain[name], rows.codes[name]
    noisy = counts.histograms.get(name) if counts else None
    parts = _parts(column, histogram or declared_cells(column), codes)
    shares = np.bincount(parts.index(codes), minlength=parts.size) / max(rows.rows, 1)
    ends = None
    if counts and noisy and histogram:
        ends = _intervals(parts, histogram, noisy, counts.rows)
    groups: list[Group] = []
    apart: list[Group] = []
    for part, (label, first, last) in enumerate(_labelled(parts)):
        low, high = (None, None) if ends is None else (float(end[part]) for end in ends)
        ranged = isinstance(column, Grid) and not parts.apart[first]
        extent = (float(parts.starts[first]), float(parts.stops[last])) if ranged else None
        group = Group(label, float(shares[part]), low, high, extent)
        (apart if parts.apart[first] else groups).append(group)
    if column.kind == "nominal":
        groups.sort(key=lambda group: (group.label.startswith(REST), -group.share))
    least = smallest_groups(noisy.cells.noise) if noisy else ()
    return ColumnFacts(name, tuple(groups), tuple(apart), _quartiles(column, codes), least)


def _intervals(
    parts: Partition, histogram: Histogram, noisy: HistogramCounts, rows: int
) -> tuple[Floats, Floats]:
    """The ends (parts,) of the 95 % intervals of the shares of the real rows."""
    shown = Histogram.over(parts, parts.parts, histogram.shares)
    spread = _NORMAL * noisy.deviations(shown) / rows
    return np.clip(shown.mass - spread, 0.0, 1.0), np.clip(shown.mass + spread, 0.0, 1.0)


def _parts(column: Column, cells: Partition, codes: Codes) -> Partition:
    """The cells, joined to as many parts as can be shown; special and missing values stay apart."""
    counts = np.bincount(cells.cell_index(codes), minlength=cells.cells)
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


def _mean(model: Model | None, task: Task, name: str) -> tuple[str, ...]:
    """The mean of a number in the real rows and the ends of its interval, by the noisy counts."""
    column = task.domain[name]
    if model is None or column.kind != "numeric":
        return ()
    question = Question(f"mean of {name}", "mean", (column,))
    (answer,) = answer_question(question, model, task, "table").records()
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
    values = np.sort(codes[ordinary(column, codes)])
    if column.kind not in ("numeric", "ordered") or not len(values):
        return ()
    middle = values[[len(values) // 4, len(values) // 2, 3 * len(values) // 4]]
    return tuple(_texts(column, middle))


def _strongest(
    rows: Table, strengths: Floats, counted: frozenset[frozenset[str]] | None
) -> tuple[Pair, ...]:
    names = rows.domain.modelled
    upper = np.triu_indices(len(names), 1)
    order = np.argsort(-strengths[upper], kind="stable")[:_MOST_PAIRS]
    return tuple(
        Pair(
            names[first],
            names[second],
            float(strengths[first, second]),
            rank_correlation(rows, names[first], names[second]),
            None if counted is None else frozenset((names[first], names[second])) in counted,
        )
        for first, second in zip(*(axis[order] for axis in upper), strict=True)
    )


def _alone(
    names: Sequence[str], strengths: Floats, counted: frozenset[frozenset[str]] | None
) -> tuple[str, ...]:
    """The columns that no noisy table relates to others, and that follow none in the rows."""
    if counted is None:
        return ()
    joined = frozenset[str]().union(*counted)
    strongest = (strengths - np.eye(len(strengths))).max(axis=1, initial=0.0)
    return tuple(
        name
        for name, strength in zip(names, strongest, strict=True)
        if name not in joined and strength < FAINT
    )


def _losses(
    task: Task,
    histograms: Mapping[str, Histogram],
    counts: ReleasedCounts | None,
    alone: tuple[str, ...],
) -> Iterator[Loss]:
    if keys := tuple(column.name for column in task.domain if column.kind == "key"):
        yield Loss("Numbered afresh: a key names no real row, and joins to no data outside.", keys)
    if alone:
        yield Loss("Drawn by their own distribution alone: they follow no other column.", alone)
    if counts is not None and counts.tables:
        yield from map(_unlearnt, _forecasts(task, counts))
    if merged := tuple(name for name, bins in histograms.items() if _merges_values(bins)):
        yield Loss("Rare values go together with other columns as one group, not each.", merged)
    if ranges := tuple(name for name, bins in histograms.items() if _merges_numbers(bins)):
        ranges = tuple(f"{name} ({histograms[name].size} ranges)" for name in ranges)
        yield Loss(
            "Go together with other columns by ranges. Inside a range values follow the column's "
            "own distribution.",
            ranges,
        )


def _merges_values(bins: Histogram) -> bool:
    return bins.column.kind == "nominal" and bins.size < bins.cells


def _merges_numbers(bins: Histogram) -> bool:
    return isinstance(bins.column, Grid) and bins.size < bins.column.size


def _forecasts(task: Task, counts: ReleasedCounts) -> Iterator[DependencyForecast]:
    """The hard functional dependencies whose mapping is that of the data for large groups alone."""
    noise = {frozenset(table.names): table.noise for table in counts.tables}
    sides = (dependency for rule in task.hard if (dependency := functional_dependency(rule)))
    mapped = {
        (*left, right): noise[frozenset((*left, right))]
        for left, right in sides
        if frozenset((*left, right)) in noise
    }
    forecasts = forecast_dependencies(task, task.domain.modelled, mapped)
    return (forecast for forecast in forecasts if not forecast.learnt)


def _unlearnt(forecast: DependencyForecast) -> Loss:
    left = " and ".join(forecast.left)
    if forecast.least_rows is None:
        when = "may be made up: no noisy table holds both"
    else:
        least, mean = count_of(figure(forecast.least_rows), "row"), figure(forecast.rows)
        when = f"is learnt from about {least} on, and made up below; the average has {mean}"
    return Loss(
        f"Each {left} has one {forecast.right}, as rule {forecast.name} says. Which one {when}."
    )
