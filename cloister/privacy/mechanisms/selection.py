"""Selections of candidates: the best by noisy scores, or those that pass a privacy test.

The index of a good candidate is drawn exactly, without a softmax.
OpenDP compares scores with noise drawn to as many digits as the comparison needs (McKenna, Sheldon,
arXiv 2010.12603; Ding et al. arXiv 2105.07260 for permute-and-flip as the largest of scores with
exponential noise).

The privacy tests of plausible deniability decide which candidates are released. Source:
Bindschaedler, Shokri, Gunter (VLDB 2017), Privacy Tests 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from opendp.core import Measure
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_noisy_max
from opendp.measures import max_divergence, zero_concentrated_divergence
from opendp.metrics import linf_distance
from opendp.mod import enable_features

from cloister.arrays import Booleans, Floats, Integers
from cloister.errors import PrivacyError
from cloister.privacy import events
from cloister.privacy.exact import float_above
from cloister.privacy.mechanisms.noise import DiscreteLaplace
from cloister.privacy.mechanisms.randomness import NoiseSource, insecure_exponentials

enable_features("contrib")

Scores = Floats | Integers


ANY = Fraction(1)
"""A sensitivity for planning: the event of a selection does not depend on it."""


@dataclass(frozen=True)
class PermuteAndFlip:
    """The largest of scores with exponential noise of scale 2 sensitivity / epsilon.

    Never worse than `Exponential`.

    Privacy: epsilon at delta 0 (McKenna, Sheldon 2020, theorem 1). The better choice if epsilons
        are added up.
    """

    epsilon: Fraction

    def select(self, scores: Scores, sensitivity: Fraction, source: NoiseSource) -> int:
        """The index of the chosen candidate.

        Errors: PrivacyError if a score is not finite, or there is none.
        """
        scale = _scale(scores, sensitivity, self.epsilon)
        if not source.secure:
            return int(np.argmax(scores + scale * insecure_exponentials(len(scores), source)))
        return _noisy_max(scores, scale, max_divergence())

    def release(self, exact: Scores, sensitivity: Fraction, source: NoiseSource) -> Integers:
        """The index of the chosen candidate, (1,)."""
        return np.array([self.select(exact, sensitivity, source)], dtype=np.int64)

    def event(self, sensitivity: Fraction = ANY) -> events.Bounded:  # noqa: ARG002
        """What `release` does, which is the same for any sensitivity."""
        return events.Bounded(self.epsilon)


@dataclass(frozen=True)
class Exponential:
    """The exponential mechanism, as the largest of scores with Gumbel noise.

    The scale of the noise is 2 sensitivity / epsilon. Privacy: epsilon at delta 0, and of bounded
    range epsilon, so that many selections cost less together than as many of `PermuteAndFlip`
    (Durfee, Rogers, arXiv 1905.04273).
    """

    epsilon: Fraction

    def select(self, scores: Scores, sensitivity: Fraction, source: NoiseSource) -> int:
        """The index of the chosen candidate.

        Errors: PrivacyError if a score is not finite, or there is none.
        """
        scale = _scale(scores, sensitivity, self.epsilon)
        if not source.secure:
            return int(
                np.argmax(scores - scale * np.log(insecure_exponentials(len(scores), source)))
            )
        return _noisy_max(scores, scale, zero_concentrated_divergence())

    def release(self, exact: Scores, sensitivity: Fraction, source: NoiseSource) -> Integers:
        """The index of the chosen candidate, (1,)."""
        return np.array([self.select(exact, sensitivity, source)], dtype=np.int64)

    def event(self, sensitivity: Fraction = ANY) -> events.Selection:  # noqa: ARG002
        """What `release` does, which is the same for any sensitivity."""
        return events.Selection(self.epsilon)


def _scale(scores: Scores, sensitivity: Fraction, epsilon: Fraction) -> float:
    if scores.ndim != 1 or scores.size == 0 or not np.isfinite(scores).all():
        raise PrivacyError(
            "A selection needs a list of finite scores, at least one; a score is missing or "
            "infinite."
        )
    if sensitivity <= 0 or epsilon <= 0:
        raise PrivacyError("A selection needs a sensitivity and an epsilon above 0.")
    scale = float_above(2 * sensitivity / epsilon)
    if not math.isfinite(scale):
        raise PrivacyError("The sensitivity of a selection is too large for its epsilon.")
    return scale


def _noisy_max(scores: Scores, scale: float, measure: Measure) -> int:
    space = vector_domain(atom_domain(T="f64", nan=False)), linf_distance(T="f64")
    return int(make_noisy_max(*space, measure, scale=scale)(scores.astype(np.float64).tolist()))


_ONE_SEED = events.Sensitivity(1, 1, 1, 1)
"""One row changes the number of plausible seeds by one."""


@dataclass(frozen=True)
class CandidateSet:
    """How candidates were made, which is what a test of them reveals depends on.

    ``gamma`` is the ratio of the intervals of probability by which plausible seeds were counted;
    the others are as in the event :class:`SeededRecords`.
    """

    gamma: Fraction
    candidates: int
    withheld: Fraction
    least_seeds: int
    rows: int = 1


@dataclass(frozen=True)
class RandomisedTest:
    """Privacy Test 2: a candidate is released if its plausible seeds are at least k plus noise.

    The noise is discrete Laplace of scale 1 / epsilon0, drawn afresh for each candidate. ``t`` is
    the choice of Theorem 1 that is charged.

    Privacy: `SeededRecords`; docs/privacy.md.
    """

    k: int
    epsilon0: Fraction
    t: int

    def release(
        self,
        exact: Integers,
        sensitivity: CandidateSet,  # noqa: ARG002 - the test is the same however seeds were drawn
        source: NoiseSource,
    ) -> Integers:
        """The levels (n, m) of the candidates (c, m + 1) that pass; their last column counts."""
        noisy = DiscreteLaplace(self.epsilon0).release(exact[:, -1], _ONE_SEED, source)
        return _passing(exact, noisy >= self.k)

    def event(self, sensitivity: CandidateSet) -> events.SeededRecords:
        """What `release` does."""
        return events.SeededRecords(
            self.k,
            sensitivity.gamma,
            self.epsilon0,
            self.t,
            sensitivity.candidates,
            sensitivity.withheld,
            sensitivity.least_seeds,
            sensitivity.rows,
        )


@dataclass(frozen=True)
class DeterministicTest:
    """Privacy Test 1: a candidate is released if it has at least k plausible seeds.

    Privacy: not differential privacy. Whether a candidate passes is an exact statement about
        how many rows there are.
    """

    k: int

    def release(
        self,
        exact: Integers,
        sensitivity: CandidateSet,  # noqa: ARG002 - as of the other test
        source: NoiseSource,  # noqa: ARG002
    ) -> Integers:
        """The levels (n, m) of the candidates (c, m + 1) that pass; their last column counts."""
        return _passing(exact, exact[:, -1] >= self.k)

    def event(self, sensitivity: CandidateSet) -> events.UncountedRecords:
        """What `release` does."""
        return events.UncountedRecords(
            self.k, sensitivity.gamma, sensitivity.candidates, rows=sensitivity.rows
        )


@dataclass(frozen=True)
class UncountedTest:
    """Privacy Test 2 where it is not counted as an epsilon."""

    test: RandomisedTest

    def release(self, exact: Integers, sensitivity: CandidateSet, source: NoiseSource) -> Integers:
        """As :meth:`RandomisedTest.release`."""
        return self.test.release(exact, sensitivity, source)

    def event(self, sensitivity: CandidateSet) -> events.UncountedRecords:
        """What `release` does; its bound is beside it."""
        bounded = self.test.event(sensitivity)
        return events.UncountedRecords(
            self.test.k, bounded.gamma, bounded.candidates, bounded, bounded.rows
        )


def _passing(exact: Integers, passed: Booleans) -> Integers:
    return np.ascontiguousarray(exact[passed, :-1]).astype(np.int32)
