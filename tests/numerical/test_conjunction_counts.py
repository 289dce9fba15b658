"""Conjunctions of all pairs: exact counts, and a sensitivity that no neighbour passes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_tables import partition_of

from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.counts import (
    ConjunctionCounts,
    DummyCoding,
    _by_lookups,
    _by_products,
)
from cloister.privacy.queries.query import TableRows
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells

SIZES = st.lists(st.integers(1, 5), min_size=2, max_size=5)


def table_of(codes, sizes):
    domain = Domain(tuple(partition_of(f"a{at}", n).column for at, n in enumerate(sizes)))
    return Table(domain, dict(zip(domain.names, codes, strict=True)))


def query_of(table):
    cells = tuple(declared_cells(column) for column in table.domain)
    single = tuple(own.size <= 2 for own in cells)
    return ConjunctionCounts(cells, DummyCoding(tuple(own.size for own in cells), single))


def exact(codes, sizes):
    table = table_of(codes, sizes)
    query = query_of(table)
    return query.exact(TableRows(table), NoiseSource.insecure(0)), query


@st.composite
def tables(draw):
    sizes = draw(SIZES)
    rows = draw(st.integers(1, 12))
    columns = [draw(st.lists(st.integers(0, s - 1), min_size=rows, max_size=rows)) for s in sizes]
    return np.array(columns, dtype=np.int64), sizes


@given(tables())
def test_counts_are_those_of_the_rows_one_by_one_by_products_and_by_lookups(made):
    codes, sizes = made
    found, query = exact(codes, sizes)
    coding = query.coding
    ones = coding.code(list(codes)).astype(np.int64)
    expected = sum(np.outer(row, row) for row in ones.T)
    matrix = query.outcome(found)
    across = coding.pairs | coding.pairs.T
    assert (matrix[across] == expected[across]).all()
    assert (matrix[~across] == 0).all()
    products, lookups = _by_products(list(codes), coding), _by_lookups(list(codes), coding)
    assert (products[coding.pairs] == lookups[coding.pairs]).all()


def change(first, second):
    """How far counts moved: cells, the greatest step, L1, squared L2."""
    moved = np.abs(first - second)
    return [(moved > 0).sum(), moved.max(initial=0), moved.sum(), np.square(moved).sum()]


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("most", [1, 3])
@given(made=tables(), data=st.data())
@settings(max_examples=60)
def test_no_neighbour_moves_counts_beyond_the_sensitivity(relation, most, made, data):
    codes, sizes = made
    unit = data.draw(st.integers(1, min(most, codes.shape[1])))
    neighbour = codes[:, unit:]
    if relation is Relation.REPLACE_ONE:
        added = [
            data.draw(st.lists(st.integers(0, size - 1), min_size=unit, max_size=unit))
            for size in sizes
        ]
        neighbour = np.hstack([neighbour, np.array(added, dtype=np.int64)])
    first, query = exact(codes, sizes)
    second, _ = exact(neighbour, sizes)
    if first.size:
        bound = query.sensitivity(Neighbours(relation, most))
        moved = change(first, second)
        limits = (bound.cells, bound.step, bound.l1, bound.l2_squared)
        assert all(own <= limit for own, limit in zip(moved, limits, strict=True))


@pytest.mark.parametrize(
    ("single", "several"), [(s, v) for s in range(5) for v in range(3) if s + v > 1]
)
def test_the_bound_of_a_replaced_row_is_the_most_that_any_changes(single, several):
    """And so is that of a row added: all rows, and all pairs of them, are tried."""
    sizes = [2] * single + [3] * several
    rows = np.array(list(product(*map(range, sizes))), dtype=np.int64)
    counts = [exact(row[:, None], sizes)[0] for row in rows]
    query = query_of(table_of(rows.T, sizes))
    bound = query.sensitivity(Neighbours(Relation.REPLACE_ONE))
    most = np.max([change(one, other) for one in counts for other in counts], axis=0)
    assert most.tolist() == [bound.cells, bound.step, bound.l1, bound.l2_squared]
    unit = query.sensitivity(Neighbours(Relation.REPLACE_ONE, 4))
    assert (unit.l1, unit.l2_squared) == (4 * bound.l1, 16 * bound.l2_squared)
    added = query.sensitivity(Neighbours())
    assert np.max([change(one, 0 * one) for one in counts], axis=0).tolist() == [
        added.cells,
        added.step,
        added.l1,
        added.l2_squared,
    ]
