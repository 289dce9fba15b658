"""Weights of soft constraints: rows with violations are kept less often, or more often.

Source: Kamino equation (1), where a row with v violations of a constraint of weight w has the
factor exp(-w v). Here v is a score of the row's violations against a fixed reference sample, so
that rows stay independent. The weights are fitted by post-processing to rates; for rows that are
drawn one after the other, see `cloister.models.soft_constraints.penalties`.

Violations are counted with the rows of a reference, or among kept rows. Rows that agree on the
attributes of a constraint count alike, so each distinct tuple is counted once; constraints on the
same attributes share the tuples. Exact, by
:mod:`cloister.constraints.counting`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.constraints import DenialConstraint, bind
from cloister.constraints.counting import Partners
from cloister.constraints.matching import Tuples
from cloister.schema.domain import Table

_FINENESS = 1 << 20
"""Probabilities are multiples of 1 / this, so that their sums are exact."""

_EVALUATIONS = 9
"""Most evaluations of the shares in a fit of weights; a few constraints need 5 to 7."""

_CLOSE_ENOUGH = 1e-4
"""Relative change of the cost, or of the weights, at which a fit ends."""

STRONGEST = 2.0
"""Greatest absolute weight of a logarithmic score."""

_RIDGE = 0.05
"""Penalty on the sum of squared weights, added to squared errors of log shares.

It keeps weights small where targets contradict each other.
"""

_INSIDE = 0.5
"""Least distance of a fit's start from the least weight: on a bound it would not move."""

FARTHEST = 2.0
"""Greatest difference, in log shares, between a target and the pool's own share."""

_NEVER = 1e-9
"""Share of violations used in place of 0, which has no logarithm."""


@dataclass(frozen=True)
class TuplesOf:
    """The tuples of one table in any attributes, cached."""

    table: Table
    _made: dict[tuple[str, ...], Tuples] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, attributes: Sequence[str]) -> Tuples:
        names = tuple(sorted(attributes))
        if names not in self._made:
            self._made[names] = Tuples.of(self.table, names)
        return self._made[names]


def shares_against(
    constraints: Sequence[DenialConstraint], rows: TuplesOf, reference: TuplesOf
) -> Iterator[Floats]:
    """For each constraint, the share of reference rows with which each row violates it.

    Shape (rows,).
    """
    for constraint in constraints:
        tuples, partners = rows[constraint.attributes], reference[constraint.attributes]
        violations = Partners.of(constraint, tuples.table, partners.table).count(partners.sums())
        whole = reference.table.rows if constraint.arity == 2 else 1
        yield (violations / whole)[tuples.of_row]


def quantize(keep: Floats) -> Integers:
    """Probabilities (n,) as whole numbers of 2^-20."""
    return np.rint(keep * _FINENESS).astype(np.int64)


@dataclass(frozen=True)
class Violating:
    """The violations of one constraint among rows (n,), each kept at random."""

    constraint: DenialConstraint
    tuples: Tuples
    partners: Partners
    itself: Booleans

    @classmethod
    def of(cls, constraint: DenialConstraint, rows: TuplesOf) -> Violating:
        """The violations, prepared for counting under any probabilities."""
        tuples = rows[constraint.attributes]
        table = tuples.table
        itself = bind(constraint, table.domain).violation_mask(table, table)
        return cls(constraint, tuples, Partners.of(constraint, table, table), itself)

    def expected_violations(self, keep: Integers) -> Floats:
        """The expected violations (n,) of each row, as a share of the expected pairs of kept rows.

        Of a constraint on single rows: as a share of the expected kept rows. ``keep`` (n,) are the
        probabilities of keeping a row, in whole numbers of 2^-20.
        """
        itself = np.where(self.itself[self.tuples.of_row], keep, 0)
        if self.constraint.arity == 1:
            return itself / keep.sum()
        met = self.partners.count(self.tuples.sums(keep))[self.tuples.of_row] - itself
        chances = keep.astype(np.float64)
        return chances * met / (chances.sum() ** 2 - chances @ chances)


class Measure(Protocol):
    """The score of a row's violations.

    Reference rows beyond the ``surest`` quantile are always kept.
    """

    @property
    def surest(self) -> float:
        """A quantile."""
        ...

    def scores(self, shares: Floats, mean: float, reference: int) -> Floats:
        """Scores (n,) from shares (n,), their mean over the reference, and its number of rows."""
        ...


@dataclass(frozen=True)
class Relative:
    """The logarithm of one plus the share relative to its mean.

    The logarithm keeps a few rows with very many violations from dominating.
    """

    surest: float = 0.98

    def scores(self, shares: Floats, mean: float, reference: int) -> Floats:  # noqa: ARG002
        return np.log1p(shares / mean)


@dataclass(frozen=True)
class ViolationCount:
    """The number of violations with the reference rows: that of models of version 0.1."""

    surest: float = 0.9

    def scores(self, shares: Floats, mean: float, reference: int) -> Floats:  # noqa: ARG002
        return shares * reference


MEASURES: Mapping[str, Measure] = {"relative": Relative(), "counted": ViolationCount()}


@dataclass(frozen=True)
class Reweighting:
    """Keeps a row with probability proportional to exp(-sum of weight times violation score).

    ``rules`` pairs each soft constraint with its weight; scores are those of ``measure``, of
    :data:`MEASURES`, from the share of ``reference`` rows that a row violates with.
    """

    rules: tuple[tuple[DenialConstraint, float], ...]
    reference: Table
    measure: str = "relative"

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each constraint, by name."""
        return {constraint.name: weight for constraint, weight in self.rules}

    @cached_property
    def _used(self) -> tuple[tuple[DenialConstraint, ...], tuple[float, ...]]:
        used = [(constraint, weight) for constraint, weight in self.rules if weight]
        return tuple(constraint for constraint, _ in used), tuple(weight for _, weight in used)

    @cached_property
    def _tuples(self) -> TuplesOf:
        return TuplesOf(self.reference)

    @cached_property
    def _means(self) -> tuple[float, ...]:
        return tuple(map(_mean, shares_against(self._used[0], self._tuples, self._tuples)))

    @cached_property
    def _best(self) -> float:
        return (
            float(np.quantile(self._scores(self.reference), MEASURES[self.measure].surest))
            if self.rules
            else 0.0
        )

    def _scores(self, rows: Table) -> Floats:
        constraints, weights = self._used
        scores = np.zeros(rows.rows)
        shares = shares_against(constraints, TuplesOf(rows), self._tuples)
        for weight, share, mean in zip(weights, shares, self._means, strict=True):
            scores -= weight * MEASURES[self.measure].scores(share, mean, self.reference.rows)
        return scores

    def keep(self, rows: Table, rng: np.random.Generator) -> Booleans:
        """Mask (rows,) of the rows kept."""
        return rng.random(rows.rows) < np.exp(np.minimum(self._scores(rows) - self._best, 0.0))


def _mean(shares: Floats) -> float:
    """The mean share, kept above 0."""
    return max(float(shares.mean()), _NEVER)


def fit_weights(
    constraints: Sequence[DenialConstraint],
    targets: Sequence[float],
    pool: Table,
    rng: np.random.Generator,
) -> Reweighting:
    """Weights under which rows like those of ``pool`` violate each constraint in a target share.

    Fitted jointly by ridge-penalised least squares on log shares; contradictory targets give a
    compromise. A random half of the pool is the reference.
    Post-processing.
    """
    half = rng.permutation(pool.rows)[: pool.rows // 2]
    fit = RateFit.of(constraints, targets, pool, half, np.log1p)
    return Reweighting(
        tuple(zip(constraints, fit.weights().tolist(), strict=True)), pool.take(half)
    )


@dataclass(frozen=True)
class RateFit:
    """Relative scores (n, c) of rows, their violations, and the log shares (c,) to reach.

    ``means`` (c,) are the mean shares of violation that the scores are relative to.
    """

    scores: Floats
    violating: tuple[Violating, ...]
    aims: Floats
    means: Floats

    @classmethod
    def of(
        cls,
        constraints: Sequence[DenialConstraint],
        targets: Sequence[float],
        pool: Table,
        reference: Integers,
        score: Callable[[Floats], Floats],
    ) -> RateFit:
        """The fit of rows of a pool, each scored by its share of violations over the mean.

        Shares are those with the ``reference``, some rows of the pool by number.
        """
        rows = TuplesOf(pool)
        shares = list(shares_against(constraints, rows, TuplesOf(pool.take(reference))))
        means = [_mean(share[reference]) for share in shares]
        scores = np.stack(
            [score(share / mean) for share, mean in zip(shares, means, strict=True)], axis=1
        )
        violating = tuple(Violating.of(constraint, rows) for constraint in constraints)
        aims = np.log(np.maximum(np.array(targets), _NEVER))
        return cls(scores, violating, aims, np.array(means))

    def weights(
        self, least: float = -STRONGEST, most: float = STRONGEST, farthest: float = FARTHEST
    ) -> Floats:
        """The weights (c,), each between the ``least`` and the ``most``.

        Log shares of a pool move by at most ``farthest``.
        """
        from scipy.optimize import least_squares

        start, ridge = np.zeros(self.scores.shape[1]), math.sqrt(_RIDGE)
        evaluate = lru_cache(maxsize=1)(lambda weights: self._at(np.array(weights)))
        logs, _ = evaluate(tuple(start))
        aims = np.clip(self.aims, logs - farthest, logs + farthest)
        solution = least_squares(
            lambda weights: np.append(evaluate(tuple(weights))[0] - aims, ridge * weights),
            np.maximum(start, least + _INSIDE),
            lambda weights: np.vstack([evaluate(tuple(weights))[1], ridge * np.eye(len(weights))]),
            bounds=(least, most),
            ftol=_CLOSE_ENOUGH,
            xtol=_CLOSE_ENOUGH,
            max_nfev=_EVALUATIONS,
        )
        return np.asarray(solution.x)

    def _at(self, weights: Floats) -> tuple[Floats, Floats]:
        """The log shares of violation (c,), and their slopes (c, c) in the weights."""
        logits = -self.scores @ weights
        keep = quantize(np.exp(np.minimum(logits - np.quantile(logits, Relative.surest), 0.0)))
        violations = np.stack([violating.expected_violations(keep) for violating in self.violating])
        shares = np.maximum(violations.sum(axis=1), _NEVER)
        arity = np.array([violating.constraint.arity for violating in self.violating])
        among = violations @ self.scores / shares[:, None]
        return np.log(shares), arity[:, None] * (keep @ self.scores / keep.sum() - among)
