"""Every mechanism keeps its epsilon on neighbouring inputs; the test catches broken mechanisms.

For each mechanism many answers are drawn on two neighbouring inputs. Exact binomial bounds on
events that were chosen beforehand give a lower bound of the mechanism's epsilon. The noise is
real: of all bounds of a run one is wrong with probability below 1e-6.
"""

import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv

from cloister.arrays import Integers
from cloister.errors import UnsupportedEvent
from cloister.privacy import mechanisms
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.events import Bounded, Event, Sensitivity
from cloister.privacy.mechanisms import selection
from cloister.privacy.mechanisms.noise import (
    GRID_STEPS,
    DiscreteGaussian,
    DiscreteLaplace,
    GaussianGradient,
    GridNoise,
    OnGridSensitivity,
    SparseHistogram,
)
from cloister.privacy.mechanisms.randomness import NoiseSource


def late_imports():
    global Outer, clipped_sum, torch
    import torch

    from cloister.privacy.queries.clipped_gradients import Outer, clipped_sum


CHANCE = 1e-11
"""That one bound is wrong: a run has at most 900 bounds for each of 16 mechanisms."""
FEW, MANY = 15_000, pytest.param(100_000, marks=pytest.mark.slow)

ONE = Fraction(1)
Numbers = NDArray[np.float64]
CountNoise = DiscreteGaussian | DiscreteLaplace
Draw = Callable[[int, int], Numbers]


@dataclass(frozen=True)
class Trial:
    """Statistics (trials, k) drawn on input 0 or its neighbour 1, and the event at ``delta``."""

    draw: Draw
    event: Event
    delta: float
    relation: str = "add_remove"

    @property
    def claim(self) -> float:
        """The epsilon claimed."""
        return epsilon(self.event, self.delta, self.relation)

    def measured(self, trials: int) -> float:
        """A lower bound of the mechanism's epsilon."""
        first, second = self.draw(0, trials), self.draw(1, trials)
        return max(
            at_least(a, b, self.delta)
            for column in range(first.shape[1])
            for a, b in tails(first[:, column], second[:, column])
        )


def tails(first: Numbers, second: Numbers) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Successes and trials of half-lines at a few fixed points, in both orders of the inputs."""
    points = np.concatenate([np.arange(-12.0, 13.0), [-40.0, 40.0]])
    pairs = []
    for point in points:
        for side in (1.0, -1.0):
            a, b = (side * first >= side * point).sum(), (side * second >= side * point).sum()
            pairs += [((a, len(first)), (b, len(second))), ((b, len(second)), (a, len(first)))]
    return pairs


def at_least(first: tuple[int, int], second: tuple[int, int], delta: float) -> float:
    """A lower bound of epsilon from two counts, by Clopper and Pearson."""
    (hits, trials), (others, other_trials) = first, second
    low = float(betaincinv(hits, trials - hits + 1, CHANCE)) if hits else 0.0
    left = other_trials - others
    high = float(betainccinv(others + 1, left, CHANCE)) if left else 1.0
    return math.log((low - delta) / high) if low > delta else 0.0


def counts_trial(mechanism: CountNoise, more: list[int], sensitivity: Sensitivity) -> Trial:
    """Statistics: each cell less its first value, and the difference of the first and last."""
    inputs = FIRST, [one + other for one, other in zip(FIRST, more, strict=True)]

    def draw(which: int, trials: int) -> Numbers:
        tables = np.tile(np.array(inputs[which]), (trials, 1))
        noisy = mechanism.release(tables, sensitivity, NoiseSource()) - np.array(inputs[0])
        return np.column_stack([noisy, noisy[:, 0] - noisy[:, -1]]).astype(np.float64)

    delta = 0.0 if isinstance(mechanism, DiscreteLaplace) else 1e-2
    relation = "replace_one" if sensitivity == SWAP else "add_remove"
    return Trial(draw, mechanism.event(sensitivity), delta, relation)


def grid_trial(mechanism: GridNoise) -> Trial:
    """A number of a grid that one row moves by all its steps; statistics in such moves."""
    sensitivity = OnGridSensitivity(Sensitivity.box(1, GRID_STEPS), 1)

    def draw(which: int, trials: int) -> Numbers:
        exact = np.full(trials, which * GRID_STEPS)
        return mechanism.release(exact, sensitivity, NoiseSource())[:, None] / GRID_STEPS

    return Trial(draw, mechanism.event(sensitivity), 0.0)


def threshold_trial(test: selection.RandomisedTest) -> Trial:
    """Which of equal candidates pass: a row more is a plausible seed more of each."""
    made = selection.CandidateSet(Fraction(4), 1, Fraction(1, 2), test.k)

    def draw(which: int, trials: int) -> Numbers:
        candidates = np.tile([0, test.k - 1 + which], (trials, 1))
        candidates[:, 0] = np.arange(trials)
        passed = test.release(candidates, made, NoiseSource())[:, 0]
        return np.isin(np.arange(trials), passed).astype(np.float64)[:, None]

    return Trial(draw, Bounded(test.epsilon0), 0.0)


def selection_trial(mechanism) -> Trial:
    """Scores that one unit changes by 1: the first in one direction, all others in the other."""
    scores = (np.array([1.0, 0.0, 0.0, 0.0, 0.0]), np.array([0.0, 1.0, 1.0, 1.0, 1.0]))

    def draw(which: int, repeats: int) -> Numbers:
        source, few = NoiseSource(), range(repeats // 2)
        chosen = [mechanism.select(scores[which], Fraction(1), source) for _ in few]
        return np.array(chosen, dtype=float)[:, None]

    return Trial(draw, mechanism.event(), 0.0)


def clipped(value: float, clip: float) -> float:
    """The clipped sum over an example whose gradient is one number."""
    block = Outer(torch.ones(1, 1), torch.tensor([[value]]))
    return float(clipped_sum({"block": block}, clip)["block"])


def descent_trial(
    mechanism: GaussianGradient,
    inputs: tuple[float, float],
    relation: str,
    clipping: Callable[[float, float], float] = clipped,
) -> Trial:
    """One step on a row of the first gradient, against none or the second; a parameter a trial."""

    def draw(which: int, trials: int) -> Numbers:
        source = NoiseSource()
        gradient = inputs[which] * source.bernoulli(mechanism.rate, trials)
        sums = np.array([clipping(value, mechanism.clip) for value in np.unique(gradient)])
        total = sums[np.searchsorted(np.unique(gradient), gradient)]
        noisy = mechanism.release(mechanism.on_grid(total), mechanism.sums(), source)
        return 2 * noisy[:, None] / mechanism.clip

    return Trial(draw, mechanism.event(mechanism.sums()), 1e-2, relation)


def sparse_trial(mechanism: SparseHistogram, delta: float, own: int = 1) -> Trial:
    """How many of its own cells, one row each, are released: none without the unit."""
    sensitivity = Sensitivity.box(own, 1)

    def draw(which: int, trials: int) -> Numbers:
        cells = np.arange(trials * own)
        counts = np.stack([cells, np.full(trials * own, which)])
        released, _ = mechanism.release(counts, sensitivity, NoiseSource())
        return np.isin(cells, released).reshape(trials, own).sum(axis=1, dtype=float)[:, None]

    return Trial(draw, mechanism.event(sensitivity), delta)


ROW = Sensitivity.partition("add_remove")
SWAP = Sensitivity.partition("replace_one")
PERSON = Sensitivity.partition("add_remove", 3)
FIRST, ADDED, REPLACED, THREE_ADDED, SPREAD = [5, 0, 7], [1, 0, 0], [1, 0, -1], [3, 0, 0], [1, 1, 1]
"""A table of counts, and what is added to them by a unit more, or by another one."""

GRADIENT = GaussianGradient(Fraction(1, 2), Fraction(1), 3.0)
LAPLACE, GAUSSIAN, WIDE = DiscreteLaplace(ONE), DiscreteGaussian(ONE), DiscreteGaussian(Fraction(2))
LITTLE = DiscreteGaussian(Fraction(2, 5))
HUNDREDTH = Fraction(1, 100)

MECHANISMS: Mapping[str, Trial] = {
    "discrete Laplace, row added": counts_trial(LAPLACE, ADDED, ROW),
    "discrete Laplace, row replaced": counts_trial(LAPLACE, REPLACED, SWAP),
    "discrete Laplace, person added": counts_trial(LAPLACE, THREE_ADDED, PERSON),
    "discrete Laplace, person spread": counts_trial(LAPLACE, SPREAD, PERSON),
    "discrete Gaussian, row added": counts_trial(GAUSSIAN, ADDED, ROW),
    "discrete Gaussian, little noise": counts_trial(LITTLE, ADDED, ROW),
    "discrete Gaussian, row replaced": counts_trial(GAUSSIAN, REPLACED, SWAP),
    "discrete Gaussian, person added": counts_trial(GAUSSIAN, THREE_ADDED, PERSON),
    "permute and flip": selection_trial(selection.PermuteAndFlip(ONE)),
    "exponential": selection_trial(selection.Exponential(ONE)),
    "descent, row added": descent_trial(GRADIENT, (0.0, 9.0), "add_remove"),
    "descent, row replaced": descent_trial(GRADIENT, (-9.0, 9.0), "replace_one"),
    "sparse histogram": sparse_trial(SparseHistogram(LAPLACE, HUNDREDTH), 0.01),
    "sparse Gaussian": sparse_trial(SparseHistogram(WIDE, HUNDREDTH), 0.02),
    "sparse, eight own cells": sparse_trial(SparseHistogram(LAPLACE, HUNDREDTH), 0.01, 8),
    "sparse Gaussian, eight own cells": sparse_trial(SparseHistogram(WIDE, HUNDREDTH), 0.02, 8),
    "noise on a grid": grid_trial(GridNoise(LAPLACE)),
    "randomised threshold": threshold_trial(selection.RandomisedTest(12, ONE, 4)),
}
BLUNT = ("sparse", "spread")
TRIED = {DiscreteLaplace, DiscreteGaussian, SparseHistogram, GridNoise, GaussianGradient}
TRIED |= {selection.PermuteAndFlip, selection.Exponential, selection.RandomisedTest}
DENIABLE = {selection.DeterministicTest, selection.UncountedTest}
SLOW = (
    *("permute and flip", "sharpened selection"),
    *("discrete Gaussian, row replaced", "discrete Gaussian, person added"),
    *("shared Gaussian", "forgetful Gaussian", "eager sparse Gaussian"),
    *("sparse Gaussian, eight own cells", "Gaussian threshold once"),
)
"""Selections draw one at a time; those of the exponential mechanism stand for them by default, and
Laplace noise for Gaussian noise where both are used in the same way."""


def slower(names: Iterable[str]) -> list[Any]:
    """The names, of which some are of the slow suite alone."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in names]


def test_every_mechanism_is_tried() -> None:
    """With a trial above, and a broken twin below."""
    names = [module.name for module in pkgutil.iter_modules(mechanisms.__path__)]
    modules = [import_module(f"{mechanisms.__name__}.{name}") for name in names]
    found = {
        kind
        for module in modules
        for kind in vars(module).values()
        if getattr(kind, "__module__", "") == module.__name__ and hasattr(kind, "release")
    }
    assert found == TRIED | DENIABLE


def test_no_accountant_reads_plausible_deniability_alone() -> None:
    made = selection.CandidateSet(Fraction(4), 1, Fraction(1, 2), 12)
    for test in (
        selection.DeterministicTest(12),
        selection.UncountedTest(selection.RandomisedTest(12, Fraction(1), 4)),
    ):
        with pytest.raises(UnsupportedEvent):
            epsilon(test.event(made), 1e-6, "add_remove")


@pytest.mark.parametrize("trials", [FEW, MANY])
@pytest.mark.parametrize("name", slower(MECHANISMS))
def test_what_is_measured_stays_under_the_claim_and_comes_near(name: str, trials: int) -> None:
    trial = MECHANISMS[name]
    measured = trial.measured(trials)
    assert measured <= trial.claim
    assert measured >= 0.15 * trial.claim or any(word in name for word in BLUNT)


@dataclass(frozen=True)
class Claiming:
    """A broken mechanism with the event of a sound one."""

    kept: Any

    def event(self, *sensitivity: Sensitivity) -> Event:
        return self.kept.event(*sensitivity)


class Halved(Claiming):
    """Half the noise that is claimed."""

    def release(self, counts: Integers, sensitivity: Sensitivity, source: NoiseSource) -> Integers:
        kept = self.kept
        if isinstance(kept, DiscreteLaplace):
            return DiscreteLaplace(2 * kept.epsilon).release(counts, sensitivity, source)
        return DiscreteGaussian(kept.noise_multiplier / 2).release(counts, sensitivity, source)


class Shared(Claiming):
    """The same draw of noise for all cells of a table."""

    def release(self, counts: Integers, sensitivity: Sensitivity, source: NoiseSource) -> Integers:
        none = np.zeros((len(counts), 1), dtype=np.int64)
        return counts + self.kept.release(none, sensitivity, source)


class Forgetful(Claiming):
    """Noise for a sensitivity of 1, however many rows the unit owns."""

    def release(self, counts: Integers, sensitivity: Sensitivity, source: NoiseSource) -> Integers:
        return self.kept.release(counts, ROW, source)


@dataclass(frozen=True)
class Eager(SparseHistogram):
    """Releases every cell that noise left positive."""

    def threshold(self, sensitivity: Sensitivity) -> int:
        return 1


@dataclass(frozen=True)
class Once(SparseHistogram):
    """Withholds one cell of the unit with the chance that is claimed for all of them together."""

    def threshold(self, sensitivity: Sensitivity) -> int:
        return sensitivity.step + self.counts.reach(sensitivity, self.delta)


class Sharpened(Claiming):
    """A selection by scores that are believed to change by half as much as they do."""

    def select(self, scores: Numbers, sensitivity: Fraction, source: NoiseSource) -> int:
        return self.kept.select(scores, sensitivity / 2, source)


@dataclass(frozen=True)
class OfOneStep(GridNoise):
    """Noise for a number that moves by one step of the grid."""

    def release(self, exact: Integers, _: OnGridSensitivity, source: NoiseSource) -> Integers:
        return self.counts.release(exact, ROW, source)


@dataclass(frozen=True)
class WithoutNoise(selection.RandomisedTest):
    """The exact threshold, under the claim of a noisy one."""

    def release(
        self, exact: Integers, sensitivity: selection.CandidateSet, source: NoiseSource
    ) -> Integers:
        return selection.DeterministicTest(self.k).release(exact, sensitivity, source)


BROKEN: Mapping[str, Trial] = {
    "half Laplace": counts_trial(Halved(LAPLACE), ADDED, ROW),
    "half Gaussian": counts_trial(Halved(GAUSSIAN), ADDED, ROW),
    "shared Laplace": counts_trial(Shared(LAPLACE), ADDED, ROW),
    "shared Gaussian": counts_trial(Shared(GAUSSIAN), ADDED, ROW),
    "forgetful Laplace": counts_trial(Forgetful(LAPLACE), THREE_ADDED, PERSON),
    "forgetful Gaussian": counts_trial(Forgetful(GAUSSIAN), THREE_ADDED, PERSON),
    "forgetful of replacement": counts_trial(Forgetful(LAPLACE), REPLACED, SWAP),
    "unclipped descent": descent_trial(GRADIENT, (0.0, 30.0), "add_remove", lambda value, _: value),
    "eager sparse histogram": sparse_trial(Eager(LAPLACE, HUNDREDTH), 0.01),
    "eager sparse Gaussian": sparse_trial(Eager(WIDE, HUNDREDTH), 0.02),
    "threshold once": sparse_trial(Once(LAPLACE, HUNDREDTH), 0.01, 8),
    "Gaussian threshold once": sparse_trial(Once(WIDE, HUNDREDTH), 0.02, 8),
    "sharpened selection": selection_trial(Sharpened(selection.PermuteAndFlip(ONE))),
    "sharpened exponential": selection_trial(Sharpened(selection.Exponential(ONE))),
    "noise of one grid step": grid_trial(OfOneStep(LAPLACE)),
    "exact threshold": threshold_trial(WithoutNoise(12, ONE, 4)),
}


@pytest.mark.parametrize("trials", [FEW, MANY])
@pytest.mark.parametrize("name", slower(BROKEN))
def test_a_broken_mechanism_is_caught(name: str, trials: int) -> None:
    trial = BROKEN[name]
    assert trial.measured(trials) > trial.claim
