"""Laws of records made from seeds: the split, plausible seeds, what one candidate reveals."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tiny_networks import STEPS, TinyModel, scanned

from cloister.errors import UnplannedQuery
from cloister.privacy.accounting.deniability import (
    candidate_bound,
    failure_epsilon,
    least_withheld,
    record_guarantee,
)
from cloister.privacy.door.journal import Journal
from cloister.privacy.door.table import PrivateTable
from cloister.privacy.events import Composed, Parallel, Relation, SeededRecords, compose
from cloister.privacy.mechanisms.counts import DiscreteGaussian, Neighbours
from cloister.privacy.mechanisms.grid import GRID_STEPS
from cloister.privacy.mechanisms.privacy_tests import (
    DeniableTest,
    DeterministicTest,
    RandomisedTest,
)
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries import seeded_records
from cloister.privacy.queries.distances import Distances, ExpectedTable
from cloister.privacy.queries.entropies import Entropies, entropy_bound, paper_entropy_bound
from cloister.privacy.queries.partition_counts import PartitionCounts
from cloister.privacy.queries.prefix_counts import PrefixCounts
from cloister.privacy.queries.seeded_records import Kept, SeededCandidates, plausible_seeds
from cloister.privacy.queries.split import Split
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.attributes import Categorical
from cloister.schema.cells import declared_cells
from cloister.schema.domain import Domain, Table

HALVES = Split((Fraction(1, 5), Fraction(3, 10), Fraction(1, 2)))
KEY = np.array([12345, -678901234567], dtype=np.int64)


def domain_of(*sizes):
    attributes = {
        f"c{at}": Categorical(type="categorical", values=[f"v{v}" for v in range(size)])
        for at, size in enumerate(sizes)
    }
    return Domain.of(attributes, Path())


def table_of(rows, sizes=(3, 2, 4)):
    codes = np.array(rows, dtype=np.int64).reshape(-1, len(sizes))
    return Table(domain_of(*sizes), {f"c{at}": codes[:, at] for at in range(len(sizes))})


def random_rows(rng, count, sizes=(3, 2, 4)):
    return np.stack([rng.integers(0, size, count) for size in sizes], axis=1)


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


@pytest.mark.parametrize("seed", range(60))
def test_plausible_seeds_are_those_of_a_scan(seed):
    rng = np.random.default_rng(seed)
    sizes = tuple(int(size) for size in rng.integers(1, 4, int(rng.integers(1, 5))))
    model = TinyModel.random(sizes, rng, least=0.01)
    least, most = sorted(int(n) for n in rng.integers(0, len(sizes) + 1, 2))
    kept, gamma = Kept(least, most), Fraction(int(rng.integers(11, 50)), 10)
    rows = random_rows(rng, int(rng.integers(1, 25)), sizes)
    records = np.array(model.records())
    pairs = [
        (row, record) for row in rows for record in records if model.made_by(row, kept, record) > 0
    ]
    seeds, made = (np.array(side) for side in zip(*pairs, strict=True))
    counts = PrefixCounts.of(rows, sizes)
    found = plausible_seeds(model, kept, gamma, seeds, made, counts)
    assert found.tolist() == [scanned(model, kept, gamma, rows, s, y) for s, y in pairs]


def outcomes(event, model, kept, rows, count=plausible_seeds):
    """The exact probability of each outcome of one candidate: a record, or none."""
    places, found = max(len(rows), event.least_seeds), Counter()
    counts, beta = PrefixCounts.of(rows, model.sizes), float(event.withheld)
    for record in model.records():
        seeds = np.array([r for r in rows if model.made_by(r, kept, record) > 0])
        if len(seeds):
            made = np.tile(record, (len(seeds), 1))
            plausible = count(model, kept, event.gamma, seeds, made, counts)
            for seed, k in zip(seeds, plausible, strict=True):
                chance = float(model.made_by(seed, kept, record)) / places
                found[record] += (1 - beta) * chance * passes(event, int(k))
    found[None] = 1.0 - sum(found.values())
    return found


def passes(event, plausible):
    """The probability that so many plausible seeds plus discrete Laplace noise reach k."""
    ratio = math.exp(-float(event.epsilon0))
    missing = event.k - plausible
    tail = ratio ** abs(missing) / (1 + ratio)
    return tail if missing > 0 else 1 - tail * ratio


def excess(event, model, kept, rows, added, count=plausible_seeds):
    """By how much the mass of any set of outcomes exceeds what the claim allows, either way."""
    claim = candidate_bound(event, Relation.ADD_REMOVE)
    first = outcomes(event, model, kept, rows, count)
    second = outcomes(event, model, kept, np.vstack([rows, added]), count)
    factor = math.exp(float(claim.epsilon))
    worst = max(
        sum(max(p[y] - factor * q[y], 0.0) for y in p | q)
        for p, q in ((first, second), (second, first))
    )
    return worst - float(claim.delta)


def event_of(k, epsilon0, t, gamma=Fraction(4), withheld=None, least=None):
    least = least or k
    epsilon = record_guarantee(k, gamma, epsilon0, t).epsilon
    withheld = withheld or least_withheld(epsilon, least)
    return SeededRecords(k, gamma, epsilon0, t, 1, withheld, least)


def crowded(rng, sizes):
    """Rows of which most are equal, and a row more, often another."""
    common, other = random_rows(rng, 2, sizes)
    some = random_rows(rng, int(rng.integers(0, 6)), sizes)
    rows = np.vstack([np.tile(common, (int(rng.integers(5, 60)), 1)), some])
    return rows, other if rng.random() < 0.7 else common


@pytest.mark.parametrize("seed", range(40))
def test_a_candidate_reveals_no_more_than_is_charged_released_or_not(seed):
    rng = np.random.default_rng(seed)
    sizes = ((2, 3), (3, 2), (2, 2, 2))[seed % 3]
    model = TinyModel.random(sizes, rng)
    least, most = sorted(int(n) for n in rng.integers(0, len(sizes) + 1, 2))
    k = int(rng.integers(2, 40))
    event = event_of(k, Fraction(int(rng.integers(1, 30)), 10), int(rng.integers(1, k)))
    rows, added = crowded(rng, sizes)
    assert excess(event, model, Kept(least, most), rows, added) < 1e-9


def outlier():
    """Equal rows, a row that is not, and a model in which both make only themselves."""
    model = TinyModel.random((2, 2), np.random.default_rng(1))
    return model, Kept(2, 2), np.zeros((60, 2), dtype=np.int64), np.ones(2, dtype=np.int64)


def test_a_test_whose_failures_are_not_hidden_is_caught():
    """Without candidates withheld, one that fails shows that a row is there that may fail."""
    never = Fraction(1, 10**12)
    honest, broken = event_of(30, Fraction(1), 10), event_of(30, Fraction(1), 10, withheld=never)
    assert excess(honest, *outlier()) < 1e-9
    # the claim of the paper's theorem, which is of released records only
    claim = record_guarantee(30, Fraction(4), Fraction(1), 10)
    first, second = (
        outcomes(broken, *outlier()[:2], rows) for rows in with_and_without(*outlier()[2:])
    )
    assert second[None] - math.exp(claim.epsilon) * first[None] > 100 * claim.delta
    assert failure_epsilon(never, 30) > 10


def with_and_without(rows, added):
    return rows, np.vstack([rows, added])


def test_a_test_that_counts_every_row_that_could_make_a_record_is_caught():
    """Without intervals, many rows that hardly could hide one that nearly alone could."""

    def all_that_could(model, kept, gamma, seeds, made, counts):
        return counts.agreeing(made, kept.least, kept.most)[:, 0]

    tables = (np.array([[STEPS - 2**20, 2**20]], dtype=np.uint64),) * 1
    model = TinyModel((2,), tables)
    rows, added = np.zeros((60, 1), dtype=np.int64), np.ones(1, dtype=np.int64)
    event = event_of(30, Fraction(1), 10)
    assert excess(event, model, Kept(0, 1), rows, added) < 1e-9
    assert excess(event, model, Kept(0, 1), rows, added, all_that_could) > 1e-3


class TrueEntropies(Entropies):
    """A broken query: the true number of rows divides, so that the public bound may not hold."""

    def _entropy(self, rows, parts):
        counts = rows.counts(parts)
        return Entropies(self.of, max(int(counts.sum()), 1), self.bound)._entropy(rows, parts)


def largest_step(query_type, seed):
    """The most grid steps by which a row more changes an entropy, for tables of any size."""
    rng = np.random.default_rng(seed)
    domain = domain_of(3, 2, 4)
    cells = [declared_cells(domain[name]) for name in domain.names]
    rows = random_rows(rng, int(rng.integers(0, 40)))
    if seed % 2:
        rows[:] = 0
    public = int(rng.integers(3, 60))
    of = ((cells[0],), (cells[1],), (cells[0], cells[2]))
    query = query_type(of, public, entropy_bound(public))
    answers = [
        query.exact(TableRows(table_of(some)), NoiseSource.insecure(1))
        for some in (rows, np.vstack([rows, random_rows(rng, 1)]))
    ]
    return int(np.abs(answers[0] - answers[1]).max())


def test_a_row_changes_an_entropy_by_at_most_its_bound_whatever_the_number_of_rows():
    steps = [largest_step(Entropies, seed) for seed in range(300)]
    assert 0.9 * GRID_STEPS < max(steps) <= GRID_STEPS
    assert max(largest_step(TrueEntropies, seed) for seed in range(300)) > GRID_STEPS


class SquaredDistances(Distances):
    """A broken query: each count is squared, so that a row in a large cell changes it by more."""

    def exact(self, rows, source):
        squared = [
            ((rows.counts(t.partitions) - t.expected) ** 2).sum() * GRID_STEPS for t in self.tables
        ]
        return np.rint(np.array(squared)).astype(np.int64)


def furthest(query_type, seed):
    """The most grid steps by which a row more changes a distance."""
    rng = np.random.default_rng(seed)
    domain = domain_of(3, 2, 4)
    cells = tuple(declared_cells(domain[name]) for name in ("c0", "c2"))
    rows = random_rows(rng, int(rng.integers(0, 40)))
    query = query_type((ExpectedTable(cells, rng.random(12) * 5),))
    answers = [
        query.exact(TableRows(table_of(some)), NoiseSource.insecure(1))
        for some in (rows, np.vstack([rows, random_rows(rng, 1)]))
    ]
    return int(np.abs(answers[0] - answers[1]).max())


def test_a_row_changes_a_distance_by_at_most_one_row():
    assert 0.9 * GRID_STEPS < max(furthest(Distances, seed) for seed in range(200)) <= GRID_STEPS
    assert max(furthest(SquaredDistances, seed) for seed in range(200)) > GRID_STEPS


def test_the_bound_of_the_paper_is_never_below_the_tight_one():
    sizes = [3, 4, 10, 1_000, 280_000, 10**9]
    assert all(paper_entropy_bound(rows) > entropy_bound(rows) for rows in sizes)
    # equation (9) at the paper's 280,000 rows, by hand
    assert paper_entropy_bound(280_000) == pytest.approx(1.41546e-4, rel=1e-5)


def test_theorem_1_has_the_values_of_its_formula():
    # epsilon = epsilon0 + ln(1 + gamma / t), delta = exp(-epsilon0 (k - t)) for k = 50, gamma = 4
    assert record_guarantee(50, Fraction(4), Fraction(1), 29).epsilon == pytest.approx(1.129212)
    assert record_guarantee(50, Fraction(4), Fraction(1), 29).delta == pytest.approx(7.58256e-10)
    assert record_guarantee(50, Fraction(4), Fraction(1), 29).delta < 2**-30


def candidates_of(model, kept, count=5_000, **changed):
    fields = {"gamma": Fraction(4), "candidates": count, "withheld": Fraction(1, 100)}
    return SeededCandidates(model, kept, **(fields | {"least_seeds": 20} | changed))


def test_candidates_are_the_same_for_any_number_of_workers(monkeypatch):
    rng = np.random.default_rng(4)
    model, rows = TinyModel.random((3, 2, 4), rng), random_rows(rng, 300)
    monkeypatch.setattr(seeded_records, "_BLOCK", 700)
    found = []
    for number in (1, 2, 5):
        monkeypatch.setattr(seeded_records, "workers", lambda number=number: number)
        query = candidates_of(model, Kept(0, 2))
        found.append(query.exact(TableRows(table_of(rows)), NoiseSource.insecure(3)))
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
    # withheld, and nothing else is missing: 6 standard deviations of 50 of 5,000
    assert abs(len(found[0]) - 4_950) < 6 * math.sqrt(50)


def test_records_keep_the_front_of_a_seed_and_draw_the_rest_by_the_model():
    rng = np.random.default_rng(5)
    model = TinyModel.random((3, 2, 4), rng)
    query = candidates_of(model, Kept(1, 1), 60_000, withheld=Fraction(1, 10**9))
    rows = np.tile([2, 0, 0], (50, 1))
    made = query.exact(TableRows(table_of(rows)), NoiseSource.insecure(6))
    assert set(made[:, 0]) == {2} and set(made[:, -1]) == {50}
    for record in model.records():
        share = (made[:, :3] == record).all(1).mean()
        chance = float(model.made_by(rows[0], Kept(1, 1), record))
        # 6 standard deviations of a share of 60,000 records
        assert abs(share - chance) <= 6 * math.sqrt(chance * (1 - chance) / 60_000) + 1e-12


def test_fewer_seeds_than_the_least_leave_places_empty():
    rng = np.random.default_rng(7)
    model, rows = TinyModel.random((3, 2, 4), rng), random_rows(rng, 10)
    query = candidates_of(model, Kept(0, 1), 10_000, least_seeds=40, withheld=Fraction(1, 10**9))
    made = query.exact(TableRows(table_of(rows)), NoiseSource.insecure(8))
    assert abs(len(made) - 2_500) < 6 * math.sqrt(10_000 * 0.25 * 0.75)
    none = query.exact(TableRows(table_of(np.zeros((0, 3)))), NoiseSource.insecure(8))
    assert none.shape == (0, 4)


def test_tests_release_by_their_threshold():
    made = np.column_stack([np.arange(4_000) % 7, np.repeat([5, 20], 2_000)])
    sensitivity = candidates_of(None, Kept(0, 1)).sensitivity(Neighbours())
    exact = DeterministicTest(20).release(made, sensitivity, NoiseSource.insecure(1))
    assert exact.shape == (2_000, 1)
    test = RandomisedTest(12, Fraction(1, 2), 4)
    noisy = test.release(made, sensitivity, NoiseSource.insecure(1))
    expected = sum(2_000 * passes(event_of(12, Fraction(1, 2), 4), k) for k in (5, 20))
    assert abs(len(noisy) - expected) < 6 * math.sqrt(expected)
    assert DeniableTest(test).event(sensitivity).bounded == test.event(sensitivity)


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
