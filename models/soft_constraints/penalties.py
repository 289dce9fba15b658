"""Penalties of violations in rows drawn one after the other, fitted to rates; and those rates.

Source: Kamino Algorithm 3, line 10, where a row with v violations has the factor exp(-w v). A known
weight is the paper's: the cost of one violating pair. A fitted one is the cost of violating with a
share of the rows before, so that tables of any length have the same rate. Post-processing.

The rate of a constraint combines two sources: a noisy count, and the model itself. All methods that
measure rates use this estimator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloister.arrays import Floats
from cloister.constraints import DenialConstraint
from cloister.constraints.counting import violation_share
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.sampling.violation_index import Penalty
from cloister.models.soft_constraints.reweighting import RateFit
from cloister.models.task import Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table

_CLOSE = (0.8, 0.05)
"""Prior of a rate: probability of being close to the model's own, and relative deviation then."""

_FAR = (0.2, 1.0)
"""Prior of a rate: probability of being far from the model's own, and relative deviation then."""

_LEAST = 0.01
"""Least posterior rate, as a share of the model's own."""

_NEAR = 0.1
"""Relative difference from a posterior mean at which a rate is accepted."""

_PILOT_ROWS = 3_000
"""Rows of a table drawn on trial: its rates then have a relative error of some percent."""

_TURNS = 5
"""Tables drawn on trial: after each, weights are corrected by its rates."""

_MOST = 50.0
"""Greatest cost, in nats, of violating with the same share of the rows before as the mean row."""

_FARTHEST = 5.0
"""Largest change of a log share to aim at, including what trials showed to be missing."""

_SEED = 20_210_701
"""Public seed of the tables drawn on trial."""


@dataclass(frozen=True)
class RatePosterior:
    """The posterior of a share of violating pairs: its mean and standard deviation."""

    mean: float
    deviation: float

    def covers(self, share: float) -> bool:
        """Whether a share is within a tenth of the mean, or within a standard deviation of it."""
        return abs(share - self.mean) <= max(_NEAR * self.mean, self.deviation)


def posterior_rate(model_share: float, measured: tuple[float, float]) -> RatePosterior:
    """The posterior of a share, from a measured share with its standard error and the model's.

    The prior is a mixture of two normal distributions around ``model_share``, a narrow one
    (``_CLOSE``) and a wide one (``_FAR``): the more clearly a measured share contradicts the model,
    the more it counts.
    """
    share, error = measured
    priors = [(weight, (spread * model_share) ** 2) for weight, spread in (_CLOSE, _FAR)]
    logs = [
        math.log(weight) + _log_density(share - model_share, variance + error**2)
        for weight, variance in priors
    ]
    chances = np.exp(np.array(logs) - max(logs))
    gains = np.array([variance / (variance + error**2) for _, variance in priors])
    means = model_share + gains * (share - model_share)
    mean = float(np.average(means, weights=chances))
    variance = float(np.average(gains * error**2 + (means - mean) ** 2, weights=chances))
    return RatePosterior(max(mean, _LEAST * model_share), variance**0.5)


def own_rates(constraints: Sequence[DenialConstraint], pool: Table, rows: int) -> list[float]:
    """The share of pairs of a model's rows that violate each constraint; never quite 0.

    ``rows`` are those of the data: shares below one pair of them are indistinguishable from zero.
    """
    return [max(float(violation_share(each, pool)), 1 / rows**2) for each in constraints]


def _log_density(difference: float, variance: float) -> float:
    """The log density of a normal distribution, up to a constant."""
    return -(difference**2 / variance + math.log(variance)) / 2


def known_penalties(task: Task) -> tuple[Penalty, ...]:
    """The penalty of each soft constraint with a known weight."""
    return tuple(
        Penalty(rule, rule.known.weight)
        for rule in task.weighted_soft
        if rule.known and rule.known.weight is not None
    )


def fit_penalties(
    task: Task,
    wanted: Mapping[DenialConstraint, float],
    known: tuple[Penalty, ...],
    sampler: ConstraintSampler,
    pool: Table,
    rng: np.random.Generator,
) -> tuple[Penalty, ...]:
    """The ``known`` penalties, and those with which rows of ``sampler`` have the ``wanted`` rates.

    Weights are fitted as if rows of the ``pool`` were kept at random, then corrected by the rates
    of tables drawn row by row: bracketed between a weight that was too small and one that was too
    large, since tables drawn row by row can change abruptly at one weight. The weights of the
    nearest table are taken; zero weights are among the candidates. As in the paper they are not
    negative: rows violate no more often than without weights.
    """
    if not wanted:
        return known
    half = rng.permutation(pool.rows)[: pool.rows // 2]
    rates = np.array(list(wanted.values()))
    fit = RateFit.of(list(wanted), rates.tolist(), pool, half, np.asarray)
    pilot, brackets = _Pilot(task, sampler, known), _Brackets.of(len(rates))
    weights, best = brackets.low, (np.inf, brackets.low)
    for source in SamplingSource(_SEED).spawn(1 + _TURNS):
        off = np.log(pilot.rates(list(wanted), weights, source) / rates)
        best = min(best, (float(np.square(off).sum()), weights), key=lambda tried: tried[0])
        fit = replace(fit, aims=fit.aims - off) if weights.any() else fit
        brackets = brackets.narrowed(weights, off)
        weights = brackets.inside(fit.weights(0.0, _MOST, _FARTHEST) / fit.means)
    return (*known, *_by_share(wanted, best[1]))


@dataclass(frozen=True)
class _Brackets:
    """For each constraint (c,), the greatest weight found too small, the least found too large.

    And the log of the rate over the wanted one at each; infinite and nan before any trial.
    """

    low: Floats
    low_off: Floats
    high: Floats
    high_off: Floats

    @classmethod
    def of(cls, constraints: int) -> _Brackets:
        """Nothing was tried."""
        nan = np.full(constraints, np.nan)
        return cls(np.zeros(constraints), nan, np.full(constraints, np.inf), nan)

    def narrowed(self, weights: Floats, off: Floats) -> _Brackets:
        """The brackets, narrowed by the rates of a table drawn under some weights."""
        small, great = (off > 0) & (weights >= self.low), (off <= 0) & (weights <= self.high)
        return _Brackets(
            np.where(small, weights, self.low),
            np.where(small, off, self.low_off),
            np.where(great, weights, self.high),
            np.where(great, off, self.high_off),
        )

    def inside(self, proposed: Floats) -> Floats:
        """The next weights: interpolated where both ends are known, else as proposed."""
        both = np.isfinite(self.low_off) & np.isfinite(self.high)
        with np.errstate(invalid="ignore"):
            part = self.low_off / (self.low_off - self.high_off)
            between = self.low + part * (self.high - self.low)
        return np.where(both, between, np.clip(proposed, self.low, self.high))


@dataclass(frozen=True)
class _Pilot:
    """Tables drawn on trial from a sampler, under ``known`` penalties and others."""

    task: Task
    sampler: ConstraintSampler
    known: tuple[Penalty, ...]

    @property
    def rows(self) -> int:
        return min(self.task.output_rows, _PILOT_ROWS)

    def rates(
        self, rules: Sequence[DenialConstraint], weights: Floats, source: SamplingSource
    ) -> Floats:
        """The shares (c,) of violation in one table."""
        penalties = (*map(self._scaled, self.known), *_by_share(rules, weights))
        algorithm = replace(self.sampler.algorithm, penalties=penalties)
        drawn = replace(self.sampler, algorithm=algorithm).draw(self.rows, source)
        return np.array(own_rates(rules, drawn, drawn.rows))

    def _scaled(self, penalty: Penalty) -> Penalty:
        """The penalty scaled so that a share of all rows costs as much as in the whole table."""
        pairs = penalty.constraint.arity == 2
        scale = self.task.output_rows / self.rows if pairs else 1.0
        return replace(penalty, weight=penalty.weight * scale)


def _by_share(rules: Iterable[DenialConstraint], weights: Floats) -> tuple[Penalty, ...]:
    return tuple(
        Penalty(rule, weight, "share") for rule, weight in zip(rules, weights.tolist(), strict=True)
    )
