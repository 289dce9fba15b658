"""Kamino's Algorithm 5: weights of soft constraints from a noisy violation matrix.

Its noise swamps the violations at everyday budgets (docs/papers.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from cloister.privacy.queries.violation_matrix import ViolationMatrix
from cloister.schema.domain import Table
from models.protocol import Stage
from models.soft_constraints.pair_counts import describe_soft
from models.task import Task

if TYPE_CHECKING:
    from models.soft_constraints.reweighting import Reweighting

MATRIX_ROWS = 100
"""Rows of the violation matrix at most; its squared sensitivity grows with their square."""

_ASCENT_STEPS = 1000
"""Steps of gradient ascent, of one line of the matrix each."""

_ASCENT_RATE = 0.01
"""Learning rate of gradient ascent; weights start at 1."""


@dataclass(frozen=True)
class MatrixAscent:
    """Algorithm 5: the noisy violation matrix of about ``lines`` rows, and gradient ascent.

    The rows are a Poisson sample.
    """

    lines: int = MATRIX_ROWS

    def sample(self, task: Task) -> int:
        """L_w: the greatest number of rows sampled."""
        return max(min(self.lines, task.data_rows // 2), 2)

    def query(self, task: Task) -> ViolationMatrix:
        """The query of the data."""
        sample = self.sample(task)
        return ViolationMatrix(
            task.soft, sample, min(Fraction(sample, task.data_rows), Fraction(1))
        )

    def stage(self, task: Task, noise: Fraction) -> Stage:
        query = self.query(task)
        event = DiscreteGaussian(noise).event(query.sensitivity(task.neighbours))
        words = f"violation matrix of {query.sample} sampled rows by {describe_soft(task)}"
        return Stage("soft constraints", event, words)

    def weigh(
        self,
        private: Door[TableRows],
        task: Task,
        noise: Fraction,
        pool: Table,
        rng: np.random.Generator,
    ) -> Reweighting:
        from models.soft_constraints.reweighting import reweight_by_counts

        query = self.query(task)
        matrix = private.answer(query, DiscreteGaussian(noise), "soft constraints")
        weights = gradient_ascent(np.maximum(matrix, 0), rng)
        return reweight_by_counts(task.soft, weights, pool.take(np.arange(query.sample)))


def gradient_ascent(matrix: Integers, rng: np.random.Generator) -> Floats:
    """Weights (constraints,) after gradient ascent on exp(-weights . violations) of matrix lines.

    The objective has no maximum but at weights of 0, so the start and the number of steps set the
    result. Source: Kamino Algorithm 5, lines 8 to 15, with batches of one line; weights start at 1
    and stay non-negative.
    """
    weights = np.ones(matrix.shape[1])
    for line in rng.integers(0, len(matrix), _ASCENT_STEPS):
        weights = np.maximum(
            weights - _ASCENT_RATE * matrix[line] * np.exp(-float(weights @ matrix[line])), 0.0
        )
    return weights
