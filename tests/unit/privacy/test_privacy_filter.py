"""A filter keeps whatever is released within its cap, however an adversary chooses it."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.errors import UnsupportedEvent
from cloister.privacy import events
from cloister.privacy.accounting.accountants import calibrate, spend
from cloister.privacy.accounting.divergences import ORDERS, convert
from cloister.privacy.accounting.filters import FilterCost, bounded_cost, filter_cost, least_cap

ONE = events.Sensitivity.partition("add_remove")
DELTA = Fraction(1, 10**5)


def gaussian(multiplier: int = 40) -> FilterCost:
    return filter_cost(events.GaussianCounts(Fraction(multiplier), ONE), "add_remove")


@pytest.mark.parametrize("number", [1, 2, 30, 1000])
def test_of_gaussian_releases_it_is_the_conversion_of_their_concentration(number: int) -> None:
    """rho = k / (2 z^2), converted at half of delta."""
    expected = convert(ORDERS * number / (2 * 40**2), float(DELTA / 2))
    assert expected < least_cap([gaussian()] * number, DELTA) < expected * (1 + 2e-5)


def test_at_small_epsilons_it_admits_many_more_than_the_sum() -> None:
    tenth = Fraction(1, 10)
    noise = calibrate(lambda z: events.GaussianCounts(z, ONE), tenth, DELTA / 100, "add_remove")
    cost = filter_cost(events.GaussianCounts(noise, ONE), "add_remove")
    admitted = next(k for k in range(1, 2000) if least_cap([cost] * (k + 1), DELTA) > 3)
    assert admitted > 20 * (3 / tenth)


EVENTS: dict[str, events.Event] = {
    "gaussian": events.GaussianCounts(Fraction(9), ONE),
    "laplace": events.LaplaceCounts(Fraction(1, 10), ONE),
    "selection": events.Selection(Fraction(1, 10)),
    "training": events.SampledGaussian(Fraction(1, 100), Fraction(2), 100),
    "bounded": events.Bounded(Fraction(1, 10), Fraction(1, 10**7)),
    "thresholded": events.Thresholded(
        events.LaplaceCounts(Fraction(1, 10), ONE), Fraction(1, 10**7)
    ),
    "parallel": events.Parallel(
        (events.GaussianCounts(Fraction(9), ONE), events.LaplaceCounts(Fraction(1, 10), ONE))
    ),
}


@pytest.mark.parametrize("name", EVENTS)
def test_it_is_never_below_what_a_schedule_fixed_in_advance_costs(name: str) -> None:
    event = EVENTS[name]
    for number in (1, 7):
        fixed = spend(events.compose(*[event] * number), DELTA, "add_remove").epsilon
        assert least_cap([filter_cost(event, "add_remove")] * number, DELTA) >= fixed


def test_leaks_add_up_to_half_of_delta_at_most_and_rates_do_not_fall_with_the_order() -> None:
    cost = filter_cost(EVENTS["bounded"], "add_remove")
    assert cost.leak == Fraction(1, 10**7)
    assert least_cap([cost] * 50, DELTA) is not None
    assert least_cap([cost] * 51, DELTA) is None
    assert least_cap([gaussian()], Fraction(0)) is None
    assert least_cap([], Fraction(0)) == 0
    for event in EVENTS.values():
        rates = filter_cost(event, "add_remove").rates
        assert (rates == np.maximum.accumulate(rates)).all()


def test_what_no_divergence_is_known_of_is_not_read() -> None:
    for event, relation in (
        (events.UncountedRecords(50, Fraction(4), 10), "add_remove"),
        (EVENTS["training"], "replace_one"),
    ):
        with pytest.raises(UnsupportedEvent):
            filter_cost(event, relation)


choices = st.lists(
    st.tuples(
        st.fractions(min_value=Fraction(1, 20), max_value=2, max_denominator=20),
        st.sampled_from([Fraction(0), Fraction(1, 100), Fraction(1, 20)]),
    ),
    min_size=12,
    max_size=12,
)


def worst_excess(
    choose: Callable[[int, int], tuple[Fraction, Fraction]],
    admits: Callable[[Sequence[tuple[Fraction, Fraction]]], bool],
    cap: float,
    steps: int = 7,
) -> float:
    """The exact delta at epsilon ``cap`` of randomized responses, each chosen after the last.

    ``choose`` sees the number of answers and how many of them were for the unit; with the leak's
    probability an answer reveals the unit.
    """
    excess = 0.0

    def walk(
        likely: float, unlikely: float, ones: int, charged: tuple[tuple[Fraction, Fraction], ...]
    ) -> None:
        nonlocal excess
        charge = choose(len(charged), ones)
        if len(charged) == steps or not admits((*charged, charge)):
            excess += max(likely - math.exp(cap) * unlikely, 0.0)
            return
        epsilon, leak = charge
        truth = 1 / (1 + math.exp(-float(epsilon)))
        stays = 1 - float(leak)
        excess += likely * float(leak)
        after = (*charged, charge)
        walk(likely * stays * truth, unlikely * stays * (1 - truth), ones + 1, after)
        walk(likely * stays * (1 - truth), unlikely * stays * truth, ones, after)

    walk(1.0, 1.0, 0, ())
    return excess


@given(choices, st.sampled_from([Fraction(1, 5), Fraction(1, 2)]), st.sampled_from([1, 2, 3]))
@settings(max_examples=examples(100), deadline=None)
def test_no_adaptive_order_goes_beyond_the_cap(menu, delta, cap) -> None:
    def choose(answers: int, ones: int) -> tuple[Fraction, Fraction]:
        return menu[(5 * answers + 3 * ones) % len(menu)]

    def admits(charged: Sequence[tuple[Fraction, Fraction]]) -> bool:
        needed = least_cap([bounded_cost(*each) for each in charged], delta)
        return needed is not None and needed <= cap

    assert worst_excess(choose, admits, cap) <= delta


def test_the_property_finds_a_filter_that_forgets_leaks() -> None:
    def admits(charged: Sequence[tuple[Fraction, Fraction]]) -> bool:
        needed = least_cap([bounded_cost(e, Fraction(0)) for e, _ in charged], Fraction(1, 5))
        return needed is not None and needed <= 3

    leaking = (Fraction(1, 20), Fraction(1, 20))
    assert worst_excess(lambda *_: leaking, admits, 3) > Fraction(1, 5)


@given(
    st.lists(st.sampled_from(sorted(EVENTS)), min_size=1, max_size=6),
    st.integers(1, 40),
    st.integers(1, 40),
)
@settings(max_examples=examples(50), deadline=None)
def test_a_greater_delta_or_fewer_releases_never_need_a_greater_cap(names, first, second) -> None:
    costs = [filter_cost(EVENTS[name], "add_remove") for name in names]
    small, great = sorted((first, second))
    caps = [least_cap(costs, Fraction(each, 10**6)) for each in (small, great)]
    assert caps[1] is None or caps[0] is None or caps[1] <= caps[0]
    fewer = least_cap(costs[:-1], Fraction(great, 10**6))
    assert caps[1] is None or fewer <= caps[1]
