"""What a release tells its analysts: columns, pairs, losses, and how far each can be trusted.

Of single columns: `cloister.tasks.release.analyst_columns`. Made of the saved model, its spec and
the released rows: all are as public as the release, so what is made of them is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from cloister.arrays import Floats
from cloister.constraints import functional_dependency
from cloister.evaluation.dependence import dependence, rank_correlations
from cloister.figures import count_of, figure
from cloister.models.core.bins import Histogram
from cloister.models.protocol import CountedRows, DatabaseModel, counted_tables
from cloister.models.quality import DependencyForecast, forecast_dependencies
from cloister.models.task import DatabaseTask, Task
from cloister.schema import relations
from cloister.schema.columns import Grid
from cloister.schema.domain import Table
from cloister.tasks.release.analyst_columns import (
    ColumnFacts,
    column_facts,
    histogram_of,
    smallest_groups,
)

FAINT = 0.1
"""A strength below which a pair is no news: of 3,000 rows of independent numbers .05 occurs."""


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
class KnownLoss:
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
    losses: tuple[KnownLoss, ...]

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
    task: DatabaseTask, model: DatabaseModel, released: relations.Database
) -> tuple[TableFacts, ...]:
    """The facts of each table of a release of these rows.

    A table of references alone has no columns here, and no model.
    """
    tables, counted = relations.row_tables(released), counted_tables(model, task)
    return tuple(
        _of_table(name, number, task.tables[name], counted.get(name), tables[name])
        for name, number in released.rows.items()
    )


def link_facts(released: relations.Database) -> tuple[LinkFacts, ...]:
    """The facts of each foreign key of released rows."""
    if not released.schema.keys:
        return ()
    joined = relations.joined_tables(released)
    return tuple(
        _of_link(released, key, joined[relations.joined_table(key)]) for key in released.schema.keys
    )


def _of_link(released: relations.Database, key: relations.ForeignKey, rows: Table) -> LinkFacts:
    """Those of a key whose joined rows are given."""
    parents = relations.parent_rows(released, key)
    degrees = np.bincount(parents[parents >= 0], minlength=released.rows[key.parent])
    parent = set(relations.joined_domain(released.schema, key)[1].names)
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


def _of_table(
    name: str, number: int, task: Task, counted: CountedRows | None, rows: Table
) -> TableFacts:
    """Those of one table of a model."""
    names, strengths = rows.domain.modelled, dependence(rows)
    noisy, pairs = _noisy_tables(counted), _counted_pairs(counted)
    histograms = {
        each: histogram
        for each in names
        if counted and (histogram := histogram_of(counted, rows.domain[each]))
    }
    of_rows = counted is not None and not counted.number
    alone = _alone(names, strengths, pairs) if of_rows else ()
    pair_noise = [each for columns, each in noisy.items() if len(columns & set(names)) == 2]
    noise = pair_noise if of_rows else []
    return TableFacts(
        name,
        number,
        tuple(column_facts(rows, each, counted) for each in names),
        names,
        strengths,
        _strongest(rows, strengths, pairs),
        pairs,
        smallest_groups(float(np.median(noise))) if noise else (),
        tuple(_losses(task, histograms, noisy, alone)),
    )


NoisyTables = Mapping[frozenset[str], float]
"""The noise of each noisy table, by the columns that it holds."""


def _noisy_tables(counted: CountedRows | None) -> NoisyTables:
    tables = counted.released.tables if counted and counted.released else ()
    return {frozenset(counted.columns_of(each.names)): each.noise for each in tables if counted}


def _counted_pairs(counted: CountedRows | None) -> frozenset[frozenset[str]] | None:
    noisy = _noisy_tables(counted)
    if not noisy:
        return None
    return frozenset(frozenset(pair) for names in noisy for pair in combinations(names, 2))


def _strongest(
    rows: Table, strengths: Floats, counted: frozenset[frozenset[str]] | None
) -> tuple[Pair, ...]:
    names = rows.domain.modelled
    upper = np.triu_indices(len(names), 1)
    order = np.argsort(-strengths[upper], kind="stable")[:_MOST_PAIRS]
    pairs = [(names[first], names[second]) for first, second in np.column_stack(upper)[order]]
    return tuple(
        Pair(*pair, float(strength), ranks, None if counted is None else frozenset(pair) in counted)
        for pair, strength, ranks in zip(
            pairs, strengths[upper][order], rank_correlations(rows, pairs), strict=True
        )
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
    noisy: NoisyTables,
    alone: tuple[str, ...],
) -> Iterator[KnownLoss]:
    if keys := tuple(column.name for column in task.domain if column.kind == "key"):
        yield KnownLoss(
            "Numbered afresh: a key names no real row, and joins to no data outside.", keys
        )
    if alone:
        yield KnownLoss(
            "Drawn by their own distribution alone: they follow no other column.", alone
        )
    if noisy:
        yield from map(_unlearnt, _forecasts(task, noisy))
    if merged := tuple(name for name, bins in histograms.items() if _merges_values(bins)):
        yield KnownLoss(
            "Rare values go together with other columns as one group, not each.", merged
        )
    if ranges := tuple(name for name, bins in histograms.items() if _merges_numbers(bins)):
        ranges = tuple(f"{name} ({histograms[name].size} ranges)" for name in ranges)
        yield KnownLoss(
            "Go together with other columns by ranges. Inside a range values follow the column's "
            "own distribution.",
            ranges,
        )


def _merges_values(bins: Histogram) -> bool:
    return bins.column.kind == "nominal" and bins.size < bins.cells


def _merges_numbers(bins: Histogram) -> bool:
    return isinstance(bins.column, Grid) and bins.size < bins.column.size


def _forecasts(task: Task, noise: NoisyTables) -> Iterator[DependencyForecast]:
    """The hard functional dependencies whose mapping is that of the data for large groups alone."""
    sides = (dependency for rule in task.hard if (dependency := functional_dependency(rule)))
    mapped = {
        (*left, right): noise[frozenset((*left, right))]
        for left, right in sides
        if frozenset((*left, right)) in noise
    }
    forecasts = forecast_dependencies(task, task.domain.modelled, mapped)
    return (forecast for forecast in forecasts if not forecast.learnt)


def _unlearnt(forecast: DependencyForecast) -> KnownLoss:
    left = " and ".join(forecast.left)
    if forecast.least_rows is None:
        when = "may be made up: no noisy table holds both"
    else:
        least, mean = count_of(figure(forecast.least_rows), "row"), figure(forecast.rows)
        when = f"is learnt from about {least} on, and made up below; the average has {mean}"
    return KnownLoss(
        f"Each {left} has one {forecast.right}, as rule {forecast.name} says. Which one {when}."
    )
