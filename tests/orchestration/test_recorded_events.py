"""What the ledger recorded for a release is worth its epsilon by a second, independent route."""

import math
from fractions import Fraction

import numpy as np

from cloister.privacy.events import Composed, GaussianCounts, SampledGaussian, event_from_json
from cloister.privacy.ledger.composition import together
from cloister.tasks.ledger.access import open_ledger


def late_imports():
    global opacus_rdp, pld
    from dp_accounting.pld import privacy_loss_distribution as pld
    from opacus.accountants.analysis import rdp as opacus_rdp


DELTA = 1e-6


def leaves(event, times=1):
    if isinstance(event, Composed):
        for part, repeats in event.parts:
            yield from leaves(part, times * repeats)
    else:
        yield event, times


def recorded(released):
    (release,) = open_ledger(released.place.home).releases("clubs")
    return release, list(leaves(event_from_json(release.request.events)))


def test_total_by_loss_distributions_of_another_library(released):
    release, events = recorded(released)
    total = None
    for event, times in events:
        if isinstance(event, GaussianCounts):
            part = pld.from_discrete_gaussian_mechanism(
                float(event.noise_multiplier), sensitivity=1, value_discretization_interval=1e-3
            ).self_compose(times)
        else:
            assert isinstance(event, SampledGaussian)
            part = pld.from_gaussian_mechanism(
                float(event.noise_multiplier),
                sampling_prob=float(event.rate),
                value_discretization_interval=1e-3,
                use_connect_dots=True,
            ).self_compose(event.steps * times)
        total = part if total is None else total.compose(part)
    assert total.get_epsilon_for_delta(DELTA) <= float(release.request.epsilon) * 1.005
    assert total.get_epsilon_for_delta(DELTA) >= 0.9 * float(release.request.epsilon)


def test_total_by_renyi_divergences_of_a_third_library_is_an_upper_bound_of_the_same_size(released):
    release, events = recorded(released)
    orders = np.concatenate([np.linspace(1.1, 12, 110), np.arange(13, 256)])
    total = np.zeros(len(orders))
    for event, times in events:
        if isinstance(event, GaussianCounts):
            total += times * orders / (2 * float(event.noise_multiplier) ** 2)
        else:
            total += times * np.array(
                opacus_rdp.compute_rdp(
                    q=float(event.rate),
                    noise_multiplier=float(event.noise_multiplier),
                    steps=event.steps,
                    orders=orders.tolist(),
                )
            )
    epsilon = np.min(total + math.log(1 / DELTA) / (orders - 1))
    assert 0.9 * float(release.request.epsilon) <= epsilon <= 1.5 * float(release.request.epsilon)


def test_what_releases_cost_together_is_less_than_the_sum(released):
    release, _ = recorded(released)
    one = together([release.request], Fraction(1, 10**6))
    two = together([release.request] * 2, Fraction(1, 10**6))
    assert one.epsilon <= float(release.request.epsilon)
    assert one.epsilon < two.epsilon < 2 * one.epsilon
