"""Noisy counts of violating pairs of rows, and weights of soft constraints fitted to them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from cloister.arrays import Integers
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from cloister.privacy.queries.violating_pairs import ViolatingPairs
from cloister.schema.domain import Table
from models.protocol import Stage
from models.task import Task

if TYPE_CHECKING:
    from models.soft_constraints.reweighting import Reweighting

MATCHINGS = 8
"""Random matchings of the rows: each gives half as many pairs as rows, and adds sensitivity."""

TRUST = 0.1
"""Relative deviation of the model's own share of violating pairs from the true one, as assumed."""


@dataclass(frozen=True)
class PairCounts:
    """Noisy counts of violating pairs in ``matchings`` random matchings of the rows.

    The model's own share of violating pairs is trusted to a relative deviation of ``trust``.
    """

    matchings: int = MATCHINGS
    trust: float = TRUST

    def query(self, task: Task) -> ViolatingPairs:
        """The query of the data."""
        return ViolatingPairs(task.soft, self.matchings)

    def stage(self, task: Task, noise: Fraction) -> Stage:
        """The stage of a plan, with this noise multiplier."""
        event = DiscreteGaussian(noise).event(self.query(task).sensitivity(task.neighbours))
        words = f"violating pairs of {describe_soft(task)}, among random pairs of rows"
        return Stage("soft constraints", event, words)

    def weigh(
        self,
        private: Door[TableRows],
        task: Task,
        noise: Fraction,
        pool: Table,
        rng: np.random.Generator,
    ) -> Reweighting:
        """The weights, for rows like those of ``pool``."""
        from models.soft_constraints.reweighting import fit_weights

        counts = private.answer(self.query(task), DiscreteGaussian(noise), "soft constraints")
        return fit_weights(task.soft, self.targets(counts, float(noise), task, pool), pool, rng)

    def targets(self, counts: Integers, noise: float, task: Task, pool: Table) -> list[float]:
        """The share of pairs that should violate each constraint.

        That is the noisy share, shrunk towards the model's own by ``trust`` and the standard error
        of the noisy share.
        """
        from cloister.constraints.counting import violation_share

        targets = []
        for constraint, (share, error) in zip(
            task.soft, self.shares(counts, noise, task), strict=True
        ):
            own = max(float(violation_share(constraint, pool)), 1.0 / self._pairs(task))
            gain = (self.trust * own) ** 2 / ((self.trust * own) ** 2 + error**2)
            targets.append(max(own + gain * (share - own), 0.0))
        return targets

    def shares(self, counts: Integers, noise: float, task: Task) -> list[tuple[float, float]]:
        """The noisy share of pairs that violate each constraint, and its standard error.

        The error is that of noise and of the random matchings.
        """
        pairs = self._pairs(task)
        deviation = pairs * self.deviation(noise, task)
        found = [max(float(count), 0.0) for count in counts]
        return [(count / pairs, (deviation**2 + max(count, 1.0)) ** 0.5 / pairs) for count in found]

    def deviation(self, noise: float, task: Task) -> float:
        """The standard deviation of the noise of a share of violating pairs; public."""
        sensitivity = float(self.query(task).sensitivity(task.neighbours).l2_squared) ** 0.5
        return noise * sensitivity / self._pairs(task)

    def _pairs(self, task: Task) -> int:
        return max(task.data_rows // 2, 1) * self.matchings


def describe_soft(task: Task) -> str:
    """How many soft constraints there are, in words."""
    return f"{len(task.soft)} soft constraint{'s' * (len(task.soft) != 1)}"
