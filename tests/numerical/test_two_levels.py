"""Histograms counted in wide cells and in declared ones: what the second count is good for."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.models.core.bins import Histogram
from cloister.models.core.denoising import estimate_shares
from cloister.models.core.histograms import MOST_ONCE, TwoLevels, bin_deviations
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells

ROWS, REPEATS = 20_000, 6
DOMAIN = Domain.of(
    {
        "listed": Categorical(type="categorical", values=[f"v{at}" for at in range(60)]),
        "number": Integer(type="integer", min=0, max=127, special=[0], nullable=True),
        "short": Integer(type="integer", min=1, max=MOST_ONCE),
    },
    Path(),
)
CELLS = declared_cells(DOMAIN["number"])
LEVELS = TwoLevels.of(CELLS)
PLACES = np.arange(CELLS.size)
HILL = np.exp(-0.5 * ((PLACES - 50) / 20) ** 2)
SPIKES = np.where(PLACES % 10 == 5, 1.0, 0.02)


def noisy(counts, deviation, rng):
    return np.rint(counts + rng.normal(0, deviation, len(counts))).astype(np.int64)


def both_counts(counts, deviation, rng):
    wide = np.bincount(LEVELS.of_cell, weights=counts)
    return noisy(counts, deviation, rng), noisy(wide, deviation, rng)


def test_only_numbers_of_many_cells_have_wide_ones_and_special_values_stay_apart():
    assert TwoLevels.of(declared_cells(DOMAIN["listed"])) is None
    assert TwoLevels.of(declared_cells(DOMAIN["short"])) is None
    assert set(CELLS.starts) >= set(LEVELS.wide.starts)
    assert LEVELS.wide.size == 16 + 2
    assert LEVELS.members[0] == LEVELS.members[-1] == 1


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 5_000), st.integers(1, 10**6))
def test_shares_are_a_distribution_whatever_the_noise(seed, deviation, rows):
    rng = np.random.default_rng(seed)
    cells, wide = both_counts(np.zeros(CELLS.size), deviation, rng)
    shares = LEVELS.estimate_shares(cells, wide, deviation, rows)
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("shape", [HILL, SPIKES], ids=["hill", "spikes"])
@pytest.mark.parametrize("deviation", [20.0, 150.0])
def test_wide_cells_are_nearer_than_by_one_count_of_the_same_cost_and_cells_about_as_near(
    shape, deviation
):
    rng = np.random.default_rng(5)
    counts = np.rint(ROWS * shape / shape.sum())
    wide_errors, errors = [], []
    for _ in range(REPEATS):
        twice = LEVELS.estimate_shares(
            *both_counts(counts, deviation * np.sqrt(2), rng), deviation * np.sqrt(2), ROWS
        )
        once = estimate_shares(noisy(counts, deviation, rng), deviation, CELLS, ROWS)
        difference = np.array([twice, once]) - counts / ROWS
        errors.append(np.abs(difference).sum(1))
        wide_errors.append(
            [np.abs(np.bincount(LEVELS.of_cell, weights=own)).sum() for own in difference]
        )
    twice, once = np.mean(wide_errors, 0)
    assert twice < 0.85 * once
    twice, once = np.mean(errors, 0)
    assert twice < 1.7 * once  # each has √2 times the noise


def test_deviations_of_bins_are_those_of_the_counts_put_together():
    rng = np.random.default_rng(3)
    ordinary = np.zeros(CELLS.size, dtype=np.int64)
    first, second = LEVELS.wide.starts[[1, 3]]
    ordinary[first:] += 1
    ordinary[first + 3 :] += 1
    ordinary[second:] += 1
    bins = Histogram.over(CELLS, ordinary, np.full(CELLS.size, 1 / CELLS.size))
    sums = []
    for _ in range(4_000):
        cells, wide = (rng.normal(0, 1.0, levels.size) for levels in (CELLS, LEVELS.wide))
        of_cells = np.bincount(LEVELS.of_cell, weights=cells)
        totals = (wide + of_cells / LEVELS.members) / (1 + 1 / LEVELS.members)
        together = cells + ((totals - of_cells) / LEVELS.members)[LEVELS.of_cell]
        sums.append(np.bincount(ordinary, weights=together))
    # standard deviations of 4,000 numbers are within 8 % but for one in 10^12
    np.testing.assert_allclose(bin_deviations(bins, LEVELS, 1.0)[1], np.std(sums, 0)[1], rtol=0.08)
    np.testing.assert_allclose(bin_deviations(bins, None, 2.0)[1], 2 * np.sqrt(3))
    assert (bin_deviations(bins, LEVELS, 1.0) <= bin_deviations(bins, None, 1.0) + 1e-9).all()
