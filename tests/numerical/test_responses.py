"""Many randomised responses: the loss of all against closed forms, and never below them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from cloister.privacy.accounting.accountants import _spend, epsilon
from cloister.privacy.accounting.divergences import _losses_of
from cloister.privacy.accounting.loss import (
    Loss,
    _delta_of,
    epsilon_at,
    repeated_response,
    response_epsilon,
)
from cloister.privacy.events import Bounded, GaussianCounts, Sensitivity, compose, repeat

ROW = Sensitivity.partition("add_remove")


def delta_of(each, times, whole):
    """The delta of so many responses (Kairouz, Oh, Viswanath, arXiv 1311.0776, theorem 3.3)."""
    most, chance = math.ceil((times - whole / each) / 2) - 1, 1 / (1 + math.exp(each))
    first, second = (binom.cdf(most, times, p) for p in (chance, 1 - chance))
    return first - math.exp(whole) * second


def exact_epsilon(each, times, delta):
    return brentq(lambda e: delta_of(each, times, e) - delta, 0, min(each * times, 600), xtol=1e-12)


@pytest.mark.parametrize("times", [4_096, 50_000, 30_000_000])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize("together", [0.3, 2.0])
def test_many_responses_are_the_closed_form_rounded_up(times, delta, together):
    each = Fraction(round(together / math.sqrt(times) * 10**9), 10**9)
    found = epsilon(repeat(Bounded(each), times), delta, "add_remove")
    exact = exact_epsilon(float(each), times, delta)
    assert exact <= found <= exact * (1 + 5e-4)


def forget_losses():
    _spend.cache_clear()
    _losses_of.cache_clear()


def test_beside_other_mechanisms_many_responses_are_no_less_than_composed_one_by_one(monkeypatch):
    event = compose(
        repeat(Bounded(Fraction(1, 400)), 5_000), *[GaussianCounts(Fraction(10), ROW)] * 20
    )
    at_once = epsilon(event, 2e-6, "add_remove")
    monkeypatch.setattr("cloister.privacy.accounting.divergences._MANY_COPIES", 10**9)
    forget_losses()
    one_by_one = epsilon(event, 2e-6, "add_remove")
    forget_losses()
    assert at_once == pytest.approx(one_by_one, rel=1e-3)


@pytest.mark.parametrize("seed", range(25))
def test_no_divergence_of_the_grid_is_below_the_true_one(seed):
    rng = np.random.default_rng(seed)
    each, times = float(rng.uniform(1e-3, 2)), int(rng.integers(5, 300))
    step, tail = float(rng.choice([1e-3, 0.05, each])), 1e-12
    assert least_excess(repeated_response(each, times, step, tail), each, times) >= 0


def test_a_grid_that_rounds_losses_down_is_caught():
    def rounded_down(each, times, step):
        up = repeated_response(each, times, step, 1e-12)
        return Loss(step, up.lowest - 1, up.mass, up.infinite)

    assert least_excess(rounded_down(0.13, 200, 0.05), 0.13, 200) < 0


def least_excess(loss, each, times):
    """The least by which a delta of the grid exceeds the true one, at epsilons that matter."""
    deltas = [10.0**-power for power in range(1, 9)]
    found = [epsilon_at(loss, delta) for delta in deltas]
    kept = [(d, e) for d, e in zip(deltas, found, strict=True) if 0 < e < each * times]
    return min(delta - delta_of(each, times, one) for delta, one in [*kept, (1.0, 0.0)])


@pytest.mark.parametrize("times", [1, 7, 300, 100_000, 10_000_000])
def test_the_epsilon_of_each_uses_the_whole(times):
    each = response_epsilon(Fraction(1), 1e-6, times)
    assert delta_of(each, times, 1.0) <= 1e-6 <= delta_of(each * 1.01, times, 1.0) + 1e-12
    assert _delta_of(each, times, 1.0) == pytest.approx(
        delta_of(each, times, 1.0), rel=1e-6, abs=1e-15
    )
