"""Random range queries over three attributes: the mean error of the share of rows that they find.

A query draws three attributes, and for each a range between two of its values, at random: numbers
and ordered lists in their order, unordered lists in the order they are declared in. The queries
depend on the public domain and a fixed seed alone. A missing value is in no range.

Source: Lin, Yu, Huang, "DPView", section V-A2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.arrays import Floats
from cloister.evaluation.ranges import declared_range
from cloister.schema.columns import Column, Grid
from cloister.schema.domain import Domain, Table

_QUERIES = 1_000
"""Queries of an evaluation."""

_ATTRIBUTES = 3
"""Attributes of a query."""

_SEED = 20_211_001
"""Seed of the queries, fixed so that all tables of one domain get the same."""


@dataclass(frozen=True)
class Range:
    """A range of one attribute, ends included, on the scale of its comparable numbers."""

    attribute: str
    low: float
    high: float


RangeQuery = tuple[Range, ...]


@dataclass(frozen=True)
class RangeQueries:
    """Differences between two tables in the share of rows that queries find, 0 to 1."""

    queries: int
    mean_error: float
    largest_error: float

    def to_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {
            "queries": self.queries,
            "mean_error": self.mean_error,
            "largest_error": self.largest_error,
        }


def compare_queries(real: Table, synthetic: Table) -> RangeQueries:
    """The errors of the same random queries on two tables over one domain.

    Each table has at least one row.

    Privacy: reads real rows without noise. The result is internal.
    """
    return compare_answers(real, synthetic, random_queries(real.domain))


def compare_answers(real: Table, synthetic: Table, queries: Sequence[RangeQuery]) -> RangeQueries:
    """The errors of some queries on two tables over one domain, each of one row at least.

    Privacy: reads real rows without noise. The result is internal.
    """
    errors = np.abs(answers(real, queries) - answers(synthetic, queries))
    return RangeQueries(len(queries), float(errors.mean()), float(errors.max()))


def random_queries(domain: Domain, queries: int = _QUERIES) -> list[RangeQuery]:
    """Random queries over three attributes that are no keys, or over all if there are fewer.

    Public, and always the same for one domain.
    """
    rng = np.random.default_rng(_SEED)
    columns = [column for column in domain if column.kind != "key"]
    width = min(_ATTRIBUTES, len(columns))
    chosen = [rng.choice(len(columns), width, replace=False) for _ in range(queries)]
    return queries_over([[columns[at] for at in places] for places in chosen], rng)


def queries_over(chosen: Sequence[Sequence[Column]], rng: np.random.Generator) -> list[RangeQuery]:
    """One query with random ranges for each choice of attributes."""
    return [tuple(_range(column, rng) for column in columns) for columns in chosen]


def answers(table: Table, queries: Sequence[RangeQuery]) -> Floats:
    """The share of rows (queries,) that each query finds."""
    numbers = {
        name: table.comparable(name)
        for name in {part.attribute for query in queries for part in query}
    }
    found = np.empty(len(queries))
    for at, query in enumerate(queries):
        inside = np.ones(table.rows, dtype=bool)
        for part in query:
            inside &= (numbers[part.attribute] >= part.low) & (numbers[part.attribute] <= part.high)
        found[at] = inside.mean()
    return found


def _range(column: Column, rng: np.random.Generator) -> Range:
    if isinstance(column, Grid):
        low, high = declared_range(column)
        ends = np.sort(rng.uniform(low, high, 2))
    else:
        ends = np.sort(rng.integers(0, column.values, 2))
    return Range(column.name, float(ends[0]), float(ends[1]))
