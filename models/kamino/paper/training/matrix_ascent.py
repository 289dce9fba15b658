"""Kamino's Algorithm 5: weights of soft constraints from a noisy violation matrix.

Its noise swamps the violations at everyday budgets (docs/papers.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.constraints import DenialConstraint
from cloister.models.kamino.weighing import KAMINO_SEED
from cloister.models.planning import POOL_ROWS, SEQUENTIAL, choose_sampling
from cloister.models.soft_constraints.pair_counts import describe_soft
from cloister.models.task import Stage, Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door, TableRows
from cloister.privacy.queries.violations import ViolationMatrix
from cloister.schema.declarations import Sampling

if TYPE_CHECKING:
    from cloister.models.kamino.model import KaminoModel

MATRIX_ROWS = 100
"""Rows of the violation matrix at most; its squared sensitivity grows with their square."""

_ASCENT_STEPS = 100
"""T_w: steps of gradient ascent for each attribute; the paper prints none."""

_BATCH = 1
"""b_w: lines of the matrix in a step, on average (Algorithm 6, line 3)."""

_ASCENT_RATE = 0.01
"""Learning rate of gradient ascent; weights start at 1."""


@dataclass(frozen=True)
class MatrixAscent:
    """Algorithm 5: the noisy violation matrix of about ``lines`` rows, and gradient ascent.

    The rows are a Poisson sample.
    """

    lines: int = MATRIX_ROWS
    samplings: tuple[Sampling, ...] = (SEQUENTIAL,)
    weighs_soft: bool = True

    def sample(self, task: Task) -> int:
        """L_w: the greatest number of rows sampled."""
        return max(min(self.lines, task.data_rows // 2), 2)

    def query(self, task: Task) -> ViolationMatrix:
        """The query of the data."""
        sample = self.sample(task)
        return ViolationMatrix(
            task.measured_soft, sample, min(Fraction(sample, task.data_rows), Fraction(1))
        )

    def stage(self, task: Task, noise: Fraction) -> Stage:
        query = self.query(task)
        event = DiscreteGaussian(noise).event(query.sensitivity(task.neighbours))
        words = f"violation matrix of {query.sample} sampled rows by {describe_soft(task)}"
        return Stage("soft constraints", event, words)

    def deviation(self, noise: float, task: Task) -> float | None:  # noqa: ARG002
        return None

    def weigh(
        self, private: Door[TableRows], task: Task, noise: Fraction | None, model: KaminoModel
    ) -> KaminoModel:
        """Weights of Algorithm 5 for what was measured, and what the spec declares of others."""
        from cloister.models.sampling.violation_index import Penalty
        from cloister.models.soft_constraints.penalties import fit_penalties, known_penalties

        options, learnt = choose_sampling(task, self.samplings).options, known_penalties(task)
        if noise is not None:
            answer = private.answer(self.query(task), DiscreteGaussian(noise), "soft constraints")
            rules = completed_constraints(model.sequence, task.measured_soft)
            rng = np.random.default_rng(KAMINO_SEED)
            weights = gradient_ascent(np.maximum(answer, 0), rules, rng)
            learnt = (*learnt, *map(Penalty, task.measured_soft, weights.tolist()))
        rates = {
            rule: rule.known.rate
            for rule in task.soft
            if rule.known is not None and rule.known.rate is not None
        }
        pool = model.pool(POOL_ROWS, SamplingSource(KAMINO_SEED))
        sampler = model.sequential(options, ()).constraint_sampler
        rng = np.random.default_rng(KAMINO_SEED)
        return model.sequential(options, fit_penalties(task, rates, learnt, sampler, pool, rng))


def gradient_ascent(
    matrix: Integers, active: Sequence[Sequence[int]], rng: np.random.Generator
) -> Floats:
    """Weights (constraints,) after gradient ascent on exp(-weights . violations) of matrix lines.

    ``active`` holds, for each attribute of the sequence, the constraints that it completes; each
    attribute has its own steps, by lines that are sampled at random. The objective has no maximum
    but at weights of 0, so the start and the number of steps set the result; where a line holds
    many violations its slope is 0, and the weights stay where they start.

    Source: Kamino Algorithm 5, lines 8 to 15. That weights start at 1 and stay non-negative, and
    the numbers of steps, are ours: the paper prints none.
    """
    weights = np.ones(matrix.shape[1])
    for rules in filter(len, active):
        for _ in range(_ASCENT_STEPS):
            for line in np.flatnonzero(rng.random(len(matrix)) < _BATCH / len(matrix)):
                seen = matrix[line, rules]
                slope = seen * np.exp(-float(weights[rules] @ seen))
                weights[rules] = np.maximum(weights[rules] - _ASCENT_RATE * slope, 0.0)
    return weights


def completed_constraints(
    sequence: Sequence[str], constraints: Sequence[DenialConstraint]
) -> list[list[int]]:
    """For each attribute of a sequence, the constraints that it completes, by number.

    These are those on no attributes but it and those before it, and not on the latter alone
    (Kamino section 3.2, example 3).
    """
    last = [max(sequence.index(name) for name in each.attributes) for each in constraints]
    return [[at for at, own in enumerate(last) if own == place] for place in range(len(sequence))]
