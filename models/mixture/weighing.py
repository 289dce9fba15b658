"""The soft constraints of a fitted mixture: their rates are measured, and the mixture follows."""

from __future__ import annotations

import numpy as np

from cloister.constraints.counting import violation_share
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.domain import Table
from models.mixture.fit import MIXTURE_SEED
from models.mixture.model import MixtureModel
from models.mixture.plan import WEIGHER, MixtureParameters
from models.mixture.soft_constraints import RatePosterior, fit_rates, posterior_rate
from models.protocol import Plan
from models.sampling.sizes import POOL_ROWS
from models.soft_constraints.reweighting import fit_weights
from models.task import Task


def weigh_mixture(
    private: Door[TableRows], task: Task, plan: Plan[MixtureParameters], model: MixtureModel
) -> MixtureModel:
    """The mixture, fitted to noisy rates of the soft constraints.

    Rows are reweighted where that fails.
    """
    noises = plan.parameters.noise
    noise = noises["soft constraints"]
    counts = private.answer(WEIGHER.query(task), DiscreteGaussian(noise), "soft constraints")
    own = _own_rates(task, model.pool(POOL_ROWS, SamplingSource(MIXTURE_SEED)))
    posteriors = list(map(posterior_rate, own, WEIGHER.shares(counts, float(noise), task)))
    deviation = DiscreteGaussian(noises.get("rounds", noises["histograms"])).scale(
        task.neighbours.partition
    )
    fitted = fit_rates(
        model,
        posteriors,
        deviation,
        plan.parameters.dependence_penalty,
        SamplingSource(MIXTURE_SEED),
    )
    pool = fitted.pool(POOL_ROWS, SamplingSource(MIXTURE_SEED))
    if all(map(RatePosterior.covers, posteriors, _own_rates(task, pool))):
        return fitted
    means = [posterior.mean for posterior in posteriors]
    return fitted.reweighted(
        fit_weights(task.soft, means, pool, np.random.default_rng(MIXTURE_SEED))
    )


def _own_rates(task: Task, pool: Table) -> list[float]:
    """The share of pairs of pooled rows that violate each soft constraint; never quite 0."""
    return [
        max(float(violation_share(constraint, pool)), 1 / task.data_rows**2)
        for constraint in task.soft
    ]
