"""Steering a mixture towards measured rates of soft constraints, its other tables held where they are.

The rate of violating pairs is a quadratic form of the joint distribution of the attributes. Near a
mixture it is linear: a row adds twice the share of other rows that it violates the constraint with.
So rates are reached by a few turns of drawing rows, linearising, and fitting. Post-processing of
released values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from cloister.constraints import DenialConstraint
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table
from models.discretization.coarsening import Coarsening, coarse, fine
from models.mixture.candidates import some
from models.mixture.model import MixtureModel
from models.mixture.optimizer import Fit, MeanTarget, Measurement, Objective, Target
from models.soft_constraints.reweighting import POOL
from models.soft_constraints.violation_rates import TuplesOf, shares_against

TURNS, STEPS = 4, 80
RATE, LAST_RATE = 0.03, 0.001
FLOOR = 1.0
FIRM, LOOSE = 0.25, 3.0
MOST_CELLS, ALL_CELLS = 20_000, 160_000
MOST_PAIRS, MOST_WAYS = 300, 10
SEED = 20_261_121
CLOSE, FAR = (0.8, 0.05), (0.2, 1.0)
LEAST = 0.01
NEAR = 0.1
TOLERANCE, STIFF = 0.02, 0.1

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class RatePosterior:
    """What one may believe of a share of violating pairs: its mean and standard deviation."""

    mean: float
    deviation: float

    def met_by(self, share: float) -> bool:
        """Whether a share is near enough: within a tenth of the mean, or a standard deviation of it."""
        return abs(share - self.mean) <= max(NEAR * self.mean, self.deviation)


def posterior_rate(own: float, measured: tuple[float, float]) -> RatePosterior:
    """What a measured share, with its standard error, lets one believe of the truth, given the model's ``own``.

    Before, the truth is near the model's own share in most cases (a relative deviation of CLOSE)
    and may be far from it in a few (FAR), so that a measured share counts the more, the surer it
    contradicts.
    """
    share, error = measured
    priors = [(weight, (spread * own) ** 2) for weight, spread in (CLOSE, FAR)]
    logs = [
        math.log(weight) + norm.logpdf(share, own, (variance + error**2) ** 0.5)
        for weight, variance in priors
    ]
    chances = np.exp(np.array(logs) - max(logs))
    pulls = np.array([variance / (variance + error**2) for _, variance in priors])
    means = own + pulls * (share - own)
    mean = float(np.average(means, weights=chances))
    variance = float(np.average(pulls * error**2 + (means - mean) ** 2, weights=chances))
    return RatePosterior(max(mean, LEAST * own), variance**0.5)


def fit_rates(
    model: MixtureModel,
    beliefs: Sequence[RatePosterior],
    deviation: float,
    dependence_penalty: float,
    rng: SamplingSource,
) -> MixtureModel:
    """The model with its mixture fitted to the rates of soft constraints that the noisy counts make likely.

    Other tables are held at the mixture's own, firmly beside the ``deviation``, in rows, that they
    were measured with. Constraints on attributes outside the mixture, or on very many, are left
    alone.
    """
    rates = [
        rate for rate in zip(model.task.soft, beliefs, strict=True) if _steerable(model, rate[0])
    ]
    if not rates:
        return model
    held = _held(model, [set(constraint.attributes) for constraint, _ in rates], deviation)
    for source in rng.spawn(TURNS):
        fit = Fit(model.mixture, dependence_penalty, FLOOR)
        fit.run([*held, *_aims(model, rates, model.pool(POOL, source))], STEPS, RATE, LAST_RATE)
        model = replace(model, mixture=fit.mixture)
    return model


def _steerable(model: MixtureModel, constraint: DenialConstraint) -> bool:
    """Whether the mixture knows all attributes, and they are few enough for a joint table."""
    return (
        set(model.mixture.layout.sizes).issuperset(constraint.attributes)
        and len(constraint.attributes) <= MOST_WAYS
    )


def _held(model: MixtureModel, together: Sequence[set[str]], deviation: float) -> list[Target]:
    """One-way tables, and those of pairs with an attribute of a constraint: loosely, if a constraint joins the two."""
    layout, rows = model.mixture.layout, model.task.data_rows
    readings = {name: fine(model.groups[name]) for name in layout.sizes}
    bound = set().union(*together)
    pairs: list[tuple[str, ...]] = [
        pair for pair in combinations(readings, 2) if bound.intersection(pair)
    ]
    sets = [(name,) for name in readings] + some(pairs, MOST_PAIRS, SEED)
    tables = {names: tuple(readings[name] for name in names) for names in sets}
    modest = {
        names: table
        for names, table in tables.items()
        if math.prod(r.size for r in table) <= MOST_CELLS
    }
    spread = {
        n: LOOSE if len(n) > 1 and any(map(set(n).issubset, together)) else FIRM for n in modest
    }
    return [
        Target.of(
            Measurement(table, rows * model.mixture.marginal(table), spread[names] * deviation),
            layout,
            rows,
        )
        for names, table in modest.items()
    ]


def _aims(
    model: MixtureModel, rates: Sequence[tuple[DenialConstraint, RatePosterior]], pool: Table
) -> list[Objective]:
    """Each rate as a mean over rows, linear at the model that the pool was drawn from."""
    tuples = TuplesOf(pool)
    owns = shares_against([constraint for constraint, _ in rates], tuples, tuples)
    cells = min(MOST_CELLS, ALL_CELLS // len(rates))
    return [_aim(model, *rate, pool, own, cells) for rate, own in zip(rates, owns, strict=True)]


def _aim(
    model: MixtureModel,
    constraint: DenialConstraint,
    belief: RatePosterior,
    pool: Table,
    own: Numbers,
    cells: int,
) -> Objective:
    readings = _readings(model, constraint, cells)
    slopes = constraint.arity * _means(readings, pool, own)
    mean = (
        float((model.mixture.marginal(readings) * slopes).sum()) + belief.mean - float(own.mean())
    )
    deviation = max(TOLERANCE * belief.mean, STIFF * belief.deviation)
    return MeanTarget.of(readings, slopes, mean, deviation, model.mixture.layout)


def _readings(
    model: MixtureModel, constraint: DenialConstraint, cells: int
) -> tuple[Coarsening, ...]:
    """The attributes of a constraint, in as many parts as a table of so many cells allows."""
    groups = [model.groups[name] for name in constraint.attributes]
    if math.prod(own.size for own in groups) <= cells:
        return tuple(map(fine, groups))
    most = max(int(cells ** (1 / len(groups))), 2)
    return tuple(coarse(own, most) for own in groups)


def _means(readings: Sequence[Coarsening], pool: Table, numbers: Numbers) -> Numbers:
    """The mean of the numbers (n,) of rows in each cell of the readings' joint table.

    That of all where none is.
    """
    sizes = [reading.size for reading in readings]
    cells = np.ravel_multi_index(
        [reading.of(pool.codes[reading.name]) for reading in readings], sizes
    )
    counts = np.bincount(cells, minlength=math.prod(sizes))
    sums = np.bincount(cells, weights=numbers, minlength=math.prod(sizes))
    return np.where(counts > 0, sums / np.maximum(counts, 1), numbers.mean()).reshape(sizes)
