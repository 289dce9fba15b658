"""Calibrated noise is enough and wastes little; shares are exact."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.errors import PlanError, UnsupportedEvent
from cloister.privacy import events
from cloister.privacy.accounting.accountants import (
    calibrate,
    epsilon,
    noise_multiplier,
    shares,
    zcdp_rho,
)

ADD = events.Sensitivity.partition("add_remove")


def kamino(noise: Fraction) -> events.Event:
    return events.compose(
        events.GaussianCounts(4 * noise, ADD),
        events.repeat(events.GaussianCounts(9 * noise, ADD), 8),
        events.SampledGaussian(Fraction(1, 80), noise, 800),
    )


@pytest.mark.parametrize(
    ("event_of", "delta"),
    [
        (lambda noise: events.GaussianCounts(noise, ADD), 1e-6),
        (lambda noise: events.repeat(events.GaussianCounts(noise, ADD), 30), 1e-9),
        (lambda noise: events.repeat(events.LaplaceCounts(1 / noise, ADD), 30), 1e-6),
        (kamino, 1e-6),
    ],
)
@pytest.mark.parametrize("target", [Fraction(1, 10), 8.0])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_claim_holds_and_little_is_wasted(event_of, delta, target, relation) -> None:
    noise = calibrate(event_of, target, delta, relation)  # type: ignore[arg-type]
    reached = epsilon(event_of(noise), delta, relation)  # type: ignore[operator]
    assert 0.999 * float(target) < reached <= target


def test_pure_epsilons_are_met_exactly() -> None:
    assert calibrate(lambda noise: events.LaplaceCounts(1 / noise, ADD), 1, 0, "add_remove") == 1


def test_what_no_noise_can_keep_is_refused() -> None:
    fixed = events.GaussianCounts(Fraction(1), ADD)
    with pytest.raises(PlanError, match="No amount of noise"):
        calibrate(
            lambda noise: events.compose(fixed, events.GaussianCounts(noise, ADD)),
            1,
            1e-6,
            "add_remove",
        )
    with pytest.raises(PlanError, match="No amount of noise"):
        calibrate(
            lambda noise: events.compose(fixed, events.SampledGaussian(Fraction(1, 9), noise, 9)),
            1,
            1e-6,
            "add_remove",
        )
    with pytest.raises(PlanError, match="larger epsilon"):
        calibrate(lambda noise: events.GaussianCounts(noise, ADD), 0, 1e-6, "add_remove")
    with pytest.raises(UnsupportedEvent):
        calibrate(lambda noise: events.GaussianCounts(noise, ADD), 1, 0, "add_remove")


@given(st.fractions(Fraction(1, 10**6), 10**3))
def test_the_noise_of_a_rho_is_enough(rho: Fraction) -> None:
    noise = noise_multiplier(rho)
    assert rho * Fraction(99_997, 100_000) <= 1 / (2 * noise**2) <= rho


@pytest.mark.parametrize("target", [0.1, 1, 10])
def test_a_rho_gives_the_epsilon_it_is_for(target: float) -> None:
    noise = noise_multiplier(zcdp_rho(target, 1e-6))
    assert 0.75 * target < epsilon(events.GaussianCounts(noise, ADD), 1e-6, "add_remove") <= target


@given(
    st.fractions(Fraction(1, 1000), 100), st.lists(st.integers(1, 10**6), min_size=1, max_size=20)
)
def test_shares_add_up_and_empty_or_zero_ones_are_refused(total, weights) -> None:
    parts = shares(total, weights)
    assert sum(parts) == total
    assert all(
        part * weights[0] == parts[0] * weight for part, weight in zip(parts, weights, strict=True)
    )
    for wrong in ([], [*weights, 0]):
        with pytest.raises(PlanError, match="positive"):
            shares(total, wrong)
