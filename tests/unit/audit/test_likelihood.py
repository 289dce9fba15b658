"""Likelihoods are those of what mechanisms draw: ratios against frequencies, and sums over all."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from cloister.audit.likelihood import SampledSum, drawn, log_likelihood
from cloister.privacy.events import Sensitivity
from cloister.privacy.mechanisms.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    GaussianGradient,
    GridNoise,
    OnGridSensitivity,
    SparseHistogram,
)
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.mechanisms.selection import Exponential, PermuteAndFlip

ONE = Sensitivity(1, 1, 1, 1)
COUNTS = [DiscreteGaussian(Fraction(3, 2)), DiscreteLaplace(Fraction(1, 2))]
DRAWS = 1_000
GRADIENT = GaussianGradient(Fraction(1, 4), Fraction(2), 0.5)
# Frequencies of a thousand draws are off by five deviations less than once in a million.
FARTHEST = 5.0


def masses(mechanism, sensitivity, exact, answers):
    """The likelihoods of all answers, scaled to add up to one."""
    logs = np.array([log_likelihood(mechanism, sensitivity, exact, np.array(a)) for a in answers])
    return np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()


def require_frequencies(counted, expected, draws):
    deviations = np.sqrt(draws * expected * (1 - expected)) + 1e-9
    common = expected * draws > 20
    assert (np.abs(counted - draws * expected)[common] < FARTHEST * deviations[common]).all()


@pytest.mark.parametrize("mechanism", COUNTS, ids=lambda noise: type(noise).__name__)
def test_noise_has_the_likelihood_of_what_is_drawn(mechanism):
    exact = np.array([3])
    noisy = mechanism.release(np.full(DRAWS, 3), ONE, NoiseSource())
    answers = np.arange(-40, 47)
    expected = masses(mechanism, ONE, exact, answers[:, None])
    assert log_likelihood(mechanism, ONE, np.zeros(2, int), np.zeros(3, int)) == -math.inf
    assert log_likelihood(object(), ONE, np.zeros(2), np.zeros(2)) is None
    require_frequencies(np.array([(noisy == a).sum() for a in answers]), expected, DRAWS)


def test_noise_on_a_grid_is_that_in_its_steps():
    rows = np.array([64, 0]), np.array([70, 3])
    steps = OnGridSensitivity(Sensitivity.box(2, 64), 1)
    on_grid = log_likelihood(GridNoise(COUNTS[0]), steps, *rows)
    assert on_grid == log_likelihood(COUNTS[0], steps.steps, *rows)


@pytest.mark.parametrize("kind", [Exponential, PermuteAndFlip])
def test_selections_have_the_likelihood_of_what_is_drawn(kind):
    mechanism, scores = kind(Fraction(2)), np.array([5, 4, 2, 5, -30])
    drawn = [int(mechanism.release(scores, Fraction(2), NoiseSource())[0]) for _ in range(DRAWS)]
    chances = chances_of(mechanism, scores)
    require_frequencies(np.bincount(drawn, minlength=5), chances, DRAWS)
    assert chances.sum() == pytest.approx(1)
    assert chances_of(mechanism, np.arange(101) % 7).sum() == pytest.approx(1)


def chances_of(mechanism, scores):
    numbers = np.arange(len(scores))[:, None]
    return np.exp([log_likelihood(mechanism, Fraction(2), scores, number) for number in numbers])


@pytest.mark.parametrize("counts", COUNTS, ids=lambda noise: type(noise).__name__)
def test_a_thresholded_histogram_counts_what_is_withheld(counts):
    """All that may be released of two cells, within reach of the noise, adds up to one."""
    mechanism, exact = SparseHistogram(counts, Fraction(1, 100)), np.array([[4, 9], [8, 9]])
    low = mechanism.threshold(ONE)
    one, total = [(), *((value,) for value in range(low, low + 60))], 0.0
    for first, second in itertools.product(one, one):
        cells = [4] * len(first) + [9] * len(second)
        released = np.array([cells, [*first, *second]], dtype=np.int64)
        total += math.exp(log_likelihood(mechanism, ONE, exact, released))
    assert total == pytest.approx(1, abs=1e-9)
    of_nobody = np.array([[5], [40]])
    assert log_likelihood(mechanism, ONE, np.array([[4], [8]]), of_nobody) == -math.inf


def test_a_sampled_gradient_is_a_mixture_over_its_sample():
    """The ratio to the sum without the unit is 1 - q + q times that of two normals."""
    shared, own = np.zeros(3, dtype=np.int64), np.array([1, 0, 0]) * int(GRADIENT.grid)
    noisy, sums = np.array([0.4, -0.3, 0.1]), GRADIENT.sums()
    without, with_unit = (
        log_likelihood(GRADIENT, sums, SampledSum(shared, units, 0.25), noisy)
        for units in ((), (own,))
    )
    scale = 2 * 0.5
    normals = math.exp((2 * 0.4 * 0.5 - 0.5**2) / (2 * scale**2))
    assert math.exp(with_unit - without) == pytest.approx(0.75 + 0.25 * normals, rel=1e-4)


NEAR = {
    "counts": (DiscreteGaussian(Fraction(3, 2)), ONE, np.arange(6)),
    "counts with little noise": (DiscreteGaussian(Fraction(2, 5)), ONE, np.arange(6)),
    "counts at delta 0": (DiscreteLaplace(Fraction(1, 2)), ONE, np.arange(6)),
    "a grid": (
        GridNoise(DiscreteGaussian(Fraction(1))),
        OnGridSensitivity(Sensitivity.box(2, 64), 1),
        np.array([64, 0]),
    ),
    "gradients": (GRADIENT, GRADIENT.sums(), np.array([2**30, 0, -5])),
    "a choice": (Exponential(Fraction(2)), Fraction(2), np.array([5, 4, 2, 5, -30])),
    "a choice at delta 0": (PermuteAndFlip(Fraction(2)), Fraction(2), np.array([5, 4, 2, 5, -30])),
}


@pytest.mark.parametrize(
    "case",
    [
        *("counts with little noise", "counts at delta 0", "gradients", "a choice at delta 0"),
        *(pytest.param(case, marks=pytest.mark.slow) for case in ("counts", "a grid", "a choice")),
    ],
)
def test_nearness_of_what_is_drawn_is_of_mean_0_and_variance_1(case):
    mechanism, sensitivity, exact = NEAR[case]
    source = NoiseSource()
    answers = [mechanism.release(exact, sensitivity, source) for _ in range(DRAWS)]
    found = [drawn(mechanism, sensitivity, exact, answer) for answer in answers]
    values = np.array([each.nearness for each in found])
    assert abs(values.mean()) < FARTHEST / math.sqrt(DRAWS)
    spread = np.square(values - values.mean()).std() / math.sqrt(DRAWS)
    assert abs(values.var() - 1) < FARTHEST * spread
    ratios = np.exp([each.farness for each in found])
    assert abs(ratios.mean() - 1) < FARTHEST * ratios.std() / math.sqrt(DRAWS)
    signs = np.concatenate([each.signs for each in found])
    assert abs(signs.sum()) <= FARTHEST * math.sqrt(len(signs))


def test_answers_that_are_farther_than_drawn_are_seen_and_rare_choices_are_not():
    wide, exact = DiscreteGaussian(Fraction(3)), np.zeros(400, dtype=np.int64)
    noisy = wide.release(exact, ONE, NoiseSource())
    assert drawn(wide, ONE, exact, noisy).farness < math.log(1e3)
    assert drawn(DiscreteGaussian(Fraction(2)), ONE, exact, noisy).farness > math.log(1e6)
    rare = drawn(Exponential(Fraction(4)), Fraction(2), np.array([9, 0]), np.array([1]))
    assert rare.nearness < -80
    assert math.exp(-rare.farness) > rare.law.chances[1]


def test_the_exact_answer_and_the_best_choice_are_nearer_than_drawn():
    for mechanism, sensitivity, exact in NEAR.values():
        answer = np.array([np.argmax(exact)]) if hasattr(mechanism, "select") else exact
        clip = mechanism.clip / mechanism.grid if isinstance(mechanism, GaussianGradient) else 1
        assert drawn(mechanism, sensitivity, exact, answer * clip).nearness > 0.5
    assert drawn(Exponential(Fraction(2)), Fraction(2), np.array([5]), np.array([0])) is None
    assert drawn(object(), ONE, np.array([5]), np.array([5])) is None
