"""The rate of a soft constraint that two sources make likely: a noisy count, and the model itself.

The one estimator of all methods that measure rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloister.constraints import DenialConstraint
from cloister.constraints.counting import violation_share
from cloister.schema.domain import Table

_CLOSE = (0.8, 0.05)
"""Prior of a rate: probability of being close to the model's own, and relative deviation then."""

_FAR = (0.2, 1.0)
"""Prior of a rate: probability of being far from the model's own, and relative deviation then."""

_LEAST = 0.01
"""Least posterior rate, as a share of the model's own."""

_NEAR = 0.1
"""Relative difference from a posterior mean that needs no further change."""


@dataclass(frozen=True)
class RatePosterior:
    """The posterior of a share of violating pairs: its mean and standard deviation."""

    mean: float
    deviation: float

    def covers(self, share: float) -> bool:
        """Whether a share is within a tenth of the mean, or within a standard deviation of it."""
        return abs(share - self.mean) <= max(_NEAR * self.mean, self.deviation)


def posterior_rate(own: float, measured: tuple[float, float]) -> RatePosterior:
    """The posterior of a share, from a measured share with its standard error, and the ``own``.

    ``own`` is the model's own share. The prior is a mixture of two normal distributions around it:
    a narrow one (``_CLOSE``) and a wide one (``_FAR``), so that a measured share counts the more,
    the more surely it contradicts the model.
    """
    share, error = measured
    priors = [(weight, (spread * own) ** 2) for weight, spread in (_CLOSE, _FAR)]
    logs = [
        math.log(weight) + _log_density(share - own, variance + error**2)
        for weight, variance in priors
    ]
    chances = np.exp(np.array(logs) - max(logs))
    gains = np.array([variance / (variance + error**2) for _, variance in priors])
    means = own + gains * (share - own)
    mean = float(np.average(means, weights=chances))
    variance = float(np.average(gains * error**2 + (means - mean) ** 2, weights=chances))
    return RatePosterior(max(mean, _LEAST * own), variance**0.5)


def own_rates(constraints: Sequence[DenialConstraint], pool: Table, rows: int) -> list[float]:
    """The share of pairs of a model's rows that violate each constraint; never quite 0.

    ``rows`` of the data: no share below one pair of them is told apart from none.
    """
    return [max(float(violation_share(each, pool)), 1 / rows**2) for each in constraints]


def _log_density(difference: float, variance: float) -> float:
    """The log density of a normal distribution, but for a constant."""
    return -(difference**2 / variance + math.log(variance)) / 2
