"""Selections by score: the index of a good candidate, drawn exactly, without a softmax.

OpenDP compares scores with noise drawn to as many digits as the comparison needs (McKenna, Sheldon,
arXiv 2010.12603; Ding et al. arXiv 2105.07260 for permute-and-flip as the largest of scores with
exponential noise).
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

from cloister.arrays import Floats, Integers
from cloister.errors import PrivacyError
from cloister.privacy.events import Bounded, Selection
from cloister.privacy.exact import float_above
from cloister.privacy.mechanisms.insecure import insecure_exponentials
from cloister.privacy.mechanisms.randomness import NoiseSource

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

    def event(self, sensitivity: Fraction = ANY) -> Bounded:  # noqa: ARG002
        """What `release` does, which is the same for any sensitivity."""
        return Bounded(self.epsilon)


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

    def event(self, sensitivity: Fraction = ANY) -> Selection:  # noqa: ARG002
        """What `release` does, which is the same for any sensitivity."""
        return Selection(self.epsilon)


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
