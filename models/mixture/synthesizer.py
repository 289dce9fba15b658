"""Cloister's own method on the door: histograms, adaptive rounds, a mixture inside the supports.

Source: adaptive rounds after McKenna et al., "AIM" (arXiv 2201.12677); the mixture of products
after Liu, Vietri, Wu, "Iterative methods for private synthetic data" (arXiv 2106.07153), section 4,
with exact marginals and a penalty on dependence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from models.discretization.attribute_order import public_sizes, schema_sequence
from models.mixture.plan import (
    MIXTURE_BINS,
    MIXTURE_SAMPLINGS,
    MixtureParameters,
    plan_mixture,
)
from models.protocol import Arrays, Plan, Progress, Synthesizer, silent
from models.task import Budget, Task

if TYPE_CHECKING:
    from models.mixture.model import MixtureModel

MixturePlan = Plan[MixtureParameters]


class MixtureSynthesizer(Synthesizer[MixtureParameters, "MixtureModel"]):
    """Marginals chosen round by round, a mixture of products, rows drawn inside the supports."""

    gives_conditionals = True
    weighs_soft = True
    samplings = MIXTURE_SAMPLINGS
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
        from models.mixture.fit import fit_mixture

        return fit_mixture(private, task, plan, self._progress)

    def weigh(
        self, private: Door[TableRows], task: Task, plan: MixturePlan, model: MixtureModel
    ) -> MixtureModel:
        """The mixture, fitted to noisy rates of the soft constraints.

        Rows are reweighted where that fails.
        """
        if not task.soft:
            return model
        from models.mixture.weighing import weigh_mixture

        return weigh_mixture(private, task, plan, model)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> MixtureModel:
        """A model from its saved state."""
        from models.mixture.model import restore_mixture

        return restore_mixture(task, meta, arrays)


def variant(_name: str, progress: Progress) -> MixtureSynthesizer:
    """The method."""
    return MixtureSynthesizer(progress)
