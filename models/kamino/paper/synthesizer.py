"""Kamino as its paper prints it, on the door: Algorithms 1 to 6."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloister.models.kamino.paper.search import quantized_sizes, search_as_printed
from cloister.models.kamino.plan import KaminoParameters
from cloister.models.kamino.recipe import EMBEDDING_WIDTH
from cloister.models.kamino.synthesizer import RECIPES, Kamino, KaminoPlan
from cloister.models.protocol import Arrays, Progress
from cloister.models.task import Budget, Plan, Task
from cloister.privacy.queries.query import Door, TableRows

if TYPE_CHECKING:
    from cloister.models.kamino.model import KaminoModel


class PrintedKamino(Kamino):
    """The method of the paper, except that feasible sets enforce hard constraints."""

    as_printed = True
    keeps_counts = False

    def sequence(self, task: Task) -> tuple[str, ...]:
        """Algorithm 4, on the number of values or equal parts of each attribute; public."""
        return self._recipe.sequencer(quantized_sizes(task), task.constraints)

    def search(
        self, task: Task, sequence: tuple[str, ...], budget: Budget
    ) -> Plan[KaminoParameters]:
        """Algorithm 6."""
        return search_as_printed(task, sequence, budget, self._recipe)

    def train(self, private: Door[TableRows], task: Task, plan: KaminoPlan) -> KaminoModel:
        """Algorithm 2."""
        from cloister.models.kamino.paper.model import PrintedFit

        return PrintedFit(private, task, plan, EMBEDDING_WIDTH).train(self._progress)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> KaminoModel:
        """A model from its saved state."""
        from cloister.models.kamino.paper.model import restore_printed

        return restore_printed(task, meta, arrays, self._recipe.trainer)


def synthesizer_of(name: str, progress: Progress) -> PrintedKamino:
    """The method of the paper's name."""
    return PrintedKamino(progress, RECIPES[name])
