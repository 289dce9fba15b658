"""A row changes few numbers of groups and of pairs of their rows, in tables of any size."""

import numpy as np
import pytest
from tiny_tables import domain_of, random_rows, table_of

from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries import shared_values
from cloister.privacy.queries.query import TableRows
from cloister.privacy.queries.shared_values import (
    AgreeingPairs,
    GroupSizes,
    SizesOfGroups,
    pairs_by_lot,
)
from cloister.schema.partition import declared_cells

CELLS = [declared_cells(column) for column in domain_of(3, 2, 4)]
PAIRS = AgreeingPairs("c1", (CELLS[0], CELLS[2]))
SIZES = GroupSizes("c0", SizesOfGroups(4, (0, 1, 3)))
ROWS = 60


def answer(query, rows: np.ndarray) -> np.ndarray:
    return query.exact(TableRows(table_of(rows)), NoiseSource.insecure(1))


def steps(query) -> list[np.ndarray]:
    """How far one row more, anywhere among others, moves the numbers of random tables."""
    moved = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        rows = random_rows(rng, ROWS)
        more = np.insert(rows, rng.integers(0, ROWS + 1), random_rows(rng, 1), axis=0)
        moved.append(np.abs(answer(query, more) - answer(query, rows)))
    return moved


@pytest.mark.parametrize("query", [PAIRS, SIZES], ids=["pairs", "sizes"])
def test_a_row_moves_numbers_by_no_more_than_the_sensitivity(query):
    bound = query.sensitivity(Neighbours())
    assert all(step.max() <= bound.step and step.sum() <= bound.l1 for step in steps(query))


def test_pairs_by_a_lot_that_is_the_place_of_a_row_are_caught(monkeypatch):
    def by_place(groups, lots):
        order = np.argsort(groups, kind="stable")
        return order[: len(order) - 1 : 2], order[1::2]

    monkeypatch.setattr(shared_values, "pairs_by_lot", by_place)
    assert max(step.max() for step in steps(PAIRS)) > PAIRS.sensitivity(Neighbours()).step


def test_sizes_add_up_to_the_rows():
    rows = random_rows(np.random.default_rng(1), ROWS)
    assert answer(SIZES, rows).sum() == ROWS


def test_a_row_is_in_one_pair_at_most_and_pairs_are_of_groups_of_any_size():
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(40), np.arange(40))
    lots = rng.integers(0, 2**63, len(groups)).astype(np.uint64)
    first, second = pairs_by_lot(groups, lots)
    assert (groups[first] == groups[second]).all()
    assert len(np.unique([first, second])) == 2 * len(first)
    counts = np.bincount(groups[first], minlength=40)
    assert (counts[2:4] == 1).all()
    assert counts[20:].sum() > 0.25 * (groups >= 20).sum()


def test_the_order_of_rows_changes_nothing():
    rng = np.random.default_rng(1)
    rows = random_rows(rng, ROWS)
    assert np.array_equal(answer(PAIRS, rows), answer(PAIRS, rng.permutation(rows)))
