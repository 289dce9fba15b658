"""What every synthesizer is: plan from public inputs, fit through the door, sample for free.

The steps are those of Kamino's Algorithm 1, and each paper implements them in its own way:
``sequence`` and ``search`` make the plan and cost nothing; ``train`` and ``weigh`` query the data,
only through the door; ``Model.sample`` is post-processing.

A method is three types that belong together: the :class:`~cloister.models.task.Parameters` of its
plans, its :class:`Model`, and the :class:`Synthesizer` that makes the one and fits the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.task import AnyPlan, AnyTask, Budget, DatabaseTask, ParametersT, Plan, Task
from cloister.privacy.certificate.certificate import OwnGuarantees
from cloister.privacy.events import Event, Relation
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.attributes import Declared
from cloister.schema.declarations import DIFFERENTIAL_PRIVACY, Sampling
from cloister.schema.domain import Table
from cloister.schema.relations import Database

if TYPE_CHECKING:
    from cloister.models.sampling.drawing import Sampler, Where

Arrays = Mapping[str, NDArray[Any]]
ModelState = tuple[dict[str, Any], dict[str, NDArray[np.generic]]]
Progress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Progress, steps done of a total, that is not shown."""


ModelT = TypeVar("ModelT", bound="Model")
DatabaseModelT = TypeVar("DatabaseModelT", bound="DatabaseModel")


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

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The released histograms of attributes that are drawn row by row, if it has any."""
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


@runtime_checkable
class HasBinaryColumns(Protocol):
    """A model that can also give its attributes as binary columns, not made records."""

    @property
    def binary_sampler(self) -> Sampler:
        """The sampler of the binary columns, in which no constraint holds."""
        ...


class DatabaseModel(Protocol):
    """A fitted synthesizer of several tables: released statistics only."""

    @property
    def capacity(self) -> int | None:
        """How many rows of the first table it may ever give; None if any number."""
        ...

    @property
    def histograms(self) -> Mapping[str, Mapping[str, Histogram]]:
        """The released histograms of the rows of each table, if it has any."""
        ...

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        """The samplers of tables whose rows are drawn without those of others."""
        ...

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        ...

    def sample(self, rows: int, rng: SamplingSource) -> Database:
        """Tables with exactly ``rows`` rows in the first, whose keys and hard constraints hold.

        SampleError if they cannot be drawn.
        """
        ...

    def state(self) -> ModelState:
        """The model as JSON and arrays, to be given to :meth:`DatabaseSynthesizer.restore`."""
        ...


class DatabaseDoor(Protocol):
    """The way to the sensitive rows of several tables, whose answers compose."""

    def table(self, name: str) -> Door[TableRows]:
        """The door to one table."""
        ...


class Facts(Protocol):
    """What is known of a method before it is asked anything.

    ``options`` is the model of its options in a spec, if it has any. One that
    ``supports_conditionals`` draws the rest of a row under some of its attributes: its models are
    :class:`cloister.models.constrained.ConstrainedModel`. ``guarantees`` are what it may
    release records under. One that ``weighs_soft`` does something about
    soft constraints; ``samplings`` are its ways to draw rows under them, the usual one first. One
    ``as_printed`` is given no other columns than the table's. Models of one that has
    ``binary_columns`` are `HasBinaryColumns`. A method chooses no joint table of more than
    ``most_joint`` columns to learn from, if there is such a bound. Models of one that
    ``keeps_counts`` hold the noisy counts of their fit, by which questions have intervals.
    """

    name: str
    summary: str
    options: type[Declared] | None = None
    of_database: bool = False
    supports_conditionals: bool = False
    guarantees: tuple[str, ...] = (DIFFERENTIAL_PRIVACY,)
    reuses_numbers: bool = False
    keeps_counts: bool = False
    weighs_soft: bool = False
    samplings: tuple[Sampling, ...] = ("supports",)
    as_printed: bool = False
    binary_columns: bool = False
    most_joint: int | None = None

    def own_guarantees(
        self,
        event: Event,  # noqa: ARG002
        delta: Fraction,  # noqa: ARG002
        relation: Relation | str,  # noqa: ARG002
    ) -> OwnGuarantees:
        """What certificates say of all that a release does, at ``delta``, beside its epsilon.

        By default nothing.
        """
        return OwnGuarantees()


class Synthesizer(Facts, Protocol[ParametersT, ModelT]):
    """A method of synthesis of one table.

    A method with nothing to weigh inherits :meth:`weigh` from this class.
    """

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


@runtime_checkable
class ReusesNumbers(Protocol):
    """A method whose fits can use the noisy numbers of an earlier model of the same columns."""

    def following(self, earlier: AnyModel) -> AnySynthesizer:
        """The method, whose fits use the numbers of a model again, which is post-processing.

        InputError if the model holds none.
        """
        ...


@runtime_checkable
class KeepsCounts(Protocol):
    """A model that keeps the noisy counts of single attributes that its fit was told."""

    @property
    def released_counts(self) -> ReleasedCounts | None:
        """The counts; None of a model that was saved without."""
        ...


@dataclass(frozen=True)
class CountedRows:
    """What a fit counted of the rows of a table: rows of ``task``, which ``model`` draws.

    ``released`` are the noisy counts, if they are kept. Where units were counted that have several
    rows, ``number`` is the attribute that is the number of rows of each; ``by_lot`` are those of
    one of its rows, drawn by lot, and ``names`` says which of them is which column of the table.
    """

    model: Model
    task: Task
    released: ReleasedCounts | None
    number: str = ""
    by_lot: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, column: str) -> str:
        """The attribute that is a column of the table."""
        return self.names.get(column, column)

    def columns_of(self, attributes: Iterable[str]) -> tuple[str, ...]:
        """The columns of the table that some attributes are."""
        if not self.names:
            return tuple(attributes)
        columns = {name: column for column, name in self.names.items()}
        return tuple(columns[name] for name in attributes if name in columns)

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The released histograms of attributes."""
        bins = self.released.bins if self.released else {}
        return {**self.model.histograms, **bins}

    def shares_known(self, column: str) -> bool:
        """Whether noisy counts say which share of the rows has which values of a column."""
        if self.released is None:
            return False
        if not self.number:
            return self.name_of(column) in self.released.histograms
        needed = {self.number, self.name_of(column)}
        return any(needed.issubset(table.names) for table in self.released.tables)


@runtime_checkable
class CountsUnits(Protocol):
    """A model of rows whose fit counted units that have several."""

    @property
    def counted_rows(self) -> CountedRows:
        """What it counted."""
        ...


@runtime_checkable
class CountsTables(Protocol):
    """A model of several tables that says what was counted of the rows of each."""

    def counted_rows(self, table: str, task: Task) -> CountedRows | None:
        """What was counted of the rows of a table; None if it has references alone."""
        ...


def counted_tables(model: DatabaseModel, task: DatabaseTask) -> Mapping[str, CountedRows]:
    """What was counted of the rows of each table; none of a model that does not say."""
    if not isinstance(model, CountsTables):
        return {}
    counted = {name: model.counted_rows(name, table) for name, table in task.tables.items()}
    return {name: each for name, each in counted.items() if each is not None}


def counted_rows(model: Model, task: Task) -> CountedRows:
    """What a model counted of the rows of its task."""
    if isinstance(model, CountsUnits):
        return model.counted_rows
    return CountedRows(model, task, counts_of(model))


def counts_of(model: Model) -> ReleasedCounts | None:
    """The noisy counts that a model of one table keeps; None if it keeps none."""
    return model.released_counts if isinstance(model, KeepsCounts) else None


class DatabaseSynthesizer(Facts, Protocol[ParametersT, DatabaseModelT]):
    """A method of synthesis of several tables; the steps are those of :class:`Synthesizer`."""

    of_database: bool = True

    def sequence(self, task: DatabaseTask) -> tuple[str, ...]:
        """The order in which tables are modelled; public. By default parents precede others."""
        return tuple(task.tables)

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


AnyModel = Model | DatabaseModel


class AnySynthesizer(Facts, Protocol):
    """A method of one table or of several, as the registry knows it."""

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


def make_plan(synthesizer: AnySynthesizer, task: AnyTask, budget: Budget) -> AnyPlan:
    """The whole plan of a synthesizer; PlanError if it has none."""
    return synthesizer.search(task, synthesizer.sequence(task), budget)


def fit(
    synthesizer: Synthesizer[ParametersT, ModelT],
    private: Door[TableRows],
    task: Task,
    chosen: Plan[ParametersT],
) -> ModelT:
    """Train and weigh: the only steps that query the data."""
    return synthesizer.weigh(private, task, chosen, synthesizer.train(private, task, chosen))


def json_texts(value: Any) -> Any:
    """JSON values, fractions as text."""
    if isinstance(value, dict):
        return {name: json_texts(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [json_texts(part) for part in value]
    return str(value) if isinstance(value, Fraction) else value


def plans_json(plans: Mapping[str, AnyPlan]) -> dict[str, Any]:
    """The plans of tables as JSON values."""
    return {
        name: {"sequence": list(plan.sequence), "parameters": plan.parameters.to_json()}
        for name, plan in plans.items()
    }


def part_of_arrays(arrays: Arrays, name: str) -> Arrays:
    """The arrays under ``name/``, named without it."""
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)
    }
