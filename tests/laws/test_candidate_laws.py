"""Laws of one candidate record: what its release, or its failure, reveals of a row."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from tiny_networks import STEPS, TinyModel, passes
from tiny_tables import random_rows

from cloister.privacy.accounting import composition
from cloister.privacy.events import Relation, SeededRecords
from cloister.privacy.queries.seeded_records import PrefixCounts, PrefixLengths, plausible_seeds


def test_theorem_1_has_the_values_of_its_formula():
    # epsilon = epsilon0 + ln(1 + gamma / t), delta = exp(-epsilon0 (k - t)) for k = 50, gamma = 4
    claim = composition.record_guarantee(50, Fraction(4), Fraction(1), 29)
    assert claim.epsilon == pytest.approx(1.129212)
    assert claim.delta == pytest.approx(7.58256e-10)


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


def excess(event, model, kept, rows, added, count=plausible_seeds):
    """By how much the mass of any set of outcomes exceeds what the claim allows, either way."""
    claim = composition.candidate_bound(event, Relation.ADD_REMOVE)
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
    epsilon = composition.record_guarantee(k, gamma, epsilon0, t).epsilon
    withheld = withheld or composition.least_withheld(epsilon, least)
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
    assert excess(event, model, PrefixLengths(least, most), rows, added) < 1e-9


def outlier():
    """Equal rows, a row that is not, and a model in which both make only themselves."""
    model = TinyModel.random((2, 2), np.random.default_rng(1))
    return model, PrefixLengths(2, 2), np.zeros((60, 2), dtype=np.int64), np.ones(2, dtype=np.int64)


def test_a_test_whose_failures_are_not_hidden_is_caught():
    """Without candidates withheld, one that fails shows that a row is there that may fail."""
    never = Fraction(1, 10**12)
    honest, broken = event_of(30, Fraction(1), 10), event_of(30, Fraction(1), 10, withheld=never)
    assert excess(honest, *outlier()) < 1e-9
    # the claim of the paper's theorem, which is of released records only
    claim = composition.record_guarantee(30, Fraction(4), Fraction(1), 10)
    model, kept, rows, added = outlier()
    first, second = (
        outcomes(broken, model, kept, some) for some in (rows, np.vstack([rows, added]))
    )
    assert second[None] - math.exp(claim.epsilon) * first[None] > 100 * claim.delta
    assert composition.failure_epsilon(never, 30) > 10


def test_a_test_that_counts_every_row_that_could_make_a_record_is_caught():
    """Without intervals, many rows that hardly could hide one that nearly alone could."""

    def all_that_could(model, kept, gamma, seeds, made, counts):
        return counts.agreeing(made, kept.least, kept.most)[:, 0]

    model = TinyModel((2,), (np.array([[STEPS - 2**20, 2**20]], dtype=np.uint64),))
    rows, added = np.zeros((60, 1), dtype=np.int64), np.ones(1, dtype=np.int64)
    event = event_of(30, Fraction(1), 10)
    assert excess(event, model, PrefixLengths(0, 1), rows, added) < 1e-9
    assert excess(event, model, PrefixLengths(0, 1), rows, added, all_that_could) > 1e-3
