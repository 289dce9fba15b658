"""Laws of records made from seeds: how they are made, and which rows could have made them."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from tiny_networks import TinyModel, passes, scanned
from tiny_tables import random_rows, table_of

from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.mechanisms.selection import DeterministicTest, RandomisedTest, UncountedTest
from cloister.privacy.queries import seeded_records
from cloister.privacy.queries.query import TableRows
from cloister.privacy.queries.seeded_records import PrefixCounts, PrefixLengths, SeededCandidates
from cloister.schema.scratch import scratch_table


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 60))]
)
def test_plausible_seeds_are_those_of_a_scan(seed):
    rng = np.random.default_rng(seed)
    sizes = tuple(int(size) for size in rng.integers(1, 4, int(rng.integers(1, 5))))
    model = TinyModel.random(sizes, rng, least=0.01)
    least, most = sorted(int(n) for n in rng.integers(0, len(sizes) + 1, 2))
    kept, gamma = PrefixLengths(least, most), Fraction(int(rng.integers(11, 50)), 10)
    rows = random_rows(rng, int(rng.integers(1, 25)), sizes)
    every = product(rows, np.array(model.records()))
    pairs = [(row, record) for row, record in every if model.made_by(row, kept, record) > 0]
    seeds, made = (np.array(side) for side in zip(*pairs, strict=True))
    counts = PrefixCounts.of(rows, sizes)
    found = seeded_records.plausible_seeds(model, kept, gamma, seeds, made, counts)
    assert found.tolist() == [scanned(model, kept, gamma, rows, s, y) for s, y in pairs]


def candidates_of(model, kept, count=5_000, **changed):
    fields = {"gamma": Fraction(4), "candidates": count, "withheld": Fraction(1, 100)}
    return SeededCandidates(model, kept, **(fields | {"least_seeds": 20} | changed))


def test_candidates_are_the_same_for_any_number_of_workers_and_out_of_core(monkeypatch):
    rng = np.random.default_rng(4)
    model, table = TinyModel.random((3, 2, 4), rng), table_of(random_rows(rng, 300))
    blocks = scratch_table(table.take(slice(first, first + 77)) for first in range(0, 300, 77))
    query, found = candidates_of(model, PrefixLengths(0, 2)), []
    monkeypatch.setattr(seeded_records, "_BLOCK", 700)
    for rows, number in ((table, 1), (table, 2), (table, 5), (blocks, 1)):
        monkeypatch.setattr(seeded_records, "workers", lambda number=number: number)
        found.append(query.exact(TableRows(rows), NoiseSource.insecure(3)))
    assert all(np.array_equal(found[0], other) for other in found[1:])
    # withheld, and nothing else is missing: 6 standard deviations of 50 of 5,000
    assert abs(len(found[0]) - 4_950) < 6 * math.sqrt(50)


def test_records_keep_the_front_of_a_seed_and_draw_the_rest_by_the_model():
    model = TinyModel.random((3, 2, 4), np.random.default_rng(5))
    query = candidates_of(model, PrefixLengths(1, 1), 60_000, withheld=Fraction(1, 10**9))
    rows = np.tile([2, 0, 0], (50, 1))
    made = query.exact(TableRows(table_of(rows)), NoiseSource.insecure(6))
    assert set(made[:, 0]) == {2} and set(made[:, -1]) == {50}
    for record in model.records():
        share = (made[:, :3] == record).all(1).mean()
        chance = float(model.made_by(rows[0], PrefixLengths(1, 1), record))
        # 6 standard deviations of a share of 60,000 records
        assert abs(share - chance) <= 6 * math.sqrt(chance * (1 - chance) / 60_000) + 1e-12


def test_fewer_seeds_than_the_least_leave_places_empty():
    rng = np.random.default_rng(7)
    model, rows = TinyModel.random((3, 2, 4), rng), random_rows(rng, 10)
    few = {"least_seeds": 40, "withheld": Fraction(1, 10**9)}
    query = candidates_of(model, PrefixLengths(0, 1), 10_000, **few)
    made = query.exact(TableRows(table_of(rows)), NoiseSource.insecure(8))
    assert abs(len(made) - 2_500) < 6 * math.sqrt(10_000 * 0.25 * 0.75)
    none = query.exact(TableRows(table_of(np.zeros((0, 3)))), NoiseSource.insecure(8))
    assert none.shape == (0, 4)


def test_tests_release_by_their_threshold():
    made = np.column_stack([np.arange(4_000) % 7, np.repeat([5, 20], 2_000)])
    sensitivity = candidates_of(None, PrefixLengths(0, 1)).sensitivity(Neighbours())
    exact = DeterministicTest(20).release(made, sensitivity, NoiseSource.insecure(1))
    assert exact.shape == (2_000, 1)
    test = RandomisedTest(12, Fraction(1, 2), 4)
    noisy = test.release(made, sensitivity, NoiseSource.insecure(1))
    expected = sum(2_000 * passes(test, k) for k in (5, 20))
    assert abs(len(noisy) - expected) < 6 * math.sqrt(expected)
    assert UncountedTest(test).event(sensitivity).bounded == test.event(sensitivity)
