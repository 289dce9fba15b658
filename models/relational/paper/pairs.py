"""The relaxed problem over all pairs of rows of two tables, by projected gradient.

Source: arXiv 2405.18670, sections 4 and 6, algorithms 2 and 7, theorems 2 and 3, appendix C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.relational.matching.profiles import (
    POWER_MARGIN,
    POWER_STEPS,
    ProfileTarget,
    project_columns,
)
from cloister.models.relational.matching.rounding import sample_exactly

STEPS = 100
"""Steps of the projected gradient of a slice; the paper does not say how many it takes.

From equal shares 50 come near; from links, where most shares are at a bound, 100 leave half of what
50 do, and a round goes on where the last ended.
"""

_TRIALS = 60
"""Values of nu tried at most, by halves if need be: to the last digit of a share."""

_EXACT = 1e-12
"""Relative error of the sum of shares at which a nu is good enough."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """A slice of two tables: which cell of each joint table a row is in, on either side.

    ``targets`` have the cells of rows of the slice, and shares. ``one_parent``: each row that
    refers has exactly one parent.
    """

    targets: Sequence[ProfileTarget]
    one_parent: bool

    def solve(self, shares: Floats) -> Floats:
        """Shares b (rows that refer, parents), of the same sum, from given ones.

        Algorithm 2: step size 1 / sigma_max squared, exact projections.
        """
        mass = float(shares.sum())
        if not self.targets or mass <= 0:
            return shares
        step = 1 / self._curvature(shares.shape)
        found = shares / mass
        for _ in range(STEPS):
            residuals = [
                answer - target.shares
                for answer, target in zip(self.answers(found), self.targets, strict=True)
            ]
            found = self._project((found - step * self._back(residuals)) * mass, mass) / mass
        return found * mass

    def answers(self, shares: Floats) -> list[Floats]:
        """The joint tables (cells of parents, cells of rows that refer) of shares."""
        return [
            _indicators(target.parent, target.shares.shape[0]).T
            @ shares.T
            @ _indicators(target.child, target.shares.shape[1])
            for target in self.targets
        ]

    def _back(self, residuals: Sequence[Floats]) -> Floats:
        """The sum (rows that refer, parents) of the residuals of the cells of each pair."""
        total = sum(
            own[target.parent][:, target.child]
            for own, target in zip(residuals, self.targets, strict=True)
        )
        return np.asarray(total).T

    def _curvature(self, shape: tuple[int, ...]) -> float:
        """The square of the greatest singular value, of which a step is the inverse."""
        found, greatest = np.ones(shape), 1.0
        for _ in range(POWER_STEPS):
            found = self._back(self.answers(found / np.linalg.norm(found)))
            greatest = float(np.linalg.norm(found))
        return POWER_MARGIN * greatest

    def _project(self, points: Floats, mass: float) -> Floats:
        if self.one_parent:
            return project_columns(points.T, np.ones(points.shape[1])).T
        return project_capped(points, mass)

    def round(self, shares: Floats, number: int, rng: np.random.Generator) -> tuple[Integers, ...]:
        """The rows that refer and the parents of links drawn without bias.

        Algorithm 7, one draw for each row, or algorithm 3, ``number`` of all pairs.
        """
        if self.one_parent:
            heights = np.cumsum(shares, axis=1)
            marks = rng.random(len(shares)) * heights[:, -1]
            parents = (heights <= marks[:, None]).sum(1).clip(max=shares.shape[1] - 1)
            return np.arange(len(shares)), parents
        chosen = np.sort(sample_exactly(shares.ravel(), number, rng))
        return chosen // shares.shape[1], chosen % shares.shape[1]


def project_capped(points: Floats, mass: float) -> Floats:
    """The nearest b to points with 0 <= b <= 1 and sum ``mass``: clip(points - nu, 0, 1).

    Theorem 2; nu by Newton's method inside a bisection, from 0, near which it is.
    """
    low, high = float(points.min()) - 1, float(points.max())
    nu = 0.0 if low < 0 < high else (low + high) / 2
    for _ in range(_TRIALS):
        shares = np.clip(points - nu, 0.0, 1.0)
        excess = float(shares.sum()) - mass
        if abs(excess) <= _EXACT * mass:
            break
        low, high = (nu, high) if excess > 0 else (low, nu)
        free = int(np.count_nonzero((shares > 0) & (shares < 1)))
        nu += excess / max(free, 1)
        if not (free and low < nu < high):
            nu = (low + high) / 2
    return np.clip(points - nu, 0.0, 1.0)


def _indicators(cells: Integers, number: int) -> Floats:
    """Which cell (rows, cells) each row is in."""
    found = np.zeros((len(cells), number))
    found[np.arange(len(cells)), cells] = 1.0
    return found
