"""The soft constraints of a fitted mixture: their rates are measured, and the mixture follows."""

from __future__ import annotations

import numpy as np

from cloister.models.mixture.fit import MIXTURE_SEED
from cloister.models.mixture.model import MixtureModel
from cloister.models.mixture.plan import MIXTURE_SAMPLINGS, WEIGHER, MixtureParameters
from cloister.models.mixture.soft_constraints import fit_rates
from cloister.models.planning import POOL_ROWS, choose_sampling
from cloister.models.soft_constraints.penalties import RatePosterior, own_rates
from cloister.models.soft_constraints.reweighting import fit_weights
from cloister.models.task import Plan, Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door, TableRows


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
        found = WEIGHER.penalties(private, task, noise, sampler, pool, rng)
        return model.sequential(choice.options, found)
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
    deviation = DiscreteGaussian(noises.get("rounds", noises["histograms"])).scale(
        task.neighbours.partition
    )
    penalty, source = parameters.dependence_penalty, _source()
    return fit_rates(model, posteriors, deviation, penalty, source, task.device)


def _source() -> SamplingSource:
    return SamplingSource(MIXTURE_SEED)
