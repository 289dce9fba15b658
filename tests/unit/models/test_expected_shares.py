"""Joint tables that feasible sets are chosen from, and conditional shares of noisy counts."""

import numpy as np
import pytest
from noisy_tables import partition_of

from cloister.models.core.bins import Histogram
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.feasible_sets.expected_shares import ExpectedShares

SIZES = {"a": 2, "b": 3, "c": 4}


CELLS = {name: partition_of(name, size) for name, size in SIZES.items()}
BINS = {
    name: Histogram.over(each, each.parts, np.full(each.size, 1 / each.size))
    for name, each in CELLS.items()
}


def table(names, deviation):
    counts = np.arange(np.prod([SIZES[name] for name in names]), dtype=float)
    partitions = tuple(BINS[name] for name in names)
    return NoisyTable(partitions, counts.reshape([SIZES[name] for name in names]), deviation)


def shares(*measured):
    return ExpectedShares(
        sequence=tuple(SIZES), bins=BINS, model=None, networked=3, measured=measured
    )


def test_a_table_is_found_in_any_order_of_its_axes():
    measured = table("ab", 1.0)
    assert shares(measured).table(("a", "b")) is measured
    other = shares(measured).table(("b", "a"))
    assert other.names == ("b", "a")
    assert (other.counts == measured.counts.T).all()
    assert shares(measured).table(("a", "c")) is None


def test_of_tables_that_hold_some_attributes_the_least_noisy_sum_is_taken():
    pair, triple = table("ba", 3.0), table("abc", 1.0)
    assert shares(pair, triple).table(("a", "b")).noise == pytest.approx(2.0)
    assert shares(pair, triple).table(("b", "a")) is pair
    assert shares(table("ba", 1.0), triple).table(("a", "b")).noise == pytest.approx(1.0)


def test_a_table_over_other_parts_than_the_bins_is_refused():
    coarse = NoisyTable((BINS["a"], BINS["b"]), np.zeros((2, 2)), 1.0)
    with pytest.raises(ValueError, match="a x b"):
        shares(coarse)


def test_conditional_shares_follow_many_rows_and_the_prior_where_there_are_few():
    prior = np.array([0.7, 0.2, 0.1])
    counts = np.array([[0.0, 0.0, 30_000.0], [0.0, 0.0, 0.0]])
    given = NoisyTable((BINS["a"], BINS["b"]), counts, 2.0).conditional(prior)
    assert given.sum(axis=1) == pytest.approx([1, 1])
    assert given[0, 2] > 0.999
    assert given[1] == pytest.approx(prior)
