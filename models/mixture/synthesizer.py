"""Cloister's own engine on the door: histograms, adaptive rounds, a mixture of products inside the supports.

Source: adaptive rounds after McKenna et al., "AIM" (arXiv 2201.12677); the mixture after Liu, Vietri, Wu, "Iterative
methods for private synthetic data" (arXiv 2106.07153), section 4, with exact marginals and a price on dependence.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from cloister.constraints import violation_share
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.private import PrivateTable
from cloister.privacy.randomness import SamplingSource
from models.kamino.sequencing import public_sizes, schema_sequence
from models.kamino.synthesizer import Progress, silent
from models.mixture.model import CloisterModel, restore
from models.mixture.search import WEIGHER, search
from models.mixture.training import PUBLIC_SEED, Training
from models.protocol import Arrays, Budget, Plan, Task
from models.weights import fit_weights

POOL = 40_000
NEAR, SURE = 0.1, 2.0


class Cloister:
    """Marginals chosen round by round, a mixture of products, rows drawn inside the supports."""

    name = "cloister"
    summary = "mixture of products fitted to marginals chosen round by round, inside the supports of hard constraints"

    def __init__(self, progress: Progress = silent) -> None:
        self._progress = progress

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence (Kamino, Algorithm 4); public."""
        return schema_sequence(public_sizes(task.domain), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan:
        """All parameters from the budget and public sizes."""
        return search(task, sequence, budget)

    def train(self, private: PrivateTable, task: Task, plan: Plan) -> CloisterModel:
        """Histograms, joint tables of hard constraints, the rounds; then the supports and the last fit inside them."""
        return Training(private, task, plan, self._progress).run()

    def weigh(self, private: PrivateTable, task: Task, plan: Plan, model: Any) -> CloisterModel:
        """Weights of the soft constraints, from noisy counts of violating pairs, unless the mixture holds them."""
        trained: CloisterModel = model
        if not task.soft:
            return trained
        noise = Fraction(plan.parameters["noise"]["soft constraints"])
        counts = private.violating_pairs(task.soft, DiscreteGaussian(noise), "soft constraints", WEIGHER.matchings)
        pool = trained.sample(POOL, SamplingSource(PUBLIC_SEED))
        own = [float(violation_share(constraint, pool)) for constraint in task.soft]
        if all(map(_holds, own, WEIGHER.shares(counts, float(noise), task))):
            return trained
        targets = WEIGHER.targets(counts, float(noise), task, pool)
        return trained.weighed(fit_weights(task.soft, targets, pool, np.random.default_rng(PUBLIC_SEED)))

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> CloisterModel:
        """A model from its saved state."""
        return restore(task, meta, arrays)


def _holds(own: float, measured: tuple[float, float]) -> bool:
    """Whether a share of violating pairs is as measured, or so near that noise explains the rest."""
    share, error = measured
    return abs(own - share) <= max(NEAR * share, SURE * error)
