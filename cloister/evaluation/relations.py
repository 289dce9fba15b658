"""Measures of relationships between tables: references, rows of one unit, joins.

Privacy: computed from real rows without noise; internal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array

from cloister.arrays import Floats, Integers, place_among_equal
from cloister.evaluation.marginals import (
    Marginal,
    Marginals,
    RangeQueries,
    compare_answers,
    compare_sets,
    marginal_cells,
    queries_over,
)
from cloister.schema.columns import Column
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import Partition
from cloister.schema.relations import MISSING, Database, ForeignKey, earlier_keys, parent_rows


def joined_with_parents(database: Database, key: ForeignKey) -> tuple[Table, int]:
    """Rows whose reference exists, with the parent's attributes; how many columns are the parent's.

    Beside their own, rows have the attributes of the parents that earlier references lead to.
    """
    parents = parent_rows(database, key)
    rows = np.flatnonzero(parents >= 0)
    above = _columns(database.tables[key.parent], f"{key.column}: ", parents[rows])
    columns = _columns(database.tables[key.table], "", rows)
    for earlier in earlier_keys(database.schema, key):
        parents = np.maximum(parent_rows(database, earlier)[rows], 0)
        columns += _columns(database.tables[earlier.parent], f"{earlier.column}: ", parents)
    return _table([*above, *columns]), len(above)


def joined_with_all_above(
    database: Database, key: ForeignKey, most: int, rng: np.random.Generator
) -> Table:
    """Rows with the attributes of the rows that they refer to, and of those these refer to.

    At most ``most`` rows, a random part of more. Rows that name none by ``key`` are left out. Other
    references that may be missing are not followed.
    """
    rows = np.flatnonzero(parent_rows(database, key) >= 0)
    if len(rows) > most:
        rows = rng.choice(rows, most, replace=False)
    columns = _columns(database.tables[key.table], "", rows)
    complete = np.ones(len(rows), dtype=bool)
    waiting = [
        (reference, rows, f"{reference.column}: ")
        for reference in database.schema.parents_of(key.table)
        if reference == key
        or database.schema.tables[reference.table][reference.column].null_code is None
    ]
    while waiting:
        reference, rows_above, prefix = waiting.pop()
        parents = parent_rows(database, reference)[rows_above]
        complete &= parents >= 0
        columns += _columns(database.tables[reference.parent], prefix, np.maximum(parents, 0))
        waiting += [
            (above, np.maximum(parents, 0), f"{prefix[:-2]}.{above.column}: ")
            for above in database.schema.parents_of(reference.parent)
            if database.schema.tables[above.table][above.column].null_code is None
        ]
    return _table(columns).take(complete) if columns else Table(Domain(()), {})


def _columns(table: Table, prefix: str, rows: Integers) -> list[tuple[Column, Integers]]:
    return [
        (replace(table.domain[name], name=f"{prefix}{name}"), table.codes[name][rows])
        for name in table.domain.modelled
    ]


def _table(columns: Sequence[tuple[Column, Integers]]) -> Table:
    domain = Domain(tuple(column for column, _ in columns))
    return Table(domain, {column.name: codes for column, codes in columns})


_MOST_SETS = {2: 500, 3: 100}
"""Sets of attributes of both sides at most that are measured, by the attributes of a set."""

_QUERIES = 200
"""Queries with joins for each foreign key."""

_MOST_JOINED = 1_000_000
"""Joined rows that queries are asked of: a random part of more, whose shares err by 0.0005."""

_MOST_SIBLINGS = 100
"""Rows of one unit at most that are compared with each other: a random choice of more, so that one
of very many rows neither takes long nor outweighs all others."""

_SEED = 20_261_122
"""Seed of choices of sets, queries and rows, fixed so that all databases get the same."""


def compare_across(real: Database, synthetic: Database, key: ForeignKey) -> tuple[Marginals, ...]:
    """Distances of the 2- and 3-way joint tables with attributes of both tables."""
    (real_rows, above), (synthetic_rows, _) = (
        joined_with_parents(database, key) for database in (real, synthetic)
    )
    if not (real_rows.rows and synthetic_rows.rows):
        return ()
    names = real_rows.domain.names
    return compare_mixed(real_rows, synthetic_rows, names[:above], names[above:], (2, 3))


def compare_mixed(
    real: Table,
    synthetic: Table,
    above: Sequence[str],
    below: Sequence[str],
    all_ways: Sequence[int],
) -> tuple[Marginals, ...]:
    """Distances of the joint tables with attributes of both kinds, by their number."""
    return tuple(
        Marginals(
            ways,
            _possible(len(above), len(below), ways),
            compare_sets(real, synthetic, _mixed(above, below, ways)),
        )
        for ways in all_ways
        if above and below and len(above) + len(below) >= ways
    )


def _possible(above: int, below: int, ways: int) -> int:
    """How many sets have an attribute of each side at least."""
    return comb(above + below, ways) - comb(above, ways) - comb(below, ways)


def _mixed(above: Sequence[str], below: Sequence[str], ways: int) -> list[tuple[str, ...]]:
    """Sets of attributes with one of each side at least: all, or a fixed random choice of many."""
    if _possible(len(above), len(below), ways) <= _MOST_SETS[ways]:
        return list(_all_mixed(above, below, ways))
    rng = np.random.default_rng([_SEED, ways])
    sets: dict[tuple[str, ...], None] = {}
    while len(sets) < _MOST_SETS[ways]:
        upper, lower = rng.choice(len(above)), rng.choice(len(below))
        rest = [name for name in (*above, *below) if name not in (above[upper], below[lower])]
        third = [rest[rng.choice(len(rest))]] if ways == 3 else []
        sets[tuple(sorted([above[upper], below[lower], *third]))] = None
    return sorted(sets)


def _all_mixed(above: Sequence[str], below: Sequence[str], ways: int) -> Iterator[tuple[str, ...]]:
    for upper in range(1, ways):
        for above_names, below_names in product(
            combinations(above, upper), combinations(below, ways - upper)
        ):
            yield (*above_names, *below_names)


def compare_joins(real: Database, synthetic: Database, key: ForeignKey) -> RangeQueries | None:
    """Errors of random range queries over a table joined with all that it refers to.

    Each query has an attribute of the parent of ``key``, one of the table, and a third of any.
    """
    real_rows, synthetic_rows = (
        joined_with_all_above(database, key, _MOST_JOINED, np.random.default_rng(_SEED))
        for database in (real, synthetic)
    )
    if not (real_rows.rows and synthetic_rows.rows):
        return None
    names = real_rows.domain.names
    above = [name for name in names if name.startswith(f"{key.column}: ")]
    child = [name for name in real.tables[key.table].domain.modelled if name in names]
    if not (above and child):
        return None
    rng = np.random.default_rng(_SEED)
    pools = (above, child, names)
    chosen = [dict.fromkeys(pool[rng.choice(len(pool))] for pool in pools) for _ in range(_QUERIES)]
    queries = queries_over(
        [[real_rows.domain[name] for name in names_of_query] for names_of_query in chosen], rng
    )
    return compare_answers(real_rows, synthetic_rows, queries)


def compare_siblings(real: Database, synthetic: Database, key: ForeignKey) -> tuple[Marginal, ...]:
    """Distances of the joint tables of an attribute of two rows with one parent, in either order.

    There are none if no parent has two rows, in either database.
    """
    rows = [_some_of_each_parent(parent_rows(database, key)) for database in (real, synthetic)]
    distances = []
    for name in real.tables[key.table].domain.modelled:
        if name == key.column:
            continue
        cells = marginal_cells(real.schema.tables[key.table][name])
        shares = []
        for database, (chosen, parents) in zip((real, synthetic), rows, strict=True):
            codes = database.tables[key.table].codes[name][chosen]
            pairs = _pairs_within(parents, codes, cells)
            shares.append(pairs / max(pairs.sum(), 1))
        if not all(share.nnz for share in shares):
            return ()
        difference = abs(shares[0] - shares[1])
        half_l1, largest = float(difference.sum()) / 2, float(difference.max())
        distances.append(Marginal((name, name), half_l1, largest))
    return tuple(distances)


def _some_of_each_parent(parents: Integers) -> tuple[Integers, Integers]:
    """Rows at random, at most so many of a parent, and the numbers of their parents."""
    order = np.random.default_rng(_SEED).permutation(np.flatnonzero(parents >= 0))
    order = order[np.argsort(parents[order], kind="stable")]
    chosen = order[place_among_equal(parents[order]) < _MOST_SIBLINGS]
    return chosen, parents[chosen]


def _pairs_within(parents: Integers, codes: Integers, cells: Partition) -> csr_array:
    """How many ordered pairs of rows of one parent are in each pair of cells (cells, cells).

    Made of the numbers of a parent's rows in each cell, without its pairs.
    """
    cell = cells.index(codes)
    shape = (int(parents.max(initial=0)) + 1, cells.size)
    numbers = csr_array((np.ones(len(cell)), (parents, cell)), shape)
    with_itself = diags_array(np.bincount(cell, minlength=cells.size).astype(np.float64))
    pairs = csr_array(numbers.T @ numbers - with_itself)
    pairs.eliminate_zeros()
    return pairs


Pair = tuple[float, float]
"""A figure of the real and of the synthetic tables."""


@dataclass(frozen=True)
class UnitMeasures:
    """Rows of one unit, such as a person, or of one parent: how many, two of them, and its own.

    ``degrees`` are the shares of units with 0, 1, ... rows, real and synthetic. ``siblings`` are
    the joint tables of an attribute of two rows of one unit, and ``across`` those of attributes of
    a unit and of one of its rows, by the number of attributes.
    """

    degrees: tuple[Floats, Floats]
    siblings: tuple[Marginal, ...]
    across: tuple[Marginals, ...]

    @property
    def sizes(self) -> float:
        """Half the L1 distance of the numbers of rows of a unit."""
        return float(np.abs(self.degrees[0] - self.degrees[1]).sum() / 2)

    @property
    def all_siblings(self) -> tuple[Marginals, ...]:
        """The joint tables of two rows, if a unit has two in both databases."""
        return (Marginals(2, len(self.siblings), self.siblings),) if self.siblings else ()

    def metrics(self) -> dict[str, float]:
        """One number for each measure."""
        figures = {"sizes.half_l1": self.sizes}
        for joint in self.all_siblings:
            figures["siblings.half_l1"] = joint.half_l1
        names = {2: "across.half_l1", 3: "across.3_way.half_l1"}
        return figures | {names[way.ways]: way.half_l1 for way in self.across}

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, fit for JSON."""
        shares = dict(zip(("real", "synthetic"), map(np.ndarray.tolist, self.degrees), strict=True))
        return {
            "sizes": {"half_l1": self.sizes, **shares},
            "siblings": [joint.to_dict() for joint in self.all_siblings],
            "across": [way.to_dict() for way in self.across],
        }


def compare_units(
    real: Database, synthetic: Database, key: ForeignKey, across: tuple[Marginals, ...]
) -> UnitMeasures:
    """The measures of the rows that refer to the same one, with those ``across`` the key."""
    degrees = [_References.of(database, key) for database in (real, synthetic)]
    most = max(key.max_rows, *(each.largest_degree for each in degrees))
    return UnitMeasures(
        (degrees[0].shares(most), degrees[1].shares(most)),
        compare_siblings(real, synthetic, key),
        across,
    )


@dataclass(frozen=True)
class ForeignKeyMeasures:
    """Measures of one foreign key, pairs real and synthetic.

    ``rows`` refer to one that is there; ``orphans`` to none, though they should; ``beyond`` are
    rows with more than the ``bound`` that refer to them.
    """

    table: str
    column: str
    parent: str
    bound: int
    rows: Pair
    orphans: Pair
    mean_degree: Pair
    largest_degree: Pair
    beyond: Pair
    units: UnitMeasures
    queries: RangeQueries | None

    @property
    def label(self) -> str:
        """The reference, as figures and tables name it."""
        return f"{self.table}.{self.column} -> {self.parent}"

    def metrics(self) -> dict[str, float]:
        """One number for each measure."""
        figures = self.units.metrics() | {
            "degrees.mean_difference": abs(self.mean_degree[0] - self.mean_degree[1]),
            "orphans": self.orphans[1],
            "beyond_bound": self.beyond[1],
        }
        return figures | ({"joins.mean_error": self.queries.mean_error} if self.queries else {})

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, fit for JSON."""
        pairs = ("rows", "orphans", "mean_degree", "largest_degree", "beyond")
        return {
            "table": self.table,
            "column": self.column,
            "parent": self.parent,
            "bound": self.bound,
            **{
                name: dict(zip(("real", "synthetic"), getattr(self, name), strict=True))
                for name in pairs
            },
            **({"joins": self.queries.to_dict()} if self.queries else {}),
        }


def compare_relation(real: Database, synthetic: Database, key: ForeignKey) -> ForeignKeyMeasures:
    """The measures of a foreign key in two databases of one schema."""
    real_references, synthetic_references = (
        _References.of(database, key) for database in (real, synthetic)
    )
    return ForeignKeyMeasures(
        key.table,
        key.column,
        key.parent,
        key.max_rows,
        rows=(real_references.rows, synthetic_references.rows),
        orphans=(real_references.orphans, synthetic_references.orphans),
        mean_degree=(real_references.mean_degree, synthetic_references.mean_degree),
        largest_degree=(real_references.largest_degree, synthetic_references.largest_degree),
        beyond=(real_references.beyond(key.max_rows), synthetic_references.beyond(key.max_rows)),
        units=compare_units(real, synthetic, key, compare_across(real, synthetic, key)),
        queries=compare_joins(real, synthetic, key),
    )


def duplicate_links(database: Database, table: str) -> int:
    """Rows of a table of two references or more that name the same rows as an earlier one."""
    keys = database.schema.parents_of(table)
    if len(keys) < 2 or not database.tables[table].rows:
        return 0
    named = np.stack([database.references(key) for key in keys], axis=1)
    whole = named[(named >= 0).all(1)]
    return len(whole) - len(np.unique(whole, axis=0))


@dataclass(frozen=True, eq=False)
class _References:
    """A foreign key in one database: ``degrees`` (parents,) are rows that refer to each row."""

    degrees: Integers
    rows: int
    orphans: int

    @classmethod
    def of(cls, database: Database, key: ForeignKey) -> _References:
        parents = parent_rows(database, key)
        linked = parents >= 0
        degrees = np.bincount(parents[linked], minlength=database.tables[key.parent].rows)
        wanted = database.references(key) != MISSING
        return cls(degrees, int(linked.sum()), int((wanted & ~linked).sum()))

    @property
    def mean_degree(self) -> float:
        return float(self.degrees.mean()) if len(self.degrees) else 0.0

    @property
    def largest_degree(self) -> int:
        return int(self.degrees.max(initial=0))

    def beyond(self, bound: int) -> int:
        """Rows with more that refer to them than a bound."""
        return int((self.degrees > bound).sum())

    def shares(self, most: int) -> Floats:
        """The shares (most + 1,) of rows by degree; greater degrees count as ``most``."""
        counts = np.bincount(np.minimum(self.degrees, most), minlength=most + 1)
        return np.asarray(counts / max(len(self.degrees), 1))
