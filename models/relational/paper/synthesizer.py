"""Two related tables by the algorithm as printed, on the door: for small tables.

Source: "Differentially private synthetic data generation for relational databases" (arXiv
    2405.18670).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloister.models import protocol
from cloister.models.relational.paper.plan import (
    PrintedOptions,
    RelationalPaperParameters,
    plan_relational_paper,
)
from cloister.models.task import Budget, DatabaseTask, Plan, options_of

if TYPE_CHECKING:
    from cloister.models.relational.paper.model import PaperModel

_ROWS = "mixture"
"""Method of rows where none is named; the paper takes AIM and MST, which it resembles."""


class PaperSynthesizer(protocol.DatabaseSynthesizer[RelationalPaperParameters, "PaperModel"]):
    """A method for the rows of two tables, and the matrix of all pairs of rows between them."""

    options = PrintedOptions

    def __init__(self, name: str, progress: protocol.Progress) -> None:
        self.name, self._progress = name, progress
        self.summary = (
            "two related tables, as the paper prints it: a variable for each pair of rows"
        )

    def search(
        self,
        task: DatabaseTask,
        sequence: tuple[str, ...],  # noqa: ARG002 - that of the schema
        budget: Budget,
    ) -> Plan[RelationalPaperParameters]:
        """The plans of rows and the noise of all rounds."""
        base = self._base(options_of(task, PrintedOptions).table_method or _ROWS)
        return plan_relational_paper(self.name, base, task, budget)

    def train(
        self,
        private: protocol.DatabaseDoor,
        task: DatabaseTask,
        plan: Plan[RelationalPaperParameters],
    ) -> PaperModel:
        """The rows of each table, then the rounds."""
        from cloister.models.relational.paper.model import train_paper

        return train_paper(self._base(plan.parameters.base), private, task, plan)

    def restore(
        self, task: DatabaseTask, meta: Mapping[str, Any], arrays: protocol.Arrays
    ) -> PaperModel:
        """A model from its saved state."""
        from cloister.models.relational.paper.model import restore_paper

        return restore_paper(self._base, task, meta, arrays)

    def _base(self, name: str) -> protocol.AnySynthesizer:
        from cloister.models.registry import create

        return create(name, self._progress, alone=False)


def synthesizer_of(name: str, progress: protocol.Progress) -> PaperSynthesizer:
    """The method of a name."""
    return PaperSynthesizer(name, progress)
