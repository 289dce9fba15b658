"""Counts of many cells without order: what counts are likely is learnt from all of them.

Of many values most are often about equally rare, and a few are common. A noisy count then says less
than the crowd that it stands in. Post-processing of released counts.

Source: Robbins, "An empirical Bayes approach to statistics" (1956), with the most likely
distribution of counts after Kiefer and Wolfowitz (1956), by expectation-maximization.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cloister.arrays import Floats

_ROUNDS = 15
"""Rounds of expectation-maximization: with more the distribution follows single cells' noise."""

_FINENESS = 2.0
"""Possible counts for each standard deviation of the noise."""

_MOST_POSSIBLE = 400
"""Possible counts at most."""

_DRAWS = 32
"""Perturbations by which degrees of freedom are estimated, each in both directions."""

_PERTURBATION = 0.5
"""Size of a perturbation, in standard deviations of the noise."""

_SEED = 20_081_001
"""Public seed of the perturbations."""


def expected_counts(noisy: Floats, deviation: float) -> Floats:
    """The expected counts (cells,) given noisy ones (cells,) and their distribution, from 0 on."""
    most = max(float(noisy.max()), deviation)
    size = min(int(_FINENESS * most / deviation) + 2, _MOST_POSSIBLE)
    possible = np.linspace(0.0, most, size)
    distances = np.square((noisy[:, None] - possible) / deviation)
    likelihood = np.exp(-(distances - distances.min(1, keepdims=True)) / 2)
    prior = np.full(size, 1.0 / size)
    for _ in range(_ROUNDS):
        prior = _posterior(likelihood, prior).mean(0)
    return _posterior(likelihood, prior) @ possible


def _posterior(likelihood: Floats, prior: Floats) -> Floats:
    weights = likelihood * prior
    return weights / weights.sum(1, keepdims=True)


def degrees_of_freedom(
    estimate: Callable[[Floats], Floats], noisy: Floats, deviation: float
) -> float:
    """How much all estimates (cells,) follow their own noisy counts (cells,), in sum.

    Source: Ramani, Blu, Unser, "Monte-Carlo SURE" (IEEE Trans. Image Processing, 2008).
    """
    rng, followed = np.random.default_rng(_SEED), 0.0
    for _ in range(_DRAWS):
        towards = rng.standard_normal(len(noisy))
        step = _PERTURBATION * deviation * towards
        followed += float(towards @ (estimate(noisy + step) - estimate(noisy - step)))
    return followed / (2 * _PERTURBATION * deviation * _DRAWS)
