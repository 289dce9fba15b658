"""Laws of a repeated selection: what the best of a secret number of tries reveals, exactly."""

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from examples import few

from cloister.privacy import events
from cloister.privacy.accounting import divergences
from cloister.privacy.accounting.accountants import epsilon, spend
from cloister.privacy.accounting.divergences import ORDERS, even_tries, renyi, selection
from cloister.privacy.accounting.filters import filter_cost


def late_imports():
    global GaussianDpEvent, RdpAccountant, dp_event
    from dp_accounting import GaussianDpEvent, dp_event
    from dp_accounting.rdp import RdpAccountant


ROW = events.Sensitivity.partition("add_remove")
NOISE = events.GaussianCounts(Fraction(9, 2), ROW)


def divergence(first, second):
    """Rényi divergences (orders,) of two distributions (n,) that are nowhere zero."""
    logs = ORDERS[:, None] * np.log(first) + (1 - ORDERS[:, None]) * np.log(second)
    return np.logaddexp.reduce(logs, axis=1) / (ORDERS - 1)


def both_ways(first, second):
    return np.maximum(divergence(first, second), divergence(second, first))


def selected(outcomes, classes, chances):
    """The distribution of the best outcome of K tries; ``classes`` (n,) are better if less."""
    delivered = np.zeros(len(outcomes))
    for goodness in np.unique(classes):
        worse, level = outcomes[classes > goodness].sum(), classes == goodness
        own = outcomes[level].sum()
        powers = np.arange(1, len(chances) + 1)
        best = float(chances @ ((worse + own) ** powers - worse**powers))
        delivered[level] = outcomes[level] / own * best
    return delivered


def neighbours(seed, *closeness):
    """Two distributions of outcomes, in classes of equally good ones."""
    rng, closeness = np.random.default_rng(seed), closeness[seed % 3]
    size = int(rng.integers(2, 6))
    first = rng.dirichlet(np.full(size, 0.4)) + 1e-6
    second = first * np.exp(rng.uniform(-closeness, closeness, size))
    return first / first.sum(), second / second.sum(), rng.integers(0, 3, size)


def excess(seed, most, chances, claimed):
    """By how much a selection diverges more than is claimed, at the worst order."""
    first, second, classes = neighbours(seed, 0.1, 0.5, 2.0)
    one = both_ways(first, second)
    tried = [selected(each, classes, chances) for each in (first, second)]
    bound = np.minimum(most * one, selection(claimed, one))
    return (both_ways(*tried) - bound).max()


@pytest.mark.parametrize("most", few([1, 2, 3, 8], 1))
def test_a_selection_reveals_no_more_than_is_charged(most):
    even = even_tries(most)
    assert max(excess(seed, most, even, even) for seed in range(40)) < 1e-9


def test_a_number_of_tries_that_is_not_random_is_found_out():
    fixed = np.eye(8)[-1]
    assert max(excess(seed, 8, fixed, even_tries(8)) for seed in range(40)) > 0.1


def test_the_first_of_equally_good_outcomes_is_delivered_as_often_as_the_law_says():
    outcomes, classes = np.array([0.2, 0.3, 0.4, 0.1]), np.array([1, 0, 1, 0])
    drawn = Counter()
    for tries in product(range(4), repeat=3):
        for counted in (1, 2, 3):
            best = min(tries[:counted], key=lambda outcome: classes[outcome])
            drawn[best] += outcomes[list(tries)].prod() / 3
    assert [drawn[outcome] for outcome in range(4)] == pytest.approx(
        selected(outcomes, classes, even_tries(3)).tolist()
    )


@pytest.mark.parametrize("seed", range(20))
def test_at_delta_0_no_ratio_of_chances_is_above_what_is_charged(seed):
    first, second, classes = neighbours(seed, 0.05, 0.5, 1.5)
    one = np.abs(np.log(first / second)).max()
    for most in (2, 5):
        tried = [selected(each, classes, even_tries(most)) for each in (first, second)]
        bound = divergences.pure_selection(one, most)
        assert np.abs(np.log(tried[0] / tried[1])).max() <= bound


@pytest.mark.parametrize(("mean", "shape"), [(3.0, 1.0), (10.0, 1.0), (4.0, 0.5), (2.0, 0.0)])
@pytest.mark.parametrize("noise", [1, 4, 20])
def test_it_lies_between_the_worst_order_of_outcomes_and_dp_accounting(mean, shape, noise):
    """Whose closed formula drops a term, and bounds one chance where this follows two."""
    chances = negative_binomial(mean, shape)
    bound = selection(chances, renyi(events.GaussianCounts(Fraction(noise), ROW), "add_remove"))
    reference = RdpAccountant(ORDERS)
    reference.compose(dp_event.RepeatAndSelectDpEvent(GaussianDpEvent(noise), mean, shape))
    assert (bound <= reference._rdp * (1 + 1e-3)).all()
    points = np.linspace(-6 * noise, 6 * noise, 601)
    pair = [np.exp(-((points - shift) ** 2) / (2 * noise**2)) for shift in (0, 1)]
    first, second = (one / one.sum() for one in pair)
    tried = [selected(one, np.arange(points.size), chances) for one in (first, second)]
    usable = ORDERS < 30  # beyond, the tails of the grid count
    assert (both_ways(*tried)[usable] <= bound[usable]).all()


def negative_binomial(mean, shape, most=600):
    """The chances of 1, ..., ``most`` tries, of which more are next to impossible."""
    tries = np.arange(1, most + 1)
    growth = np.cumprod((tries - 1 + shape) / tries) if shape else 1 / tries
    low, high = 1e-9, 1 - 1e-9
    for _ in range(200):
        middle = (low + high) / 2
        weights = (1 - middle) ** tries * growth
        low, high = (low, middle) if weights @ tries / weights.sum() < mean else (middle, high)
    return weights / weights.sum()


def test_known_epsilons_of_a_selection():
    one, *more = (
        epsilon(events.RepeatedSelection(NOISE, n), 1e-6, "add_remove") for n in (1, 2, 3, 10)
    )
    assert one == epsilon(NOISE, 1e-6, "add_remove")
    assert [round(found, 2) for found in more] == [1.14, 1.25, 1.55]
    # at delta 0 and two tries, f' = (1 + 2x) / 2 is steepest where q = 1 - q' = e / (1 + e)
    odds = np.e / (1 + np.e)
    pure = 1 + np.log((1 + 2 * odds) / (3 - 2 * odds))
    laplace = epsilon(
        events.RepeatedSelection(events.LaplaceCounts(Fraction(1), ROW), 2), 0, "add_remove"
    )
    assert pure <= laplace == pytest.approx(pure, rel=1e-3)


@pytest.mark.parametrize(
    ("base", "relation"),
    [
        (NOISE, "add_remove"),
        (events.SampledGaussian(Fraction(1, 100), Fraction(11, 10), 100), "replace_one"),
        (events.Bounded(Fraction(1, 2), Fraction(1, 10**8)), "add_remove"),
        (events.Parallel((NOISE, events.GaussianCounts(Fraction(4), ROW))), "add_remove"),
        (events.compose(NOISE, events.RepeatedSelection(NOISE, 2)), "add_remove"),
    ],
)
def test_a_selection_costs_no_more_than_all_of_its_tries(base, relation):
    event = events.RepeatedSelection(base, 3)
    assert spend(event, 1e-6, relation).epsilon <= epsilon(events.repeat(base, 3), 1e-6, relation)
    assert events.event_from_json(event.to_json()) == event


def test_what_leaks_in_a_try_is_charged_for_all_of_them():
    leaking = events.RepeatedSelection(events.Bounded(Fraction(1, 2), Fraction(1, 10**8)), 3)
    assert filter_cost(leaking, "add_remove").leak == Fraction(3, 10**8)
