"""Noisy counts of violating pairs of rows, and weights of soft constraints fitted to them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from cloister.arrays import Integers
from cloister.models.task import Stage, Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.queries.query import Door, TableRows
from cloister.privacy.queries.violations import ViolatingPairs
from cloister.schema.domain import Table

if TYPE_CHECKING:
    from cloister.models.sampling.sampler import ConstraintSampler
    from cloister.models.sampling.violation_index import Penalty
    from cloister.models.soft_constraints.penalties import RatePosterior
    from cloister.models.soft_constraints.reweighting import Reweighting

MATCHINGS = 8
"""Random matchings of the rows, each with at most one pair of a row: they add up in sensitivity."""


@dataclass(frozen=True)
class PairCounts:
    """Noisy counts of violating pairs in ``matchings`` random matchings of the rows.

    Constraints whose rate or weight is known are not counted.
    """

    matchings: int = MATCHINGS

    def query(self, task: Task) -> ViolatingPairs:
        """The query of the data."""
        return ViolatingPairs(task.measured_soft, self.matchings)

    def stage(self, task: Task, noise: Fraction) -> Stage:
        """The stage of a plan, with this noise multiplier."""
        event = DiscreteGaussian(noise).event(self.query(task).sensitivity(task.neighbours))
        words = f"violating pairs of {describe_soft(task)}, among random pairs of rows"
        return Stage("soft constraints", event, words)

    def weigh(
        self,
        private: Door[TableRows],
        task: Task,
        noise: Fraction | None,
        pool: Table,
        rng: np.random.Generator,
    ) -> Reweighting:
        """The weights, for rows like those of ``pool``."""
        from cloister.models.soft_constraints.reweighting import fit_weights

        rates = self.posteriors(private, task, noise, pool)
        return fit_weights(task.soft, [rate.mean for rate in rates], pool, rng)

    def penalties(
        self,
        private: Door[TableRows],
        task: Task,
        noise: Fraction | None,
        sampler: ConstraintSampler,
        pool: Table,
        rng: np.random.Generator,
    ) -> tuple[Penalty, ...]:
        """The penalties of violations in rows that ``sampler`` draws one after the other."""
        from cloister.models.soft_constraints.penalties import fit_penalties, known_penalties

        rates = zip(task.soft, self.posteriors(private, task, noise, pool), strict=True)
        wanted = {rule: rate.mean for rule, rate in rates if rule not in task.weighted_soft}
        return fit_penalties(task, wanted, known_penalties(task), sampler, pool, rng)

    def posteriors(
        self, private: Door[TableRows], task: Task, noise: Fraction | None, pool: Table
    ) -> list[RatePosterior]:
        """The rate of each soft constraint: the known one, or the posterior given a noisy count.

        With a known weight: the rate of the ``pool``. Without ``noise`` nothing is counted.
        """
        from cloister.models.soft_constraints.penalties import (
            RatePosterior,
            own_rates,
            posterior_rate,
        )

        model_rates = dict(zip(task.soft, own_rates(task.soft, pool, task.data_rows), strict=True))
        posteriors = {rule: RatePosterior(rate, 0.0) for rule, rate in model_rates.items()}
        for rule in task.soft:
            if rule.known is not None and rule.known.rate is not None:
                posteriors[rule] = RatePosterior(rule.known.rate, 0.0)
        if noise is not None:
            counts = private.answer(self.query(task), DiscreteGaussian(noise), "soft constraints")
            shares = self.shares(counts, float(noise), task)
            for rule, measured in zip(task.measured_soft, shares, strict=True):
                posteriors[rule] = posterior_rate(model_rates[rule], measured)
        return list(posteriors.values())

    def shares(self, counts: Integers, noise: float, task: Task) -> list[tuple[float, float]]:
        """The noisy share of pairs that violate each constraint, and its standard error.

        The error is that of noise and of the random matchings.
        """
        pairs = self._pairs(task)
        deviation = pairs * self.deviation(noise, task)
        positive = [max(float(count), 0.0) for count in counts]
        return [
            (count / pairs, (deviation**2 + max(count, 1.0)) ** 0.5 / pairs) for count in positive
        ]

    def deviation(self, noise: float, task: Task) -> float:
        """The standard deviation of the noise of a share of violating pairs; public."""
        sensitivity = float(self.query(task).sensitivity(task.neighbours).l2_squared) ** 0.5
        return noise * sensitivity / self._pairs(task)

    def _pairs(self, task: Task) -> int:
        return max(self.query(task).pairs(task.data_rows), 1) * self.matchings


def describe_soft(task: Task) -> str:
    """How many soft constraints are measured, in words."""
    measured = len(task.measured_soft)
    return f"{measured} soft constraint{'s' * (measured != 1)}"
