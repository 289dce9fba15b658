"""Distances of marginals of up to three attributes, and errors of range queries over three.

Numeric attributes are read in 16 equal-width bins of their declared range, with special values
outside it and the missing value as cells of their own; all other attributes are read value by
value. Of very many cells only those that hold a row are counted, so an attribute may have any
number of values. Rows are counted block by block, wherever these lie.
Kamino (VLDB 2021), section 7.1, metric III, reports the largest cell under the name of total
variation distance, which is half the L1 distance; both are given here.

The range queries, whose error is that of the share of rows that they find, are random.
A query draws three attributes, and for each a range between two of its values, at random: numbers
and ordered lists in their order, unordered lists in the order they are declared in. The queries
depend on the public domain and a fixed seed alone. A missing value is in no range.

Source: Lin, Yu, Huang, "DPView", section V-A2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, islice
from math import comb, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.schema.columns import Column, Grid
from cloister.schema.domain import Domain, Table
from cloister.schema.joint_counts import BLOCK_ROWS, Joint, JointCounts, blocks
from cloister.schema.partition import Partition, intervals, single_values, tree_of

if TYPE_CHECKING:  # plans read this module, and need no pandas
    import pandas as pd


def declared_range(column: Column) -> tuple[float, float]:
    """The comparable numbers of the first and the last value, without special values outside."""
    last = column.steps if isinstance(column, Grid) else column.values
    first_number, last_number = column.comparable(np.array([0, last - 1], dtype=np.int64))
    return float(first_number), float(last_number)


BINS = 16
"""Equal-width bins of the declared range of a numeric attribute."""

_MOST_SETS = {1: 10_000, 2: 500, 3: 100}
"""Sets of attributes at most that are measured, by the number of attributes in a set."""

_SEED = 20_240_501
"""Seed of the choice of sets, fixed so that all tables of one width are measured alike."""

_DENSE = 1 << 20
"""Cells of a joint domain up to which all are counted, not only those that occur."""

_COUNTED_CELLS = 1 << 24
"""Cells that are counted in one pass over the rows, 128 MB; more passes take as long together."""


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
    names = real.domain.modelled
    ways = range(1, min(3, len(names)) + 1)
    sets = {k: attribute_sets(names, k) for k in ways}
    marginals = iter(compare_sets(real, synthetic, chain(*sets.values())))
    return tuple(
        Marginals(k, comb(len(names), k), tuple(islice(marginals, len(sets[k])))) for k in ways
    )


def compare_sets(
    real: Table, synthetic: Table, sets: Iterable[tuple[str, ...]]
) -> tuple[Marginal, ...]:
    """Distances of the marginals of some sets of attributes of two tables over one domain.

    Memory is that of a block of rows and of some millions of cells; of a set with more, of the
    cells that hold a row.
    """
    wanted = tuple(sets)
    cells = {name: marginal_cells(real.domain[name]) for name in dict.fromkeys(chain(*wanted))}
    joints = {names: [cells[name] for name in names] for names in wanted}
    marginals = {}
    for batch in _batches(joints):
        kernel = JointCounts([joints[names] for names in batch])
        for names, *counts in zip(batch, kernel.of(real), kernel.of(synthetic), strict=True):
            marginals[names] = _marginal(names, *counts)
    for names in joints.keys() - marginals.keys():
        occurring = [_occurring(joints[names], table) for table in (real, synthetic)]
        marginals[names] = _marginal(names, *occurring[0].align(occurring[1], fill_value=0))
    return tuple(marginals[names] for names in wanted)


def _batches(joints: Mapping[tuple[str, ...], Joint]) -> Iterator[list[tuple[str, ...]]]:
    """The sets all of whose cells are counted, in batches with so many cells that fit in memory."""
    batch, cells = list[tuple[str, ...]](), 0
    for names, joint in joints.items():
        size = prod(part.size for part in joint)
        if size > _DENSE:
            continue
        if batch and cells + size > _COUNTED_CELLS:
            yield batch
            batch, cells = [], 0
        batch.append(names)
        cells += size
    if batch:
        yield batch


def _occurring(joint: Joint, table: Table) -> pd.Series:
    """Numbers of rows by the cells that hold one, in order."""
    import pandas as pd

    rows = table.select(part.name for part in joint)
    blocks = pd.concat([*rows.each(partial(_count_occurring, joint))])
    return blocks.groupby(level=list(range(len(joint)))).sum()


def _count_occurring(joint: Joint, block: Table) -> pd.Series:
    import pandas as pd

    cells = pd.DataFrame({part.name: part.index(block.codes[part.name]) for part in joint})
    return cells.groupby([*cells]).size()


def _marginal(
    attributes: tuple[str, ...], real: Integers | pd.Series, synthetic: Integers | pd.Series
) -> Marginal:
    """Distances of the marginals of two tables, by the numbers of rows in their cells."""
    difference = np.abs(np.asarray(real / real.sum()) - np.asarray(synthetic / synthetic.sum()))
    return Marginal(attributes, float(difference.sum() / 2), float(difference.max()))


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
    return tuple(_tree_errors(column, real, synthetic) for column in columns)


def _tree_errors(column: Column, real: Table, synthetic: Table) -> TreeErrors:
    codes = single_values(column)
    levels, values = (*tree_of(column), codes), np.arange(column.size)
    counts = [(JointCounts([[codes]]).of(table)[0], table.rows) for table in (real, synthetic)]
    shares = [
        [np.bincount(level.index(values), rows, level.size) / whole for level in levels]
        for rows, whole in counts
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
    starts = [-(-b * (column.steps - 1) // BINS) for b in range(BINS)]
    return intervals(
        column, np.unique([*starts, *range(column.steps, column.size)]).astype(np.int64)
    )


def cells_of(table: Table, name: str) -> Integers:
    """The cell (rows,) of an attribute that each row is in."""
    return marginal_cells(table.domain[name]).index(table.codes[name])


def joint_cells(tables: Sequence[Table], sets: Iterable[Sequence[str]]) -> Iterator[list[Integers]]:
    """For each set of attributes, the cell of each row of the tables, numbered from 0 for all."""
    ends = np.cumsum([table.rows for table in tables])
    names = tables[0].domain.modelled
    cells = {name: np.concatenate([cells_of(table, name) for table in tables]) for name in names}
    for attributes in sets:
        joint = np.zeros(ends[-1], dtype=np.int64)
        for name in attributes:
            joint = joint * (cells[name].max() + 1) + cells[name]
        yield np.split(np.unique(joint, return_inverse=True)[1], ends[:-1])


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
    names = dict.fromkeys(part.attribute for query in queries for part in query)
    return table.select(names).total(partial(_count_found, queries)) / table.rows


def _count_found(queries: Sequence[RangeQuery], rows: Table) -> Integers:
    """The number of rows (queries,) that each query finds, a part of them at a time."""
    found = np.zeros(len(queries), dtype=np.int64)
    for part in blocks(rows.rows, BLOCK_ROWS):
        some = rows.take(part)
        numbers = {name: some.comparable(name) for name in some.domain.names}
        for index, query in enumerate(queries):
            inside = np.ones(some.rows, dtype=bool)
            for each in query:
                column = numbers[each.attribute]
                inside &= (column >= each.low) & (column <= each.high)
            found[index] += np.count_nonzero(inside)
    return found


def _range(column: Column, rng: np.random.Generator) -> Range:
    if isinstance(column, Grid):
        low, high = declared_range(column)
        ends = np.sort(rng.uniform(low, high, 2))
    else:
        ends = np.sort(rng.integers(0, column.values, 2))
    return Range(column.name, float(ends[0]), float(ends[1]))
