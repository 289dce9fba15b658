"""Any method of one table, for tables whose rows belong to persons.

The method is fitted twice: to a table of one row a person, with that person's attributes and number
of rows, and to the rows. Synthetic persons are drawn from the first model, and the rows of each
from the second, under the attributes of their person. A task without persons is left to the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from inspect import get_annotations
from typing import Any

from cloister.errors import InputError, PlanError
from cloister.models.planning import choose_sampling, seconds_in_turn
from cloister.models.protocol import AnyModel, AnySynthesizer, Arrays, Facts, ReusesNumbers
from cloister.models.task import AnyPlan, Budget, Task
from cloister.models.transforms.person_tables import PERSONS, split_task
from cloister.models.transforms.persons import plan_persons
from cloister.privacy.certificate.certificate import OwnGuarantees
from cloister.privacy.events import Event, Relation


class OfPersons(AnySynthesizer):
    """A method of one table that also takes tasks of persons."""

    def __init__(self, base: AnySynthesizer) -> None:
        self._base, self.name, self.summary = base, base.name, base.summary
        for fact in get_annotations(Facts):
            setattr(self, fact, getattr(base, fact))

    def following(self, earlier: AnyModel) -> AnySynthesizer:
        """The method with the noisy numbers of an earlier model; InputError if it uses none."""
        if not isinstance(self._base, ReusesNumbers):
            raise InputError(f"method '{self.name}' makes no use of an earlier release")
        return OfPersons(self._base.following(earlier))

    def own_guarantees(
        self, event: Event, delta: Fraction, relation: Relation | str
    ) -> OwnGuarantees:
        """Those of the method."""
        return self._base.own_guarantees(event, delta, relation)

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The method's sequence; of persons, their attributes first."""
        if task.persons is None:
            return self._base.sequence(task)
        tasks = split_task(task)
        found = self._base.sequence(tasks.rows)
        return tuple(sorted(found, key=lambda name: name not in tasks.given))

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> AnyPlan:
        """The method's plan, or its plans for persons and rows under one budget."""
        choice = choose_sampling(task, self.samplings)
        if task.persons is None:
            found = self._base.search(task, sequence, budget)
            seconds = found.forecast.seconds + seconds_in_turn(task, choice)
            return replace(found, forecast=replace(found.forecast, seconds=round(seconds, 1)))
        if choice.sequential:
            raise PlanError(
                f"rows are drawn one after the other ({choice.reason}), and here persons have "
                "several that are drawn together; use sampling: supports without known weights, "
                "or declare max_rows: 1"
            )
        if not self.gives_conditionals:
            raise PlanError(
                f"method {self.name} draws whole rows, and persons have several that share "
                "attributes; name another method, or declare max_rows: 1"
            )
        return plan_persons(self._base, task, sequence, budget)

    def train(self, private: Any, task: Task, plan: AnyPlan) -> Any:
        """The method's model, or that of persons and that of their rows.

        Of persons, ``private`` is the door to both tables.
        """
        if task.persons is None:
            return self._base.train(private, task, plan)
        from cloister.models.transforms.person_model import train_persons

        return train_persons(self._base, private, split_task(task), plan)

    def weigh(self, private: Any, task: Task, plan: AnyPlan, model: Any) -> Any:
        """The model with its soft constraints weighed: of persons, of rows."""
        if task.persons is None:
            return self._base.weigh(private, task, plan, model)
        from cloister.models.transforms.person_model import weigh_persons

        return weigh_persons(self._base, private, plan, model)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> Any:
        """A model from its saved state; one of an earlier version has no persons."""
        if task.persons is None or PERSONS not in meta:
            return self._base.restore(replace(task, persons=None), meta, arrays)
        from cloister.models.transforms.person_model import restore_persons

        return restore_persons(self._base, split_task(task), meta, arrays)
