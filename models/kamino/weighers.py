"""Ways to learn the weights of soft constraints, each with the stage of the plan that it needs.

`PairCounts` releases the number of violating pairs among random pairs of rows, and fits weights by
post-processing. `MatrixAscent` is Kamino's Algorithm 5, whose noise swamps the violations at
everyday budgets; docs/papers.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from cloister.constraints import violation_share
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import Counts, TableRows
from cloister.privacy.queries.violating_pairs import ViolatingPairs
from cloister.privacy.queries.violation_matrix import ViolationMatrix
from cloister.schema.domain import Table
from models.protocol import Stage, Task
from models.soft_constraints.reweighting import (
    Reweighting,
    fit_weights,
    gradient_ascent,
    weighing_by_counts,
)

MATCHINGS = 8
TRUST = 0.1
LINES = 100


class Weigher(Protocol):
    """A way to weigh soft constraints."""

    def stage(self, task: Task, noise: Fraction) -> Stage:
        """What it asks of the data, with this noise multiplier."""
        ...

    def weigh(
        self,
        private: Door[TableRows],
        task: Task,
        noise: Fraction,
        pool: Table,
        rng: np.random.Generator,
    ) -> Reweighting:
        """The weights, for rows like those of ``pool``."""
        ...


@dataclass(frozen=True)
class PairCounts:
    """Noisy counts of violating pairs in ``matchings`` random matchings of the rows.

    The model's own share of violating pairs is trusted to a relative deviation of ``trust``.
    """

    matchings: int = MATCHINGS
    trust: float = TRUST

    def query(self, task: Task) -> ViolatingPairs:
        """What is asked of the data."""
        return ViolatingPairs(task.soft, self.matchings)

    def stage(self, task: Task, noise: Fraction) -> Stage:
        event = DiscreteGaussian(noise).event(self.query(task).sensitivity(task.neighbours))
        words = f"violating pairs of {_soft(task)}, among random pairs of rows"
        return Stage("soft constraints", event, words)

    def weigh(
        self,
        private: Door[TableRows],
        task: Task,
        noise: Fraction,
        pool: Table,
        rng: np.random.Generator,
    ) -> Reweighting:
        counts = private.answer(self.query(task), DiscreteGaussian(noise), "soft constraints")
        return fit_weights(task.soft, self.targets(counts, float(noise), task, pool), pool, rng)

    def targets(self, counts: Counts, noise: float, task: Task, pool: Table) -> list[float]:
        """The share of pairs that should violate each constraint: the noisy share, drawn towards the model's own.

        How far, ``trust`` and the standard error of the noisy share decide.
        """
        targets = []
        for constraint, (share, error) in zip(
            task.soft, self.shares(counts, noise, task), strict=True
        ):
            own = max(float(violation_share(constraint, pool)), 1.0 / self._pairs(task))
            pull = (self.trust * own) ** 2 / ((self.trust * own) ** 2 + error**2)
            targets.append(max(own + pull * (share - own), 0.0))
        return targets

    def shares(self, counts: Counts, noise: float, task: Task) -> list[tuple[float, float]]:
        """The noisy share of pairs that violate each constraint, and its standard error: of noise and sampling."""
        pairs = self._pairs(task)
        deviation = noise * float(self.query(task).sensitivity(task.neighbours).l2_squared) ** 0.5
        found = [max(float(count), 0.0) for count in counts]
        return [(count / pairs, (deviation**2 + max(count, 1.0)) ** 0.5 / pairs) for count in found]

    def _pairs(self, task: Task) -> int:
        return max(task.data_rows // 2, 1) * self.matchings


@dataclass(frozen=True)
class MatrixAscent:
    """Algorithm 5: the noisy violation matrix of a Poisson sample of about ``lines`` rows, and gradient ascent."""

    lines: int = LINES

    def sample(self, task: Task) -> int:
        """L_w: the greatest number of rows sampled."""
        return max(min(self.lines, task.data_rows // 2), 2)

    def query(self, task: Task) -> ViolationMatrix:
        """What is asked of the data."""
        sample = self.sample(task)
        return ViolationMatrix(
            task.soft, sample, min(Fraction(sample, task.data_rows), Fraction(1))
        )

    def stage(self, task: Task, noise: Fraction) -> Stage:
        query = self.query(task)
        event = DiscreteGaussian(noise).event(query.sensitivity(task.neighbours))
        words = f"violation matrix of {query.sample} sampled rows by {_soft(task)}"
        return Stage("soft constraints", event, words)

    def weigh(
        self,
        private: Door[TableRows],
        task: Task,
        noise: Fraction,
        pool: Table,
        rng: np.random.Generator,
    ) -> Reweighting:
        query = self.query(task)
        matrix = private.answer(query, DiscreteGaussian(noise), "soft constraints")
        weights = gradient_ascent(np.maximum(matrix, 0), rng)
        return weighing_by_counts(task.soft, weights, pool.take(np.arange(query.sample)))


def _soft(task: Task) -> str:
    return f"{len(task.soft)} soft constraint{'s' * (len(task.soft) != 1)}"
