"""Measured noise has the declared distribution.

Every test fails by chance with probability below 1e-7.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from cloister.privacy.events import Sensitivity
from cloister.privacy.mechanisms.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    GaussianGradient,
    SparseHistogram,
)
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.mechanisms.selection import Exponential, PermuteAndFlip

pytestmark = pytest.mark.slow

LEAST = 1e-8
DRAWS = 200_000
ROW = Sensitivity.partition("add_remove")
SOURCES = {"secure": NoiseSource(), "insecure": NoiseSource.insecure(11)}


def agrees(
    drawn: NDArray[np.int64], support: NDArray[np.int64], chances: NDArray[np.float64]
) -> bool:
    """Chi-square of integers against their probabilities, rare ones at both ends pooled."""
    expected = chances * len(drawn)
    common = np.flatnonzero(expected >= 10)
    low, high = support[common[0]], support[common[-1]]
    edges = np.clip(drawn, low, high) - low
    observed = np.bincount(edges, minlength=high - low + 1)
    grouped = np.bincount(np.clip(support, low, high) - low, weights=expected)
    return bool(stats.chisquare(observed, grouped * observed.sum() / grouped.sum()).pvalue > LEAST)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("scale", [Fraction(2, 5), Fraction(1), Fraction(33, 10), Fraction(50)])
def test_discrete_gaussian(kind: str, scale: Fraction) -> None:
    drawn = DiscreteGaussian(scale).release(np.zeros(DRAWS, dtype=np.int64), ROW, SOURCES[kind])
    edge = math.ceil(20 * scale) + 5
    support = np.arange(-edge, edge + 1)
    weights = np.exp(-(support**2) / (2 * float(scale) ** 2))
    assert agrees(drawn, support, weights / weights.sum())


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("level", [Fraction(4), Fraction(1), Fraction(1, 3), Fraction(1, 40)])
def test_discrete_laplace(kind: str, level: Fraction) -> None:
    drawn = DiscreteLaplace(level).release(np.zeros(DRAWS, dtype=np.int64), ROW, SOURCES[kind])
    edge = math.ceil(40 / level) + 5
    support = np.arange(-edge, edge + 1)
    weights = np.exp(-np.abs(support) * float(level))
    assert agrees(drawn, support, weights / weights.sum())


def test_large_insecure_scales_use_rounded_normals() -> None:
    drawn = DiscreteGaussian(Fraction(10**6)).release(
        np.zeros(DRAWS, dtype=np.int64), ROW, SOURCES["insecure"]
    )
    assert stats.kstest(drawn / 1e6, "norm").pvalue > LEAST


@pytest.mark.parametrize("kind", SOURCES)
def test_normals(kind: str) -> None:
    drawn = SOURCES[kind].normals(1_000_000)
    assert stats.kstest(drawn, "norm").pvalue > LEAST
    for edge in (2.0, 3.0, 4.0):
        beyond = int((np.abs(drawn) > edge).sum())
        assert stats.binomtest(beyond, drawn.size, 2 * stats.norm.sf(edge)).pvalue > LEAST
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 6 / math.sqrt(drawn.size)


@pytest.mark.parametrize("rate", [Fraction(1, 1000), Fraction(1, 3), Fraction(999, 1000)])
def test_masks_have_their_rate_and_independent_entries(rate: Fraction) -> None:
    mask = NoiseSource().bernoulli(rate, 1_000_000)
    assert stats.binomtest(int(mask.sum()), mask.size, float(rate)).pvalue > LEAST
    both = int((mask[:-1] & mask[1:])[::2].sum())
    assert stats.binomtest(both, mask.size // 2, float(rate) ** 2).pvalue > LEAST


@pytest.mark.parametrize("bound", [2, 10, 1000])
def test_integers_are_even(bound: int) -> None:
    drawn = NoiseSource().integers(bound, DRAWS)
    assert stats.chisquare(np.bincount(drawn, minlength=bound)).pvalue > LEAST


def test_permutations_are_even() -> None:
    source = NoiseSource()
    drawn = np.array([source.permutation(4) for _ in range(24_000)]) @ np.array([64, 16, 4, 1])
    _, seen = np.unique(drawn, return_counts=True)
    assert len(seen) == 24
    assert stats.chisquare(seen).pvalue > LEAST


@pytest.mark.parametrize("count", [5, 9])  # of all in order, and one after the other
def test_ordered_samples_are_even(count: int) -> None:
    source = NoiseSource()
    drawn = np.array([source.ordered_sample(count, 2) for _ in range(24_000)]) @ [count, 1]
    _, seen = np.unique(drawn, return_counts=True)
    assert len(seen) == count * (count - 1)
    assert stats.chisquare(seen).pvalue > LEAST


@pytest.mark.parametrize("kind", SOURCES)
def test_exponential_selection(kind: str) -> None:
    scores = np.array([0.0, 1.0, 3.0, -2.5])
    drawn = [
        Exponential(Fraction(1)).select(scores, Fraction(1), SOURCES[kind]) for _ in range(40_000)
    ]
    chances = np.exp(scores / 2) / np.exp(scores / 2).sum()
    assert stats.chisquare(np.bincount(drawn, minlength=4), chances * len(drawn)).pvalue > LEAST


@pytest.mark.parametrize("kind", SOURCES)
def test_permute_and_flip(kind: str) -> None:
    """Of two candidates with a gap g, the better is chosen with probability 1 - exp(-g / 2) / 2."""
    scores = np.array([0.0, 1.5])
    drawn = [
        PermuteAndFlip(Fraction(1)).select(scores, Fraction(1), SOURCES[kind])
        for _ in range(40_000)
    ]
    assert stats.binomtest(sum(drawn), len(drawn), 1 - math.exp(-0.75) / 2).pvalue > LEAST


@pytest.mark.parametrize("clip", [0.01, 1.0, 1000.0])
def test_noise_of_gradients(clip: float) -> None:
    mechanism = GaussianGradient(Fraction(1, 10), Fraction(3, 2), clip)
    drawn = mechanism.release(
        np.zeros(500_000, dtype=np.int64), mechanism.sums(), NoiseSource()
    ) / (1.5 * clip)
    assert stats.kstest(drawn, "norm").pvalue > LEAST


@pytest.mark.parametrize("counts", [DiscreteLaplace(Fraction(1)), DiscreteGaussian(Fraction(3))])
def test_cells_of_one_unit_pass_the_threshold_no_oftener_than_delta(counts):
    sparse = SparseHistogram(counts, Fraction(1, 200))
    released, _ = sparse.release(
        np.stack([np.arange(DRAWS), np.ones(DRAWS, dtype=np.int64)]), ROW, NoiseSource()
    )
    assert stats.binomtest(len(released), DRAWS, 1 / 200, alternative="greater").pvalue > LEAST
    assert len(released) > DRAWS / 200 / 10
