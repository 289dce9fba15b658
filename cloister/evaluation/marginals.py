"""Distances of marginals of up to three attributes, and errors of range queries over three.

Numeric attributes are read in 16 equal-width bins of their declared range, with special values
outside it and the missing value as cells of their own; all other attributes are read value by
value. Only cells that hold a row are ever counted, so an attribute may have any number of values.
Kamino (VLDB 2021), section 7.1, metric III, reports the largest cell under the name of total
variation distance, which is half the L1 distance; both are given here.

The range queries, whose error is that of the share of rows that they find, are random.
A query draws three attributes, and for each a range between two of its values, at random: numbers
and ordered lists in their order, unordered lists in the order they are declared in. The queries
depend on the public domain and a fixed seed alone. A missing value is in no range.

Source: Lin, Yu, Huang, "DPView", section V-A2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.schema.columns import Column, Grid
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import Partition, intervals, single_values, tree_of


def declared_range(column: Column) -> tuple[float, float]:
    """The comparable numbers of the first and the last value, without special values outside."""
    last = column.steps if isinstance(column, Grid) else column.values
    first_number, last_number = column.comparable(np.array([0, last - 1], dtype=np.int64))
    return float(first_number), float(last_number)


_BINS = 16
"""Equal-width bins of the declared range of a numeric attribute."""

_MOST_SETS = {1: 10_000, 2: 500, 3: 100}
"""Sets of attributes at most that are measured, by the number of attributes in a set."""

_SEED = 20_240_501
"""Seed of the choice of sets, fixed so that all tables of one width are measured alike."""

_DENSE = 1 << 20
"""Cells of a joint domain up to which all are counted, not only those that occur."""


@dataclass(frozen=True)
class Marginal:
    """Distances of one marginal: half L1, and the largest difference of a cell.

    Both are shares of all rows, 0 to 1.
    """

    attributes: tuple[str, ...]
    half_l1: float
    largest_cell: float


@dataclass(frozen=True)
class Marginals:
    """Distances of the k-way marginals of some or all of the ``possible`` sets of k attributes."""

    ways: int
    possible: int
    sets: tuple[Marginal, ...]

    @property
    def sampled(self) -> bool:
        """Whether only some of the possible sets were measured."""
        return len(self.sets) < self.possible

    @property
    def half_l1(self) -> float:
        """Mean half L1 distance over the sets."""
        return float(np.mean([marginal.half_l1 for marginal in self.sets]))

    @property
    def largest_cell(self) -> float:
        """Mean over the sets of the largest difference of a cell."""
        return float(np.mean([marginal.largest_cell for marginal in self.sets]))

    def to_dict(self) -> dict[str, Any]:
        """Means and the single sets, worst first."""
        worst_first = sorted(self.sets, key=lambda marginal: -marginal.half_l1)
        return {
            "ways": self.ways,
            "sets_measured": len(self.sets),
            "sets_possible": self.possible,
            "sampled": self.sampled,
            "mean_half_l1": self.half_l1,
            "mean_largest_cell": self.largest_cell,
            "sets": [
                {
                    "attributes": list(m.attributes),
                    "half_l1": m.half_l1,
                    "largest_cell": m.largest_cell,
                }
                for m in worst_first
            ],
        }


def compare_marginals(real: Table, synthetic: Table) -> tuple[Marginals, ...]:
    """Distances of the 1-, 2- and 3-way marginals of two tables over one domain; keys are left out.

    All single attributes, at most 500 pairs and at most 100 triples; beyond that, a fixed random
    choice that depends on the number of attributes alone.
    """
    merged = _Merged.of(real, synthetic)
    ways = range(1, min(3, len(merged.names)) + 1)
    return tuple(
        Marginals(
            k,
            comb(len(merged.names), k),
            tuple(map(merged.marginal, attribute_sets(merged.names, k))),
        )
        for k in ways
    )


def compare_sets(
    real: Table, synthetic: Table, sets: Iterable[tuple[str, ...]]
) -> tuple[Marginal, ...]:
    """Distances of the marginals of some sets of attributes of two tables over one domain."""
    merged = _Merged.of(real, synthetic)
    return tuple(map(merged.marginal, sets))


@dataclass(frozen=True)
class TreeErrors:
    """The errors of codes in a tree: half L1 of each level, coarse first, of the codes last.

    ``unseen`` is the share of synthetic rows with a code that no real row has.
    """

    attribute: str
    half_l1: tuple[float, ...]
    unseen: float

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, fit for JSON."""
        return {"attribute": self.attribute, "half_l1": [*self.half_l1], "unseen": self.unseen}


def compare_trees(real: Table, synthetic: Table) -> tuple[TreeErrors, ...]:
    """The errors of each attribute whose values are in a declared tree."""
    columns = [column for column in real.domain if tree_of(column)]
    return tuple(
        _tree_errors(column, real.codes[column.name], synthetic.codes[column.name])
        for column in columns
    )


def _tree_errors(column: Column, real: Integers, synthetic: Integers) -> TreeErrors:
    levels = (*tree_of(column), single_values(column))
    shares = [
        [np.bincount(level.index(rows), minlength=level.size) / len(rows) for level in levels]
        for rows in (real, synthetic)
    ]
    halves = (float(np.abs(a - b).sum()) / 2 for a, b in zip(*shares, strict=True))
    truth, drawn = (each[-1] for each in shares)
    return TreeErrors(column.name, tuple(halves), float(drawn[truth == 0].sum()))


def attribute_sets(names: Sequence[str], ways: int) -> list[tuple[str, ...]]:
    """The sets of ``ways`` attributes that are measured: all, or a fixed random choice of many."""
    if comb(len(names), ways) <= _MOST_SETS[ways]:
        return list(combinations(names, ways))
    return [
        tuple(names[position] for position in chosen) for chosen in _fixed_choice(len(names), ways)
    ]


def _fixed_choice(attributes: int, ways: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng([_SEED, ways])
    chosen: dict[tuple[int, ...], None] = {}
    while len(chosen) < _MOST_SETS[ways]:
        chosen[tuple(sorted(rng.choice(attributes, ways, replace=False).tolist()))] = None
    return sorted(chosen)


def marginal_cells(column: Column) -> Partition:
    """The cells of a column's marginals: 16 equal-width bins of a declared range, or its values.

    Bin b of a grid of s steps begins at its first code c with c / (s - 1) >= b / 16; the greatest
    value is in the last.
    """
    if not isinstance(column, Grid):
        return single_values(column)
    starts = [-(-b * (column.steps - 1) // _BINS) for b in range(_BINS)]
    return intervals(
        column, np.unique([*starts, *range(column.steps, column.size)]).astype(np.int64)
    )


@dataclass(frozen=True)
class _Merged:
    """Both tables as cells, the real rows first: ``cells[name]`` is int32 (both tables' rows,)."""

    cells: dict[str, NDArray[np.int32]]
    sizes: dict[str, int]
    real_rows: int

    @classmethod
    def of(cls, real: Table, synthetic: Table) -> _Merged:
        readings = {name: marginal_cells(real.domain[name]) for name in real.domain.modelled}
        cells = {
            name: np.concatenate(
                [reading.index(table.codes[name]).astype(np.int32) for table in (real, synthetic)]
            )
            for name, reading in readings.items()
        }
        return cls(cells, {name: reading.size for name, reading in readings.items()}, real.rows)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.cells)

    def marginal(self, attributes: tuple[str, ...]) -> Marginal:
        """Distances of one marginal."""
        keys, size = self._keys(attributes)
        real = np.bincount(keys[: self.real_rows], minlength=size) / self.real_rows
        synthetic = np.bincount(keys[self.real_rows :], minlength=size) / (
            len(keys) - self.real_rows
        )
        difference = np.abs(real - synthetic)
        return Marginal(attributes, float(difference.sum() / 2), float(difference.max()))

    def _keys(self, attributes: tuple[str, ...]) -> tuple[Integers, int]:
        """A number (n,) below ``size`` for each row, equal for rows in one joint cell."""
        keys, size = np.zeros(len(self.cells[attributes[0]]), dtype=np.int64), 1
        for name in attributes:
            keys, size = _numbered(
                keys * self.sizes[name] + self.cells[name], size * self.sizes[name]
            )
        return keys, size


def _numbered(keys: Integers, size: int) -> tuple[Integers, int]:
    if size <= _DENSE:
        return keys, size
    present, numbered = np.unique(keys, return_inverse=True)
    return numbered.astype(np.int64), len(present)


def marginal_records(marginals: Sequence[Marginals]) -> Iterator[dict[str, object]]:
    """One flat record for each measured set."""
    for way in marginals:
        for m in way.sets:
            yield {
                "ways": way.ways,
                "attributes": " + ".join(m.attributes),
                "half_l1": m.half_l1,
                "largest_cell": m.largest_cell,
            }


_QUERIES = 1_000
"""Queries of an evaluation."""

_ATTRIBUTES = 3
"""Attributes of a query."""

_QUERY_SEED = 20_211_001
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
    rng = np.random.default_rng(_QUERY_SEED)
    columns = [column for column in domain if column.kind != "key"]
    width = min(_ATTRIBUTES, len(columns))
    chosen = [rng.choice(len(columns), width, replace=False) for _ in range(queries)]
    return queries_over(
        [[columns[position] for position in positions] for positions in chosen], rng
    )


def queries_over(chosen: Sequence[Sequence[Column]], rng: np.random.Generator) -> list[RangeQuery]:
    """One query with random ranges for each choice of attributes."""
    return [tuple(_range(column, rng) for column in columns) for columns in chosen]


def answers(table: Table, queries: Sequence[RangeQuery]) -> Floats:
    """The share of rows (queries,) that each query finds."""
    numbers = {
        name: table.comparable(name)
        for name in {part.attribute for query in queries for part in query}
    }
    shares = np.empty(len(queries))
    for index, query in enumerate(queries):
        inside = np.ones(table.rows, dtype=bool)
        for part in query:
            inside &= (numbers[part.attribute] >= part.low) & (numbers[part.attribute] <= part.high)
        shares[index] = inside.mean()
    return shares


def _range(column: Column, rng: np.random.Generator) -> Range:
    if isinstance(column, Grid):
        low, high = declared_range(column)
        ends = np.sort(rng.uniform(low, high, 2))
    else:
        ends = np.sort(rng.integers(0, column.values, 2))
    return Range(column.name, float(ends[0]), float(ends[1]))
