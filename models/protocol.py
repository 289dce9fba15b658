"""What every synthesizer is: plan from public inputs, fit through the door, sample for free.

The steps are those of Kamino's Algorithm 1, and each paper implements them in its own way:
``sequence`` and ``search`` make the plan and cost nothing; ``train`` and ``weigh`` query the data,
only through the door; ``Model.sample`` is post-processing.

A method is three types that belong together: the :class:`Parameters` of its plans, its
:class:`Model`, and the :class:`Synthesizer` that makes the one and fits the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from cloister.constraints import DenialConstraint
from cloister.privacy.events import Composed, Event
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import TableRows
from cloister.schema.database import Database, Schema
from cloister.schema.domain import Domain, Table

Arrays = Mapping[str, NDArray[Any]]
ModelState = tuple[dict[str, Any], dict[str, NDArray[np.generic]]]
Where = Mapping[str, object]
Progress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Progress, steps done of a total, that is not shown."""


@dataclass(frozen=True)
class Task:
    """The public inputs of a synthesis: columns, constraints, sizes, neighbouring relation.

    ``data_rows`` is the declared number of rows of the data, ``wanted_rows`` that of the output
    where another one is wanted; neither is the true number of rows, which stays behind the door.
    """

    domain: Domain
    constraints: tuple[DenialConstraint, ...]
    data_rows: int
    neighbours: Neighbours
    wanted_rows: int | None = None

    @property
    def output_rows(self) -> int:
        """How many rows to release: as many as the data has, unless another number is wanted."""
        return self.data_rows if self.wanted_rows is None else self.wanted_rows

    @property
    def hard(self) -> tuple[DenialConstraint, ...]:
        """The constraints that no row may violate."""
        return tuple(constraint for constraint in self.constraints if constraint.hard)

    @property
    def soft(self) -> tuple[DenialConstraint, ...]:
        """The constraints whose violation rate is to be kept.

        Constraints on keys are left out, since keys are numbered afresh.
        """
        return tuple(
            c for c in self.constraints if not c.hard and not any(map(self._is_key, c.attributes))
        )

    def _is_key(self, name: str) -> bool:
        return self.domain[name].kind == "key"


@dataclass(frozen=True)
class DatabaseTask:
    """The public inputs of a synthesis of several tables that refer to each other.

    ``neighbours`` are of the privacy unit, one row of the first table; those of each task bound the
    rows of its table that a unit has.
    """

    schema: Schema
    tables: Mapping[str, Task]
    neighbours: Neighbours

    @property
    def constraints(self) -> tuple[DenialConstraint, ...]:
        """The constraints of all tables, each on rows of its own."""
        return tuple(rule for task in self.tables.values() for rule in task.constraints)

    @property
    def data_rows(self) -> int:
        """The declared number of privacy units: rows of the first table."""
        return next(iter(self.tables.values())).data_rows

    @property
    def output_rows(self) -> int:
        """How many rows of the first table are to be released."""
        return next(iter(self.tables.values())).output_rows


@dataclass(frozen=True)
class Budget:
    """A privacy budget, exact."""

    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True)
class Stage:
    """One step of a plan that queries the data, with what it spends."""

    name: str
    event: Event
    explanation: str


@dataclass(frozen=True)
class Forecast:
    """What a fit will need: wall seconds on two cores and bytes of memory; orders of magnitude."""

    seconds: float
    memory: int


@dataclass(frozen=True)
class Parameters:
    """Base of the parameters of a method's plans: frozen dataclasses, exact as JSON.

    Fractions are written as text.
    """

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        fields: dict[str, Any] = TypeAdapter(type(self)).dump_python(self, mode="json")
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The parameters that :meth:`to_json` wrote; ValueError if they are not."""
        return TypeAdapter(cls).validate_python(dict(fields))


ParametersT = TypeVar("ParametersT", bound=Parameters)
ModelT = TypeVar("ModelT", bound="Model")
DatabaseModelT = TypeVar("DatabaseModelT", bound="DatabaseModel")


@dataclass(frozen=True)
class Plan(Generic[ParametersT]):
    """What a fit will do: made of public inputs only; costs nothing."""

    method: str
    sequence: tuple[str, ...]
    stages: tuple[Stage, ...]
    parameters: ParametersT
    forecast: Forecast

    @property
    def event(self) -> Event:
        """Everything the fit will spend."""
        return Composed(tuple((stage.event, 1) for stage in self.stages))


class Sampler(Protocol):
    """Draws rows in chunks, so that memory stays flat and an interrupted draw can be resumed."""

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        ...

    @property
    def remembers(self) -> bool:
        """Whether a chunk depends on those before it."""
        ...

    def chunks(
        self,
        rows: int,
        rng: SamplingSource,
        where: Where | None = None,
        first: int = 0,
        before: Iterable[Table] = (),
    ) -> Iterator[Table]:
        """The chunks from number ``first`` on, given those ``before``.

        SampleError if they cannot be drawn.
        """
        ...


class Model(Protocol):
    """A fitted synthesizer: released statistics only, so that sampling is post-processing."""

    @property
    def sampler(self) -> Sampler:
        """The sampler of its rows."""
        ...

    @property
    def capacity(self) -> int | None:
        """How many rows it may ever give; None if any number."""
        ...

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        ...

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows that satisfy every hard constraint.

        ``where`` gives some columns a value that all rows then have. SampleError if the rows cannot
        be drawn.
        """
        ...

    def state(self) -> ModelState:
        """The model as JSON and arrays; :meth:`Synthesizer.restore` reads them."""
        ...


class DatabaseModel(Protocol):
    """A fitted synthesizer of several tables: released statistics only."""

    @property
    def capacity(self) -> int | None:
        """How many rows of the first table it may ever give; None if any number."""
        ...

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        ...

    def sample(self, rows: int, rng: SamplingSource) -> Database:
        """Tables with exactly ``rows`` rows in the first, whose keys and hard constraints hold.

        SampleError if they cannot be drawn.
        """
        ...

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The model as JSON and arrays, to be given to :meth:`DatabaseSynthesizer.restore`."""
        ...


class DatabaseDoor(Protocol):
    """The way to the sensitive rows of several tables, whose answers compose."""

    def table(self, name: str) -> Door[TableRows]:
        """The door to one table."""
        ...


class Synthesizer(Protocol[ParametersT, ModelT]):
    """A method of synthesis of one table.

    A method with nothing to weigh inherits :meth:`weigh` from this class.
    """

    name: str
    summary: str
    of_database: bool = False

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The order in which attributes are modelled; public."""
        ...

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan[ParametersT]:
        """The parameters that fit the budget; public. PlanError if none does."""
        ...

    def train(self, private: Door[TableRows], task: Task, plan: Plan[ParametersT]) -> ModelT:
        """The model of rows."""
        ...

    def weigh(
        self,
        private: Door[TableRows],  # noqa: ARG002
        task: Task,  # noqa: ARG002
        plan: Plan[ParametersT],  # noqa: ARG002
        model: ModelT,
    ) -> ModelT:
        """The model with weights of its soft constraints.

        By default the model as it is, without a query.
        """
        return model

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> ModelT:
        """A model from its saved state."""
        ...


class DatabaseSynthesizer(Protocol[ParametersT, DatabaseModelT]):
    """A method of synthesis of several tables; the steps are those of :class:`Synthesizer`."""

    name: str
    summary: str
    of_database: bool = True

    def sequence(self, task: DatabaseTask) -> tuple[str, ...]:
        """The order in which tables are modelled; public."""
        ...

    def search(
        self, task: DatabaseTask, sequence: tuple[str, ...], budget: Budget
    ) -> Plan[ParametersT]:
        """The parameters that fit the budget; public. PlanError if none does."""
        ...

    def train(
        self, private: DatabaseDoor, task: DatabaseTask, plan: Plan[ParametersT]
    ) -> DatabaseModelT:
        """The model of rows."""
        ...

    def weigh(
        self,
        private: DatabaseDoor,  # noqa: ARG002 - see Synthesizer
        task: DatabaseTask,  # noqa: ARG002
        plan: Plan[ParametersT],  # noqa: ARG002
        model: DatabaseModelT,
    ) -> DatabaseModelT:
        """The model with its soft constraints weighed; by default as it is."""
        return model

    def restore(
        self, task: DatabaseTask, meta: Mapping[str, Any], arrays: Arrays
    ) -> DatabaseModelT:
        """A model from its saved state."""
        ...


AnyPlan = Plan[Any]
AnyTask = Task | DatabaseTask
AnyModel = Model | DatabaseModel


class AnySynthesizer(Protocol):
    """A method of one table or of several, as the registry knows it."""

    name: str
    summary: str
    of_database: bool

    def sequence(self, task: Any) -> tuple[str, ...]:
        """See :class:`Synthesizer`."""
        ...

    def search(self, task: Any, sequence: tuple[str, ...], budget: Budget) -> AnyPlan:
        """See :class:`Synthesizer`."""
        ...

    def train(self, private: Any, task: Any, plan: AnyPlan) -> Any:
        """See :class:`Synthesizer`."""
        ...

    def weigh(self, private: Any, task: Any, plan: AnyPlan, model: Any) -> Any:
        """See :class:`Synthesizer`."""
        ...

    def restore(self, task: Any, meta: Mapping[str, Any], arrays: Arrays) -> Any:
        """See :class:`Synthesizer`."""
        ...


def sample_whole(
    sampler: Sampler, rows: int, rng: SamplingSource, where: Where | None = None
) -> Table:
    """Exactly ``rows`` rows in one table; SampleError if they cannot be drawn."""
    return Table.concatenate(list(sampler.chunks(rows, rng, where)))


def make_plan(synthesizer: AnySynthesizer, task: AnyTask, budget: Budget) -> AnyPlan:
    """The whole plan of a synthesizer."""
    return synthesizer.search(task, synthesizer.sequence(task), budget)


def fit(
    synthesizer: Synthesizer[ParametersT, ModelT],
    private: Door[TableRows],
    task: Task,
    chosen: Plan[ParametersT],
) -> ModelT:
    """Train and weigh: the only steps that query the data."""
    return synthesizer.weigh(private, task, chosen, synthesizer.train(private, task, chosen))
