"""Several tables that refer to each other, by any method of one table, on the door.

Source: "Differentially private synthetic data generation for relational databases" (arXiv
    2405.18670).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloister.errors import InputError
from cloister.models import protocol
from cloister.models.relational.families import families_of
from cloister.models.relational.family_plan import (
    FamilyParameters,
    RelationalOptions,
    plan_families,
)
from cloister.models.task import Budget, DatabaseTask, Plan, Task, options_of

if TYPE_CHECKING:
    from cloister.models.relational.family_model import FamilyModel

PREFIX = "relational"
"""Name of the method; variants append the method of rows after a hyphen."""

_WITH_DELTA = "mixture"
"""Default method of rows where delta is above 0; else the one that is chosen for a table."""


class RelationalSynthesizer(protocol.DatabaseSynthesizer[FamilyParameters, "FamilyModel"]):
    """A method for tables of units: each row with rows that refer to it.

    ``rows`` is the method of rows; None if the budget is to decide.
    """

    options = RelationalOptions

    def __init__(
        self, rows: str | None = None, progress: protocol.Progress = protocol.silent
    ) -> None:
        self._rows, self._progress = rows, progress
        self.name = f"{PREFIX}-{rows}" if rows else PREFIX
        of = rows or f"{_WITH_DELTA} (delta 0: also independent)"
        self.weighs_soft = self._base(rows or _WITH_DELTA).weighs_soft
        self.summary = f"several tables: each row with rows that refer to it, by {of}"

    def search(
        self,
        task: DatabaseTask,
        sequence: tuple[str, ...],  # noqa: ARG002 - that of the schema
        budget: Budget,
    ) -> Plan[FamilyParameters]:
        """The plan of all families."""
        families = families_of(task)
        named = self._rows or options_of(task, RelationalOptions).table_method
        base = self._base(named or _usual(families[task.schema.lead].units, budget))
        return plan_families(self.name, base, task, families, budget)

    def train(
        self, private: protocol.DatabaseDoor, task: DatabaseTask, plan: Plan[FamilyParameters]
    ) -> FamilyModel:
        """The rows of each family."""
        from cloister.models.relational.family_model import train_families

        return train_families(self._base(plan.parameters.base), private, task, plan)

    def weigh(
        self,
        private: protocol.DatabaseDoor,
        task: DatabaseTask,  # noqa: ARG002 - the model has those of its tables
        plan: Plan[FamilyParameters],
        model: FamilyModel,
    ) -> FamilyModel:
        """The model with the soft constraints of each table weighed."""
        from cloister.models.relational.family_model import weigh_families

        return weigh_families(self._base(plan.parameters.base), private, plan, model)

    def restore(
        self, task: DatabaseTask, meta: Mapping[str, Any], arrays: protocol.Arrays
    ) -> FamilyModel:
        """A model from its saved state.

        InputError if an earlier version fitted it, which measured relationships of tables.
        """
        from cloister.models.relational.family_model import restore_families

        if "families" not in meta:
            raise InputError(
                "the model has rows of each table and what relates them apart, as an earlier "
                "version did; draw rows with that version, or release the data anew (nothing was "
                "charged)"
            )
        return restore_families(self._base, task, meta, arrays)

    def _base(self, name: str) -> protocol.AnySynthesizer:
        from cloister.models.registry import create

        return create(name, self._progress, alone=False)


def _usual(task: Task, budget: Budget) -> str:
    """The usual method for one table."""
    from cloister.models.registry import choose_method

    return _WITH_DELTA if budget.delta else choose_method(task, budget).method


def synthesizer_of(name: str, progress: protocol.Progress) -> RelationalSynthesizer:
    """The method of a name."""
    return RelationalSynthesizer(name.removeprefix(PREFIX).removeprefix("-") or None, progress)
