"""Epsilon and CPU time of loss distributions, against those of dp_accounting.

Run by .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_accounting.py
"""

import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial, reduce

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from cloister.privacy import events
from cloister.privacy.accounting.accountants import _spend, spend
from cloister.privacy.accounting.divergences import _grid_losses, _losses_of

pytestmark = pytest.mark.benchmark

DELTA = 1e-6
# Grids of dp_accounting, in nats: its default, and one of its cheaper ones.
GRIDS = (1e-4, 1e-3)
# Runs of which the fastest counts.
REPEATS = 3
# Share by which an epsilon here may exceed that of dp_accounting on its default grid.
LOOSER = 3e-4

Losses = pld.PrivacyLossDistribution
ROW = events.Sensitivity.partition("add_remove")
SCALES = [Fraction(40 + place, 10) for place in range(30)]
EPSILONS = [Fraction(50 + place, 1000) for place in range(30)]


def training(rate: float, noise: float, steps: int, grid: float) -> Losses:
    one = pld.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=grid, use_connect_dots=True
    )
    return one.self_compose(steps)


def mixed(grid: float) -> Losses:
    options = {"value_discretization_interval": grid, "use_connect_dots": True}
    return reduce(
        Losses.compose,
        [
            *(pld.from_discrete_gaussian_mechanism(float(scale), **options) for scale in SCALES),
            *(pld.from_discrete_laplace_mechanism(float(each), **options) for each in EPSILONS),
        ],
    )


CASES: dict[str, tuple[events.Event, Callable[[float], Losses]]] = {
    "1,000 steps, rate 0.01, noise 1": (
        events.SampledGaussian(Fraction(1, 100), Fraction(1), 1000),
        partial(training, 0.01, 1.0, 1000),
    ),
    "1,000 steps, rate 1e-5, noise 0.5": (
        events.SampledGaussian(Fraction(1, 10**5), Fraction(1, 2), 1000),
        partial(training, 1e-5, 0.5, 1000),
    ),
    "100 Gaussians, noise 5": (
        events.SampledGaussian(Fraction(1), Fraction(5), 100),
        partial(training, 1.0, 5.0, 100),
    ),
    "30 discrete Gaussians and 30 Laplace, all different": (
        events.compose(
            *(events.GaussianCounts(scale, ROW) for scale in SCALES),
            *(events.LaplaceCounts(each, ROW) for each in EPSILONS),
        ),
        mixed,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_loss_distributions_are_as_tight_as_those_of_dp_accounting_in_less_time(name: str) -> None:
    event, theirs = CASES[name]
    ours, seconds = measured(partial(epsilon, event))
    print(f"\n{name}\n  Cloister              epsilon {ours:.6f}  {seconds:.3f} CPU seconds")
    found = {grid: measured(partial(their_epsilon, theirs, grid)) for grid in GRIDS}
    for grid, (other, took) in found.items():
        print(f"  dp_accounting {grid:.0e}   epsilon {other:.6f}  {took:.3f} CPU seconds")
    tightest, longest = found[GRIDS[0]]
    assert ours <= tightest * (1 + LOOSER)
    assert seconds < longest


def epsilon(event: events.Event) -> float:
    """The epsilon by loss distributions, computed anew: other accountants keep their caches."""
    _spend.cache_clear()
    _grid_losses.cache_clear()
    _losses_of.cache_clear()
    cost = spend(event, DELTA, "add_remove")
    assert cost.accountant == "privacy loss distribution"
    return cost.epsilon


def their_epsilon(theirs: Callable[[float], Losses], grid: float) -> float:
    return float(theirs(grid).get_epsilon_for_delta(DELTA))


def measured(run: Callable[[], float]) -> tuple[float, float]:
    """The answer, and the least CPU seconds of some runs."""
    seconds = []
    for _ in range(REPEATS):
        begun = time.process_time()
        answer = run()
        seconds.append(time.process_time() - begun)
    return answer, min(seconds)
