"""Soft constraints of a fitted mixture: their rates are measured, and the mixture follows.

The rate of violating pairs is a quadratic form of the joint distribution of the attributes. Near a
mixture it is linear: a row adds twice the share of rows with which it violates the constraint. So a
few iterations of drawing rows, linearising and fitting reach the rates. Post-processing of released
values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from cloister.arrays import Floats
from cloister.constraints import DenialConstraint
from cloister.devices import CPU, Device
from cloister.models.core.bins import coarse
from cloister.models.core.costs import POOL_ROWS
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.mixture import optimizer
from cloister.models.mixture.fit import MIXTURE_SEED
from cloister.models.mixture.measurements import even_choice
from cloister.models.mixture.model import MixtureModel
from cloister.models.mixture.plan import MIXTURE_SAMPLINGS, WEIGHER, MixtureParameters
from cloister.models.planning import choose_sampling
from cloister.models.soft_constraints.penalties import RatePosterior, own_rates
from cloister.models.soft_constraints.reweighting import TuplesOf, fit_weights, shares_against
from cloister.models.task import Plan, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.domain import Table
from cloister.schema.partition import Partition

_TURNS = 4
"""Iterations of drawing rows, linearising the rates, and fitting."""

_STEPS = 80
"""Steps of the fit per iteration."""

_RATE = 0.03
"""Learning rate, in logits per step, at the start of an iteration."""

_LAST_RATE = 0.001
"""Learning rate at the end of an iteration."""

_FLOOR = 1.0
"""Floor of Adam's step sizes: levels without influence on the rates hardly change."""

_FIRM = 0.25
"""Deviation of a fixed table, in deviations of the noise of a measured one."""

_LOOSE = 3.0
"""The same for two attributes of one constraint: their table must change with the rates."""

_MOST_CELLS = 20_000
"""Most cells of a table, fixed or of a constraint."""

_ALL_CELLS = 160_000
"""Most cells of the tables of all constraints."""

_MOST_PAIRS = 300
"""Most pairs of attributes whose tables are fixed."""

_MOST_WAYS = 10
"""Most attributes of a constraint whose rate is fitted."""

_SEED = 20_261_121
"""Public seed of the choice of pairs where there are more."""

_TOLERANCE = 0.02
"""Deviation to which a rate is fitted, relative to its posterior mean, ..."""

_STIFF = 0.1
"""... or relative to its posterior deviation, whichever is greater."""


def fit_rates(
    model: MixtureModel,
    posteriors: Sequence[RatePosterior],
    deviation: float,
    penalty: optimizer.DependencePenalty,
    rng: SamplingSource,
    device: Device = CPU,
) -> MixtureModel:
    """The model with its mixture fitted to the posterior rates of soft constraints.

    Other tables are fixed at the mixture's own, with deviations proportional to the ``deviation``,
    in rows, with which tables were measured. Constraints on attributes outside the mixture, or on
    very many, are left out. Fits are computed on the ``device``.
    """
    rates = [
        rate
        for rate in zip(model.task.soft, posteriors, strict=True)
        if _is_fittable(model, rate[0])
    ]
    if not rates:
        return model
    fixed = _held_tables(model, [set(constraint.attributes) for constraint, _ in rates], deviation)
    for source in rng.spawn(_TURNS):
        fit = optimizer.Fit(model.mixture, penalty, _FLOOR, device.torch)
        targets = _rate_targets(model, rates, model.pool(POOL_ROWS, source))
        fit.descend([*fixed, *targets], _STEPS, _RATE, _LAST_RATE)
        model = replace(model, mixture=fit.mixture)
    return model


def _is_fittable(model: MixtureModel, constraint: DenialConstraint) -> bool:
    """Whether all attributes are in the mixture, and few enough for a joint table."""
    return (
        set(model.mixture.layout.sizes).issuperset(constraint.attributes)
        and len(constraint.attributes) <= _MOST_WAYS
    )


def _held_tables(
    model: MixtureModel, together: Sequence[set[str]], deviation: float
) -> list[optimizer.TableTarget]:
    """One-way tables, and those of pairs with an attribute of a constraint.

    A pair of attributes of one constraint, ``together``, is held loosely.
    """
    layout, rows = model.mixture.layout, model.task.data_rows
    coarsenings = {name: model.bins[name] for name in layout.sizes}
    bound = set().union(*together)
    pairs: list[tuple[str, ...]] = [
        pair for pair in combinations(coarsenings, 2) if bound.intersection(pair)
    ]
    sets = [(name,) for name in coarsenings] + even_choice(pairs, _MOST_PAIRS, _SEED)
    tables = {names: tuple(coarsenings[name] for name in names) for names in sets}
    modest = {
        names: table
        for names, table in tables.items()
        if math.prod(r.size for r in table) <= _MOST_CELLS
    }
    spread = {
        n: _LOOSE if len(n) > 1 and any(map(set(n).issubset, together)) else _FIRM for n in modest
    }
    return [
        optimizer.TableTarget.of(
            NoisyTable(table, rows * model.mixture.marginal(table), spread[names] * deviation),
            layout,
            rows,
        )
        for names, table in modest.items()
    ]


def _rate_targets(
    model: MixtureModel, rates: Sequence[tuple[DenialConstraint, RatePosterior]], pool: Table
) -> list[optimizer.Objective]:
    """Each rate as a mean over rows, linear at the model that the pool was drawn from."""
    tuples = TuplesOf(pool)
    owns = shares_against([constraint for constraint, _ in rates], tuples, tuples)
    cells = min(_MOST_CELLS, _ALL_CELLS // len(rates))
    return [
        _rate_target(model, *rate, pool, violations, cells)
        for rate, violations in zip(rates, owns, strict=True)
    ]


def _rate_target(
    model: MixtureModel,
    constraint: DenialConstraint,
    posterior: RatePosterior,
    pool: Table,
    violations: Floats,
    cells: int,
) -> optimizer.Objective:
    coarsenings = _coarsenings(model, constraint, cells)
    slopes = constraint.arity * _means(coarsenings, pool, violations)
    mean = (
        float((model.mixture.marginal(coarsenings) * slopes).sum())
        + posterior.mean
        - float(violations.mean())
    )
    deviation = max(_TOLERANCE * posterior.mean, _STIFF * posterior.deviation)
    return optimizer.MeanTarget.of(coarsenings, slopes, mean, deviation, model.mixture.layout)


def _coarsenings(
    model: MixtureModel, constraint: DenialConstraint, cells: int
) -> tuple[Partition, ...]:
    """The attributes of a constraint, in as many parts as a table of ``cells`` cells allows."""
    bins = [model.bins[name] for name in constraint.attributes]
    if math.prod(histogram.size for histogram in bins) <= cells:
        return tuple(bins)
    most = max(int(cells ** (1 / len(bins))), 2)
    return tuple(coarse(histogram, most) for histogram in bins)


def _means(coarsenings: Sequence[Partition], pool: Table, numbers: Floats) -> Floats:
    """The mean of the numbers (n,) of rows in each cell of the coarsenings' joint table.

    In a cell without rows, the mean of all.
    """
    sizes = [coarsening.size for coarsening in coarsenings]
    cells = np.ravel_multi_index(
        [coarsening.index(pool.codes[coarsening.name]) for coarsening in coarsenings], sizes
    )
    counts = np.bincount(cells, minlength=math.prod(sizes))
    sums = np.bincount(cells, weights=numbers, minlength=math.prod(sizes))
    return np.where(counts > 0, sums / np.maximum(counts, 1), numbers.mean()).reshape(sizes)


def weigh_mixture(
    private: Door[TableRows], task: Task, plan: Plan[MixtureParameters], model: MixtureModel
) -> MixtureModel:
    """The mixture, fitted to the rates of the soft constraints.

    Rows are reweighted where that fails, or drawn one after the other where that is asked for.
    """
    noise = plan.parameters.noise.get("soft constraints")
    choice = choose_sampling(task, MIXTURE_SAMPLINGS)
    pool, rng = model.pool(POOL_ROWS, _source()), np.random.default_rng(MIXTURE_SEED)
    if choice.sequential:
        sampler = model.sequential(choice.options, ()).constraint_sampler
        penalties = WEIGHER.penalties(private, task, noise, sampler, pool, rng)
        return model.sequential(choice.options, penalties)
    posteriors = WEIGHER.posteriors(private, task, noise, pool)
    fitted = _fitted(task, plan.parameters, model, posteriors)
    pool = fitted.pool(POOL_ROWS, _source())
    if all(map(RatePosterior.covers, posteriors, own_rates(task.soft, pool, task.data_rows))):
        return fitted
    means = [posterior.mean for posterior in posteriors]
    return fitted.reweighted(fit_weights(task.soft, means, pool, rng))


def _fitted(
    task: Task, parameters: MixtureParameters, model: MixtureModel, posteriors: list[RatePosterior]
) -> MixtureModel:
    noises = parameters.noise
    counting = parameters.law.counts(noises.get("rounds", noises["histograms"]))
    deviation = counting.deviation(task.neighbours.partition)
    penalty = optimizer.DependencePenalty.of(parameters)
    return fit_rates(model, posteriors, deviation, penalty, _source(), task.device)


def _source() -> SamplingSource:
    return SamplingSource(MIXTURE_SEED)
