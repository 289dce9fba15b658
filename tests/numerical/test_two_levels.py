"""Histograms counted in wide cells and in declared ones: what the second count is good for."""

import numpy as np
import pytest
from declared_table import domain_of
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_tables import shares_of

from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import MOST_ONCE, HistogramCounts, levels_above
from cloister.models.core.noisy_table import NoisyTable
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.partition import declared_cells

ROWS, REPEATS = 20_000, 3
DOMAIN = domain_of(
    listed=Categorical(type="categorical", values=[f"v{at}" for at in range(60)]),
    number=Integer(type="integer", min=0, max=127, special=[0], nullable=True),
    short=Integer(type="integer", min=1, max=MOST_ONCE),
)
CELLS = declared_cells(DOMAIN["number"])
(WIDE,) = levels_above(CELLS)
OF_CELL = WIDE.index(CELLS.starts)
MEMBERS = np.bincount(OF_CELL)
PLACES = np.arange(CELLS.size)
HILL = np.exp(-0.5 * ((PLACES - 50) / 20) ** 2)
SPIKES = np.where(PLACES % 10 == 5, 1.0, 0.02)


def noisy(counts, deviation, rng):
    return np.rint(counts + rng.normal(0, deviation, len(counts))).astype(np.int64)


def both_counts(counts, deviation, rng):
    wide = np.bincount(OF_CELL, weights=counts)
    return noisy(counts, deviation, rng), noisy(wide, deviation, rng)


def counted(cells, wide, deviation):
    return HistogramCounts(
        NoisyTable((CELLS,), cells, deviation), (NoisyTable((WIDE,), wide, deviation),)
    )


def test_only_numbers_of_many_cells_have_wide_ones_and_special_values_stay_apart():
    assert not levels_above(declared_cells(DOMAIN["listed"]))
    assert not levels_above(declared_cells(DOMAIN["short"]))
    assert set(CELLS.starts) >= set(WIDE.starts)
    assert WIDE.size == 16 + 2
    assert MEMBERS[0] == MEMBERS[-1] == 1


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 5_000), st.integers(1, 10**6))
def test_shares_are_a_distribution_whatever_the_noise(seed, deviation, rows):
    rng = np.random.default_rng(seed)
    cells, wide = both_counts(np.zeros(CELLS.size), deviation, rng)
    shares = counted(cells, wide, deviation).shares(rows)[1]
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1)


@pytest.mark.parametrize(("shape", "deviation"), [(HILL, 150.0), (SPIKES, 20.0)])
def test_wide_cells_are_nearer_than_by_one_count_of_the_same_cost_and_cells_about_as_near(
    shape, deviation
):
    rng = np.random.default_rng(5)
    counts = np.rint(ROWS * shape / shape.sum())
    wide_errors, errors = [], []
    for _ in range(REPEATS):
        both = both_counts(counts, deviation * np.sqrt(2), rng)
        twice = counted(*both, deviation * np.sqrt(2)).shares(ROWS)[1]
        once = shares_of(noisy(counts, deviation, rng), deviation, CELLS, ROWS)
        difference = np.array([twice, once]) - counts / ROWS
        errors.append(np.abs(difference).sum(1))
        wide_errors.append([np.abs(np.bincount(OF_CELL, weights=own)).sum() for own in difference])
    twice, once = np.mean(wide_errors, 0)
    assert twice < 0.85 * once
    twice, once = np.mean(errors, 0)
    assert twice < 1.7 * once  # each has √2 times the noise


def test_deviations_of_bins_are_those_of_the_counts_put_together():
    rng = np.random.default_rng(3)
    ordinary = np.zeros(CELLS.size, dtype=np.int64)
    first, second = WIDE.starts[[1, 3]]
    ordinary[first:] += 1
    ordinary[first + 3 :] += 1
    ordinary[second:] += 1
    bins = Histogram.over(CELLS, ordinary, np.full(CELLS.size, 1 / CELLS.size))
    sums = []
    for _ in range(4_000):
        cells, wide = (rng.normal(0, 1.0, levels.size) for levels in (CELLS, WIDE))
        of_cells = np.bincount(OF_CELL, weights=cells)
        totals = (wide + of_cells / MEMBERS) / (1 + 1 / MEMBERS)
        together = cells + ((totals - of_cells) / MEMBERS)[OF_CELL]
        sums.append(np.bincount(ordinary, weights=together))
    # standard deviations of 4,000 numbers are within 8 % but for one in 10^12
    twice, once = counted(cells, wide, 1.0), HistogramCounts(NoisyTable((CELLS,), cells, 1.0))
    np.testing.assert_allclose(twice.deviations(bins)[1], np.std(sums, 0)[1], rtol=0.08)
    np.testing.assert_allclose(once.deviations(bins)[1], np.sqrt(3))
    assert (twice.deviations(bins) <= once.deviations(bins) + 1e-9).all()
