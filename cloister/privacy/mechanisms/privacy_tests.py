"""The privacy tests of plausible deniability: which candidates are released.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), Privacy Tests 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.privacy.events import PlausiblyDeniable, SeededRecords, Sensitivity
from cloister.privacy.mechanisms.counts import DiscreteLaplace
from cloister.privacy.mechanisms.randomness import NoiseSource

_ONE_SEED = Sensitivity(1, 1, 1, 1)
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

    def event(self, sensitivity: CandidateSet) -> SeededRecords:
        """What `release` does."""
        return SeededRecords(
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

    Privacy: plausible deniability alone. Whether a candidate passes is an exact statement about
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

    def event(self, sensitivity: CandidateSet) -> PlausiblyDeniable:
        """What `release` does."""
        return PlausiblyDeniable(
            self.k, sensitivity.gamma, sensitivity.candidates, rows=sensitivity.rows
        )


@dataclass(frozen=True)
class DeniableTest:
    """Privacy Test 2 as it is accounted for under plausible deniability: not as an epsilon."""

    test: RandomisedTest

    def release(self, exact: Integers, sensitivity: CandidateSet, source: NoiseSource) -> Integers:
        """As :meth:`RandomisedTest.release`."""
        return self.test.release(exact, sensitivity, source)

    def event(self, sensitivity: CandidateSet) -> PlausiblyDeniable:
        """What `release` does; its bound is beside it."""
        bounded = self.test.event(sensitivity)
        return PlausiblyDeniable(
            self.test.k, bounded.gamma, bounded.candidates, bounded, bounded.rows
        )


def _passing(exact: Integers, passed: Booleans) -> Integers:
    return np.ascontiguousarray(exact[passed, :-1]).astype(np.int32)
