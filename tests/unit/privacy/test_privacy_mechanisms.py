"""Mechanisms: shapes, refusals, scales rounded up, exact sums; no repeatable sampler."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cloister.errors import PlanError, PrivacyError
from cloister.privacy import events
from cloister.privacy.mechanisms.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    GaussianGradient,
    Neighbours,
    SparseHistogram,
)
from cloister.privacy.mechanisms.randomness import (
    NoiseSource,
    insecure_exponentials,
    insecure_gaussian,
    insecure_laplace,
)


def late_imports():
    global Outer, clipped_sum, torch
    import torch

    from cloister.privacy.queries.clipped_gradients import Outer, clipped_sum


ROW = Neighbours().partition
COUNTS = [DiscreteGaussian(Fraction(2)), DiscreteLaplace(Fraction(1, 2))]
SOURCES = [NoiseSource(), NoiseSource.insecure(3)]


@pytest.mark.parametrize("mechanism", COUNTS)
def test_noisy_counts_keep_shape_and_type_and_each_cell_gets_its_own_noise(mechanism) -> None:
    for source, shape in product(SOURCES, [(0,), (1,), (3, 4), (2, 0)]):
        noisy = mechanism.release(np.full(shape, 1000), ROW, source)
        assert (noisy.shape, noisy.dtype) == (shape, np.int64)
    noisy = mechanism.release(np.zeros(400, dtype=np.int64), ROW, NoiseSource())
    # three values hold 56 % of the noise at most: all 400 cells have them once in 10^100 runs
    assert len(np.unique(noisy)) > 3
    first, again = (
        mechanism.release(np.arange(100), ROW, NoiseSource.insecure(4)) for _ in range(2)
    )
    assert (first == again).all()


@pytest.mark.parametrize("mechanism", COUNTS)
def test_floats_and_overflow_are_refused(mechanism: DiscreteGaussian | DiscreteLaplace) -> None:
    with pytest.raises(PrivacyError, match="integer counts"):
        mechanism.release(np.array([1.0]), ROW, NoiseSource())  # type: ignore[arg-type]
    for count in (2**62, -(2**62)):
        with pytest.raises(PrivacyError, match="too large"):
            mechanism.release(np.array([0, count]), ROW, NoiseSource())
    with pytest.raises(PlanError, match="out of range"):
        type(mechanism)(
            Fraction(10**20) if isinstance(mechanism, DiscreteGaussian) else Fraction(1, 10**20)
        ).release(np.array([1]), ROW, NoiseSource())


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**9), st.integers(1, 10**6))
def test_scales_are_the_least_floats_not_below_the_exact_ones(level: Fraction, rows: int) -> None:
    sensitivity = events.Sensitivity.partition("replace_one", rows)
    gaussian = Fraction(DiscreteGaussian(level).scale(sensitivity))
    below = Fraction(math.nextafter(float(gaussian), 0))
    assert below**2 < level**2 * sensitivity.l2_squared <= gaussian**2
    laplace = Fraction(DiscreteLaplace(level).scale(sensitivity))
    assert Fraction(math.nextafter(float(laplace), 0)) < sensitivity.l1 / level <= laplace


def test_event_and_noise_come_from_the_same_field() -> None:
    for neighbours in (Neighbours(), Neighbours(events.Relation.REPLACE_ONE, 3)):
        sensitivity = neighbours.partition
        assert DiscreteGaussian(Fraction(2)).event(sensitivity) == events.GaussianCounts(
            Fraction(2), sensitivity
        )
        assert DiscreteLaplace(Fraction(2)).event(sensitivity) == events.LaplaceCounts(
            Fraction(2), sensitivity
        )
        sparse = SparseHistogram(DiscreteLaplace(Fraction(2)), Fraction(1, 10**6))
        assert sparse.event(sensitivity) == events.Thresholded(
            events.LaplaceCounts(Fraction(2), sensitivity), Fraction(1, 10**6)
        )
    assert GaussianGradient(Fraction(1, 2), Fraction(3), 1.0).events(
        7, 2
    ) == events.SampledGaussian(Fraction(1, 2), Fraction(3), 7, 2)


@pytest.mark.parametrize(
    ("sampler", "arguments"),
    [(insecure_gaussian, (1.0, 3)), (insecure_laplace, (1.0, 3)), (insecure_exponentials, (3,))],
)
def test_repeatable_samplers_refuse_a_secure_source(sampler, arguments) -> None:
    with pytest.raises(PrivacyError, match="repeatable"):
        sampler(*arguments, NoiseSource())  # type: ignore[operator]


def test_a_secure_source_never_reaches_the_repeatable_samplers(monkeypatch) -> None:
    def forbidden(*arguments: object) -> NDArray[np.int64]:
        raise AssertionError("reached")

    monkeypatch.setattr("cloister.privacy.mechanisms.noise.insecure_gaussian", forbidden)
    monkeypatch.setattr("cloister.privacy.mechanisms.noise.insecure_laplace", forbidden)
    for mechanism in COUNTS:
        mechanism.release(np.arange(10), ROW, NoiseSource())
        with pytest.raises(AssertionError, match="reached"):
            mechanism.release(np.arange(10), ROW, NoiseSource.insecure(1))


@pytest.mark.parametrize("counts", COUNTS)
def test_a_sparse_histogram_releases_large_cells_in_order(counts) -> None:
    sparse = SparseHistogram(counts, Fraction(1, 10**9))
    cells, noisy = sparse.release(
        np.array([[9, 2, 5, 7], [10**6, 0, 10**6, 1]]), ROW, NoiseSource()
    )
    # the cell of one row reaches the threshold once in 10^9 runs
    assert cells.tolist() == [5, 9]
    assert (noisy >= sparse.threshold(ROW)).all()
    with pytest.raises(PrivacyError, match="twice"):
        sparse.release(np.array([[1, 1], [5, 5]]), ROW, NoiseSource())


def test_thresholds_follow_from_delta() -> None:
    laplace, gaussian = DiscreteLaplace(Fraction(1)), DiscreteGaussian(Fraction(4))
    assert SparseHistogram(laplace, Fraction(1, 10**6)).threshold(ROW) == 1 + 14
    assert SparseHistogram(gaussian, Fraction(1, 10**6)).threshold(ROW) == 1 + 21
    assert laplace.reach(ROW, Fraction(1, 10)) < laplace.reach(ROW, Fraction(1, 100))


def clipped(gradients: list[list[float]], clip: float = 1.0):
    """The clipped sum (q,) of gradients (b, q)."""
    rows = torch.tensor(gradients)
    return clipped_sum({"block": Outer(torch.ones(len(rows), 1), rows)}, clip)["block"][0]


def gradient_of(clip: float = 1.0) -> GaussianGradient:
    return GaussianGradient(Fraction(1, 10), Fraction(1), clip)


finite = st.floats(-(2.0**100), 2.0**100, width=32)


@given(st.lists(finite, min_size=1, max_size=20), st.floats(1e-6, 1e6))
def test_one_example_never_moves_the_sum_by_more_than_the_clip(values, clip) -> None:
    moved = clipped([values], clip)
    assert sum(Fraction(value) ** 2 for value in moved.tolist()) <= Fraction(clip) ** 2


def test_short_gradients_pass_long_ones_keep_their_direction_and_others_count_as_zero() -> None:
    assert clipped([[0.3, -0.4]]) == pytest.approx([0.3, -0.4], abs=1e-7)
    assert clipped([[3.0, -4.0]]) == pytest.approx([0.6, -0.8], abs=1e-7)
    for poison in (math.nan, math.inf, -math.inf):
        found = clipped([[0.5, 0.0], [poison, 1.0], [0.0, 0.25]])
        assert found == pytest.approx([0.5, 0.25], abs=1e-7)
    with pytest.raises(PrivacyError, match="not finite"):
        gradient_of().on_grid(np.array([math.nan]))


def test_noisy_sums_lie_on_a_grid_that_does_not_depend_on_the_data() -> None:
    source, mechanism = NoiseSource(), gradient_of()
    for total in (0.0, 0.123456789, math.pi):
        noisy = mechanism.release(mechanism.on_grid(np.full(1000, total)), mechanism.sums(), source)
        assert (noisy * 2.0**36 == np.rint(noisy * 2.0**36)).all()


def lowest_digits(mechanism: GaussianGradient, total: float) -> NDArray[np.float64]:
    """How often the lowest binary digit of a noisy sum, in 2^-36 clips, is at each place."""
    noisy = mechanism.release(
        mechanism.on_grid(np.full(4000, total)), mechanism.sums(), NoiseSource()
    )
    steps = [int(value) for value in noisy * 2.0**36]
    return np.bincount([(step & -step).bit_length() for step in steps], minlength=80) / len(steps)


@pytest.mark.parametrize("noise", [2**10, 2**12, 2**12 + 1, 2**18, 2**20])
def test_however_much_noise_there_is_no_digit_of_the_sum_shows_through(noise: int) -> None:
    """Noise above 2^53 of its steps would leave the last digits of a sum, or round them away."""
    mechanism = GaussianGradient(Fraction(1, 10), Fraction(noise), 1.0)
    without, with_one = lowest_digits(mechanism, 0.0), lowest_digits(mechanism, 2.0**-36)
    assert np.abs(without - with_one).max() < 0.08  # 7 standard deviations


def test_a_batch_is_in_random_order() -> None:
    batch = GaussianGradient(Fraction(1), Fraction(1), 1.0).batch(1000, NoiseSource())
    assert sorted(batch) == list(range(1000))
    assert (np.diff(batch) < 0).sum() > 300  # 500 are expected, with a deviation of 9


@pytest.mark.parametrize(
    ("rate", "noise", "clip"),
    [
        (Fraction(0), Fraction(1), 1.0),
        (Fraction(2), Fraction(1), 1.0),
        (Fraction(1), Fraction(0), 1.0),
        (Fraction(1), Fraction(1), math.inf),
        (Fraction(1), Fraction(2**20) + 1, 1.0),
    ],
)
def test_senseless_training_noise_is_refused(rate: Fraction, noise: Fraction, clip: float) -> None:
    with pytest.raises(PlanError):
        GaussianGradient(rate, noise, clip)
