"""Laws of disjoint random parts of the rows: a row changes one, and the door divides as planned."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from tiny_tables import domain_of, random_rows, table_of

from cloister.errors import UnplannedQuery
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PrivateTable
from cloister.privacy.events import Composed, Parallel, compose
from cloister.privacy.mechanisms.counts import DiscreteGaussian, Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.counts.partition_counts import PartitionCounts
from cloister.privacy.queries.split import Split
from cloister.schema.cells import declared_cells

HALVES = Split((Fraction(1, 5), Fraction(3, 10), Fraction(1, 2)))
KEY = np.array([12345, -678901234567], dtype=np.int64)


def parts_of(rows, split, key=KEY):
    """How often each row is in each part."""
    numbers = split.parts(table_of(rows), key)
    return Counter((*map(int, row), int(part)) for row, part in zip(rows, numbers, strict=True))


class SplitByPlace(Split):
    """A broken split: the part of a row depends on its place, which rows before it change."""

    def parts(self, table, key):
        draws = np.random.default_rng(abs(int(key[0]))).random(table.rows)
        return np.searchsorted([0.2, 0.5], draws)


def changes(split, seed):
    """Rows of parts that change when a row is added at a random place."""
    rng = np.random.default_rng(seed)
    rows, added = random_rows(rng, int(rng.integers(0, 60))), random_rows(rng, 1)
    more = np.insert(rows, int(rng.integers(0, len(rows) + 1)), added[0], axis=0)
    before, after = parts_of(rows, split), parts_of(more, split)
    return sum(((after - before) + (before - after)).values())


def test_a_row_more_is_a_row_more_in_one_part_and_changes_no_other():
    assert {changes(HALVES, seed) for seed in range(300)} == {1}


def test_a_split_by_place_is_caught():
    assert max(changes(SplitByPlace(HALVES.shares), seed) for seed in range(300)) > 1


def test_parts_have_their_shares_even_of_equal_rows_and_other_keys_give_other_parts():
    rows = np.zeros((20_000, 3), dtype=np.int64)
    sizes = np.bincount(HALVES.parts(table_of(rows), KEY), minlength=3) / len(rows)
    # 6 standard deviations of a share of 20,000 rows
    assert np.abs(sizes - [0.2, 0.3, 0.5]).max() < 6 * 0.5 / math.sqrt(20_000)
    other = HALVES.parts(table_of(rows), KEY + 1)
    assert (HALVES.parts(table_of(rows), KEY) != other).mean() > 0.5


def door_of(folder, planned, noise, rows=400):
    table = table_of(random_rows(np.random.default_rng(9), rows))
    journal = Journal.open(folder, {"run": "split"})
    return PrivateTable(table, Neighbours(), planned, journal, noise), journal


def test_the_door_divides_rows_as_planned_and_as_before_when_a_run_is_resumed(tmp_path):
    mechanism = DiscreteGaussian(Fraction(1, 1000))
    event = mechanism.event(Neighbours().partition)
    planned = Composed(((Parallel((compose(event), compose(event, event), compose())), 1),))

    def counted(noise, answers):
        door, journal = door_of(tmp_path, planned, noise)
        with journal:
            parts = door.divide(HALVES, "parts")
            cells = declared_cells(door_table_domain()["c2"])
            asked = [(0, "a"), (1, "b"), (1, "c")][:answers]
            found = [
                parts[part].answer(PartitionCounts((cells,)), mechanism, label)
                for part, label in asked
            ]
            if answers == 3:
                assert not door.plan_budget.remaining
                with pytest.raises(UnplannedQuery):
                    parts[2].answer(PartitionCounts((cells,)), mechanism, "d")
                with pytest.raises(UnplannedQuery):
                    door.divide(HALVES, "again")
            return np.array(found)

    first = counted(NoiseSource(), 2)
    again = counted(NoiseSource(), 3)
    assert (again[:2] == first).all()
    # the noise is far below a row: b and c count the same part
    assert (again[1] == again[2]).all() and abs(again[1].sum() - 120) < 6 * math.sqrt(84)


def door_table_domain():
    return domain_of(3, 2, 4)


def test_what_is_planned_for_parts_is_not_for_the_whole_table(tmp_path):
    mechanism = DiscreteGaussian(Fraction(10))
    event = mechanism.event(Neighbours().partition)
    door, journal = door_of(tmp_path, Parallel((event, event, event)), NoiseSource())
    with journal, pytest.raises(UnplannedQuery):
        cells = declared_cells(door_table_domain()["c2"])
        door.answer(PartitionCounts((cells,)), mechanism, "whole")
