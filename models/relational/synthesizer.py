"""Several tables that refer to each other, by any method of one table, on the door.

Source: "Differentially private synthetic data generation for relational databases" (arXiv
    2405.18670).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloister.models import protocol
from cloister.models.relational.families import families_of
from cloister.models.relational.family_plan import FamilyParameters, plan_families, suits_families
from cloister.models.relational.link_plan import RelationalOptions
from cloister.models.relational.plan import RelationalParameters, plan_relational
from cloister.models.relational.rows import tasks_of_rows
from cloister.models.task import Budget, DatabaseTask, Plan, Task, options_of

if TYPE_CHECKING:
    from cloister.models.relational.family_model import FamilyModel
    from cloister.models.relational.model import RelationalModel

    AnyModel = RelationalModel | FamilyModel

AnyParameters = RelationalParameters | FamilyParameters

PREFIX = "relational"
"""Name of the method; variants append the method of rows after a hyphen."""

_WITH_DELTA, _WITHOUT = "mixture", "independent"
"""Default methods of rows: at delta 0 a table's part of epsilon is too small for joint tables."""


class RelationalSynthesizer(protocol.DatabaseSynthesizer[AnyParameters, "AnyModel"]):
    """A method for the rows of each table, and measured relationships between them.

    ``rows`` is the method of rows; None if the budget is to decide.
    """

    options = RelationalOptions

    def __init__(
        self, rows: str | None = None, progress: protocol.Progress = protocol.silent
    ) -> None:
        self._rows, self._progress = rows, progress
        self.name = f"{PREFIX}-{rows}" if rows else PREFIX
        of = rows or f"{_WITH_DELTA} (delta 0: {_WITHOUT})"
        self.weighs_soft = self._base(rows or _WITH_DELTA).weighs_soft
        self.summary = f"several tables: rows by {of}, then measured relationships"

    def search(
        self,
        task: DatabaseTask,
        sequence: tuple[str, ...],  # noqa: ARG002 - that of the schema
        budget: Budget,
    ) -> Plan[Any]:
        """The plans of all rows and the noise of all relationships."""
        options, families = options_of(task, RelationalOptions), families_of(task)
        named = self._rows or options.table_method
        if families:
            base = self._base(named or _usual(families[task.schema.lead].units, budget))
            if suits_families(base, families, options):
                return plan_families(self.name, base, task, families, budget)
        default = _WITH_DELTA if budget.delta else _WITHOUT
        return plan_relational(self.name, self._base(named or default), task, budget)

    def train(
        self, private: protocol.DatabaseDoor, task: DatabaseTask, plan: Plan[Any]
    ) -> AnyModel:
        """The rows of each table, then each relationship."""
        from cloister.models.relational.family_model import train_families
        from cloister.models.relational.model import train_relational

        if isinstance(plan.parameters, FamilyParameters):
            return train_families(self._base(plan.parameters.base), private, task, plan)
        return train_relational(self._base(plan.parameters.base), private, task, plan)

    def weigh(
        self,
        private: protocol.DatabaseDoor,
        task: DatabaseTask,  # noqa: ARG002 - the model has those of its tables
        plan: Plan[Any],
        model: AnyModel,
    ) -> AnyModel:
        """The model with the soft constraints of each table weighed."""
        from cloister.models.relational.family_model import FamilyModel, weigh_families
        from cloister.models.relational.model import weigh_relational

        if isinstance(model, FamilyModel):
            return weigh_families(self._base(plan.parameters.base), private, plan, model)
        return weigh_relational(self._base(plan.parameters.base), private, plan, model)

    def restore(
        self, task: DatabaseTask, meta: Mapping[str, Any], arrays: protocol.Arrays
    ) -> AnyModel:
        """A model from its saved state."""
        from cloister.models.relational.family_model import restore_families
        from cloister.models.relational.model import restore_relational

        if "families" in meta:
            return restore_families(self._base, task, meta, arrays)
        return restore_relational(self._base, task, tasks_of_rows(task), meta, arrays)

    def _base(self, name: str) -> protocol.AnySynthesizer:
        from cloister.models.registry import create

        return create(name, self._progress)


def _usual(task: Task, budget: Budget) -> str:
    """The usual method for one table."""
    from cloister.models.registry import choose_method

    return _WITH_DELTA if budget.delta else choose_method(task, budget).method


def synthesizer_of(name: str, progress: protocol.Progress) -> RelationalSynthesizer:
    """The method of a name."""
    return RelationalSynthesizer(name.removeprefix(PREFIX).removeprefix("-") or None, progress)
