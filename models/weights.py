"""Weights of soft constraints: rows are kept with a probability that falls, or rises, with their violations.

Source: Kamino equation (1), where a row with v violations of a constraint of weight w has the factor exp(-w v). Here v
is the logarithm of one plus the row's violations against a fixed reference sample, relative to the mean: rows stay
independent, and a few rows with very many violations do not decide. The weights are fitted by post-processing to noisy
counts of violating pairs, in place of Algorithm 5, whose noise swamps the counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cloister.constraints import DenialConstraint, violation_share, violations_per_row
from cloister.constraints.supports import Bool
from cloister.schema.domain import Table

SWEEPS = 3
HALVINGS = 7
STRONGEST = 2.0

Shares = NDArray[np.float64]


def shares_against(constraint: DenialConstraint, rows: Table, reference: Table) -> Shares:
    """The share of reference rows with which each row violates a constraint; shape (rows,)."""
    if constraint.arity == 1:
        return violations_per_row(constraint, rows).astype(np.float64)
    together = violations_per_row(constraint, Table.concatenate([rows, reference]))[: rows.rows]
    return (together - violations_per_row(constraint, rows)) / reference.rows


@dataclass(frozen=True)
class Weighing:
    """Keeps a row with probability proportional to exp(-sum of weight times log(1 + relative violation share)).

    ``rules`` pairs each soft constraint with its weight; shares are relative to their mean over ``reference``.
    """

    rules: tuple[tuple[DenialConstraint, float], ...]
    reference: Table

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each constraint, by name."""
        return {constraint.name: weight for constraint, weight in self.rules}

    @cached_property
    def _means(self) -> tuple[float, ...]:
        return tuple(self._mean(constraint) for constraint, _ in self.rules)

    def _mean(self, constraint: DenialConstraint) -> float:
        return max(float(shares_against(constraint, self.reference, self.reference).mean()), 1e-9)

    @cached_property
    def _best(self) -> float:
        return float(np.quantile(self._scores(self.reference), 0.98)) if self.rules else 0.0

    def _scores(self, rows: Table) -> Shares:
        scores = np.zeros(rows.rows)
        for (constraint, weight), mean in zip(self.rules, self._means, strict=True):
            if weight:
                scores -= weight * np.log1p(shares_against(constraint, rows, self.reference) / mean)
        return scores

    def keep(self, rows: Table, rng: np.random.Generator) -> Bool:
        """Mask (rows,) of the rows kept."""
        return rng.random(rows.rows) < np.exp(np.minimum(self._scores(rows) - self._best, 0.0))


def fit_weights(
    constraints: Sequence[DenialConstraint], targets: Sequence[float], pool: Table, rng: np.random.Generator
) -> Weighing:
    """Weights under which rows like those of ``pool`` violate each constraint at its target share of pairs.

    One constraint after the other, by bisection on the pool, a few sweeps; post-processing.
    """
    half = pool.rows // 2
    reference, trial = pool.take(np.arange(half)), pool.take(np.arange(half, pool.rows))
    scores = _relative_scores(constraints, trial, reference)
    draws = np.log(rng.random(trial.rows))
    weights = np.zeros(len(constraints))
    for _ in range(SWEEPS):
        for at, constraint in enumerate(constraints):
            weights[at] = _bisect(constraint, at, targets[at], weights, scores, draws, trial)
    return Weighing(tuple(zip(constraints, weights.tolist(), strict=True)), reference)


def _relative_scores(constraints: Sequence[DenialConstraint], rows: Table, reference: Table) -> Shares:
    shares = [shares_against(c, rows, reference) for c in constraints]
    means = [max(float(shares_against(c, reference, reference).mean()), 1e-9) for c in constraints]
    return np.stack([np.log1p(share / mean) for share, mean in zip(shares, means, strict=True)], axis=1)


def _bisect(
    constraint: DenialConstraint,
    at: int,
    target: float,
    weights: Shares,
    scores: Shares,
    draws: Shares,
    trial: Table,
) -> float:
    low, high = -STRONGEST, STRONGEST
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        changed = weights.copy()
        changed[at] = middle
        logits = -scores @ changed
        kept = draws < np.minimum(logits - np.quantile(logits, 0.98), 0.0)
        violating = float(violation_share(constraint, trial.take(kept)))
        low, high = (middle, high) if violating > target else (low, middle)
    return (low + high) / 2
