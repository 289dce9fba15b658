"""Counts of many values, estimated by a distribution that is learnt from all of them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noisy_tables import shares_of

from cloister.models.core.estimator import degrees_of_freedom, expected_counts
from cloister.models.core.noisy_table import to_shares
from cloister.schema.attributes import Categorical
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells

ROWS, SIZE, REPEATS, DEVIATION = 30_000, 60, 5, 100.0
VALUES = [f"v{at}" for at in range(SIZE)]
CELLS = declared_cells(
    Domain.of({"place": Categorical(type="categorical", values=VALUES)}, Path())["place"]
)
SHAPES = {
    "one common value, the others rare": np.append(ROWS - 75 * (SIZE - 1), np.full(SIZE - 1, 75)),
    "two groups": np.repeat([200, 800], SIZE // 2),
    "by rank": np.rint(ROWS / 4.68 / np.arange(1, SIZE + 1)),
    "all different": np.linspace(20, 980, SIZE),
}


@pytest.mark.parametrize("counts", SHAPES.values(), ids=SHAPES)
def test_estimates_of_many_values_are_no_worse_than_projected_counts(counts):
    noisy = counts + np.rint(np.random.default_rng(8).normal(0, DEVIATION, (REPEATS, SIZE)))

    def error(estimate):
        return np.mean([np.abs(estimate(each) - counts / counts.sum()).sum() for each in noisy])

    rows = int(counts.sum())
    estimated = error(lambda each: shares_of(each, DEVIATION, CELLS, rows))
    assert estimated < 1.02 * error(lambda each: to_shares(each, rows))


@pytest.mark.parametrize("shape", ["one common value, the others rare", "two groups"])
def test_values_that_are_much_alike_gain_most(shape):
    counts, rng = SHAPES[shape], np.random.default_rng(9)
    noisy = counts + np.rint(rng.normal(0, DEVIATION, (REPEATS, SIZE)))
    errors = np.array([np.abs(expected_counts(each, DEVIATION) - counts).sum() for each in noisy])
    plain = np.abs(noisy - counts).sum(1)
    assert errors.mean() < 0.6 * plain.mean()


@given(st.lists(st.floats(-1e4, 1e5), min_size=2, max_size=60), st.floats(0.5, 1e3))
def test_expected_counts_keep_the_order_and_the_range_of_noisy_ones(noisy, deviation):
    counts = np.array(noisy)
    means = expected_counts(counts, deviation)
    assert (means >= 0).all()
    assert (means <= max(counts.max(), deviation) * (1 + 1e-9)).all()
    assert (np.diff(means[np.argsort(counts, kind="stable")]) >= -1e-6 * deviation).all()


@given(st.floats(0, 1), st.integers(32, 256))
def test_a_count_that_is_followed_in_part_has_that_part_of_a_degree_of_freedom(part, size):
    freedom = degrees_of_freedom(lambda noisy: part * noisy, np.zeros(size), DEVIATION)
    assert freedom == pytest.approx(part * size, rel=0.2, abs=1e-9)
