"""A method of one table as a method of databases: a table is a database of one.

The steps of a release know databases alone. Planned here is what only one table may have: tries
under acceptance criteria, and persons with several rows, behind doors of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cloister.errors import PlanError
from cloister.models import protocol
from cloister.models.acceptance import plan_tries
from cloister.models.core.bins import Histogram
from cloister.models.protocol import AnySynthesizer, DatabaseDoor, DatabaseSynthesizer
from cloister.models.sampling.drawing import Sampler
from cloister.models.task import AnyPlan, Budget, DatabaseTask, Parameters, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.relations import Database, Schema


@dataclass(frozen=True)
class OneTableModel(protocol.DatabaseModel):
    """The ``model`` of the only table of a schema."""

    schema: Schema
    model: protocol.Model

    @property
    def capacity(self) -> int | None:
        """How many rows it may ever give; None if any number."""
        return self.model.capacity

    @property
    def histograms(self) -> Mapping[str, Mapping[str, Histogram]]:
        """The released histograms of the table."""
        return {self.schema.lead: self.model.histograms}

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        """The sampler of the table."""
        return {self.schema.lead: self.model.sampler}

    def counted_rows(self, table: str, task: Task) -> protocol.CountedRows:  # noqa: ARG002
        """What was counted of the rows of the only table."""
        return protocol.counted_rows(self.model, task)

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        return self.model.post_processing()

    def sample(self, rows: int, rng: SamplingSource) -> Database:
        """Exactly ``rows`` rows that satisfy every hard constraint.

        SampleError if they cannot be drawn.
        """
        return Database(self.schema, {self.schema.lead: self.model.sample(rows, rng)})

    def state(self) -> protocol.ModelState:
        """That of the model of the table."""
        return self.model.state()


class OneTable(DatabaseSynthesizer[Parameters, OneTableModel]):
    """A ``method`` of one table, given databases of one."""

    def __init__(self, method: AnySynthesizer) -> None:
        self.method, self.name, self.summary = method, method.name, method.summary

    def sequence(self, task: DatabaseTask) -> tuple[str, ...]:
        """The order in which attributes are modelled; public."""
        return self.method.sequence(task.lead)

    def search(self, task: DatabaseTask, sequence: tuple[str, ...], budget: Budget) -> AnyPlan:
        """The plan of the method, or that of tries under acceptance criteria.

        Raises:
            PlanError: it has none, or the table has nothing but keys.
        """
        return plan_table(self.method, task.lead, sequence, budget)

    def train(self, private: DatabaseDoor, task: DatabaseTask, plan: AnyPlan) -> OneTableModel:
        """The model of rows."""
        trained = self.method.train(door_of(private, task), task.lead, plan)
        return OneTableModel(task.schema, trained)

    def weigh(
        self, private: DatabaseDoor, task: DatabaseTask, plan: AnyPlan, model: OneTableModel
    ) -> OneTableModel:
        """The model with its soft constraints weighed."""
        weighed = self.method.weigh(door_of(private, task), task.lead, plan, model.model)
        return OneTableModel(task.schema, weighed)

    def restore(
        self, task: DatabaseTask, meta: Mapping[str, Any], arrays: protocol.Arrays
    ) -> OneTableModel:
        """A model from its saved state."""
        return OneTableModel(task.schema, self.method.restore(task.lead, meta, arrays))


def plan_table(
    method: AnySynthesizer, task: Task, sequence: tuple[str, ...], budget: Budget
) -> AnyPlan:
    """The plan of a method of one table that models attributes in a sequence.

    Raises:
        PlanError: it has none, or the table has nothing but keys.
    """
    if not task.domain.modelled:
        raise PlanError(
            "all columns are keys, which are numbered afresh, so there is nothing to model; "
            "declare a column that is no key"
        )
    if task.acceptance is not None:
        return plan_tries(partial(method.search, task, sequence), task, budget)
    return method.search(task, sequence, budget)


def door_of(private: DatabaseDoor, task: DatabaseTask) -> Any:
    """The door to the table; of persons with several rows, the doors to both of their tables."""
    return private if task.lead.persons else private.table(task.schema.lead)
