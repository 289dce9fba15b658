"""The public choices of the mixture's plan: monotone in the signal, within their bounds."""

import math

from hypothesis import given
from hypothesis import strategies as st

from cloister.privacy.mechanisms.counts import Neighbours
from cloister.schema.domain import Domain
from models.mixture.plan import (
    FEWEST_COMPONENTS,
    FEWEST_STEPS,
    LEAST_HISTOGRAMS,
    LEAST_PENALTY,
    MOST_COMPONENTS,
    MOST_EMPHASIS_CELLS,
    MOST_HISTOGRAMS,
    MOST_ROUNDS,
    MOST_STEPS,
    components_for,
    emphasis_for,
    histograms_for,
    penalty_for,
    rounds_for,
    signal_of,
    steps_for,
)
from models.task import Task

signals = st.floats(1e-3, 1e8)


@given(signals, signals, st.integers(1, 500))
def test_more_signal_never_means_fewer_rounds_or_components(one, other, attributes):
    low, high = sorted((one, other))
    assert rounds_for(low, attributes) <= rounds_for(high, attributes) <= MOST_ROUNDS
    assert FEWEST_COMPONENTS <= components_for(low) <= components_for(high) <= MOST_COMPONENTS


@given(signals, signals)
def test_more_signal_never_means_a_greater_share_for_histograms(one, other):
    low, high = sorted((one, other))
    assert LEAST_HISTOGRAMS <= histograms_for(high) <= histograms_for(low) <= MOST_HISTOGRAMS


@given(signals, signals)
def test_more_signal_never_means_a_smaller_penalty_on_dependence(one, other):
    low, high = sorted((one, other))
    assert LEAST_PENALTY <= penalty_for(low) <= penalty_for(high)


@given(st.integers(0, MOST_ROUNDS), st.integers(0, MOST_ROUNDS))
def test_more_rounds_never_mean_more_steps_each(one, other):
    few, many = sorted((one, other))
    assert FEWEST_STEPS <= steps_for(many) <= steps_for(few) <= MOST_STEPS


@given(signals)
def test_one_attribute_needs_no_round(signal):
    assert rounds_for(signal, 1) == 0


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_histogram_of_more_cells_never_gets_more_noise(one, other):
    few, many = sorted((one, other))
    assert 1 <= emphasis_for(few) <= emphasis_for(many) <= MOST_EMPHASIS_CELLS


@given(st.integers(1, 10**6), st.integers(1, 100), st.floats(1e-9, 1e3))
def test_rows_of_one_unit_weaken_the_signal(rows, of_unit, rho):
    persons = Task(Domain(()), (), rows * of_unit, Neighbours(max_rows=of_unit))
    single = Task(Domain(()), (), rows, Neighbours())
    assert math.isclose(signal_of(persons, rho), signal_of(single, rho))
