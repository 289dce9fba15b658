"""The relaxed problem over all pairs of rows of two tables, by projected gradient.

Source: arXiv 2405.18670, sections 4 and 6, algorithms 2 and 7, theorems 2 and 3, appendix C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Floats, Integers
from models.relational.matching.profiles import (
    POWER_MARGIN,
    POWER_STEPS,
    ProfileTarget,
    project_columns,
)
from models.relational.matching.rounding import sample_exactly

STEPS = 50
"""Steps of the projected gradient of a slice; the paper does not say how many it takes."""

_HALVINGS = 60
"""Halvings of the interval of nu: to the last digit of a share."""


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

    Theorem 2; nu by bisection. What is left of the sum by the last digit is spread over shares
    between the bounds.
    """
    low, high = float(points.min()) - 1, float(points.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = float(np.clip(points - middle, 0, 1).sum()) > mass
        low, high = (middle, high) if above else (low, middle)
    return np.clip(points - (low + high) / 2, 0.0, 1.0)


def _indicators(cells: Integers, number: int) -> Floats:
    """Which cell (rows, cells) each row is in."""
    found = np.zeros((len(cells), number))
    found[np.arange(len(cells)), cells] = 1.0
    return found
