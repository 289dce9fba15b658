"""Kamino on the door: sequence, search, train, weigh, sample.

Source: Kamino Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloister.models.kamino.paper.recipes import PAPER_RECIPES
from cloister.models.kamino.plan import KaminoParameters, plan_kamino
from cloister.models.kamino.recipe import KAMINO, KaminoRecipe
from cloister.models.planning import public_sizes
from cloister.models.protocol import Arrays, Progress, Synthesizer, silent
from cloister.models.task import Budget, Plan, Task
from cloister.privacy.queries.query import Door, TableRows

if TYPE_CHECKING:
    from cloister.models.kamino.model import KaminoModel

KaminoPlan = Plan[KaminoParameters]

RECIPES = {recipe.name: recipe for recipe in (KAMINO, *PAPER_RECIPES)}
"""The variants, by name."""


class Kamino(Synthesizer[KaminoParameters, "KaminoModel"]):
    """Constraint-aware synthesis by a chain of conditionals and feasible sets.

    Its parts are those of a recipe.
    """

    supports_conditionals = True
    keeps_counts = True

    def __init__(self, progress: Progress = silent, recipe: KaminoRecipe = KAMINO) -> None:
        self._progress = progress
        self._recipe = recipe
        self.name, self.summary = recipe.name, recipe.summary
        weigher = recipe.weigher
        self.weighs_soft, self.samplings = weigher.weighs_soft, weigher.samplings

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence (Algorithm 4), or another one of the recipe; public."""
        return self._recipe.sequencer(public_sizes(task.domain), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> KaminoPlan:
        """All parameters from the budget and public sizes (Algorithm 6)."""
        return plan_kamino(task, sequence, budget, self._recipe)

    def train(self, private: Door[TableRows], task: Task, plan: KaminoPlan) -> KaminoModel:
        """Histograms, joint tables and the conditionals (Algorithm 2), then the feasible sets."""
        from cloister.models.kamino.fit import KaminoFit

        return KaminoFit(private, task, plan, self._recipe).train(self._progress)

    def weigh(
        self, private: Door[TableRows], task: Task, plan: KaminoPlan, model: KaminoModel
    ) -> KaminoModel:
        """Weights of soft constraints: from noisy counts of violating pairs, or Algorithm 5."""
        from cloister.models.kamino.fit import KaminoFit

        return KaminoFit(private, task, plan, self._recipe).weigh(model)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> KaminoModel:
        """A model from its saved state."""
        from cloister.models.kamino.model import restore_kamino

        return restore_kamino(task, meta, arrays, self._recipe.trainer)


def synthesizer_of(name: str, progress: Progress) -> Kamino:
    """The method of a name."""
    return Kamino(progress, RECIPES[name])
