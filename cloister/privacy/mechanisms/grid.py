"""Noise on real numbers: they are rounded to a grid first, so that noise is drawn exactly on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cloister.arrays import Integers
from cloister.privacy.events import OnGrid, Sensitivity
from cloister.privacy.mechanisms.counts import DiscreteGaussian, DiscreteLaplace
from cloister.privacy.mechanisms.randomness import NoiseSource

GRID_STEPS = 64
"""Steps of the grid in what one row can change a number by: rounding is far below the noise."""

FLOATING = 1e-6
"""Relative margin of that change for sums in double precision, whose error is far below it."""


@dataclass(frozen=True)
class OnGridSensitivity:
    """How far one unit, of at most ``rows`` rows, can change numbers on a grid, in its steps."""

    steps: Sensitivity
    rows: int


@dataclass(frozen=True)
class GridNoise:
    """Discrete noise on numbers of a grid, in its steps."""

    counts: DiscreteGaussian | DiscreteLaplace

    def release(
        self, exact: Integers, sensitivity: OnGridSensitivity, source: NoiseSource
    ) -> Integers:
        """The noisy numbers, in grid steps."""
        return self.counts.release(exact, sensitivity.steps, source)

    def event(self, sensitivity: OnGridSensitivity) -> OnGrid:
        """What `release` does."""
        return OnGrid(self.counts.event(sensitivity.steps), sensitivity.rows)

    def deviation(self, sensitivity: OnGridSensitivity, bound: float) -> float:
        """About the standard deviation of the noise, in the unit of ``bound``."""
        spread = 1.0 if isinstance(self.counts, DiscreteGaussian) else math.sqrt(2)
        return spread * self.counts.scale(sensitivity.steps) * bound / GRID_STEPS
