"""The numbers of the Gaussian copula: normal probabilities, correlation matrices, composition."""

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy.stats import norm

from cloister.models.copula.correlations import (
    factor,
    latent_correlations,
    nearest_correlation,
    upper_probability,
)

LIMITS = st.floats(-4, 4)
CORRELATIONS = st.one_of(
    st.floats(-0.999, 0.999),
    st.floats(1, 6).map(lambda power: 1 - 10**-power),
    st.floats(1, 6).map(lambda power: -1 + 10**-power),
)


def one(first, second, correlation):
    return upper_probability(*(np.array([x]) for x in (first, second, correlation)))[0]


def integrated(first, second, correlation):
    """The probability by adaptive integration around the place where the integrand turns."""
    spread = np.sqrt(1 - correlation**2)
    turn = second / correlation if abs(correlation) > 1e-3 else first
    steps = turn + spread / max(abs(correlation), 1e-3) * np.array([-40, -10, -3, 0, 3, 10, 40])
    edges = np.clip(np.unique([first, *steps, first + 14.0]), first, first + 14.0)
    parts = [
        integrate.quad(
            lambda x: norm.pdf(x) * norm.sf((second - correlation * x) / spread),
            low,
            high,
            epsabs=1e-13,
        )[0]
        for low, high in zip(edges, edges[1:], strict=False)
    ]
    return sum(parts)


@given(LIMITS, LIMITS, CORRELATIONS)
@settings(max_examples=examples(100))
def test_the_bivariate_normal_is_right_to_eight_digits(first, second, correlation):
    assert one(first, second, correlation) == pytest.approx(
        integrated(first, second, correlation), abs=1e-8
    )


@pytest.mark.parametrize("correlation", [-1.0, -0.93, -0.5, 0.0, 0.3, 0.95, 1.0])
def test_quadrants_have_the_known_probability(correlation):
    known = 1 / 4 + np.arcsin(correlation) / (2 * np.pi)
    assert one(0.0, 0.0, correlation) == pytest.approx(known, abs=1e-12)


@given(st.lists(st.tuples(LIMITS, LIMITS, st.floats(-0.99, 0.99)), min_size=1, max_size=30))
@settings(max_examples=examples(50))
def test_a_correlation_that_is_found_gives_the_probability_again(cases):
    first, second, correlation = np.array(cases).T
    joint = upper_probability(first, second, correlation)
    correlations = latent_correlations(first, second, joint)
    assert np.abs(upper_probability(first, second, correlations) - joint).max() < 1e-8


def test_the_nearest_correlation_is_given_where_there_is_none_and_that_of_higham_of_matrices():
    """The example of Higham (2002), section 4."""
    limits = np.array([1.0, 1.0])
    low, high = latent_correlations(limits, limits, np.array([0.0, 0.9]), 0.98)
    assert one(1.0, 1.0, low) < 1e-9
    assert high == pytest.approx(0.98)
    given_matrix = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    known = np.array([[1.0, 0.7607, 0.1573], [0.7607, 1.0, 0.7607], [0.1573, 0.7607, 1.0]])
    assert np.abs(nearest_correlation(given_matrix) - known).max() < 5e-4


@pytest.mark.parametrize("width", [1, 5, 60, pytest.param(2_001, marks=pytest.mark.slow)])
def test_any_symmetric_matrix_has_a_factor_of_a_correlation_matrix(width):
    noise = np.random.default_rng(width).uniform(-1, 1, (width, width))
    symmetric = np.triu(noise, 1) + np.triu(noise, 1).T + np.eye(width)
    lower = factor(nearest_correlation(symmetric))
    assert np.allclose((lower @ lower.T).diagonal(), 1.0, atol=1e-6)
    assert (np.triu(lower, 1) == 0).all()
