"""Weights of soft constraints: rows are kept with a probability that falls, or rises, with their violations.

Source: Kamino equation (1), where a row with v violations of a constraint of weight w has the factor exp(-w v). Here v
is a score of the row's violations against a fixed reference sample, so that rows stay independent. The weights are
fitted by post-processing to noisy counts of violating pairs, or learnt by Algorithm 5, whose noise swamps the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cloister.constraints import DenialConstraint, violation_share, violations_per_row
from cloister.constraints.supports import Bool
from cloister.schema.domain import Table

SWEEPS = 3
HALVINGS = 7
STRONGEST = 2.0
ASCENT, ASCENT_RATE = 1000, 0.01

Shares = NDArray[np.float64]


class Measure(Protocol):
    """How much a row's violations count; the ``surest`` quantile of reference rows is always kept."""

    @property
    def surest(self) -> float:
        """A quantile."""
        ...

    def scores(self, shares: Shares, mean: float, reference: int) -> Shares:
        """Scores (n,) of rows, from shares (n,), their mean over the reference, and its number of rows."""
        ...


def shares_against(constraint: DenialConstraint, rows: Table, reference: Table) -> Shares:
    """The share of reference rows with which each row violates a constraint; shape (rows,)."""
    if constraint.arity == 1:
        return violations_per_row(constraint, rows).astype(np.float64)
    together = violations_per_row(constraint, Table.concatenate([rows, reference]))[: rows.rows]
    return (together - violations_per_row(constraint, rows)) / reference.rows


@dataclass(frozen=True)
class Relative:
    """The logarithm of one plus the share relative to its mean: a few rows with very many violations do not decide."""

    surest: float = 0.98

    def scores(self, shares: Shares, mean: float, reference: int) -> Shares:  # noqa: ARG002
        return np.log1p(shares / mean)


@dataclass(frozen=True)
class Counted:
    """The number of violations with as many rows as the reference has: Kamino's equation (1), on a sample."""

    surest: float = 0.9

    def scores(self, shares: Shares, mean: float, reference: int) -> Shares:  # noqa: ARG002
        return shares * reference


MEASURES: Mapping[str, Measure] = {"relative": Relative(), "counted": Counted()}


@dataclass(frozen=True)
class Weighing:
    """Keeps a row with probability proportional to exp(-sum of weight times violation score).

    ``rules`` pairs each soft constraint with its weight; scores are those of ``measure``, of :data:`MEASURES`, from
    the share of ``reference`` rows that a row violates with.
    """

    rules: tuple[tuple[DenialConstraint, float], ...]
    reference: Table
    measure: str = "relative"

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each constraint, by name."""
        return {constraint.name: weight for constraint, weight in self.rules}

    @cached_property
    def _means(self) -> tuple[float, ...]:
        return tuple(mean_share(constraint, self.reference) for constraint, _ in self.rules)

    @cached_property
    def _best(self) -> float:
        return float(np.quantile(self._scores(self.reference), MEASURES[self.measure].surest)) if self.rules else 0.0

    def _scores(self, rows: Table) -> Shares:
        measure, reference = MEASURES[self.measure], self.reference
        scores = np.zeros(rows.rows)
        for (constraint, weight), mean in zip(self.rules, self._means, strict=True):
            if weight:
                scores -= weight * measure.scores(shares_against(constraint, rows, reference), mean, reference.rows)
        return scores

    def keep(self, rows: Table, rng: np.random.Generator) -> Bool:
        """Mask (rows,) of the rows kept."""
        return rng.random(rows.rows) < np.exp(np.minimum(self._scores(rows) - self._best, 0.0))


def mean_share(constraint: DenialConstraint, reference: Table) -> float:
    """The mean share of reference rows that a reference row violates a constraint with; never quite 0."""
    return max(float(shares_against(constraint, reference, reference).mean()), 1e-9)


def ascend(matrix: NDArray[np.int64], rng: np.random.Generator) -> Shares:
    """Weights (constraints,) after gradient ascent on exp(-weights . violations) of lines of a matrix.

    The objective has no maximum but at weights of 0, so that the answer is set by where it starts and how long it
    goes on. Source: Kamino Algorithm 5, lines 8 to 15, with batches of one line; weights start at 1 and stay positive.
    """
    weights = np.ones(matrix.shape[1])
    for line in rng.integers(0, len(matrix), ASCENT):
        weights = np.maximum(weights - ASCENT_RATE * matrix[line] * np.exp(-float(weights @ matrix[line])), 0.0)
    return weights


def weighing_by_counts(constraints: Sequence[DenialConstraint], weights: Shares, reference: Table) -> Weighing:
    """A weighing by the number of violations with the rows of a reference."""
    return Weighing(tuple(zip(constraints, weights.tolist(), strict=True)), reference, "counted")


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
    means = [mean_share(c, reference) for c in constraints]
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
