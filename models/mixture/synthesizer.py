"""Cloister's own method on the door: histograms, adaptive rounds, a mixture in feasible sets.

Source: adaptive rounds after McKenna et al., "AIM" (arXiv 2201.12677); the mixture of products
after Liu, Vietri, Wu, "Iterative methods for private synthetic data" (arXiv 2106.07153), section 4,
with exact marginals and a penalty on dependence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloister.errors import InputError
from cloister.models.mixture.plan import (
    MIXTURE_BINS,
    MIXTURE_SAMPLINGS,
    MixtureParameters,
    plan_mixture,
)
from cloister.models.planning import public_sizes, schema_sequence
from cloister.models.protocol import AnyModel, Arrays, Progress, Synthesizer, silent
from cloister.models.task import Budget, Plan, Task
from cloister.privacy.queries.query import Door, TableRows

if TYPE_CHECKING:
    from cloister.models.core.released_counts import ReleasedCounts
    from cloister.models.mixture.model import MixtureModel

MixturePlan = Plan[MixtureParameters]


class MixtureSynthesizer(Synthesizer[MixtureParameters, "MixtureModel"]):
    """Marginals chosen round by round, a mixture of products, rows inside feasible sets."""

    supports_conditionals = True
    reuses_numbers = True
    keeps_counts = True
    weighs_soft = True
    most_joint = 3
    samplings = MIXTURE_SAMPLINGS
    name = "mixture"
    summary = (
        "mixture of products fitted to marginals chosen round by round, inside the feasible sets "
        "of hard constraints; delta may be 0"
    )

    def __init__(self, progress: Progress = silent, prior: ReleasedCounts | None = None) -> None:
        self._progress = progress
        self._prior = prior

    def following(self, earlier: AnyModel) -> MixtureSynthesizer:
        """The method with the noisy numbers of an earlier model; see `ReusesNumbers`."""
        from cloister.models.mixture.model import MixtureModel

        if not isinstance(earlier, MixtureModel) or earlier.released_counts is None:
            raise InputError("its model was saved without its noisy numbers")
        return MixtureSynthesizer(self._progress, earlier.released_counts)

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence (Kamino, Algorithm 4); public."""
        return schema_sequence(public_sizes(task.domain, MIXTURE_BINS), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> MixturePlan:
        """All parameters from the budget and public sizes."""
        return plan_mixture(task, sequence, budget)

    def train(self, private: Door[TableRows], task: Task, plan: MixturePlan) -> MixtureModel:
        """Histograms, joint tables of hard constraints, the rounds.

        Then the feasible sets and the last fit inside them.
        """
        from cloister.models.mixture.fit import fit_mixture

        return fit_mixture(private, task, plan, self._progress, self._prior)

    def weigh(
        self,
        private: Door[TableRows],
        task: Task,
        plan: MixturePlan,
        model: MixtureModel,
    ) -> MixtureModel:
        """The mixture, fitted to noisy rates of the soft constraints.

        Rows are reweighted where that fails.
        """
        if not task.soft or plan.parameters.pure:
            return model
        from cloister.models.mixture.soft_constraints import weigh_mixture

        return weigh_mixture(private, task, plan, model)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> MixtureModel:
        """A model from its saved state."""
        from cloister.models.mixture.model import restore_mixture

        return restore_mixture(task, meta, arrays)


def synthesizer_of(_name: str, progress: Progress) -> MixtureSynthesizer:
    """The method."""
    return MixtureSynthesizer(progress)
