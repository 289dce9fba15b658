"""What wraps a method: a task as other tasks, of whose models its own is made.

A transformation is public but for what it asked the data through the door itself. One synthesizer
applies all of them to any method of one table, so that a method knows none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from cloister.errors import InputError
from cloister.models.planning import choose_sampling, seconds_in_turn
from cloister.models.protocol import (
    AnyModel,
    AnySynthesizer,
    Arrays,
    Facts,
    ReusesNumbers,
    part_of_arrays,
)
from cloister.models.task import AnyPlan, Budget, Task
from cloister.privacy.certificate.certificate import OwnGuarantees
from cloister.privacy.events import Event, Relation
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.domain import Table

if TYPE_CHECKING:
    from cloister.models.sampling.drawing import Sampler, Where

Doors = Mapping[str, Door[TableRows]]
Models = Mapping[str, Any]
Meta = Mapping[str, Any]


class Transformation(ABC):
    """A task as one or several others, its ``parts``, which have names."""

    @classmethod
    @abstractmethod
    def of(cls, task: Task, method: Facts) -> Self | None:
        """The transformation of a task for a method; None if the method is given the task itself.

        Raises:
            PlanError: the task has no parts that the method could be given.
        """

    @classmethod
    @abstractmethod
    def saved(cls, task: Task, meta: Meta, arrays: Arrays) -> Self | None:
        """The transformation of a model with this state; None if it was fitted to the task."""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, Task]:
        """The tasks in the order in which they are fitted."""

    @abstractmethod
    def doors(self, private: Any) -> Doors:
        """The door to the rows of each part, by that to the rows of the task."""

    def sequence(self, method: AnySynthesizer) -> tuple[str, ...]:
        """The method's sequence: by default that of the last part."""
        return method.sequence(list(self.parts.values())[-1])

    @abstractmethod
    def search(self, method: AnySynthesizer, sequence: tuple[str, ...], budget: Budget) -> AnyPlan:
        """The plan of all parts, which spends the budget; PlanError if there is none."""

    def plans(self, plan: AnyPlan) -> Mapping[str, AnyPlan]:
        """The plan of each part: by default the same."""
        return dict.fromkeys(self.parts, plan)

    def planned(self, plan: AnyPlan) -> Self:  # noqa: ARG002
        """The transformation as its plan chose it: by default the only one that there is."""
        return self

    def before(self, part: str, doors: Doors, plan: AnyPlan, models: Models) -> Self:  # noqa: ARG002
        """The transformation with what is asked of the data before a part is fitted.

        ``models`` are those of the parts before it. By default nothing is asked.
        """
        return self

    def after(self, doors: Doors, plan: AnyPlan, models: Models) -> Self:  # noqa: ARG002
        """The transformation with what is asked of the data when all parts are fitted.

        By default nothing is asked.
        """
        return self

    @abstractmethod
    def model(self, models: Models) -> TransformedModel[Any]:
        """The model of the task, by those of its parts."""


TransformationT = TypeVar("TransformationT", bound=Transformation)


@dataclass(frozen=True)
class TransformedModel(ABC, Generic[TransformationT]):
    """The model of a task by the ``models`` of the parts of a transformation."""

    transformation: TransformationT
    models: Models

    @property
    @abstractmethod
    def sampler(self) -> Sampler:
        """The sampler of the task's rows."""

    @property
    def capacity(self) -> int | None:
        """None: models of released statistics give any number of rows."""
        return None

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows that satisfy every hard constraint.

        SampleError if they cannot be drawn.
        """
        return self.sampler.sample(rows, rng, where)


class Transformed(AnySynthesizer):
    """A method of one table that takes any task of one table.

    The first of ``kinds`` that a task is in need of makes its parts, to which the later kinds are
    applied, and then the method.
    """

    def __init__(self, method: AnySynthesizer, kinds: Sequence[type[Transformation]]) -> None:
        self._method, self._kinds = method, tuple(kinds)
        self.name, self.summary = method.name, method.summary
        for fact in get_annotations(Facts):
            setattr(self, fact, getattr(method, fact))

    def following(self, earlier: AnyModel) -> AnySynthesizer:
        """The method with the noisy numbers of an earlier model; InputError if it uses none."""
        if not isinstance(self._method, ReusesNumbers):
            raise InputError(f"method '{self.name}' does not use a previous release")
        while isinstance(earlier, TransformedModel):
            earlier = next(iter(earlier.models.values()))
        return Transformed(self._method.following(earlier), self._kinds)

    def own_guarantees(
        self, event: Event, delta: Fraction, relation: Relation | str
    ) -> OwnGuarantees:
        """Those of the method."""
        return self._method.own_guarantees(event, delta, relation)

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The method's sequence of the part that is fitted last."""
        transformation, rest = self._first(lambda kind: kind.of(task, self._method))
        return transformation.sequence(rest) if transformation else self._method.sequence(task)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> AnyPlan:
        """The plan of all parts under one budget, or the method's plan.

        Its forecast holds the time that drawing rows one after the other takes.
        """
        transformation, rest = self._first(lambda kind: kind.of(task, self._method))
        if transformation:
            return transformation.search(rest, sequence, budget)
        choice = choose_sampling(task, self.samplings)
        plan = self._method.search(task, sequence, budget)
        seconds = plan.forecast.seconds + seconds_in_turn(task, choice)
        return replace(plan, forecast=replace(plan.forecast, seconds=round(seconds, 1)))

    def train(self, private: Any, task: Task, plan: AnyPlan) -> Any:
        """The models of all parts one after the other; each through the door to its rows."""
        transformation, rest = self._first(lambda kind: kind.of(task, self._method))
        if not transformation:
            return self._method.train(private, task, plan)
        transformation = transformation.planned(plan)
        doors, plans, models = (
            transformation.doors(private),
            transformation.plans(plan),
            dict[str, Any](),
        )
        for part in transformation.parts:
            transformation = transformation.before(part, doors, plan, models)
            models[part] = rest.train(doors[part], transformation.parts[part], plans[part])
        return transformation.after(doors, plan, models).model(models)

    def weigh(self, private: Any, task: Task, plan: AnyPlan, model: Any) -> Any:
        """The model with the soft constraints of all parts weighed."""
        if not isinstance(model, TransformedModel):
            return self._method.weigh(private, task, plan, model)
        transformation = model.transformation
        doors, plans = transformation.doors(private), transformation.plans(plan)
        models = {
            part: self.weigh(doors[part], transformation.parts[part], plans[part], fitted)
            for part, fitted in model.models.items()
        }
        return replace(model, models=models)

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> Any:
        """A model from its saved state; that of an earlier version may have no parts."""
        transformation, rest = self._first(lambda kind: kind.saved(task, meta, arrays))
        if not transformation:
            return self._method.restore(replace(task, persons=None), meta, arrays)
        states = {part: _state_of_part(part, meta, arrays) for part in transformation.parts}
        return transformation.model(
            {
                part: rest.restore(transformation.parts[part], *state)
                for part, state in states.items()
            }
        )

    def _first(
        self, make: Callable[[type[Transformation]], Transformation | None]
    ) -> tuple[Transformation | None, Transformed]:
        """The first transformation, if there is one, and the method for its parts."""
        for number, kind in enumerate(self._kinds, start=1):
            if transformation := make(kind):
                return transformation, Transformed(self._method, self._kinds[number:])
        return None, self


def _state_of_part(part: str, meta: Meta, arrays: Arrays) -> tuple[Meta, Arrays]:
    """What the state of a model holds of a part: all of it, where that is the only one."""
    if part not in meta:
        return meta, arrays
    return meta[part]["state"], part_of_arrays(arrays, part)
