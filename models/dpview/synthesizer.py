"""DPView, DPView+ and attributes alone, on the door.

Source: Lin, Yu, Huang, "DPView: Differentially Private Data Synthesis Through Domain Size
    Information".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloister.models.dpview.paper.plan import PAPER_RECIPES
from cloister.models.dpview.plan import DPViewRecipe, plan_dpview
from cloister.models.dpview.view_choice import (
    DPViewOptions,
    Shaping,
    ViewParameters,
    attributes_alone,
)
from cloister.models.dpview.views import ViewList, with_upper
from cloister.models.planning import public_sizes, schema_sequence
from cloister.models.protocol import Arrays, Progress, Synthesizer, silent
from cloister.models.task import Budget, Plan, Task
from cloister.privacy.queries.query import Door, TableRows

if TYPE_CHECKING:
    from cloister.models.dpview.model import DPViewModel


def _as_found(views: ViewList) -> ViewList:
    return views


DPVIEW = DPViewRecipe(
    "dpview",
    "views chosen from public sizes, made consistent and linked; delta may be 0",
    Shaping(_as_found),
)
DPVIEW_PLUS = DPViewRecipe(
    "dpview+",
    "dpview with upper cross views as referees of the linking; delta may be 0",
    Shaping(with_upper),
)
INDEPENDENT = DPViewRecipe(
    "independent",
    "every attribute alone, from its noisy histogram, without relations; delta may be 0",
    attributes_alone,
)

RECIPES = {recipe.name: recipe for recipe in (DPVIEW, DPVIEW_PLUS, INDEPENDENT, *PAPER_RECIPES)}
"""The methods of this family, by name."""


class DPView(Synthesizer[ViewParameters, "DPViewModel"]):
    """Noisy views chosen from public sizes, made consistent, and linked to records."""

    supports_conditionals = True

    def __init__(self, progress: Progress = silent, recipe: DPViewRecipe = DPVIEW) -> None:
        self.name, self.summary = recipe.name, recipe.summary
        self.options = None if recipe is INDEPENDENT else DPViewOptions
        self.as_printed = recipe in PAPER_RECIPES
        self.keeps_counts = not self.as_printed
        self.most_joint = 1 if recipe is INDEPENDENT else None
        self._progress, self._recipe = progress, recipe

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence.

        The plan puts the attributes of the views first, in the order of linking.
        """
        return schema_sequence(public_sizes(task.domain), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan[ViewParameters]:
        """The views, and the noise of each."""
        return plan_dpview(self._recipe, task, sequence, budget)

    def train(
        self, private: Door[TableRows], task: Task, plan: Plan[ViewParameters]
    ) -> DPViewModel:
        """All counts, then views that agree, then the feasible sets of the hard constraints."""
        if self.as_printed:
            from cloister.models.dpview.paper.fit import fit_printed

            return fit_printed(private, task, plan, self._progress)
        from cloister.models.dpview.model import fit_dpview

        return fit_dpview(private, task, plan, self._progress)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> DPViewModel:
        """A model from its saved state."""
        from cloister.models.dpview.model import restore_dpview

        return restore_dpview(task, meta, arrays)


def synthesizer_of(name: str, progress: Progress) -> DPView:
    """The method of a name."""
    return DPView(progress, RECIPES[name])
