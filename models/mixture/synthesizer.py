"""Cloister's own method on the door: histograms, adaptive rounds, a mixture inside the supports.

Source: adaptive rounds after McKenna et al., "AIM" (arXiv 2201.12677); the mixture of products
after Liu, Vietri, Wu, "Iterative methods for private synthetic data" (arXiv 2106.07153), section 4,
with exact marginals and a penalty on dependence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cloister.constraints import violation_share
from cloister.privacy.mechanisms.counts import DiscreteGaussian
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.domain import Table
from models.discretization.attribute_order import public_sizes, schema_sequence
from models.mixture.fit import MIXTURE_SEED, fit_mixture
from models.mixture.model import MixtureModel, restore_mixture
from models.mixture.plan import MIXTURE_BINS, WEIGHER, MixtureParameters, plan_mixture
from models.mixture.soft_constraints import RatePosterior, fit_rates, posterior_rate
from models.protocol import Arrays, Budget, Plan, Progress, Synthesizer, Task, silent
from models.soft_constraints.reweighting import POOL_ROWS, fit_weights

MixturePlan = Plan[MixtureParameters]


class MixtureSynthesizer(Synthesizer[MixtureParameters, MixtureModel]):
    """Marginals chosen round by round, a mixture of products, rows drawn inside the supports."""

    name = "mixture"
    summary = (
        "mixture of products fitted to marginals chosen round by round, inside the supports of "
        "hard constraints"
    )

    def __init__(self, progress: Progress = silent) -> None:
        self._progress = progress

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence (Kamino, Algorithm 4); public."""
        return schema_sequence(public_sizes(task.domain, MIXTURE_BINS), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> MixturePlan:
        """All parameters from the budget and public sizes."""
        return plan_mixture(task, sequence, budget)

    def train(self, private: Door[TableRows], task: Task, plan: MixturePlan) -> MixtureModel:
        """Histograms, joint tables of hard constraints, the rounds.

        Then the supports and the last fit inside them.
        """
        return fit_mixture(private, task, plan, self._progress)

    def weigh(
        self, private: Door[TableRows], task: Task, plan: MixturePlan, model: MixtureModel
    ) -> MixtureModel:
        """The mixture, fitted to noisy rates of the soft constraints.

        Rows are reweighted where that fails.
        """
        if not task.soft:
            return model
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

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> MixtureModel:
        """A model from its saved state."""
        return restore_mixture(task, meta, arrays)


def _own_rates(task: Task, pool: Table) -> list[float]:
    """The share of pairs of pooled rows that violate each soft constraint; never quite 0."""
    return [
        max(float(violation_share(constraint, pool)), 1 / task.data_rows**2)
        for constraint in task.soft
    ]
