"""Histograms estimated from noisy counts: shares that add up, with less error than the counts."""

import numpy as np
import pytest
from declared_table import domain_of
from hypothesis import given
from hypothesis import strategies as st
from noisy_tables import shares_of

from cloister.models.core.noisy_table import to_shares
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.partition import declared_cells

ROWS, SIZE, REPEATS = 20_000, 60, 6
DOMAIN = domain_of(
    listed=Categorical(type="categorical", values=[f"v{at}" for at in range(SIZE)]),
    number=Integer(type="integer", min=0, max=SIZE - 1),
)
LONG_TAIL = np.rint(ROWS * 0.5 ** np.arange(1, SIZE + 1)).astype(np.int64)
HILL = np.rint(ROWS * np.exp(-0.5 * ((np.arange(SIZE) - 25) / 9) ** 2) / 22.6).astype(np.int64)


def errors(counts, deviation, estimate):
    """The L1 error of each of many estimates, in shares."""
    rng = np.random.default_rng(5)
    noisy = counts + np.rint(rng.normal(0, deviation, (REPEATS, SIZE))).astype(np.int64)
    return np.array([np.abs(estimate(each) - counts / ROWS).sum() for each in noisy])


@given(st.lists(st.integers(-500, 5_000), min_size=1, max_size=40), st.integers(1, 10**6))
def test_shares_are_a_distribution_and_keep_the_order_of_counts(counts, rows):
    shares = to_shares(np.array(counts), rows)
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    assert (np.diff(shares[np.argsort(counts, kind="stable")]) >= -1e-12).all()


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=40).filter(any))
def test_exact_counts_are_their_own_shares(counts):
    np.testing.assert_allclose(
        to_shares(np.array(counts), sum(counts)), np.array(counts) / sum(counts), atol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "counts", "deviation"), [("listed", LONG_TAIL, 30.0), ("number", HILL, 200.0)]
)
def test_an_estimate_is_nearer_than_the_counts_and_than_their_projection_to_their_own_sum(
    name, counts, deviation
):
    cells = declared_cells(DOMAIN[name])
    estimated = errors(counts, deviation, lambda noisy: shares_of(noisy, deviation, cells, ROWS))
    raw = errors(counts, deviation, lambda noisy: noisy / ROWS)
    own_sum = errors(counts, deviation, lambda noisy: to_shares(noisy, max(int(noisy.sum()), 1)))
    assert estimated.mean() < 0.8 * raw.mean()
    assert estimated.mean() < 0.97 * own_sum.mean()
