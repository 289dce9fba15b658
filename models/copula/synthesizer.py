"""The Gaussian copula on the door: its own accounting and the paper's, and the paper's baselines.

Source: Asghar, Ding, Rakotoarivelo, Mrabet, Kaafar, "Differentially Private Release of
    High-Dimensional Datasets using the Gaussian Copula" (arXiv 1902.01499).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloister.models.copula.plan import CopulaParameters, plan_alone, plan_copula, plan_copula_paper
from cloister.models.planning import public_sizes, schema_sequence
from cloister.models.protocol import Arrays, Progress, Synthesizer, silent
from cloister.models.task import Budget, Plan, Task
from cloister.privacy.queries.query import Door, TableRows

if TYPE_CHECKING:
    from cloister.models.copula.model import CopulaModel

CopulaPlan = Plan[CopulaParameters]
Planner = Callable[[str, Task, tuple[str, ...], Budget], CopulaPlan]


@dataclass(frozen=True)
class CopulaRecipe:
    """A method of this family: its name, and how it plans."""

    name: str
    summary: str
    planner: Planner


COPULA = CopulaRecipe(
    "copula",
    "Gaussian copula of dummy-coded attributes, for hundreds of them; delta may be 0",
    plan_copula,
)

RECIPES = {
    recipe.name: recipe
    for recipe in (
        COPULA,
        CopulaRecipe(
            "copula-paper",
            "the Gaussian copula as its paper prints it: Laplace noise, advanced composition",
            plan_copula_paper,
        ),
        CopulaRecipe(
            "copula-identity",
            "the copula with uncorrelated scores, a baseline of its paper",
            plan_alone,
        ),
        CopulaRecipe(
            "copula-ones",
            "the copula with perfectly correlated attributes, a baseline of its paper",
            plan_alone,
        ),
    )
}
"""The methods of this family, by name."""


class CopulaSynthesizer(Synthesizer[CopulaParameters, "CopulaModel"]):
    """Noisy conjunctions of all pairs of values, and a Gaussian copula that has them."""

    supports_conditionals = True
    binary_columns = True
    most_joint = 2

    def __init__(self, progress: Progress = silent, recipe: CopulaRecipe = COPULA) -> None:
        self.name, self.summary = recipe.name, recipe.summary
        self.as_printed = recipe is not COPULA
        self.keeps_counts = recipe.name != "copula-paper"
        self._progress, self._recipe = progress, recipe

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence; it matters only to conditions on rows and to constraints."""
        return schema_sequence(public_sizes(task.domain), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> CopulaPlan:
        """The noise of all counts."""
        return self._recipe.planner(self.name, task, sequence, budget)

    def train(self, private: Door[TableRows], task: Task, plan: CopulaPlan) -> CopulaModel:
        """All counts, then the copula, then the feasible sets of the hard constraints."""
        from cloister.models.copula import fit

        fits = {
            "copula": fit.fit_copula,
            "copula-paper": fit.fit_paper,
            "copula-identity": fit.fit_identity,
            "copula-ones": fit.fit_ones,
        }
        return fits[self.name](private, task, plan, self._progress)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> CopulaModel:
        """A model from its saved state."""
        from cloister.models.copula.model import CopulaModel, PrintedCopula, restore_copula

        kind = PrintedCopula if self.name == "copula-paper" else CopulaModel
        return restore_copula(task, meta, arrays, kind)


def synthesizer_of(name: str, progress: Progress) -> CopulaSynthesizer:
    """The method of a name."""
    return CopulaSynthesizer(progress, RECIPES[name])
